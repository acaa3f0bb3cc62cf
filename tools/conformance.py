"""ONNX's own conformance suite (`onnx.backend.test`) through the whole compiler.

    python tools/conformance.py [NAME...] [--tier 1] [--only STATUS] [--report docs/conformance.md]

Problem: 1,700 models, each compiled, linked, loaded and run, on a machine with two cores. Idea: cases
go in batches; the models of a batch become one shared library, so that the linker runs once for forty
cases, and equal C comes out of the cache. Every case runs in a forked child: a crash or a hang is a
failure of that case only. Inputs are bound to the case's values only where the compiler asks for it.

Also a backend for other runners: `run(model_path, inputs, model) -> outputs`.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from monobloc.cache import Cache, default_root  # noqa: E402
from monobloc.codegen.lower import lower  # noqa: E402
from monobloc.errors import ErrorList, ModelError, MonoblocError, ToolchainError, UnsupportedError  # noqa: E402
from monobloc.frontend.importer import load_onnx  # noqa: E402
from monobloc.frontend.importing import Choices  # noqa: E402
from monobloc.ir.graph import Graph  # noqa: E402
from monobloc.ir.text import copy_graph  # noqa: E402
from monobloc.link.image import link_modules  # noqa: E402
from monobloc.link.objects import Module, context  # noqa: E402
from monobloc.link.request import Request  # noqa: E402
from monobloc.loader import CompiledModel, flattened, gathered  # noqa: E402
from monobloc.options import Options  # noqa: E402

SAMPLE = Path(__file__).resolve().parents[1] / "tests" / "conformance" / "sample.txt"
BATCH = 40
LIMIT_S = 60
PASS, UNSUPPORTED, DIFFERS = "pass", "unsupported", "differs"
GOOD = (PASS, UNSUPPORTED, DIFFERS)
STATUSES = (*GOOD, "mismatch", "refused", "internal", "toolchain", "crash", "timeout")



@dataclass(frozen=True)
class Different:
    """Why a case's expected values are not ours, and what is expected instead."""

    why: str
    values: tuple[float, ...] | None = None  # onnxruntime's
    rtol: float = 1e-3
    atol: float = 1e-7
    nearer: bool = False  # than ONNX's values to the same model in double precision, in the mean and at worst


_RESIZE = "takes the size before it is rounded; onnxruntime, and we, the size that the output has"
_HALF = "rounds to half precision after every step; we keep single precision where it is free, which is nearer"
DIFFERENT = {
    "node/test_resize_downsample_scales_linear_align_corners": Different(_RESIZE, (1, 4)),
    "node/test_resize_downsample_scales_cubic_align_corners": Different(
        _RESIZE, (1, 2.5, 4, 7, 8.5, 10, 13, 14.5, 16)
    ),
    **{
        f"node/test_dft_inverse{form}": Different("expects single precision's noise where the sum is 0", atol=1e-6)
        for form in ("", "_opset19")
    },
    **{
        f"node/test_attention_{name}{form}": Different(_HALF, nearer=True)
        for name in (
            "4d_causal_fp16", "4d_gqa_with_past_and_present_fp16", "3d_causal_bf16", "4d_attn_mask_causal_bf16",
            "4d_causal_bf16", "4d_causal_padded_kv_bf16", "4d_padded_kv_bf16",
        )
        for form in ("", "_expanded")
    },  # fmt: skip
}


# -- the cases ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """One case: a model with inputs and expected outputs, by name."""

    name: str  # kind/test_name
    model: onnx.ModelProto
    sets: tuple[tuple[dict[str, Any], dict[str, Any]], ...]
    rtol: float = 1e-3
    atol: float = 1e-7
    features: frozenset[str] = frozenset()
    unexpanded: onnx.ModelProto | None = None  # where the case must be evaluated in double

    @property
    def tier(self) -> int:
        """0: what every tensor compiler should do; 1: more types, control flow, shapes from data; 2: the rest"""
        return 2 if self.features & _TIER2 else 1 if self.features & _TIER1 else 0

    @property
    def ops(self) -> set[str]:
        return {(n.domain + "::" if n.domain else "") + n.op_type for n in _nodes(self.model.graph)}


_TIER1 = {"f16", "f64", "control flow", "shape from data"}
_TIER2 = {"training", "sequence", "string", "optional", "image", "ml", "random", "small type", "map"}
_OP_FEATURES = {
    "If": "control flow", "Loop": "control flow", "Scan": "control flow", "NonZero": "shape from data",
    "Unique": "shape from data", "Compress": "shape from data", "NonMaxSuppression": "shape from data",
    "Bernoulli": "random", "RandomNormal": "random", "RandomUniform": "random", "RandomNormalLike": "random",
    "RandomUniformLike": "random", "Multinomial": "random", "ImageDecoder": "image",
}
_INTEGERS = {getattr(TensorProto, f"{u}INT{n}") for u in ("", "U") for n in (8, 16, 32, 64)}
_PLAIN = {TensorProto.FLOAT, TensorProto.BOOL, *_INTEGERS}
_TYPE_FEATURES = {TensorProto.FLOAT16: "f16", TensorProto.DOUBLE: "f64", TensorProto.STRING: "string"}


def _nodes(g: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for n in g.node:
        yield n
        for a in n.attribute:
            for s in ([a.g] if a.HasField("g") else list(a.graphs)):
                yield from _nodes(s)


def features(m: onnx.ModelProto) -> frozenset[str]:
    """What of a model an ahead-of-time tensor compiler may reasonably leave out."""
    out: set[str] = set()
    types: set[int] = {i.data_type for i in m.graph.initializer}
    for n in _nodes(m.graph):
        out.add(_OP_FEATURES.get(n.op_type, ""))
        if n.op_type == "Dropout" and len(n.input) == 3:
            out.add("training")
        out |= {"ml"} if n.domain == "ai.onnx.ml" else {"training"} if "training" in n.domain else set()
        out |= {k.lower() for k in ("Sequence", "Optional") if k in n.op_type}
        types |= {a.t.data_type for a in n.attribute if a.type == onnx.AttributeProto.TENSOR}
    for v in (*m.graph.input, *m.graph.output):
        _type_features(v.type, out, types)
    out |= {_TYPE_FEATURES.get(t, "small type") for t in types - _PLAIN - {0, TensorProto.COMPLEX64}}
    if any(o.domain.startswith("ai.onnx.preview") for o in m.opset_import):
        out.add("training")
    return frozenset(out - {""})


def _type_features(t: onnx.TypeProto, out: set[str], types: set[int]) -> None:
    kind = t.WhichOneof("value")
    if kind == "sequence_type":
        out.add("sequence")
        _type_features(t.sequence_type.elem_type, out, types)
    elif kind == "optional_type":
        out.add("optional")
        _type_features(t.optional_type.elem_type, out, types)
    elif kind == "map_type":
        out.add("map")
    elif kind == "tensor_type":
        types.add(t.tensor_type.elem_type)


def load_cases() -> list[Case]:
    """Every case that comes with the `onnx` package, in order of names."""
    cases = {c.name: c for c in sorted([*_node_cases(), *_file_cases()], key=lambda c: c.name)}
    for name, d in DIFFERENT.items():
        if d.nearer:
            cases[name] = replace(cases[name], unexpanded=cases[name.removesuffix("_expanded")].model)
    return list(cases.values())


def _node_cases() -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for t in tests:
        sets = []
        for ins, outs in t.data_sets:
            named_in = {v.name: _array(x) for v, x in zip(t.model.graph.input, ins, strict=False) if x is not None}
            named_out = {v.name: _array(x) for v, x in zip(t.model.graph.output, outs, strict=False) if x is not None}
            sets.append((named_in, named_out))
        yield Case(f"node/{t.name}", t.model, tuple(sets), t.rtol, t.atol, features(t.model))


def _array(x: Any) -> Any:
    if isinstance(x, TensorProto):
        return numpy_helper.to_array(x)
    return x if isinstance(x, (list, dict)) else np.asarray(x)


def _file_cases() -> Iterator[Case]:
    from onnx.backend.test.loader import DATA_DIR

    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for path in sorted(Path(DATA_DIR, kind).glob("*/model.onnx")):
            m = onnx.load(path)
            sets = tuple((_files(d, "input", m.graph.input), _files(d, "output", m.graph.output))
                         for d in sorted(path.parent.glob("test_data_set_*")))
            meta = path.parent / "data.json"
            tol = json.loads(meta.read_text()) if meta.is_file() else {}
            yield Case(f"{kind}/{path.parent.name}", m, sets, tol.get("rtol", 1e-3), tol.get("atol", 1e-7), features(m))


def _files(folder: Path, side: str, values: Sequence[onnx.ValueInfoProto]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for k, v in enumerate(values):
        p = folder / f"{side}_{k}.pb"
        if p.is_file() and v.type.HasField("tensor_type"):
            out[v.name] = numpy_helper.to_array(TensorProto.FromString(p.read_bytes()))
        elif p.is_file() and v.type.HasField("sequence_type"):
            out[v.name] = numpy_helper.to_list(onnx.SequenceProto.FromString(p.read_bytes()))
        elif p.is_file() and v.type.HasField("optional_type"):
            out[v.name] = numpy_helper.to_optional(onnx.OptionalProto.FromString(p.read_bytes()))
    return out


# -- import -------------------------------------------------------------------------------------------
def errors_of(e: MonoblocError) -> list[MonoblocError]:
    return e.errors if isinstance(e, ErrorList) else [e]


def import_case(model: Any, feeds: dict[str, Any]) -> tuple[Graph, frozenset[str]]:
    """The graph for these inputs, and the names of those that had to be bound because the compiler asked."""
    arrays = {k: np.asarray(v) for k, v in flattened(feeds).items() if not isinstance(v, dict)}
    nothing = {k: () for k, v in feeds.items() if isinstance(v, list) and not v}
    nothing |= {f"{v.name}[none]": () for v in optionals(model) if feeds.get(v.name) is None}
    bound: frozenset[str] = frozenset()
    most: dict[str, tuple[int, ...]] = {}  # of inputs that decide sizes
    while True:
        shapes = {k: a.shape for k, a in arrays.items() if k not in bound} | nothing
        try:
            chosen = Choices(shapes=shapes, bind={k: arrays[k] for k in bound}, max_values=most)
            return load_onnx(model, chosen).graph, bound
        except MonoblocError as e:
            hints = [h for x in errors_of(e) if isinstance(x, UnsupportedError) for h in x.hints]
            sizes = {m for h in hints for m in re.findall(r"--max-value ([^\s=]+)=", h)} & arrays.keys()
            if sizes - most.keys():
                most |= {k: tuple(int(np.ceil(abs(x))) for x in np.ravel(arrays[k])) for k in sizes if arrays[k].size}
                continue
            wanted = {m for h in hints for m in re.findall(r"--bind ([^\s=]+)=", h)} & arrays.keys()
            if wanted <= bound:
                raise
            bound |= wanted


def optionals(model: Any) -> list[onnx.ValueInfoProto]:
    m = model if isinstance(model, onnx.ModelProto) else onnx.load(model, load_external_data=False)
    return [v for v in m.graph.input if v.type.HasField("optional_type")]


def check(got: Any, want: Any, c: Case) -> None:
    """ONNX's own rule."""
    want = np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        raise AssertionError(f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}")
    if want.dtype.kind in "biuO":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=c.rtol, atol=c.atol)


# -- batches ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Result:
    """How a case went; `bound` inputs were given at compile time."""

    name: str
    status: str
    why: str = ""
    bound: tuple[str, ...] = ()
    node: bool = True  # a refusal names the node


@dataclass
class _Job:
    """One data set of one case on its way."""

    case: Case
    feeds: dict[str, Any]
    want: dict[str, Any]
    graph: Graph
    prefix: str
    bound: frozenset[str] = field(default_factory=frozenset)

    @property
    def module(self) -> Module:
        return Module(self.graph, self.prefix, self.prefix, self.case.name)


def run_batch(cases: Sequence[Case], o: Options, cache: Cache | None) -> list[Result]:
    """Import, lower and link all cases together; run each alone."""
    bad: dict[str, Result] = {}
    jobs: list[_Job] = []
    for k, c in enumerate(cases):
        made = _guarded(c, lambda c=c, k=k: _lowered(c, k, o), bad)  # type: ignore[misc]
        jobs += made or []
    bounds = {j.case.name: tuple(sorted(j.bound)) for j in jobs}
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        _link_and_run(jobs, Path(tmp), o, cache, bad)
    return [replace(bad.get(c.name, Result(c.name, PASS)), bound=bounds.get(c.name, ())) for c in cases]


def _lowered(c: Case, k: int, o: Options) -> list[_Job]:
    """Every data set of a case as a job; a trial lowering finds what would stop the others."""
    out = []
    for s, (feeds, want) in enumerate(c.sets):
        graph, bound = import_case(c.model, feeds)
        prefix = f"c{k:03}_{s}"
        lower(copy_graph(graph), context(o, "image"), prefix, prefix)
        out.append(_Job(c, feeds, want, graph, prefix, bound))
    return out


def _guarded(c: Case, work: Callable[[], Any], bad: dict[str, Result]) -> Any:
    """`work()`, or its failure in `bad`."""
    try:
        with _alarm(LIMIT_S), np.errstate(all="ignore"):
            return work()
    except Exception as e:  # noqa: BLE001 - whatever it is, it belongs in the report
        bad[c.name] = _failure(c, e)
        return None


class _Differs(Exception):
    """Not what the case expects, but what we say in `DIFFERENT`."""


class _alarm:  # noqa: N801 - reads as a statement
    """TimeoutError after so many seconds."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def ring(*_: object) -> None:
            raise TimeoutError(f"{self.seconds} s")

        signal.signal(signal.SIGALRM, ring)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)


def _failure(c: Case, e: Exception) -> Result:
    text = " ".join(str(e).split())[:300]
    if isinstance(e, AssertionError) and traceback.extract_tb(e.__traceback__)[-1].filename.find("monobloc/") < 0:
        return Result(c.name, "mismatch", text)
    if isinstance(e, _Differs):
        return Result(c.name, DIFFERS, text)
    if isinstance(e, TimeoutError):
        return Result(c.name, "timeout", text)
    if isinstance(e, ToolchainError):
        return Result(c.name, "toolchain", " ".join(str(e).split())[:1500])
    if isinstance(e, MonoblocError) and all(isinstance(x, UnsupportedError) for x in errors_of(e)):
        return Result(c.name, UNSUPPORTED, text, node=all(x.loc is not None and x.loc.op for x in errors_of(e)))
    if isinstance(e, MonoblocError) and any(isinstance(x, ModelError) for x in errors_of(e)):
        return Result(c.name, "refused", text)
    at = traceback.extract_tb(e.__traceback__)[-1]
    return Result(c.name, "internal", f"{type(e).__name__}: {text} ({Path(at.filename).name}:{at.lineno})")


def _link_and_run(jobs: list[_Job], folder: Path, o: Options, cache: Cache | None, bad: dict[str, Result]) -> None:
    """One library; when it cannot be built, halves, down to the case that is to blame."""
    if not jobs:
        return
    out = folder / f"{jobs[0].prefix}-{len(jobs)}.so"
    try:
        link_modules([j.module for j in jobs], Request(out, "shared", o, cache))
    except Exception as e:  # noqa: BLE001
        if len(jobs) == 1:
            bad.setdefault(jobs[0].case.name, _failure(jobs[0].case, e))
            return
        half = len(jobs) // 2
        _link_and_run(jobs[:half], folder, o, cache, bad)
        _link_and_run(jobs[half:], folder, o, cache, bad)
        return
    for k, j in enumerate(jobs):
        if j.case.name not in bad and (r := _in_child(j, out, k)) is not None:
            bad[j.case.name] = r


def _in_child(j: _Job, library: Path, index: int) -> Result | None:
    """Run and compare in a forked process; None when it passes."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        bad: dict[str, Result] = {}
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        try:
            _compare(j, CompiledModel(library, index))
        except Exception as e:  # noqa: BLE001
            bad[j.case.name] = _failure(j.case, e)
        r = bad.get(j.case.name)
        os.write(writer, json.dumps([r.status, r.why] if r else [PASS, ""]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as f:
        text = f.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == -signal.SIGALRM:
        return Result(j.case.name, "timeout", f"the compiled model runs for {LIMIT_S} s")
    if status or not text:
        return Result(j.case.name, "crash", f"the compiled model ends with {status}")
    kind, why = json.loads(text)
    return None if kind == PASS else Result(j.case.name, "crash" if kind == "refused" else kind, why)


def _compare(j: _Job, m: CompiledModel) -> None:
    got = m.run({k: v for k, v in flattened(j.feeds).items() if k not in j.bound and k in {s.name for s in m.inputs}})
    wanted = flattened(j.want)
    if set(wanted) != set(got):
        raise AssertionError(f"outputs {sorted(got)} for {sorted(wanted)}")
    if "random" in j.case.features:  # the numbers are others, their types and shapes are not
        for name, y in wanted.items():
            if (got[name].dtype, got[name].shape) != (y.dtype, y.shape):
                raise AssertionError(f"{got[name].dtype}{list(got[name].shape)} for {y.dtype}{list(y.shape)}")
        return
    try:
        for name, y in wanted.items():
            check(got[name], y, j.case)
    except AssertionError:
        d = DIFFERENT.get(j.case.name)
        if d is None:
            raise
        if d.nearer:
            _check_nearer(j, got)
        for name, y in () if d.nearer else j.want.items():
            want = y if d.values is None else np.reshape(np.asarray(d.values, y.dtype), y.shape)
            check(got[name], want, replace(j.case, rtol=d.rtol, atol=d.atol))
        raise _Differs(d.why) from None


def _check_nearer(j: _Job, got: dict[str, np.ndarray]) -> None:
    """Ours must be as near to an evaluation in double as the case's own values are."""
    for (name, y), exact in zip(j.want.items(), in_double(j.case.unexpanded, j.feeds), strict=True):
        if got[name].dtype != y.dtype or got[name].shape != exact.shape:
            raise AssertionError(f"{got[name].dtype}{list(got[name].shape)} for {y.dtype}{list(exact.shape)}")
        ours, theirs = (np.abs(v.astype(np.float64) - exact) for v in (got[name], y))
        if not (ours.max() <= theirs.max() and ours.mean() <= theirs.mean()):
            raise AssertionError(f"{name} is up to {ours.max():.3g} off, the case's values {theirs.max():.3g}")


def in_double(model: Any, feeds: dict[str, Any]) -> list[np.ndarray]:
    """ONNX's reference on the same numbers, half floats widened."""
    from onnx.reference import ReferenceEvaluator

    wide = onnx.ModelProto.FromString(model.SerializeToString())
    for v in (*wide.graph.input, *wide.graph.output):
        if v.type.tensor_type.elem_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            v.type.tensor_type.elem_type = TensorProto.DOUBLE
    inputs = {k: x.astype(np.float64) if x.dtype.itemsize == 2 else x for k, x in feeds.items()}
    return [np.asarray(y, np.float64) for y in ReferenceEvaluator(wide).run(None, inputs)]


def run_all(
    cases: Sequence[Case], o: Options, cache: Cache | None, workers: int = 2, progress: bool = False
) -> list[Result]:
    """All cases in batches over a few processes, results in the cases' order."""
    batches = [cases[i : i + BATCH] for i in range(0, len(cases), BATCH)]
    out: list[Result] = []
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        for k, results in enumerate(pool.map(run_batch, batches, [o] * len(batches), [cache] * len(batches)), 1):
            out += results
            if progress:
                done = collections.Counter(r.status for r in out)
                print(f"{k}/{len(batches)}", *(f"{s} {n}" for s, n in done.items()), file=sys.stderr, flush=True)
    return out


# -- a backend for other runners ----------------------------------------------------------------------
def run(model_path: str, ins: Sequence[tuple[str, Any]], model: onnx.ModelProto) -> list[Any]:
    """One model, its inputs as (name, array) pairs; outputs in the graph's order."""
    graph, bound = import_case(model_path, dict(ins))
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        out = Path(tmp) / "m.so"
        link_modules([Module(graph, "m", "m", model_path)],
                     Request(out, "shared", Options(lto="none"), default_cache()))
        m = CompiledModel(out)
        got = m.run({k: v for k, v in flattened(dict(ins)).items() if k not in bound})
    return [got[v.name] if v.name in got else gathered(v.name, got) for v in model.graph.output]


def default_cache() -> Cache:
    return Cache(default_root(os.environ).parent / "monobloc-tests")


# -- the sample ---------------------------------------------------------------------------------------
def sample(cases: Sequence[Case]) -> list[Case]:
    """The middle case of every operator, by what a model ends with, up to tier 1 and in tier 2, and every twelfth of
    the larger models."""
    groups: dict[tuple[str, bool], list[Case]] = collections.defaultdict(list)
    for c in cases:
        if "_expanded" not in c.name:
            kind = c.name.split("/")[0]
            groups[c.model.graph.node[-1].op_type if kind == "node" else kind, c.tier == 2].append(c)
    chosen = {c.name for g in groups.values() for c in ([g[len(g) // 2]] if g[0].name.startswith("node") else g[::12])}
    return [c for c in cases if c.name in chosen]


def read_sample(path: Path) -> dict[str, str]:
    """case -> status"""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: status for status, name in lines}


def write_sample(path: Path, results: Sequence[Result]) -> None:
    head = "# status and name of the cases that the tests run; `python tools/conformance.py --sample` writes it\n"
    path.write_text(head + "".join(f"{r.status} {r.name}\n" for r in results), encoding="utf-8")


# -- the report ---------------------------------------------------------------------------------------
def report(cases: Sequence[Case], results: Sequence[Result]) -> str:
    """`docs/conformance.md`: counts per tier, a table per operator, every case that does not pass and why."""
    by_name = {r.name: r for r in results}
    out = [
        "# ONNX conformance", "",
        f"Every case of `onnx.backend.test` (onnx {onnx.__version__}), compiled, linked, loaded and run.",
        "This page is written by `python tools/conformance.py --report docs/conformance.md`.", "",
        "Tier 0 are the cases every tensor compiler should pass; tier 1 adds half and double precision, control flow",
        "and shapes from data; tier 2 adds training, sequences, strings, optionals, images, classical ML, random",
        "numbers and types under 8 bits. The pass rule is ONNX's own: types, shapes, the case's tolerance, exact for",
        "integers. `differs` are cases that miss this rule for a known reason, which stands with each; they are held",
        "to another one: onnxruntime's values, or to be no further from double precision than the case's values.", "",
        "| tier | cases | pass | unsupported | differs | wrong |", "|---|---|---|---|---|---|",
    ]
    tiers = {"0": [c for c in cases if c.tier == 0], "0 and 1": [c for c in cases if c.tier <= 1], "all": list(cases)}
    for name, members in tiers.items():
        n = collections.Counter(by_name[c.name].status for c in members)
        rest = len(members) - sum(n[s] for s in GOOD)
        out.append(f"| {name} | {len(members)} | {n[PASS]} | {n[UNSUPPORTED]} | {n[DIFFERS]} | {rest} |")
    bound = sum(bool(r.bound) for r in results if r.status == PASS)
    given = {c.name: {k for feeds, _ in c.sets for k in feeds} for c in cases}
    folded = sum(given[r.name] <= set(r.bound) for r in results if r.status == PASS)
    out += ["", f"In {bound} of the passing cases inputs are bound when the model is compiled, as the compiler asks:",
            "values that decide a shape, an axis or a branch. Only inputs that are not bound are data to the compiled",
            f"code: {folded} of the passing cases have none (all bound, or a model without inputs), so that they are",
            "computed by the compiler, and say nothing of the code it makes.", ""]
    out += _operators(cases, by_name)
    out += _failures(cases, by_name)
    return "\n".join(out) + "\n"


def _operators(cases: Sequence[Case], by_name: dict[str, Result]) -> list[str]:
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for c in cases:
        for op in c.ops:
            table[op][by_name[c.name].status] += 1
    out = ["## Operators", "", "Cases that hold the operator, and those of them that pass.", ""]
    out += ["| operator | cases | pass |", "|---|---|---|"]
    return out + [f"| {op} | {n.total()} | {n[PASS]} |" for op, n in sorted(table.items())] + [""]


def _failures(cases: Sequence[Case], by_name: dict[str, Result]) -> list[str]:
    out = ["## Cases that do not pass", ""]
    for tier in (0, 1, 2):
        rows = [by_name[c.name] for c in cases if c.tier == tier and by_name[c.name].status != PASS]
        out += [f"### Tier {tier}", "", *(f"* `{r.name}`: {r.status}: {_short(r.why)}" for r in rows), ""]
    out += ["## Cases that pass", ""]
    passing = [c.name.partition("/") for c in cases if by_name[c.name].status == PASS]
    for kind in sorted({k for k, _, _ in passing}):
        names = [n.removeprefix("test_") for k, _, n in passing if k == kind]
        out += [f"### {kind}", "", *(f"* `{n}`" for n in names), ""]
    return out


def _short(why: str) -> str:
    text = re.split(r" (?:note|hint): ", why)[0].replace("|", "\\|")
    return text if len(text) <= 160 else text[:157] + "..."


# -- command line -------------------------------------------------------------------------------------
def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help="cases whose name contains one of these (default: all)")
    p.add_argument("--tier", type=int, default=2, help="up to this tier")
    p.add_argument("--last", type=Path, help="results of an earlier run: read, updated and written")
    p.add_argument("--only", help="of the earlier results, only cases with one of these statuses, by commas")
    p.add_argument("--sample", action="store_true", help=f"run the tests' sample only and write {SAMPLE.name}")
    p.add_argument("--report", type=Path, help="write this page")
    p.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    a = p.parse_args(argv)
    cases = [c for c in load_cases() if c.tier <= a.tier]
    known: dict[str, Result] = {}
    if a.last and a.last.is_file():
        known = {r["name"]: Result(**{**r, "bound": tuple(r["bound"])}) for r in json.loads(a.last.read_text())}
    chosen = [c for c in cases if not a.names or any(n in c.name for n in a.names)]
    if a.sample:
        chosen = sample(cases)
    if a.only:
        chosen = [c for c in chosen if c.name not in known or known[c.name].status in a.only.split(",")]
    start = time.monotonic()
    results = run_all(chosen, Options(lto="none", jobs=1), default_cache(), a.workers, progress=True)
    _tell(results, known, time.monotonic() - start)
    known |= {r.name: r for r in results}
    if a.last:
        a.last.write_text(json.dumps([vars(r) for _, r in sorted(known.items())], indent=0))
    if a.sample:
        write_sample(SAMPLE, results)
    if a.report:
        known_cases = [c for c in cases if c.name in known]
        a.report.write_text(report(known_cases, [known[c.name] for c in known_cases]), encoding="utf-8")
    return int(any(r.status not in GOOD for r in results))


def _tell(results: Sequence[Result], before: dict[str, Result], seconds: float) -> None:
    for r in results:
        if r.status not in GOOD:
            print(f"{r.status:10} {r.name}: {r.why}")
        if r.name in before and before[r.name].status == PASS != r.status:
            print(f"LOST       {r.name}")
    counts = collections.Counter(r.status for r in results)
    print(f"{len(results)} cases in {seconds:.0f} s:", ", ".join(f"{s} {counts[s]}" for s in STATUSES if counts[s]))


if __name__ == "__main__":
    raise SystemExit(main())
