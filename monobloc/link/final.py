"""The last step of stage 2: objects, weights and runtime become one file, by LLVM's LTO and lld."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from monobloc.cache import write_atomic
from monobloc.codegen.lower import Lowered
from monobloc.errors import LinkError
from monobloc.link import foreign, memory, remarks, room, stack, trace
from monobloc.link.devirtualize import words_of_the_line
from monobloc.link.finished import finished
from monobloc.link.foreign import Kernels
from monobloc.link.objects import model_files, source_jobs, trial_link
from monobloc.link.request import Request
from monobloc.link.support import WeightsFile, are_large, memory_files, runtime_files, weights_file
from monobloc.link.trace import Trace
from monobloc.object import ar, fat, toolchain
from monobloc.object.fat import Object
from monobloc.object.localize import localize
from monobloc.object.lto_cache import lto_folder
from monobloc.object.toolchain import Compiled, LinkJob
from monobloc.options import Options


@dataclass(frozen=True)
class Whole:
    """All programs of an image, planned and written as C."""

    prefixes: tuple[str, ...]
    programs: Sequence[Lowered]  # none with `--graph-lto off`

    def known(self, sections: Mapping[str, str]) -> memory.Known:
        return memory.known(self.programs, sections)


@dataclass(frozen=True)
class Linked:
    """A file, the stack bound of each model's run by prefix, and what the file consists of."""

    path: Path
    bounds: Mapping[str, int]
    trace: Trace


def compile_partitions(programs: Sequence[Lowered], folder: Path, r: Request) -> list[Compiled]:
    """All files of all programs, those that changed; each is a pure function of its text and the options."""
    r.progress("compiling")
    kind: toolchain.Kind = "native" if r.o.lto == "none" else "bitcode"
    large = are_large(programs, r)
    done = finished(programs, r.o)
    jobs = [j for low in programs for j in source_jobs(r.o, folder, kind, model_files(low), large, done)]
    parts = toolchain.compile_all(jobs, r.o.jobs or None, r.cache)
    if _tells(r.o):
        remarks.of_compiling([j for j in jobs if j.name in done], folder, r.cache)
    if parts:
        r.progress(f"compiled {sum(not p.cached for p in parts)} of {len(parts)} partitions")
    return parts


def link(
    whole: Whole, parts: Sequence[Compiled], sections: Mapping[str, str], folder: Path, r: Request
) -> Linked:
    """`sections`: where weights go that memory regions hold."""
    code: list[Path | str] = []
    weights = weights_file(whole.programs, sections, folder, r)
    if whole.programs:
        code += [*(p.out for p in parts), weights.path]
    else:
        code += _as_they_are(r.objects, folder, r.o)
    code += runtime_files(whole.prefixes, folder, r)
    code += memory_files(whole.programs, folder, r)
    kernels = foreign.libraries(whole.programs, r.o, folder, r.cache, r.user, r.libs)
    r.progress("linking")
    known = whole.known(sections)
    told = sorted({folder, *(p.out.parent for p in parts)})  # where LLVM's remarks are
    if r.closed:
        weights.write(wait=False)
        return _relocatable([*code, *kernels.inputs], whole, known, kernels, folder, told, r)
    return _image(code, weights, whole, known, kernels, folder, told, r)


# -- executables and shared libraries -------------------------------------------------------------------
def _image(
    code: Sequence[Path | str], weights: WeightsFile, whole: Whole, known: memory.Known, kernels: Kernels, folder: Path,
    told: Sequence[Path], r: Request,
) -> Linked:
    bounds: dict[str, int] = {}
    traced = [Trace()]

    def examine(path: Path, link_map: Path | None) -> None:
        places = room.fill(path, weights.weights, waiting)
        used = memory.usage(ar.map_file(path))
        traced[0] = replace(trace.of_file(path, trace.map_text(link_map), r.user), remarks=remarks.read(told))
        measure = (bool(whole.programs) or r.o.lto != "none") and kernels.bounded
        alone = not (r.user or kernels.inputs)
        bounds.update(stack.finish(path, whole.prefixes, not r.o.debug, alone, measure))
        room.identify(path, places)
        memory.check_image(used, max(bounds.values(), default=None), known, r.o)

    job = _job(code, whole, kernels, folder, r)
    with lto_folder(r.cache if r.o.lto == "thin" and not _tells(r.o) else None, whole.prefixes) as known_code:
        job = replace(job, thinlto_cache=known_code)
        asked = words_of_the_line(r.o)  # they may do with sections and symbols what they like, and read files
        cache = None if asked or _tells(r.o) else r.cache
        try:
            waiting = weights.write(wait=not asked)
            made = toolchain.link(job, finish=examine, cache=cache)
        except room.NoRoom:
            waiting = weights.write(wait=False)
            made = toolchain.link(job, finish=examine, cache=cache)
    return Linked(made.out, bounds, traced[0])


def _tells(o: Options) -> bool:
    """Whether LLVM says what it does; what comes out of its cache says nothing."""
    return o.remarks and o.lto != "none"


def _job(code: Sequence[Path | str], whole: Whole, kernels: Kernels, folder: Path, r: Request) -> LinkJob:
    o = r.o
    closed_interface = r.emit == "shared" and not r.user  # beside user code visibility says what is exported
    return LinkJob(
        kind="shared" if r.emit == "shared" else "exe",
        inputs=(*code, *r.user, *kernels.inputs), out=r.out, target=o.target, lto=o.lto,
        exports=_exports(whole.prefixes) if closed_interface else (),
        entry="_start" if r.emit == "exe" and not r.user else "",
        libs=r.libs, libdirs=r.libdirs, libc=r.libc if r.hosted else None, opt=o.opt,
        extra=(*stack.LINK_FLAGS, *(stack.LTO_FLAGS if o.lto != "none" else ()),
               *(remarks.flags(folder) if _tells(o) else ()), *o.link_args),
        map=o.map or folder / "map",
    )


def _exports(prefixes: Sequence[str]) -> tuple[str, ...]:
    """The visible symbols of a shared library: the interface, the model table, clocks if there are any."""
    clocks = (f"mb_{p}_{version}part*_ticks" for p in prefixes for version in ("", "v*_"))
    return ("monobloc_model", *(f"{p}_*" for p in prefixes), *clocks)


# -- relocatables -----------------------------------------------------------------------------------------
def _relocatable(
    code: Sequence[Path | str], whole: Whole, known: memory.Known, kernels: Kernels, folder: Path,
    told: Sequence[Path], r: Request,
) -> Linked:
    """All code as one native relocatable in which only the interface is global; or an archive of it."""
    o, prefixes = r.o, whole.prefixes
    extra = (*(stack.LTO_FLAGS if o.lto != "none" else ()), *(remarks.flags(folder) if _tells(o) else ()))
    job = LinkJob("relocatable", tuple(code), folder / "closed.o", o.target, lto=o.lto, gc=False, opt=o.opt,
                  extra=extra, map=folder / "map")
    data = toolchain.link(job).out.read_bytes()
    data, bounds = stack.with_bounds(data, prefixes if kernels.bounded else (), lambda d: trial_link(d, folder, o))
    memory.check_image(memory.usage(data), max(bounds.values(), default=None), known, o)
    closed = localize(data, lambda name: any(name.startswith(p + "_") for p in prefixes))
    traced = Trace(trace.pieces_of(closed, trace.map_text(job.map)), remarks=remarks.read(told))
    if r.emit == "object":
        write_atomic(r.out, [closed])
        return Linked(r.out, bounds, traced)
    member = folder / f"{prefixes[0]}.o"
    write_atomic(member, [closed])
    return Linked(toolchain.archive([member], r.out), bounds, traced)


# -- without graph-level optimization -------------------------------------------------------------------
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
