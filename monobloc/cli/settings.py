"""Flags and `monobloc.toml` become `Options`.

The file has the flags' own names, as keys of the whole or of one model; what the command line says
goes first. A verb that is given no file works on the project's.

    output = "app"            # and any flag: target, lto, threads, ...
    sources = ["main.c"]
    bind = { "kws.x" = 3 }    # and from, keep-output

    [[model]]
    path = "kws.onnx"         # and name, shape, dim, bind, from, keep-output
    dim = { batch = 1 }

    [[kernel]]                # a function of another library: docs/foreign-kernels.md
    op = "MatMul"

    [memory]
    ram = "256K"
    flash = "1M"

    [memory.dtcm]             # a memory beside the main ones: see docs/memory-regions.md
    size = "64K"
    hold = "hot"
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from monobloc.cli import Usage
from monobloc.cli.flags import FIXED, FLAGS, MODEL, Flags, key_of, word_of
from monobloc.driver import SourceFlags, operators, read_kernels, user_cache
from monobloc.errors import ModelError, MonoblocError
from monobloc.frontend import is_model_file
from monobloc.kernels.foreign import rows_of
from monobloc.link.connect import parse_connections
from monobloc.link.persist import parse_persist
from monobloc.options import (
    STRING_ROOM,
    Options,
    parse_bind,
    parse_dims,
    parse_max_values,
    parse_shapes,
    parse_size,
    parse_trips,
)
from monobloc.targets import FLASH_HOLDS, RAM_HOLDS, REGION_NAME, Region, resolve

PROJECT = Path("monobloc.toml")
FIXED_KEYS = tuple(FLAGS[FIXED])  # of one model, or of the whole with names as `kws.x`
MODEL_KEYS = (*FLAGS[MODEL], *FIXED_KEYS)
TOP_KEYS = ("output", "sources", "model", "memory", "kernel", *(n for g, f in FLAGS.items() if g != MODEL for n in f))
MEMORY_KEYS = ("ram", "flash")
PATHS = ("dump", "report", "cache", "depfile", "map", "script")
T = TypeVar("T")
SECTION_NAME = re.compile(r"[A-Za-z0-9_.$-]+", re.ASCII)
OTHER_SECTIONS = {"ram": (".text", ".rodata", ".init", ".fini", ".tdata", ".tbss"),
                  "flash": (".bss", ".data", ".tdata", ".tbss", ".init", ".fini")}


@dataclass(frozen=True)
class Project:
    """A project file: flags for all, models with flags of their own, other inputs, the output."""

    flags: Flags = field(default_factory=dict)
    models: tuple[tuple[Path, Flags], ...] = ()
    sources: tuple[Path, ...] = ()
    output: Path | None = None
    path: Path | None = None


# -- project file -------------------------------------------------------------------------------------
def read_project(path: Path) -> Project:
    try:
        text, data = _read_toml(path)
    except FileNotFoundError:
        raise Usage(f"no file is named, and there is no `{path}`") from None
    top = _keys(data, TOP_KEYS, str(path))
    memory = memory_flags(_table(top.pop("memory", {}), f"{path}: `memory`"), path)
    models = [_model(m, path) for m in _list(top.pop("model", []), f"{path}: `model`")]
    sources = [path.parent / str(s) for s in _list(top.pop("sources", []), f"{path}: `sources`")]
    output = top.pop("output", None)
    rows = rows_of(top.pop("kernel"), path, text, operators()) if "kernel" in top else ()
    flags = {k: (_model_value if k in FIXED_KEYS else _flag_value)(k, v, path) for k, v in top.items()}
    flags |= {**memory, **({"kernel": rows} if rows else {})}
    return Project(flags, tuple(models), tuple(sources), path.parent / str(output) if output else None, path)


def _read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ModelError(f"{path}: {str(e)[:1].lower()}{str(e)[1:]}") from None


def read_memory(path: Path) -> Flags:
    """`--memory FILE`: the `[memory]` tables of a file that holds nothing else."""
    try:
        _, data = _read_toml(path)
    except OSError as e:
        raise ModelError(f"cannot read `{path}`: {(e.strerror or str(e)).lower()}") from None
    return memory_flags(_table(_keys(data, ("memory",), str(path)).get("memory", {}), f"{path}: `memory`"), path)


def memory_flags(table: dict[str, Any], path: Path) -> Flags:
    """`[memory]`: budgets, and a table for each further memory."""
    plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
    flags = {k: str(v) for k, v in _keys(plain, MEMORY_KEYS, f"{path}: [memory]").items()}
    regions = [_region(k, v, path) for k, v in table.items() if isinstance(v, dict)]
    return {**flags, "regions": tuple(regions)} if regions else flags


def _region(name: str, table: dict[str, Any], path: Path) -> Region:
    where = f"{path}: [memory.{name}]"
    given = _keys(table, ("kind", "size", "section", "hold"), where)
    kind = str(given.get("kind", "ram"))
    words = {"ram": RAM_HOLDS, "flash": FLASH_HOLDS}.get(kind)
    if words is None or not REGION_NAME.fullmatch(name):
        wrong = f"`kind = \"{kind}\"`" if words is None else f"the name `{name}`"
        raise ModelError(f"{where}: {wrong} is not possible",
                         hints=["kinds: ram, flash; names: letters, digits, underscores"])
    hold = given.get("hold", words[0])
    held = tuple(map(str, hold)) if isinstance(hold, list) else (str(hold),)
    other = set(held) & ({*RAM_HOLDS, *FLASH_HOLDS} - set(words))
    if other:
        raise ModelError(f"{where}: a {kind} region does not hold `{min(other)}`",
                         hints=[f"it holds {', '.join(words)} or tensors by name"])
    size = parse_size(str(given["size"])) if "size" in given else None
    section = _section(str(given.get("section", "")), kind, where)
    return Region(name, kind, size, section, held)  # type: ignore[arg-type]


def _section(name: str, kind: str, where: str) -> str:
    """A section's name stands in C and in linker scripts, and its beginning tells compilers what is in it."""
    if name and not SECTION_NAME.fullmatch(name):
        raise ModelError(f"{where}: the section name `{name}` is not possible",
                         hints=["letters, digits, and `_`, `.`, `$`, `-`"])
    first = f".{name.split('.')[1]}" if name.startswith(".") else ""
    if first in OTHER_SECTIONS[kind]:
        held = "is written to" if kind == "ram" else "must be in the file"
        raise ModelError(f"{where}: what a {kind} region holds {held}, and `{first}` sections are for other things",
                         hints=[f"a name as `{'.bss' if kind == 'ram' else '.rodata'}.dtcm`, or one of your own"])
    return name


def _model(data: Any, project: Path) -> tuple[Path, Flags]:
    where = f"{project}: [[model]]"
    entry = _keys(_table(data, where), ("path", *MODEL_KEYS), where)
    if not isinstance(entry.get("path"), str):
        raise ModelError(f"{where} has no `path`")
    path = project.parent / entry.pop("path")
    return path, {k: _model_value(k, v, project) for k, v in entry.items()}


def _keys(data: Mapping[str, Any], known: Sequence[str], where: str) -> dict[str, Any]:
    out = {}
    for key, value in data.items():
        name = key_of(key)
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ModelError(f"{where}: unknown key `{key}`",
                             hints=[f"did you mean `{word_of(near[0])}`?"] if near
                             else [f"keys: {', '.join(map(word_of, known))}"])
        out[name] = value
    return out


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelError(f"{where} is no table")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ModelError(f"{where} is no list")
    return value


def _flag_value(name: str, value: Any, project: Path) -> Any:
    if name in PATHS:
        return project.parent / str(value)
    if isinstance(value, bool) and name == "graph_lto":
        return "on" if value else "off"
    if name in ("include", "libdir", "used_by", "kernels"):
        return [str(project.parent / str(v)) for v in (value if isinstance(value, list) else [value])]
    if isinstance(value, (bool, list)):
        return value if isinstance(value, bool) else [str(v) for v in value]
    return int(value) if name in ("jobs", "partitions") else str(value)


def _model_value(name: str, value: Any, project: Path) -> Any:
    """`{ x = [1, 3] }` and `["x=1x3"]` mean the same."""
    if name == "name":
        return str(value)
    if isinstance(value, Mapping):
        between = "x" if name == "shape" else ","
        return [f"{k}={_spelled(v, between, project)}" for k, v in value.items()]
    return [str(v) for v in value] if isinstance(value, list) else [str(value)]


def _spelled(value: Any, between: str, project: Path) -> str:
    if isinstance(value, str) and value.endswith(".npy"):
        return str(project.parent / value)
    return between.join(map(str, value)) if isinstance(value, list) else str(value)


# -- options ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Work:
    """What a verb works on: models with their options, other files, where the output goes."""

    options: Options
    models: tuple[tuple[Path, Options], ...] = ()
    files: tuple[Path, ...] = ()
    output: Path | None = None
    flags: Flags = field(default_factory=dict)
    project: Path | None = None

    @property
    def options_of(self) -> dict[Path, Options]:
        return dict(self.models)


def work_on(files: Sequence[Path], flags: Flags, output: Path | None = None) -> Work:
    """The files named, or else the project's; in a project, every model may have flags of its own."""
    if not files or "project" in flags:
        return _project_work(files, flags, output)
    return _named_work(files, flags, output)


def _named_work(files: Sequence[Path], flags: Flags, output: Path | None) -> Work:
    o = options(flags)
    models = [f for f in files if is_model_file(f)]
    if len(models) > 1 and o.name and not o.connect:
        raise Usage("`--name` names one model, and several are given\n  hint: names go into a project file")
    own = replace(o, name=None) if o.connect else o  # connected, the name is the whole's
    return Work(o, tuple((m, own) for m in models), tuple(f for f in files if f not in models), output, flags)


def _project_work(files: Sequence[Path], flags: Flags, output: Path | None) -> Work:
    p = read_project(flags.get("project", PROJECT))
    merged = {**p.flags, **flags}
    own = {path.resolve(): f for path, f in p.models}
    chosen = [(f, own.get(f.resolve(), {})) for f in files if is_model_file(f)] if files else list(p.models)
    given = {k: v for k, v in flags.items() if k in MODEL_KEYS and (len(chosen) == 1 or k not in FIXED_KEYS)}
    given = {} if "connect" in merged and set(given) == {"name"} else given
    if len(chosen) > 1 and given:
        raise Usage(f"`--{word_of(next(iter(given)))}` is of one model, and `{p.path}` has several")
    shared = {k: v for k, v in merged.items() if k != "name"}  # of the whole, as `connect` is
    models = tuple((path, options(_joined({**shared, **given}, {**f, **given}))) for path, f in chosen)
    rest = tuple(f for f in files if not is_model_file(f)) if files else p.sources
    if not models and not rest:
        raise ModelError(f"{p.path}: names no model", hints=["[[model]]\n        path = \"m.onnx\""])
    whole = {k: v for k, v in merged.items()
             if k not in FLAGS[MODEL] or (k == "name" and "connect" in merged)}
    return Work(options(whole), models, rest, output or p.output, merged, p.path)


def _joined(shared: Flags, own: Flags) -> Flags:
    """A model's own flags go first; what fixes tensors adds up, as the whole may name this model's."""
    lists = {k: list(dict.fromkeys([*own[k], *shared[k]])) for k in FIXED_KEYS if k in own and k in shared}
    return {**shared, **own, **lists}


def options(flags: Flags) -> Options:
    """Options of flags; what is not given keeps its default."""
    if "memory" in flags:
        flags = {**read_memory(flags["memory"]), **flags}
    o = Options(target=resolve(flags.get("target", "host"), flags.get("cpu"), flags.get("features")))
    same = {k: flags[k] for k in ("name", "lto", "optimize", "numerics", "debug", "dump", "jobs") if k in flags}
    parsed: dict[str, Any] = {
        "graph_lto": flags.get("graph_lto", "on") != "off",
        "threads": one_thread_count(flags),
        "shapes": _usage(parse_shapes, flags.get("shape", ())),
        "dims": _usage(parse_dims, flags.get("dim", ())),
        "bind": parse_bind(flags.get("bind", ())),
        "persist": tuple(_usage(parse_persist, flags.get("persist", ()))),
        "connect": tuple(_usage(parse_connections, flags.get("connect", ()))),
        "split_at": tuple(flags.get("split_at", ())),
        "partitions": flags.get("partitions", 1),
        "start_from": tuple(flags.get("start_from", ())),
        "kernels": (*read_kernels(map(Path, flags.get("kernels", ()))), *flags.get("kernel", ())),
        "used_by": tuple(map(Path, flags.get("used_by", ()))),
        "keep_outputs": tuple(flags.get("keep_output", ())),
        "strings": flags.get("strings", STRING_ROOM),
        "max_trips": _usage(parse_trips, flags.get("max_trips", ())),
        "max_values": _usage(parse_max_values, flags.get("max_value", ())),
        "ignore_shapes": flags.get("ignore_declared_shapes", False),
        "cache": None if flags.get("no_cache") else flags.get("cache") or user_cache(),
        "arenas": flags.get("arenas", "shared"),
        "regions": flags.get("regions", ()),
        "ram": _usage(parse_size, flags["ram"]) if "ram" in flags else None,
        "flash": _usage(parse_size, flags["flash"]) if "flash" in flags else None,
    }
    return replace(o, **same, **parsed)


def _usage(parse: Callable[[Any], T], value: Any) -> T:
    try:
        return parse(value)
    except MonoblocError as e:
        raise Usage(str(e)) from None


def source_flags(flags: Flags) -> SourceFlags:
    """`-I` and `-D`; a macro without a value is 1, as everywhere."""
    pairs = (d.partition("=") for d in flags.get("define", ()))
    return SourceFlags(tuple(Path(d) for d in flags.get("include", ())),
                       tuple((name, value if eq else "1") for name, eq, value in pairs))


def thread_counts(flags: Flags) -> list[int]:
    """`--threads 1,2`: several are for `bench`."""
    words = str(flags.get("threads", "1")).split(",")
    if not all(w.strip().isdigit() and int(w) > 0 for w in words):
        raise Usage(f"`--threads {flags['threads']}` is no number of threads")
    return [int(w) for w in words]


def one_thread_count(flags: Flags) -> int:
    return max(thread_counts(flags))
