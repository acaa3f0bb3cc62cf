"""The flags all verbs share, each written once: how it is spelled, parsed and explained.

A verb names the groups it takes; `takes` gives them its parser and hands the verb one `Flags`. What was not
given is absent, so that a project file can say it instead (`settings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

Flags = Mapping[str, Any]
"""What was given, by the flag's name with underscores"""

PATH = click.Path(path_type=Path)


class Flag(click.Option):
    """An option; `group`, where it stands among others in the documentation: none for a verb's own."""

    def __init__(self, names: Sequence[str], group: str = "", **more: Any) -> None:
        super().__init__(names, **more)
        self.group = group


class OneOf(click.ParamType):  # type: ignore[type-arg]
    """A few possible values."""

    name = "choice"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.words:
            self.fail(f"`{value}` is none of {', '.join(self.words)}", param, ctx)
        return value


def one_of(*words: str) -> dict[str, Any]:
    return {"type": OneOf(words), "metavar": "|".join(words)}


def _flag(kind: Any, *names: str, least: int | None = None, **more: Any) -> Flag:
    """A flag that is not given has no value, not even False."""
    if kind is bool:
        return Flag(names, is_flag=True, default=None, **more)
    if least is not None:
        kind = click.IntRange(min=least)
    return Flag(names, **{"type": PATH if kind is Path else kind, **more})


def _many(*names: str, help: str, group: str, metavar: str) -> Flag:
    return _flag(str, *names, multiple=True, help=help, group=group, metavar=metavar)


def _path(*names: str, help: str, group: str, metavar: str = "FILE") -> Flag:
    return _flag(Path, *names, help=help, group=group, metavar=metavar)


MACHINE, MODEL, CODE, LINK, WORK = "machine", "model", "code", "link", "work"
DUMP, RESULT, PROJECT = "dump", "result", "project"
PARTS, PROGRAM, SOURCE, FIXED = "parts", "program", "source", "fixed"

FLAGS: dict[str, dict[str, Flag]] = {
    MACHINE: {
        "target": _flag(str, "--target", metavar="NAME", group=MACHINE, help="machine to build for (default: host)"),
        "cpu": _flag(str, "--cpu", metavar="CPU", group=MACHINE, help="level of the CPU, as in x86-64-v3"),
        "features": _flag(str, "--features", metavar="A,B", group=MACHINE, help="CPU features beyond the level"),
    },
    MODEL: {
        "name": _flag(str, "--name", metavar="NAME", group=MODEL, help="prefix of the C names (default: the stem)"),
        "shape": _many("--shape", metavar="X=1x3x224x224", group=MODEL, help="shape of an input"),
        "dim": _many("--dim", metavar="BATCH=4", group=MODEL,
                     help="size of a symbolic dimension, `MODEL.BATCH=4` of one of several models; "
                          "`1,4,8`, `1..8` or `32..640:32`: a run chooses one; `past+seq`: it follows from others"),
        "strings": _flag(int, "--strings", metavar="N", group=MODEL, least=1,
                         help="room for each string of an input, in bytes (default 64)"),
        "max_trips": _many("--max-trips", metavar="LOOP=100", group=MODEL,
                           help="iterations of a loop at most, or of all (`100`); more are an error of the run"),
        "max_value": _many("--max-value", metavar="NAME=100", group=MODEL,
                           help="how large numbers of a tensor get that decide sizes; more are an error of the run"),
        "ignore_declared_shapes": _flag(bool, "--ignore-declared-shapes", group=MODEL,
                                        help="stale shapes in the file are no error"),
    },
    FIXED: {
        "bind": _many("--bind", metavar="X=3", group=MODEL, help="fix an input: a number, a list, a .npy file"),
        "keep_output": _many("--keep-output", metavar="NAME", group=MODEL,
                             help="keep this output, or inner value; `*` is anything"),
        "start_from": _many("--from", metavar="TENSOR", group=MODEL, help="start here: the tensor becomes an input"),
    },
    PARTS: {
        "split_at": _many("--split-at", metavar="NAME", group=MODEL, help="cut the model here, into X.0.o, X.1.o"),
        "partitions": _flag(int, "--partitions", metavar="N", group=MODEL, least=1, help="cut the model into N parts"),
    },
    PROGRAM: {
        "connect": _many("--connect", metavar="HEAD.X=BODY.Y", group=LINK, help="feed an input from another model"),
        "persist": _many("--persist", metavar="H=H_OUT", group=LINK,
                         help="state: an input is what an output was; `past.*=present.*` for many, and it may grow"),
        "used_by": _many("--used-by", metavar="FILE", group=LINK, help="keep only outputs that this object reads"),
        "name": _flag(str, "--name", metavar="NAME", group=LINK, help="prefix of the connected models' C names"),
    },
    SOURCE: {
        "include": _many("-I", metavar="DIR", group=SOURCE, help="where C and C++ sources look for headers"),
        "define": _many("-D", metavar="NAME=VALUE", group=SOURCE, help="a macro for C and C++ sources"),
    },
    CODE: {
        "optimize": _flag(str, "--optimize", group=CODE, help="what to optimize for", **one_of("speed", "size")),
        "numerics": _flag(str, "--numerics", group=CODE, help="the numeric contract",
                          **one_of("default", "fast", "strict", "tflm")),
        "threads": _flag(str, "--threads", metavar="N", group=CODE, help="threads a run may use (default 1)"),
        "debug": _flag(bool, "--debug", "-g", group=CODE, help="keep symbols and line numbers"),
        "lto": _flag(str, "--lto", group=CODE, help="LLVM's link-time optimization (default thin)",
                     **one_of("none", "thin", "full")),
        "kernels": _many("--kernels", metavar="ROWS.toml", group=CODE, help="functions of other libraries to use"),
        "graph_lto": _flag(str, "--graph-lto", group=CODE, help="compile graphs anew at the link (default on)",
                           **one_of("on", "off")),
    },
    LINK: {
        "emit": _flag(str, "--emit", group=LINK, help="kind of image (default: from the suffix of OUT)",
                      **one_of("exe", "shared", "object", "archive")),
        "libdir": _many("-L", metavar="DIR", group=LINK, help="where to look for libraries"),
        "lib": _many("-l", metavar="NAME", group=LINK, help="link a library"),
        "undefined": _many("-u", "--undefined", metavar="SYMBOL", group=LINK, help="somebody needs this symbol"),
        "entry": _flag(str, "-e", "--entry", metavar="SYMBOL", group=LINK, help="where an executable starts"),
        "wrap": _many("--wrap", metavar="SYMBOL", group=LINK, help="calls of it go to `__wrap_SYMBOL`"),
        "linker_word": _many("-Xlinker", metavar="WORD", group=LINK, help="a word for lld, as it is"),
        "script": _path("-T", group=LINK, help="linker script"),
        "map": _path("-Map", "--map", group=LINK, help="write the linker's map"),
        "ram": _flag(str, "--ram", metavar="256K", group=LINK, help="budget of RAM; more is an error"),
        "flash": _flag(str, "--flash", metavar="1M", group=LINK, help="budget of code and weights; more is an error"),
        "memory": _path("--memory", group=LINK, help="file that describes further memories and what they hold"),
        "arenas": _flag(str, "--arenas", group=LINK, help="whether models share RAM between runs (default shared)",
                        **one_of("shared", "own")),
        "compare_lto": _flag(bool, "--compare-lto", group=WORK, help="link in the other modes too, for the report"),
    },
    RESULT: {
        "report": _path("--report", metavar="R.json|R.html", group=WORK, help="write what was made, and why"),
        "depfile": _path("--depfile", group=WORK, help="write what the output depends on, for make"),
    },
    DUMP: {
        "dump": _path("--dump", metavar="DIR", group=WORK, help="write the graph after every pass, and the C code"),
    },
    WORK: {
        "jobs": _flag(int, "--jobs", "-j", metavar="N", group=WORK, least=1, help="processes (default: all cores)"),
        "cache": _path("--cache", metavar="DIR", group=WORK, help="where results are kept (default: user's cache)"),
        "no_cache": _flag(bool, "--no-cache", group=WORK, help="neither read nor write the cache"),
    },
    PROJECT: {
        "project": _path("--project", group=WORK, help="project file (default: monobloc.toml, if no file is named)"),
    },
}
for _flags in FLAGS.values():
    for _key, _one in _flags.items():
        _one.name = _key  # what the verb knows it by

OUT = Flag(["-o", "--output"], type=PATH, metavar="OUT", help="what to write")
INPUT = Flag(["--input", "-i"], multiple=True, metavar="[NAME=]FILE", help="data: .npy, .npz, .pb or an image")
SEED = Flag(["--seed"], type=click.IntRange(min=0), metavar="N", default=0, show_default=True,
            help="seed of random data")


def word_of(key: str) -> str:
    """A flag as people write it, in project files too: `from`, a word of Python's, is `start_from` here."""
    return "from" if key == "start_from" else key.replace("_", "-")


def key_of(word: str) -> str:
    return "start_from" if word == "from" else word.replace("-", "_")


def takes(verb: Callable[..., Any], *groups: str) -> tuple[list[Flag], Callable[..., Any]]:
    """The flags of these groups for a verb's parser, and the verb as it calls it: with one mapping for all of them."""
    shared = {name: flag for g in groups for name, flag in FLAGS[g].items()}

    def call(**values: Any) -> Any:
        given = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        own = {k: v for k, v in given.items() if k not in shared}
        flags = {k: v for k, v in given.items() if k in shared and v is not None and v != []}
        return verb(**own, flags=flags) if groups else verb(**own)

    return list(shared.values()), call
