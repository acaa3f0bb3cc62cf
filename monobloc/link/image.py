"""Stage 2: Objects become an Image.

    read every graph -> optimize and place each program -> C per partition -> bitcode or native objects
    (parallel, cached) -> weights as one native object -> LLVM LTO and lld -> image

The objects' own code is not linked: what runs is compiled from the graphs. `--graph-lto off` is the
exception: it links the objects as they are, with or without LLVM's LTO.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from monobloc.cache import Cache, key, tree_digest, write_atomic
from monobloc.codegen.interface import model_table, shared_memory
from monobloc.codegen.lower import Lowered
from monobloc.errors import LinkError
from monobloc.ir.graph import Value
from monobloc.link import foreign, live, memory, merge, promise, remarks, stack, trace
from monobloc.link.bind import Fixed
from monobloc.link.devirtualize import assume
from monobloc.link.live import Liveness
from monobloc.link.lowerings import Lowerings
from monobloc.link.objects import (
    CSRC,
    INCLUDE,
    Module,
    compile_runtime,
    model_files,
    module_key,
    source_jobs,
    trial_link,
)
from monobloc.link.program import check_prefixes
from monobloc.link.program import programs as merge_programs
from monobloc.link.trace import Trace
from monobloc.object import ar, fat, sysroot, toolchain
from monobloc.object.fat import Object, Weight
from monobloc.object.localize import localize
from monobloc.object.lto_cache import lto_folder
from monobloc.object.toolchain import Compiled, CompileJob, LinkJob
from monobloc.options import Emit, Options
from monobloc.passes import dump_to

Progress = Callable[[str], None]


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


def quiet(_: str) -> None:
    """No progress."""


def link_modules(
    modules: Sequence[Module],
    out: Path,
    emit: Emit,
    o: Options,
    cache: Cache | None = None,
    user_inputs: Sequence[Path | str] = (),
    progress: Progress = quiet,
    libs: Sequence[str] = (),
    libdirs: Sequence[Path] = (),
    objects: Sequence[Object] = (),
    lowerings: Lowerings | None = None,
) -> Image:
    """Link; an unchanged program comes out of the cache.

    `objects` are needed for `graph_lto=False` only, which links their code as it is.
    `lowerings` holds what this build has lowered before.
    """
    lowerings = lowerings or Lowerings()
    told, given = Liveness(), tuple(modules)
    if emit == "exe":
        o, why = assume(o, user_inputs, libs, libdirs, lambda: sysroot.libc_for(o.target, cache, progress))
        if why:
            progress(f"virtual calls stay: {why}")
    if o.graph_lto:
        modules = merge_programs(modules, o.connect, o.name or "", Fixed.of(o))
        given = tuple(modules)
        modules, told = live_modules(modules, user_inputs, emit, o, cache, progress, libs, libdirs)
    check_prefixes(modules)
    if not o.graph_lto:  # the code in the objects has decided that already
        o = replace(o, threads=max([o.threads, *(int(x.summary.get("threads", 1)) for x in objects)]))
    unknown = cache is None or user_inputs or libs or o.dump or o.link_args or o.kernels
    k = "" if unknown else image_key(modules, emit, o, libs, () if o.graph_lto else objects)
    if cache is not None and k and (known := _from_cache(cache, k, out, o.map)) is not None:
        _set_mode(out, emit)
        return Image(out, cached=True, modules=tuple(modules), live=told, trace=known, given=given)
    optimized = [_program(m, o, progress, lowerings) for m in modules] if o.graph_lto else []
    programs = memory.share(merge.share_weights(optimized, o.profile), o)
    prefixes = tuple(m.prefix for m in modules)
    promise.check_ram(modules if programs else (), programs, told)
    parts: list[Compiled] = []

    def attempt(sections: Mapping[str, str]) -> tuple[Path, dict[str, int], Trace]:
        memory.check_plan(programs, sections, o)
        with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp, foreign.explained(o):
            parts[:] = parts or compile_partitions(programs, Path(compiled), o, cache, progress)
            return _link(parts, objects, prefixes, programs, sections, Path(tmp), out, emit, o, cache, user_inputs,
                         progress, libs, libdirs)

    with tempfile.TemporaryDirectory(prefix="monobloc-") as compiled:
        made, bounds, traced = memory.within_flash(programs, o, attempt)
    _set_mode(out, emit)
    if cache is not None and k:
        cache.put_file(k, out)
        cache.put(_trace_key(k), traced.packed())
        if o.map is not None and o.map.is_file():
            cache.put_file(_map_key(k), o.map)
        cache.collect()  # a build that added something keeps the cache within its size
    counted = Partitions(len(parts), sum(not p.cached for p in parts))
    return Image(made, [p.bounded(bounds) for p in programs], modules=tuple(modules), live=told, trace=traced,
                 given=given, partitions=counted)


def live_modules(
    modules: Sequence[Module], user: Sequence[Path | str], emit: Emit, o: Options, cache: Cache | None,
    progress: Progress, libs: Sequence[str], libdirs: Sequence[Path],
) -> tuple[list[Module], Liveness]:
    """The modules without what the application does not need, and what that was."""
    names: dict[str, live.Chain] | None = None
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        if o.used_by:
            names = live.used_by(o.used_by, Path(tmp), o)
        if user and emit == "exe":
            progress("finding live outputs")
            libc = sysroot.libc_for(o.target, cache, progress)
            names = (names or {}) | live.probe(modules, user, Path(tmp), o, libc, libs, libdirs)
    if names is None:
        return list(modules), Liveness()
    kept, told = live.keep_live(modules, names)
    for m in modules:
        if dead := told.removed.get(m.prefix):
            progress(f"{m.title}: nobody reads {', '.join(dead)}")
    return kept, told


def _from_cache(cache: Cache, k: str, out: Path, link_map: Path | None) -> Trace | None:
    """The image with its trace, and the linker's map if one is wanted: all or nothing."""
    traced = cache.get(_trace_key(k))
    if traced is None or (link_map is not None and not cache.get_file(_map_key(k), link_map)):
        return None
    return trace.unpacked(traced) if cache.get_file(k, out) else None


def _trace_key(k: str) -> str:
    return key(what="trace", image=k)


def _map_key(k: str) -> str:
    return key(what="map", image=k)


def _set_mode(out: Path, emit: Emit) -> None:
    if emit in ("exe", "shared"):
        out.chmod(0o755)


def image_key(
    modules: Sequence[Module], emit: Emit, o: Options, libs: Sequence[str], objects: Sequence[Object] = ()
) -> str:
    """Everything that decides an image's bytes; `objects` where their own code is linked."""
    return key(
        code=[[bytes(x.code), bytes(x.bitcode)] for x in objects],
        what="image", modules=[module_key(m) for m in modules], emit=emit, tool=toolchain.tool_version(),
        target=[o.target.name, o.target.cpu, *o.target.cflags], lto=o.lto, graph_lto=o.graph_lto,
        optimize=o.optimize, numerics=o.numerics, threads=o.threads, arenas=o.arenas,
        debug=o.debug, profile=o.profile, remarks=o.remarks, libs=list(libs),
        csrc=tree_digest(CSRC), compiler=compiler_digest(), budgets=[o.ram, o.flash],
        regions=[asdict(r) for r in o.regions or o.target.regions], large_over=o.large_over,
    )


@functools.cache
def compiler_digest() -> str:
    """Our own sources decide the output too."""
    root = CSRC.parent
    return key(files=[(p.relative_to(root).as_posix(), p.read_bytes()) for p in sorted(root.rglob("*.py"))])


def _program(m: Module, o: Options, progress: Progress, lowerings: Lowerings) -> Lowered:
    progress(f"optimizing {m.title}")
    dump = dump_to(o.dump / m.prefix) if o.dump else None
    low = lowerings.of(m, o, dump)
    if o.dump:
        for name, text in {**model_files(low), f"{m.prefix}.h": low.header, f"{m.prefix}.mb": low.unit.listing}.items():
            (o.dump / m.prefix / name).write_text(text, encoding="utf-8")
    return low


# -- the link itself ----------------------------------------------------------------------------------
def compile_partitions(
    programs: Sequence[Lowered], folder: Path, o: Options, cache: Cache | None, progress: Progress
) -> list[Compiled]:
    """All files of all programs, those that changed; each is a pure function of its text and the options."""
    progress("compiling")
    large = sum(memoryview(w.data).nbytes for w in weights_of(programs, {}).values()) > o.large_over
    kind: toolchain.Kind = "native" if o.lto == "none" else "bitcode"
    jobs = [j for low in programs for j in source_jobs(low, o, folder, kind, model_files(low), large)]
    parts = toolchain.compile_all(jobs, o.jobs or None, cache)
    if parts:
        progress(f"compiled {sum(not p.cached for p in parts)} of {len(parts)} partitions")
    return parts


def _link(
    parts: Sequence[Compiled], objects: Sequence[Object], prefixes: tuple[str, ...], programs: Sequence[Lowered],
    sections: Mapping[str, str], folder: Path, out: Path, emit: Emit, o: Options,
    cache: Cache | None, user: Sequence[Path | str], progress: Progress, libs: Sequence[str], libdirs: Sequence[Path],
) -> tuple[Path, dict[str, int], Trace]:
    """The image, the stack bound of each model's run, and what the image consists of."""
    code: list[Path | str] = []
    if programs:
        code += [p.out for p in parts]
        code.append(folder / "weights.o")
        weights, names = weights_of(programs, sections), weight_names(programs)
        write_atomic(folder / "weights.o", fat.weights_object(weights, o.target.elf_machine, o.large_over, names,
                                                              merge.inside(weights)))
    else:
        code += _as_they_are(objects, folder, o)
    code += support_files(prefixes, folder, emit, o, cache, bool(user))
    code += _shared_memory(programs, folder, o, cache)
    kernels = foreign.libraries(programs, o, folder, cache, user, libs)
    progress("linking")
    if emit in ("archive", "object"):
        return _relocatable([*code, *kernels.inputs], prefixes, folder, out, emit, o,
                            memory.known(programs, sections), kernels.bounded)
    told = o.remarks and o.lto != "none"  # what comes out of a cache makes no remarks
    job = LinkJob(
        kind="shared" if emit == "shared" else "exe",
        inputs=(*code, *user, *kernels.inputs), out=out, target=o.target, lto=o.lto,
        exports=exports(programs, prefixes) if emit == "shared" and not user else (),  # else visibility says
        entry="_start" if emit == "exe" and not user else "",
        libs=tuple(libs), libdirs=tuple(libdirs),
        libc=sysroot.libc_for(o.target, cache, progress) if emit == "exe" and user else None,
        opt=o.opt, extra=(*stack.LINK_FLAGS, *(stack.LTO_FLAGS if o.lto != "none" else ()),
                              *(remarks.flags(folder) if told else ()), *o.link_args),
        map=o.map or folder / "map",
    )
    bounds: dict[str, int] = {}
    traced = [Trace()]

    def examine(path: Path, link_map: Path | None) -> None:
        used = memory.usage(ar.map_file(path))
        traced[0] = replace(trace.of_file(path, trace.map_text(link_map), user), remarks=remarks.read(folder))
        measure = (bool(programs) or o.lto != "none") and kernels.bounded
        bounds.update(stack.finish(path, prefixes, not o.debug, not (user or kernels.inputs), measure))
        memory.check_image(used, max(bounds.values(), default=0), memory.known(programs, sections), o)

    with lto_folder(cache if o.lto == "thin" and not told else None, prefixes) as known:
        made = toolchain.link(replace(job, thinlto_cache=known), finish=examine).out
    return made, bounds, traced[0]


def _relocatable(
    code: Sequence[Path | str], prefixes: Sequence[str], folder: Path, out: Path, emit: Emit, o: Options,
    known: memory.Known, bounded: bool,
) -> tuple[Path, dict[str, int], Trace]:
    """All code as one native relocatable in which only the interface is global; or an archive of it."""
    extra = (*stack.LTO_FLAGS, *(remarks.flags(folder) if o.remarks else ())) if o.lto != "none" else ()
    job = LinkJob("relocatable", tuple(code), folder / "closed.o", o.target, lto=o.lto, gc=False, opt=o.opt,
                  extra=extra, map=folder / "map")
    data = toolchain.link(job).out.read_bytes()
    data, bounds = stack.with_bounds(data, prefixes if bounded else (), lambda d: trial_link(d, folder, o))
    memory.check_image(memory.usage(data), max(bounds.values(), default=0), known, o)
    closed = localize(data, lambda name: any(name.startswith(p + "_") for p in prefixes))
    traced = Trace(trace.pieces_of(closed, trace.map_text(job.map)), remarks=remarks.read(folder))
    if emit == "object":
        write_atomic(out, [closed])
        return out, bounds, traced
    member = folder / f"{prefixes[0]}.o"
    write_atomic(member, [closed])
    return toolchain.archive([member], out), bounds, traced


def _as_they_are(objects: Sequence[Object], folder: Path, o: Options) -> list[Path]:
    """`--graph-lto off`: native code of the objects, or their bitcode and weights."""
    out = []
    written: set[int] = set()
    for k, obj in enumerate(objects):
        _check_machine(obj, o)
        if o.lto == "none":
            if id(obj.code) not in written:  # `ld -r` leaves several objects in one file
                written.add(id(obj.code))
                out.append(folder / f"object{k}.o")
                write_atomic(out[-1], [obj.code])
            continue
        if not len(obj.bitcode):
            raise LinkError(f"{obj.name} holds no bitcode, which `--graph-lto off` with `--lto {o.lto}` links",
                            hints=["compile it again, or link with `--lto none`"])
        out.append(folder / f"object{k}.bc.a")
        write_atomic(out[-1], [obj.bitcode])
        out.append(folder / f"object{k}.weights.o")
        write_atomic(out[-1], fat.weights_object(obj.weights, o.target.elf_machine, o.large_over))
    whole = ("--whole-archive", "--no-whole-archive")
    return [x for p in out for x in ((whole[0], p, whole[1]) if str(p).endswith(".bc.a") else (p,))]  # type: ignore[misc]


def _check_machine(obj: Object, o: Options) -> None:
    """Code cannot move to another machine; a graph can."""
    made = str(obj.summary.get("target"))
    if made != o.target.name:
        raise LinkError(f"{obj.name} holds code for {made}, this link is for {o.target.name}",
                        hints=[f"pass `--target {made}`, or `--graph-lto on` to compile its graph for {o.target.name}"])


def weights_of(programs: Sequence[Lowered], sections: Mapping[str, str]) -> dict[str, Weight]:
    """All constants of all programs, equal ones once, in the sections of their memory regions."""
    return {v.const.key: Weight(_data(v), section=sections.get(v.const.key, ""))
            for p in programs for v in p.unit.weights.values() if v.const is not None}


def weight_names(programs: Sequence[Lowered]) -> dict[str, list[str]]:
    """What the programs' code calls each constant, by its content."""
    out: dict[str, list[str]] = {}
    for p in programs:
        for symbol, v in p.unit.weights.items():
            assert v.const is not None
            out.setdefault(v.const.key, []).append(symbol)
    return out


def _data(v: Value) -> memoryview:
    assert v.const is not None
    a = np.ascontiguousarray(v.const.array).reshape(-1)
    if a.size == 0:
        a = np.zeros(1, a.dtype)
    return a.view(np.uint8).data.cast("B")


def support_files(
    prefixes: tuple[str, ...], folder: Path, emit: Emit, o: Options, cache: Cache | None, with_user: bool
) -> Sequence[Path | str]:
    """Runtime, model table and `main`, as far as this kind of image needs them."""
    cpu = [s for s in o.target.runtime if s.startswith("cpu_")]
    start = [s for s in o.target.runtime if s.startswith("start_")]
    pool = "pool_clone.c" if emit == "exe" and not with_user else "pool_pthread.c"
    own = [*cpu, *([pool] if o.threads > 1 else [])]
    if emit == "exe" and not with_user:
        own += [*start, "main.c", "measure.c", "npy.c", "tensor.c", "text.c", "mem.c"]
    if emit == "shared":
        own.append("mem.c")
    weak = emit in ("object", "archive")
    out = compile_runtime(o, folder, own, cache, weak=weak)
    if emit not in ("exe", "shared"):
        return out
    job = CompileJob(model_table(prefixes).encode(), folder / "models.o", o.target.baseline(),
                     includes=(INCLUDE,), name="models.c")
    table = [c.out for c in toolchain.compile_all([job], 1, cache)]
    # beside the user's code only if that asks for it: the table leads to everything
    return [*out, "--start-lib", *table, "--end-lib"] if emit == "exe" and with_user else [*out, *table]


def _shared_memory(programs: Sequence[Lowered], folder: Path, o: Options, cache: Cache | None) -> list[Path]:
    """The object that defines what the models' runs share, if they do."""
    sharing = [p.interface for p in programs if p.interface.shared]
    if not sharing:
        return []
    job = CompileJob(shared_memory(sharing).encode(), folder / "memory.o", o.target.baseline(),
                     includes=(INCLUDE,), name="memory.c")
    return [c.out for c in toolchain.compile_all([job], 1, cache)]


def exports(programs: Sequence[Lowered], prefixes: Sequence[str]) -> tuple[str, ...]:
    """The visible symbols of a shared library: the interface, the model table, clocks if there are any."""
    return ("monobloc_model", *(f"{p}_*" for p in prefixes), *(f"mb_{p}_part*_ticks" for p in prefixes))
