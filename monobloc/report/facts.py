"""Facts of an image as one dictionary: sizes, plan, layers, weights, decisions. No clocks in it, so
that the same build gives the same report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monobloc import __version__
from monobloc.cache import file_digest
from monobloc.codegen.excess import keep_precision
from monobloc.codegen.lower import Lowered
from monobloc.codegen.place import place
from monobloc.codegen.unit import scratch_bytes
from monobloc.codegen.versions import lower_all
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import upper
from monobloc.ir.text import copy_graph
from monobloc.link import memory
from monobloc.link.image import Image
from monobloc.link.objects import Module, context, read_module
from monobloc.object import ar, elf, fat
from monobloc.options import Options
from monobloc.passes import run_passes
from monobloc.report import boxes, changes, llvm

FORMAT = 2


def of_image(image: Image, emit: str, o: Options, tool: str, notes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Everything about a finished link."""
    programs, origins = programs_of(image, o)
    data = ar.map_file(image.path)
    given = {m.prefix: m.graph for m in image.given or image.modules}
    models = [{**of_program(p), **_changes(p, given, image)} for p in programs]
    found = boxes.boxes(data, image.trace, programs)
    remarks = image.trace.remarks if image.trace and o.remarks and o.lto != "none" else None
    return {
        "report": FORMAT,
        "monobloc": __version__,
        "toolchain": tool,
        "image": image.path.name,
        "bytes": len(data),
        "sha256": file_digest(image.path),
        "emit": emit,
        "target": o.target.name,
        "cpu": o.target.cpu,
        "features": list(o.target.features),
        "options": options_facts(o),
        **_bytes(data, found),
        "llvm": None if remarks is None else llvm.told(remarks, found.trace, found.owners),
        "ram": memory.ram_of(programs),
        "ram_by_region": {name or "ram": n for name, n in memory.ram_by_region(programs).items()},
        "flash": len(data),
        "merged": changes.merged(programs, given),
        "models": [{**m, "origin": Path(x).name, "notes": list(notes.get(x, ()))}
                   for m, x in zip(models, origins, strict=True)],
    }


def _changes(p: Lowered, given: Mapping[str, Graph], image: Image) -> dict[str, Any]:
    """What of a model is not in the image, what was joined, and who reads its ports."""
    prefix = p.interface.prefix
    outputs, inputs = image.live.removed.get(prefix, []), image.live.unread.get(prefix, [])
    told: dict[str, Any] = {"removed_outputs": outputs, "removed_inputs": inputs,
                            "readers": {k: list(v) for k, v in image.live.readers.get(prefix, {}).items()}}
    return told | (fate(given[prefix], p, outputs, inputs) if prefix in given else {})


def fate(given: Graph, p: Lowered, outputs: Sequence[str] = (), inputs: Sequence[str] = ()) -> dict[str, Any]:
    """What was removed on the way from a graph to its program, and what fused."""
    told = changes.Fate(given, p, outputs, inputs)
    return {"removed": told.removed(), "fused": told.fused()}


def programs_of(image: Image, o: Options) -> tuple[list[Lowered], list[str]]:
    """What an image was made from; made again where the link had no need to."""
    if image.programs:
        return image.programs, [m.origin for m in image.modules]
    modules = list(image.modules) or modules_of(image.path)
    stage = "image" if o.graph_lto else "object"  # whose code it is that was linked
    programs = [program_of(m, o, stage) for m in modules]
    return memory.share(programs, o) if o.graph_lto else programs, [m.origin for m in modules]


def program_of(m: Module, o: Options, stage: str = "image") -> Lowered:
    return lower_all(map(copy_graph, m.graphs), context(o, stage), m.prefix, m.title)


@dataclass(frozen=True)
class Estimate:
    """What a build would need, known without writing a line of C"""

    arena: int
    bound: int
    weights: int
    layers: int


def estimate(g: Graph, o: Options) -> Estimate:
    """Passes and plan of a graph, which is changed on the way."""
    ctx = context(o, "image")
    run_passes(g, ctx, check=False)
    keep_precision(g, ctx)
    p = place(g, ctx, scratch_bytes(g, ctx.target, ctx.threads))
    weights = {v.const.key: v.type.bytes for part in g.tree() for v in part.constants() if v.const is not None}
    layers = [n for n in p.steps() if n not in p.views and any(v.type.size for v in n.outputs)]
    return Estimate(p.arena, p.bound, sum(weights.values()), len(layers))


def modules_of(path: Path) -> list[Module]:
    """The graphs of an object or archive."""
    data = ar.map_file(path)
    return [read_module(x) for x in fat.read(path)] if ar.is_archive(data) or fat.is_monobloc(data) else []


def of_objects(paths: Sequence[Path], o: Options) -> dict[str, Any]:
    """Facts of objects: what a link of them alone would plan."""
    path = paths[0]
    return of_image(Image(path), "object", o, "", {})


def options_facts(o: Options) -> dict[str, Any]:
    names = ("lto", "graph_lto", "optimize", "numerics", "threads", "debug", "ram", "flash")
    return {n: getattr(o, n) for n in names}


def of_bytes(data: memoryview, programs: Sequence[Lowered] = ()) -> dict[str, Any]:
    """Where every byte of a file goes, by owner, kind and section: of one of whose link nothing is known."""
    return _bytes(data, boxes.boxes(data, None, programs))


def _bytes(data: memoryview, found: boxes.Boxes) -> dict[str, Any]:
    named = [{"name": r["symbol"], "bytes": r["bytes"], "section": r["section"],
              **({"also": r["also"]} if "also" in r else {})} for r in (*found.rows, *found.memory) if r.get("symbol")]
    return {"sections": of_sections(data), "totals": boxes.totals(found.rows), "boxes": found.rows,
            "memory": found.memory, "symbols": sorted(named, key=lambda s: (-s["bytes"], s["name"]))}


# -- files --------------------------------------------------------------------------------------------
def of_sections(data: memoryview) -> list[dict[str, Any]]:
    """Sections of an ELF file; none of an archive."""
    if not elf.is_elf(data):
        return []
    return [{"name": s.name, "bytes": s.size, "address": s.addr, "flags": _section_flags(s),
             "in_file": s.type != elf.SHT_NOBITS}
            for s in elf.sections(data) if s.type and s.name]


def _section_flags(s: elf.Section) -> str:
    bits = ((elf.SHF_ALLOC, "A"), (elf.SHF_WRITE, "W"), (elf.SHF_EXECINSTR, "X"), (elf.SHF_EXCLUDE, "E"))
    return "".join(c for bit, c in bits if s.flags & bit)


# -- programs -----------------------------------------------------------------------------------------
def of_program(low: Lowered) -> dict[str, Any]:
    """One model: interface, memory over time, layers, weights, reasons."""
    p, unit = low.placement, low.unit
    work = [n for n in p.steps() if n not in p.views]
    part = {name: k for k, names in enumerate(unit.layers) for name in names}
    return {
        "prefix": low.interface.prefix,
        "title": low.interface.title,
        "inputs": [_port(x) for x in low.interface.inputs],
        "outputs": [_port(x) for x in low.interface.outputs],
        "sizes": {d.name: str(d) for d in low.interface.sizes.dims},
        "arena": low.interface.arena,
        "arena_bound": p.bound,
        "order_optimal": p.order_optimal,
        "banks": [{"name": b.name, "start": b.start, "bytes": b.bytes, "region": b.region.name if b.region else None,
                   "shared": low.interface.shared and b.shareable} for b in low.interface.banks],
        "stack_bound": low.interface.stack_bound,
        "weights": low.weights_bytes,
        "steps": [n.name for n in p.order],
        "buffers": [_buffer(*b) for b in p.buffers],
        "scratch": [{"node": n.name, "offset": at} for n, at in p.scratch.items()],
        "layers": [{**_layer(n), "part": part.get(n.name)} for n in work],
        "views": [n.name for n in p.steps() if n in p.views],
        "constants": [_weight(s, v) for s, v in low.weights.items()],
        "decisions": [{"node": n, "pass": by, "reason": why} for n, by, why in dict.fromkeys(low.context.why)],
        "passes": [{"pass": name, "changed": changed} for name, _, changed in low.context.times],
    }


def _port(x: Any) -> dict[str, Any]:
    return {"name": x.name, "type": str(x.type), "offset": x.offset, "bytes": x.bytes}


def _buffer(v: Value, offset: int, first: int, last: int) -> dict[str, Any]:
    return {"name": v.name, "type": str(v.type), "offset": offset, "bytes": upper(v.type.bytes), "first": first,
            "last": last, "node": v.producer.name if v.producer is not None else None}


def _layer(n: Node) -> dict[str, Any]:
    inner = n.body.nodes if n.body is not None else [n]
    return {"name": n.name, "ops": [m.op for m in inner], "types": [str(v.type) for v in n.outputs],
            "kernel": n.attrs.get("kernel"), "from": list(n.locs),
            "weights": [v.name for v in n.used if v.const is not None]}


def _weight(symbol: str, v: Value) -> dict[str, Any]:
    return {"symbol": symbol, "name": v.name, "type": str(v.type), "bytes": v.type.bytes,
            "nodes": [n.name for n in v.users]}
