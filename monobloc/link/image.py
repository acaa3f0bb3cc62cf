"""Stage 2: Objects become an Image.

    read every graph -> optimize and place each program -> C per partition -> bitcode or native objects
    (parallel, cached) -> weights as one native object -> LLVM LTO and lld -> image

The objects' own code is not linked: what runs is compiled from the graphs. `--graph-lto off` is the
exception: it links the objects as they are, with or without LLVM's LTO.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from monobloc.codegen.lower import Lowered
from monobloc.link import final, flash, foreign, image_cache, live, memory, merge, promise
from monobloc.link.bind import Fixed
from monobloc.link.devirtualize import assume
from monobloc.link.final import Linked, Whole
from monobloc.link.live import Liveness
from monobloc.link.objects import Module, model_files
from monobloc.link.program import check_prefixes
from monobloc.link.program import programs as merge_programs
from monobloc.link.request import Request
from monobloc.link.trace import Trace
from monobloc.object.toolchain import Compiled
from monobloc.passes import dump_to


@dataclass(frozen=True)
class Partitions:
    """How many files the programs' code was in, and how many had to be compiled."""

    count: int = 0
    compiled: int = 0


@dataclass
class Image:
    """A finished link: where it is and what it was made from (for reports)."""

    path: Path
    programs: list[Lowered] = field(default_factory=list)
    cached: bool = False
    modules: tuple[Module, ...] = ()
    live: Liveness = field(default_factory=Liveness)  # what the application decided
    trace: Trace | None = None  # what it consists of, and what refers to what
    given: tuple[Module, ...] = ()  # the modules before anything was removed
    partitions: Partitions = Partitions()

    @property
    def removed(self) -> dict[str, list[str]]:
        """Outputs that nobody reads, by prefix."""
        return self.live.removed


def link_modules(modules: Sequence[Module], r: Request) -> Image:
    """Stage 2; an unchanged program comes out of the cache."""
    r = _decided(r)
    given, kept, told = _programs(modules, r)
    k = image_cache.request_key(kept, r)
    if (known := image_cache.find(k, r)) is not None:
        _set_mode(r)
        return Image(r.out, cached=True, modules=kept, live=told, trace=known, given=given)
    whole = _planned(kept, r)
    promise.check_ram(kept if whole.programs else (), whole.programs, told)
    parts, made = _linked(whole, r)
    _set_mode(r)
    image_cache.keep(k, r, made.trace)
    programs = [p.bounded(made.bounds) for p in whole.programs]
    counted = Partitions(len(parts), sum(not p.cached for p in parts))
    return Image(made.path, programs, False, kept, told, made.trace, given, counted)


# -- the steps ----------------------------------------------------------------------------------------
def _decided(r: Request) -> Request:
    """What objects and application decide of the options."""
    o = r.o
    if r.emit == "exe":
        o, why = assume(o, r.user, r.libs, r.libdirs, lambda: r.libc)
        if why:
            r.progress(f"virtual calls stay: {why}")
    if not o.graph_lto:  # the code in the objects has decided that already
        o = replace(o, threads=max([o.threads, *(int(x.summary.get("threads", 1)) for x in r.objects)]))
    return replace(r, o=o)


def _programs(
    modules: Sequence[Module], r: Request
) -> tuple[tuple[Module, ...], tuple[Module, ...], Liveness]:
    """One module per program: as given, without what the application does not need, and what that was."""
    given, told = tuple(modules), Liveness()
    kept = given
    if r.o.graph_lto:
        given = tuple(merge_programs(modules, r.o.connect, r.o.name or "", Fixed.of(r.o)))
        found, told = live.needed(given, r)
        kept = tuple(found)
    check_prefixes(kept)
    return given, kept, told


def _planned(modules: Sequence[Module], r: Request) -> Whole:
    """All graphs optimized and placed, as C."""
    prefixes = tuple(m.prefix for m in modules)
    if not r.o.graph_lto:
        return Whole(prefixes, ())
    optimized = [_lowered(m, r) for m in modules]
    return Whole(prefixes, memory.share(merge.share_weights(optimized, r.o.profile), r.o))


def _lowered(m: Module, r: Request) -> Lowered:
    r.progress(f"optimizing {m.title}")
    dump = dump_to(r.o.dump / m.prefix) if r.o.dump else None
    low = r.lowerings.of(m, r.o, dump)
    if r.o.dump:
        for name, text in {**model_files(low), f"{m.prefix}.h": low.header, f"{m.prefix}.mb": low.unit.listing}.items():
            (r.o.dump / m.prefix / name).write_text(text, encoding="utf-8")
    return low


def _linked(whole: Whole, r: Request) -> tuple[list[Compiled], Linked]:
    """Partitions compiled and everything linked, within the budgets."""
    parts: list[Compiled] = []

    def attempt(sections: Mapping[str, str]) -> Linked:
        memory.check_plan(whole.programs, sections, r.o)
        with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp, foreign.explained(r.o):
            parts[:] = parts or final.compile_partitions(whole.programs, Path(compiled), r)
            return final.link(whole, parts, sections, Path(tmp), r)

    with tempfile.TemporaryDirectory(prefix="monobloc-") as compiled:
        made = flash.within_flash(whole.programs, r.o, attempt)
    return parts, made


def _set_mode(r: Request) -> None:
    if r.emit in ("exe", "shared"):
        r.out.chmod(0o755)
