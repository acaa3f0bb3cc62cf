"""The symbols of a model's header: what an application may name of it, and what leads to them all."""

from __future__ import annotations

from monobloc.codegen.names import mangle
from monobloc.codegen.sizes import getter, setter
from monobloc.link.objects import Module
from monobloc.ops.sized import sizes_of

TABLE = "monobloc_model"  # the one symbol that is no single model's
CORE = ("run", "run_at", "reset", "reset_at", "set_threads", "stop", "strerror", "ram_size")


def input_accessors(m: Module, name: str) -> tuple[str, str]:
    """The functions an application may write an input by."""
    return _accessors(m, "in", name)


def output_accessors(m: Module, name: str) -> tuple[str, ...]:
    """The functions an application may read an output by."""
    stem, there = _accessors(m, "out", name)
    data = any(n == name and sizes_of(v) is not None for n, v in m.graph.outputs)
    return (stem, there, f"{stem}_dims", f"{stem}_dims_at") if m.graph.dims or data else (stem, there)


def _accessors(m: Module, kind: str, name: str) -> tuple[str, str]:
    stem = f"{m.prefix}_{kind}_{mangle(name)}"
    return (stem, f"{stem}_at")


def tables(m: Module) -> tuple[str, str]:
    """What leads to all ports of a model."""
    return (TABLE, f"mb_info_{m.prefix}")


def symbols(m: Module) -> list[str]:
    """All that are the model's alone; a part stands for its whole model."""
    if m.part is None:
        ins, outs = [v.origin or v.name for v in m.graph.inputs], [n for n, _ in m.graph.outputs]
    else:
        ins, outs = list(m.part.all_inputs), list(m.part.all_outputs)
    out = [f"{m.prefix}_{s}" for s in CORE]
    out += [f"{name(m.prefix, d)}{at}" for d in m.graph.dims for name in (setter, getter) for at in ("", "_at")]
    out += [s for n in ins for s in input_accessors(m, n)]
    out += [s for n in outs for s in output_accessors(m, n)]
    return [*out, f"mb_info_{m.prefix}"]
