"""Model to image in one straight line, for the command line and for Python."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from monobloc.cache import Cache, default_root, write_atomic
from monobloc.codegen.lower import Lowered
from monobloc.codegen.names import identifier
from monobloc.errors import LinkError, ModelError, ToolchainError, tell
from monobloc.frontend import Choices, Imported, is_model_file, is_program, load_model
from monobloc.ir.dims import NamedShape, normal
from monobloc.kernels.foreign import Row, read_rows
from monobloc.link import bitcode, gone
from monobloc.link.bind import Fixed, for_import, for_object, left_for_link
from monobloc.link.connect import parse_connections
from monobloc.link.devirtualize import COMPILE_FLAGS
from monobloc.link.image import Image, link_modules
from monobloc.link.line import SOURCE_SUFFIXES
from monobloc.link.lowerings import Lowerings
from monobloc.link.objects import Module, compile_module, read_module
from monobloc.link.program import programs as merge_programs
from monobloc.link.request import Progress, Request, quiet
from monobloc.link.resolve import NotNeeded, Resolved, candidates, resolve
from monobloc.link.split import split_at, split_into
from monobloc.link.start import start_from
from monobloc.link.symbols import used_by
from monobloc.object import fat, sysroot, toolchain
from monobloc.object.fat import Object
from monobloc.ops import registry
from monobloc.options import EMIT_OF_SUFFIX, STRING_ROOM, Emit, Options, shapes_of_items
from monobloc.targets import resolve as resolve_target

if TYPE_CHECKING:
    from monobloc.loader import CompiledModel


@dataclass
class Build:
    """What a build made, for reports."""

    path: Path
    image: Image
    imported: dict[str, Imported] = field(default_factory=dict)

    @property
    def programs(self) -> list[Lowered]:
        return self.image.programs


def choices_of(o: Options) -> Choices:
    return Choices(o.shapes, o.dims, o.bind, o.keep_outputs or None, o.ignore_shapes, o.strings, o.max_trips,
                   o.max_values, o.numerics == "tflm", [x for x in o.persist if "*" in x[0]])


def import_model(path: Path | bytes, o: Options) -> Imported:
    imported = load_model(path, choices_of(o))
    for g in imported.graphs if o.start_from else ():
        start_from(g, o.start_from)
    return imported


def module_of(path: Path, imported: Imported, o: Options) -> Module:
    """Prefix and title of a model file."""
    title = o.name or path.stem
    return Module(imported.graph, identifier(title), title, str(path), more=imported.more)


# -- stage 1 ------------------------------------------------------------------------------------------
def compile_to_object(
    path: Path, out: Path, o: Options, header: Path | None = None, progress: Progress = quiet
) -> Imported:
    """`monobloc compile MODEL -o X.o`: the Object, and the header beside it."""
    if o.kernels:
        tell(["kernel rows take effect at the link: an object's own code does not call them"])
    progress(f"reading {path.name}")
    imported = import_model(path, o)
    if o.split_at or o.partitions > 1:
        compile_parts(module_of(path, imported, o), out, o, progress)
        return imported
    obj, low = object_of(path, imported, o, progress)
    obj.write(out, llvm=toolchain.find_tools().llvm)
    write_atomic(header or out.with_suffix(".h"), [low.header.encode()])
    return imported


def compile_parts(m: Module, out: Path, o: Options, progress: Progress = quiet) -> list[Path]:
    """A model cut into parts, each an object of its own: X.o becomes X.0.o, X.1.o, ...

    Linked together they give the image that the whole model gives.
    """
    parts = split_at(m, o.split_at) if o.split_at else split_into(m, o.partitions)
    paths = []
    for k, part in enumerate(parts):
        progress(f"compiling part {k + 1} of {len(parts)}")
        obj, _ = compile_module(part, o, open_cache(o))
        paths.append(out.with_suffix(f".{k}{out.suffix}"))
        obj.write(paths[-1], llvm=toolchain.find_tools().llvm)
    return paths


def object_of(path: Path, imported: Imported, o: Options, progress: Progress = quiet) -> tuple[Object, Lowered]:
    progress(f"compiling {path.name}")
    return compile_module(module_of(path, imported, o), o, open_cache(o))


@dataclass(frozen=True)
class SourceFlags:
    """What only C and C++ sources need: `-I` and `-D`"""

    includes: tuple[Path, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()


def compile_source(path: Path, out: Path, o: Options, flags: SourceFlags = SourceFlags()) -> None:  # noqa: B008
    """`monobloc compile app.c -o app.o`: the user's own code as a fat object."""
    job = toolchain.CompileJob(path, out, o.target, "fat", o.opt, flags.includes, flags.defines, COMPILE_FLAGS,
                               hosted=True, debug=o.debug, libc=sysroot.libc_for(o.target, open_cache(o)))
    for c in toolchain.compile_all([job], 1, open_cache(o)):
        if c.warnings:
            sys.stderr.write(c.warnings)


# -- stage 2 ------------------------------------------------------------------------------------------
@dataclass
class Inputs:
    """What a link is given: graphs straight from models, and the words of the line, files and options."""

    modules: list[Module] = field(default_factory=list)
    words: list[Path | str] = field(default_factory=list)


def link(inputs: Sequence[Path | str], out: Path, emit: Emit, o: Options, progress: Progress = quiet,
         libs: Sequence[str] = (), libdirs: Sequence[Path] = ()) -> Image:
    """`monobloc link`: model objects are compiled anew from their graphs, other inputs go to the linker.

    Strings are options that belong between files, as in `--start-group a.a b.a --end-group`.
    """
    return _link(Inputs(words=list(inputs)), out, emit, o, progress, libs, libdirs)


_STRIP = ("-s", "--strip-all")


def _stripped(o: Options) -> Options:
    """What is asked of the linker is done to the finished image: its symbols are read first."""
    if not set(_STRIP) & set(o.link_args):
        return o
    return replace(o, debug=False, link_args=tuple(w for w in o.link_args if w not in _STRIP))


def _link(given: Inputs, out: Path, emit: Emit, o: Options, progress: Progress,
          libs: Sequence[str], libdirs: Sequence[Path], lowerings: Lowerings | None = None,
          asked: Sequence[Options] = ()) -> Image:
    """`asked`: options that imports have taken already, for messages."""
    o = _stripped(o)
    for flag, said in (("connect", o.connect), *Fixed.of(o).flags):
        if said and not o.graph_lto:
            raise LinkError(f"`--{flag}` needs the graphs, and `--graph-lto off` links code as it is")
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        found = resolve(given.words, given.modules, emit, o, Path(tmp), libs, libdirs)
        _check(found, emit, o)
        for place in found.left:
            progress(f"{place}: nobody needs it")
        if o.connect and o.used_by:
            gone.check_connected(used_by(o.used_by, Path(tmp), o), found.modules, o)
        reader = bitcode.Reader(Path(tmp), o, open_cache(o))
        user = reader.inputs(found.user)
        tell(reader.notes)
        try:
            return link_modules(found.modules, Request(
                out, emit, o, open_cache(o), tuple(user), tuple(found.libs), tuple(libdirs), tuple(found.objects),
                progress, lowerings or Lowerings(),
            ))
        except ToolchainError as e:
            if "duplicate symbol" in e.output:  # the linker's words for it name files of ours
                resolve(given.words, given.modules, emit, o, Path(tmp), libs, libdirs, thorough=True)
            raise gone.explain(e, found.modules, [o, *asked]) or e from None


def _check(found: Resolved, emit: Emit, o: Options) -> None:
    """There is something to link, and nothing would get lost."""
    if not found.modules and not found.left:
        raise LinkError("no model among the inputs", hints=["`monobloc compile MODEL.onnx -o X.o` makes an object"])
    if not found.modules and (emit != "exe" or not found.user):
        raise NotNeeded("nobody needs any of the models", notes=[f"in an archive: {x}" for x in found.left],
                        hints=["`--whole-archive` before an archive takes all of its members"])
    if emit in ("object", "archive") and found.own:
        raise LinkError(f"an {emit} is made of models alone, and there is code besides: {', '.join(found.own)}",
                        hints=["`--used-by FILE` keeps what the code needs; link both afterwards"])
    if o.graph_lto and (others := fat.other_symbols(found.objects)):
        raise LinkError(f"an object holds a model and other code in one file, as `ld -r` joins them: `{others[0]}`",
                        hints=["link the files that were joined, or pass `--graph-lto off` to link them as they are"])
    if o.kernels and not o.graph_lto:
        raise LinkError("kernel rows take graphs, and `--graph-lto off` links the objects' code as it is")


# -- both ---------------------------------------------------------------------------------------------
def build(inputs: Sequence[Path], out: Path, emit: Emit | None, o: Options, progress: Progress = quiet,
          libs: Sequence[str] = (), libdirs: Sequence[Path] = (),
          options_of: Mapping[Path, Options] | None = None, flags: SourceFlags = SourceFlags()) -> Build:  # noqa: B008
    """`monobloc build`: models and sources are compiled, then everything is linked.

    A model's graph goes straight to the link; its object's native code would not be linked anyway.
    `options_of` holds the options of single models where they differ from `o` (shapes, name, ...).
    Sources find the headers of the models beside them.
    """
    own = options_of or {}
    kind: Emit = emit or EMIT_OF_SUFFIX.get(out.suffix, "exe")
    if kind == "object" and len(inputs) == 1 and is_model(inputs[0]):
        imported = compile_to_object(inputs[0], out, own.get(inputs[0], o), progress=progress)
        return Build(out, Image(out), {str(inputs[0]): imported})
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        given, imports, lowerings = Inputs(), {}, Lowerings()
        shared = replace(o, name=None) if o.connect else o  # connected, the name is the whole's
        alone = len([p for p in inputs if p.suffix not in SOURCE_SUFFIXES]) == 1
        titles = [own.get(p, shared).name or p.stem for p in inputs if is_model(p)]
        fixed, asked = o, [o, *own.values()]
        for k, path in enumerate(inputs):
            if is_model(path):
                progress(f"reading {path.name}")
                mine = own.get(path, shared)
                mine = for_import(mine, o, mine.name or path.stem, alone, titles)
                imports[str(path)] = import_model(path, mine)
                _add_model(given, path, imports[str(path)], mine, Path(tmp) / f"{k}.o", progress)
            elif path.suffix in SOURCE_SUFFIXES:
                given.words.append(Path(tmp) / str(k) / f"{path.name}.o")
            else:
                given.words.append(path)
                objects = sorted({str(x.summary.get("title")) for x in candidates([path])})
                fixed = for_object(fixed, own.get(path), objects)
        o = left_for_link(fixed, titles, alone and bool(titles))
        sources = [(p, Path(tmp) / str(k) / f"{p.name}.o") for k, p in enumerate(inputs) if p.suffix in SOURCE_SUFFIXES]
        if sources:
            made_here = {made for _, made in sources}
            waiting = candidates([w for w in given.words if w not in made_here], libs, libdirs)
            modules = [*given.modules, *map(read_module, waiting)]
            headers = write_headers(modules, Path(tmp) / "include", o, lowerings)
            flags = replace(flags, includes=(*flags.includes, headers))
        for path, made in sources:
            progress(f"compiling {path.name}")
            try:
                compile_source(path, made, o, flags)
            except ToolchainError as e:
                raise gone.explain(e, modules, [o, *asked]) or e from None
        image = _link(given, out, kind, o, progress, libs, libdirs, lowerings, asked)
    return Build(out, image, imports)


def _add_model(given: Inputs, path: Path, imported: Imported, o: Options, made: Path, progress: Progress) -> None:
    if o.graph_lto:
        given.modules.append(module_of(path, imported, o))
        return
    obj, _ = object_of(path, imported, o, progress)
    obj.write(made, llvm=toolchain.find_tools().llvm)
    given.words.append(made)


def write_headers(modules: Sequence[Module], folder: Path, o: Options, lowerings: Lowerings) -> Path:
    """The folder, with a header for each program under its prefix and its title."""
    folder.mkdir()
    for m in merge_programs(modules, o.connect, o.name or "", Fixed.of(o)) if o.graph_lto else modules:
        text = lowerings.of(m, o).header
        for name in {m.prefix, m.title.replace("/", "_")}:
            (folder / f"{name}.h").write_text(text, encoding="utf-8")
    return folder


def is_model(path: Path) -> bool:
    return is_model_file(path)


def open_cache(o: Options) -> Cache | None:
    return None if o.cache is None else Cache(o.cache)


def read_kernels(paths: Iterable[Path]) -> tuple[Row, ...]:
    """The kernel rows of all files, in order."""
    return tuple(r for p in paths for r in read_rows(p, operators()))


def operators() -> set[str]:
    """What a kernel row may compute."""
    return {name for name, op in registry().items() if not op.internal}


def user_cache() -> Path:
    return default_root(os.environ)


# -- Python -------------------------------------------------------------------------------------------
def compile(  # noqa: A001 - the public name
    model: str | Path | bytes | Mapping[str, Any] | Any,
    args: Sequence[Any] | None = None,
    target: str = "host",
    shape: Mapping[str, Sequence[int | str]] | None = None,
    dim: Mapping[str, int | Sequence[int]] | None = None,
    lto: str = "thin",
    numerics: str = "default",
    threads: int = 1,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    cpu: str | None = None,
    optimize: str = "speed",
    bind: Mapping[str, Any] | None = None,
    keep_output: Sequence[str] = (),
    ignore_declared_shapes: bool = False,
    strings: int = STRING_ROOM,
    max_trips: int | Mapping[str, int] | None = None,
    max_value: Mapping[str, int | Sequence[int]] | None = None,
    connect: Sequence[str] = (),
    name: str | None = None,
    graph_lto: bool = True,
    kernels: Sequence[str | Path] = (),
    cache: str | Path | None = None,
) -> CompiledModel:
    """Compile a model and load it: `m = compile("m.onnx"); y = m(x)`.

    `model` is a path, the bytes of a file, an `onnx.ModelProto`, a PyTorch program (`torch.export.export`) or a
    `torch.nn.Module`, which is exported with the example inputs `args` and `kwargs` first, and `dynamic_shapes` as
    PyTorch has it; or several of them by name, which
    `connect` makes one: `compile({"body": "b.onnx", "head": h}, connect=["head=body"])`, where `shape`,
    `bind` and `keep_output` say `head.x`. `cache` is a folder, by default the user's. Raises MonoblocError
    with everything that is wrong with the model.
    """
    o = Options(
        target=resolve_target(target, cpu), lto=lto, numerics=numerics, threads=threads, optimize=optimize,  # type: ignore
        shapes=_shapes(shape or {}), dims={k: normal(v) for k, v in (dim or {}).items()},
        bind={k: np.asarray(v) for k, v in (bind or {}).items()}, keep_outputs=tuple(keep_output), name=name,
        ignore_shapes=ignore_declared_shapes, strings=strings,
        max_trips={"": max_trips} if isinstance(max_trips, int) else dict(max_trips or {}),
        max_values={k: (v,) if isinstance(v, int) else tuple(v) for k, v in (max_value or {}).items()},
        connect=tuple(parse_connections(connect)), graph_lto=graph_lto, kernels=read_kernels(map(Path, kernels)),
        cache=Path(cache) if cache is not None else user_cache(),
    )
    folder = tempfile.TemporaryDirectory(prefix="monobloc-")
    out = Path(folder.name) / "model.so"
    models = list(model.items()) if isinstance(model, Mapping) else [(name or "", model)]
    alone, given = len(models) == 1, Inputs()
    if lost := [k for k in o.shapes if not alone and not k.startswith(tuple(f"{t}." for t, _ in models))]:
        raise ModelError(f"`{lost[0]}` names none of the models", hints=[f"write `{models[0][0]}.{lost[0]}`"])
    for k, (title, one) in enumerate(models):
        source, data = _source(_exported(one, args, kwargs, dynamic_shapes))
        mine = o if alone else _share(o, title, [t for t, _ in models])
        mine = replace(mine, name=title or None)
        _add_model(given, source, import_model(data, mine), mine, Path(folder.name) / f"{k}.o", quiet)
    image = _link(given, out, "shared", left_for_link(o, () if alone else [t for t, _ in models], alone), quiet, (), ())
    if len(image.modules) != 1:
        raise ModelError(f"these models are not one: {', '.join(m.title for m in image.modules)}",
                         hints=["connect them, as in `connect=[\"head=body\"]`, or compile each on its own"])
    from monobloc.loader import CompiledModel

    return CompiledModel(out, keep=folder)


def _shapes(given: Mapping[str, Any]) -> dict[str, NamedShape]:
    """A shape; of a sequence a list of them; None for an optional without a value."""
    out: dict[str, NamedShape] = {}
    for name, shape in given.items():
        if shape is None or (len(shape) and not isinstance(shape[0], (int, np.integer, str))):
            out |= shapes_of_items(name, shape)
        else:
            out[name] = tuple(shape)
    return out


def _share(o: Options, title: str, titles: Sequence[str]) -> Options:
    """What is said of one of several models, by its own names."""
    own = {k.removeprefix(f"{title}."): v for k, v in o.shapes.items() if k.startswith(f"{title}.")}
    return for_import(replace(o, shapes=own), o, title, False, titles)


def _exported(model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, shapes: Any) -> Any:
    """A PyTorch module as a program; others as they are"""
    if not hasattr(model, "named_parameters"):
        if args is not None or kwargs is not None or shapes is not None:
            raise ModelError("example inputs are given, and the model is no PyTorch module",
                             hints=["what is not the model is given by name: `target=...`"])
        return model
    if args is None and kwargs is None:
        raise ModelError(f"{type(model).__name__} is a PyTorch module, which is exported with example inputs",
                         hints=["`monobloc.compile(module, (x,))`"])
    from monobloc.frontend.torch.program import export

    return export(model, args or (), kwargs, shapes)


def _source(model: Any) -> tuple[Path, Any]:
    if isinstance(model, (str, Path)):
        return Path(model), Path(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Path("model.onnx"), bytes(model)
    if hasattr(model, "SerializeToString"):
        return Path("model.onnx"), model
    if is_program(model):
        return Path("model.pt2"), model
    raise ModelError(f"cannot compile {type(model).__name__}: give a path, bytes, a ModelProto or a PyTorch module")
