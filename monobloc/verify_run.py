"""Is it right? Outputs of an image beside an oracle's, as largest absolute, relative and ulp error.

An element passes when |got - want| <= atol + rtol * |want|. `used` is the largest share of that which
any element took: over 1 is a failure. NaN equals NaN, infinity itself.

Where nobody names a tolerance, two right implementations must pass. Sums round by their terms, so that an element
near zero among large ones is off by theirs: `atol` grows with the largest element. And a model may amplify what
rounding does (`amplification`): what the oracle itself makes of inputs that differ in their last bit is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from monobloc.errors import ModelError, UnsupportedError
from monobloc.ir.graph import Graph
from monobloc.ir.specialize import for_shapes
from monobloc.ir.types import DType
from monobloc.loader import flattened, gathered

INSTALL = "pip install 'monobloc[verify]'"
# (rtol, atol) by element type: what two right implementations differ by over a deep model
TOLERANCE = {DType.F64: (1e-6, 1e-8), DType.F32: (1e-3, 1e-4), DType.F16: (2e-2, 5e-3), DType.BF16: (1e-1, 4e-2)}
ROUNDING = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
ULPS_OF_LARGEST = 32  # of an output, that its smallest elements may be off
NUDGES, SHARE_OF_NUDGE = 3, 4  # trials, and how much larger the rounding of all layers may be than that of inputs
_ORDINAL = {2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(frozen=True)
class Difference:
    """One output beside the oracle's"""

    name: str
    type: str
    abs: float
    rel: float
    ulp: float
    used: float  # of the tolerance
    at: tuple[int, ...]  # the element that used most
    got: float
    want: float
    problem: str = ""  # shapes or types that differ
    amplified: float = 0.0  # what the oracle's own answer changes by when inputs change by their last bit

    @property
    def ok(self) -> bool:
        return not self.problem and (self.used <= 1 or self.is_rounding)

    @property
    def is_rounding(self) -> bool:
        """Beyond the tolerance, but no more than rounding does to this model"""
        return self.used > 1 and self.abs <= SHARE_OF_NUDGE * self.amplified


def compare(name: str, got: np.ndarray, want: np.ndarray, rtol: float | None = None,
            atol: float | None = None) -> Difference:
    """Integers and booleans must be equal unless a tolerance is given."""
    kind = f"{got.dtype}{list(got.shape)}"
    if got.shape != want.shape or got.dtype != want.dtype:
        problem = f"is {kind}, the oracle has {want.dtype}{list(want.shape)}"
        return Difference(name, kind, np.inf, np.inf, np.inf, np.inf, (), np.nan, np.nan, problem)
    if got.dtype == object:  # strings
        differ = float(np.sum(got != want))
        return Difference(name, kind, differ, differ, differ, np.inf if differ else 0, (), 0, 0)
    if not got.size:
        return Difference(name, kind, 0, 0, 0, 0, (), 0, 0)
    base_r, base_a = TOLERANCE.get(DType.of(got.dtype), (0.0, 0.0))
    g, w = got.astype(np.float64), want.astype(np.float64)
    d = _whole_distance(got, want) if got.dtype.kind in "iub" else _distance(g, w)
    allowed = (_atol(w, got.dtype, base_a) if atol is None else atol) + (base_r if rtol is None else rtol) * np.abs(w)
    with np.errstate(all="ignore"):
        share = np.where(d == 0, 0.0, np.where(np.isfinite(allowed), d / np.nan_to_num(allowed), np.inf))
        rel = np.where(d == 0, 0.0, d / np.abs(w))
    worst = np.unravel_index(int(np.argmax(share)), got.shape)
    return Difference(name, kind, float(d.max()), float(_finite_max(rel)), _ulp(got, want), float(share.max()),
                      tuple(map(int, worst)), float(got[worst]), float(want[worst]))


def _atol(want: np.ndarray, dtype: np.dtype[Any], base: float) -> float:
    largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
    return base + ULPS_OF_LARGEST * ROUNDING.get(DType.of(dtype), 0.0) * largest


def _whole_distance(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Of integers, exact: 64 bits do not fit into a float, nor differences into 64 bits."""
    d, where = np.zeros(got.shape), got != want
    d[where] = [float(abs(int(a) - int(b))) for a, b in zip(got[where], want[where], strict=True)]
    return d


def _distance(g: np.ndarray, w: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        d = np.abs(g - w)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    return np.where(same, 0.0, np.where(np.isnan(d), np.inf, d))


def _finite_max(x: np.ndarray) -> float:
    """Relative to zero there is no error: such elements count by their absolute one."""
    finite = x[np.isfinite(x)]
    return float(finite.max()) if finite.size else 0.0


def _ulp(got: np.ndarray, want: np.ndarray) -> float:
    """Floats between the two, by their order as integers."""
    if DType.of(got.dtype) not in TOLERANCE:
        return float(np.max(got != want))
    a, b = (_ordinal(x) for x in (got, want))
    nan = np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64))
    d = np.abs(a - b)
    return float(np.where(nan[0] & nan[1], 0.0, np.where(nan[0] != nan[1], np.inf, d)).max())


def _ordinal(x: np.ndarray) -> np.ndarray:
    i = np.ascontiguousarray(x).view(_ORDINAL[x.dtype.itemsize]).astype(np.int64)
    low = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(i < 0, low - i, i).astype(np.float64 if x.dtype.itemsize == 8 else np.int64)


def compare_all(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], rtol: float | None,
                atol: float | None) -> list[Difference]:
    """Every output both sides have; ours that the oracle lacks is an error."""
    missing = [n for n in got if n not in want]
    if missing:
        raise ModelError(f"nothing to compare output `{missing[0]}` with", notes=[f"there are: {', '.join(want)}"])
    return [compare(n, y, want[n], rtol, atol) for n, y in got.items()]


Oracle = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def with_amplification(found: Sequence[Difference], feeds: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray],
                       oracle: Oracle) -> list[Difference]:
    """Differences, and for those beyond the tolerance what rounding alone does to the model."""
    if all(d.ok for d in found) or not any(DType.of(x.dtype) in ROUNDING for x in feeds.values()):
        return list(found)
    changed = dict.fromkeys(want, 0.0)
    for seed in range(NUDGES):
        nudged = oracle(_nudged(feeds, np.random.default_rng(seed)))
        for name, w in want.items():
            if w.dtype != object and nudged[name].shape == w.shape:  # strings and sizes have no last bit
                d = _distance(nudged[name].astype(np.float64), w.astype(np.float64))
                changed[name] = max(changed[name], float(_finite_max(d)))
    return [replace(d, amplified=changed.get(d.name, 0.0)) if not d.ok and not d.problem else d for d in found]


def _nudged(feeds: Mapping[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Every float of the inputs one step of its last bit up or down"""
    out = dict(feeds)
    for name, x in feeds.items():
        step = ROUNDING.get(DType.of(x.dtype))
        if step is not None:
            sign = rng.choice((-step, step), x.shape)
            out[name] = np.asarray(x.astype(np.float64) * (1 + sign)).astype(x.dtype)
    return out


# -- oracles ------------------------------------------------------------------------------------------
def has_onnxruntime() -> bool:
    from importlib.util import find_spec

    return find_spec("onnxruntime") is not None


def ort_session(model: Path | bytes, threads: int = 1, fused: bool = True) -> Any:
    """A session on the CPU, or the model's own nodes one by one; UnsupportedError when it refuses the model."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise ModelError("onnxruntime is not installed", hints=[INSTALL]) from None
    so = ort.SessionOptions()
    so.intra_op_num_threads, so.inter_op_num_threads, so.log_severity_level = threads, 1, 4
    if not fused:
        so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(str(model) if isinstance(model, Path) else model, so,
                                    providers=["CPUExecutionProvider"])
    except Exception as e:
        raise UnsupportedError(f"onnxruntime refuses the model: {str(e).strip().splitlines()[0][:300]}",
                               hints=["`--against reference` compares with our own reference"]) from None


def oracle_session(model: Path, names: Sequence[str] = ()) -> Any:
    """A session that says what is right, of the model's outputs or of these values; bench asks a fused one instead."""
    return ort_session(with_outputs(model, names) if names else model, fused=not quantizes(model))


def _unzipped(got: Any) -> Any:
    """What ZipMap makes of a tensor [rows, labels], a list of maps, as that tensor again"""
    if isinstance(got, list) and got and all(isinstance(row, dict) for row in got):
        return np.array([list(row.values()) for row in got], np.float32)
    return got


def quantizes(model: Path) -> bool:
    """Whether a model rounds inside: what onnxruntime fuses of such nodes rounds at other places than they do."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    return any(n.op_type == "QuantizeLinear" for n in graph.node)


def ort_run(session: Any, feeds: Mapping[str, np.ndarray], bind: Mapping[str, np.ndarray] | None = None,
            names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    wanted = list(names or [o.name for o in session.get_outputs()])
    known = {i.name: i.type for i in session.get_inputs()}
    given = {**_bound(bind or {}, session), **feeds}
    lists = {k: gathered(k, given) for k, kind in known.items() if kind.startswith("seq(") and f"{k}[0]" in given}
    given = {k: v.astype(str).astype(object) if v.dtype.kind == "S" else v for k, v in given.items()}
    all_feeds = {k: v for k, v in {**given, **lists}.items() if k in known}
    try:
        return flattened(dict(zip(wanted, map(_unzipped, session.run(wanted, all_feeds)), strict=True)))
    except Exception as e:
        raise UnsupportedError(f"onnxruntime fails: {str(e).strip().splitlines()[0][:300]}") from None


_ORT_TYPES = {"float": "float32", "double": "float64"}


def _bound(bind: Mapping[str, np.ndarray], session: Any) -> dict[str, np.ndarray]:
    """Bound values in the type the model declares."""
    types = {i.name: (i.type.removeprefix("tensor(").removesuffix(")"), i.shape) for i in session.get_inputs()}
    out = {}
    for name, value in bind.items():
        kind, shape = types.get(name, ("", []))
        array = value.astype(_ORT_TYPES.get(kind, kind)) if kind else value
        out[name] = array.reshape((1,) * len(shape)) if array.ndim == 0 and shape else array
    return out


def reference(graphs: Sequence[Graph], feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By the operators' own numpy references; of several versions, the one that has the feeds' sizes"""
    from monobloc.ir.interp import interpret

    g = for_shapes(graphs, {name: x.shape for name, x in feeds.items()}) or graphs[0]
    starts = {v.origin or v.name: np.zeros(v.shape, v.dtype.numpy) for v in g.inputs if v.state}
    return interpret(g, {**starts, **feeds})


# -- inner values -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Inner:
    """A value of the model and the node that makes it"""

    value: str
    node: str
    op: str


def inner_values(model: Path) -> list[Inner]:
    """Everything the model's own nodes make, in the file's order."""
    import onnx

    g = onnx.load(str(model), load_external_data=False).graph
    return [Inner(v, n.name or f"#{k}", n.op_type) for k, n in enumerate(g.node) for v in n.output if v]


def with_outputs(model: Path, names: Sequence[str]) -> bytes:
    """The model as a file that gives these values too."""
    import onnx
    from onnx import helper

    m = onnx.load(str(model))
    have = {o.name for o in m.graph.output}
    m.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n not in have)
    try:
        return bytes(m.SerializeToString())
    except Exception:
        raise UnsupportedError("the model is too large to ask onnxruntime for inner values",
                               hints=["`--per-layer --against reference` needs no onnxruntime"]) from None
