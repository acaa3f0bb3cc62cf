"""An exported program, whichever way it comes: a .pt2 file, its bytes, or the object itself; and in core ATen.

Operators that a reader knows are kept whole (a linear layer, an LSTM, attention); PyTorch writes all others as
operators of core ATen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from monobloc.errors import ModelError
from monobloc.frontend.torch.archive import load, quietly

PRODUCER = f"PyTorch {torch.__version__}"
OPSETS = {"aten": int(torch._C._get_max_operator_version())}


@dataclass(frozen=True)
class Program:
    """`exported` is torch's ExportedProgram; `dim_names` are the user's own names of its symbols"""

    exported: Any
    name: str = "model"
    path: Path | None = None
    notes: tuple[str, ...] = ()
    dim_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def signature(self) -> Any:
        return self.exported.graph_signature

    @cached_property
    def core(self) -> Any:
        """In core ATen but for what readers know, without assignments: what changes is in its signature"""
        from monobloc.frontend.torch.families import READERS

        return core(self, READERS)

    def user_inputs(self) -> list[Any]:
        """Placeholders of all that the caller gives, in order: tensors, numbers, and what the export holds fixed"""
        names = {s.arg.name for s in self.signature.input_specs if s.kind.name == "USER_INPUT"}
        return [n for n in self.exported.graph.nodes if n.op == "placeholder" and n.name in names]

    def outputs(self) -> Sequence[Any]:
        return next(n for n in reversed(self.exported.graph.nodes) if n.op == "output").args[0]  # type: ignore[no-any-return]

    def output_names(self) -> list[str]:
        """By the structure that the module returns: keys and fields keep their names"""
        spec = self.exported.call_spec.out_spec
        count = spec.num_leaves
        if count == 1 and spec.is_leaf():
            return ["output"]
        leaves, _ = torch.utils._pytree.tree_flatten_with_path(
            torch.utils._pytree.tree_unflatten(list(range(count)), spec))
        names = ["_".join(_key(k) for k in path) for path, _ in leaves]
        return _distinct([f"output_{n}" if n[:1].isdigit() else n or "output" for n in names])


def _key(entry: Any) -> str:
    """The key, field or number by which a structure holds something"""
    return str(next((v for v in (getattr(entry, a, None) for a in ("key", "name", "idx")) if v is not None), entry))


def _distinct(names: Iterable[str]) -> list[str]:
    out: list[str] = []
    for name in names:
        k, fresh = 0, name
        while fresh in out:
            k += 1
            fresh = f"{name}.{k}"
        out.append(fresh)
    return out


def read_program(model: Any) -> Program:
    if isinstance(model, Program):
        return model
    if isinstance(model, torch.export.ExportedProgram):
        return Program(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Program(load(None, bytes(model)))
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return Program(load(path, None), path.name, path)
    raise ModelError(f"cannot read {type(model).__name__} as a PyTorch program")


def export(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None,
           dynamic_shapes: Any = None) -> Program:
    """A module as a program, as it computes in evaluation"""
    notes = []
    if any(m.training for m in module.modules()):
        notes.append("the module is in training mode, and is compiled as in evaluation (`module.eval()`)")
    with _in_evaluation(module), quietly(), torch.no_grad():
        try:
            found = torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
        except Exception as e:
            lines = [x for x in str(e).strip().splitlines() if x.strip()]
            raise ModelError(f"`torch.export.export` fails: {type(e).__name__}: {(lines or [''])[0][:300]}",
                             notes=lines[1:6]) from e
    return Program(found, type(module).__name__, None, tuple(notes), _dim_names(found, dynamic_shapes))


@contextmanager
def _in_evaluation(module: Any) -> Any:
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


def _dim_names(exported: Any, dynamic_shapes: Any) -> dict[str, str]:
    """{symbol: what `torch.export.Dim` calls it}"""
    if dynamic_shapes is None:
        return {}
    tree = torch.utils._pytree
    given = list(dynamic_shapes.values()) if isinstance(dynamic_shapes, dict) else list(dynamic_shapes)
    inputs = [n.meta["val"] for n in Program(exported).user_inputs()]
    specs = tree.tree_leaves(given, is_leaf=_is_shape)
    out: dict[str, str] = {}
    for val, spec in zip(inputs, specs, strict=False):
        axes = spec.items() if isinstance(spec, dict) else enumerate(spec or ())
        for axis, dim in axes:
            name = getattr(dim, "__name__", "")
            if name and isinstance(val, torch.Tensor) and axis < val.dim():
                out.setdefault(str(val.shape[axis]), name)
    return {k: v for k, v in out.items() if k.isidentifier() and v.isidentifier()}


def _is_shape(x: Any) -> bool:
    """Whether a part of `dynamic_shapes` says the shape of one tensor"""
    if x is None:
        return True
    parts = list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, (tuple, list)) else [None, 0.0]
    if isinstance(x, dict) and not all(isinstance(k, int) for k in x):
        return False
    return all(p is None or isinstance(p, int) or hasattr(p, "__name__") or "DimHint" in type(p).__name__
               for p in parts)


def _forget_ranges_of_sums(exported: Any) -> None:
    """Of a size that is a sum of others (a mask as long as what was and what is new) a program read from a file has a
    range beside those of symbols, at which PyTorch 2.13 stops; it follows from theirs."""
    values = (n.meta.get("val") for n in exported.graph.nodes)
    modes = [getattr(v, "fake_mode", None) for v in values if isinstance(v, torch.Tensor)]
    known = [m.shape_env.var_to_range for m in modes if m is not None and m.shape_env is not None]
    for ranges in {id(r): r for r in known}.values():
        for size in [s for s in ranges if not s.is_Symbol]:
            del ranges[size]


def core(program: Program, kept: Iterable[str]) -> Any:
    """The program in core ATen, but for the operators that are kept as they are"""
    table = torch.export.default_decompositions()
    for name in kept:
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        found = getattr(packet, overload or "default", None) if packet is not None else None
        if found is not None and found in table:
            table.pop(found)
    _forget_ranges_of_sums(program.exported)
    with quietly():
        try:
            return program.exported.run_decompositions(table)
        except Exception as e:
            first = (str(e).strip().splitlines() or [""])[0][:300]
            raise ModelError(f"PyTorch cannot write the program as core ATen: {type(e).__name__}: {first}") from e
