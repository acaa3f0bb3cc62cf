"""The verbs, their arguments and their help. What they do is imported when they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from monobloc.cli.flags import (
    CODE,
    DUMP,
    FIXED,
    INPUT,
    LINK,
    MACHINE,
    MODEL,
    OUT,
    PARTS,
    PATH,
    PROGRAM,
    PROJECT,
    RESULT,
    SEED,
    SOURCE,
    WORK,
    Flag,
    Flags,
    takes,
)
from monobloc.cli.light import light_onnx

SHELLS = ("bash", "zsh", "fish")


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from monobloc import __version__

        print(f"monobloc {__version__}")
        context.exit()


def _completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell:
        from click.shell_completion import get_completion_class

        found = get_completion_class(shell)
        assert found is not None  # one of SHELLS
        print(found(app, {}, "monobloc", "_MONOBLOC_COMPLETE").source())
        context.exit()


class _InOrder(click.Group):
    """Verbs in the order in which people meet them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


app = _InOrder(
    "monobloc",
    help="Models in, one native program out.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        Flag(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="print it"),
        Flag(["--completion"], type=click.Choice(SHELLS), is_eager=True, expose_value=False, callback=_completion,
             help="print what completes words in this shell: eval \"$(monobloc --completion bash)\""),
    ],
)
BETWEEN = {"ignore_unknown_options": True}  # linker options keep their place among the files


def _verb(name: str, short: str, *own: click.Parameter, groups: tuple[str, ...] = (),
          words: dict[str, Any] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function a command with parameters of its own and the flags of groups; its docstring is the help."""

    def add(verb: Callable[..., Any]) -> Callable[..., Any]:
        shared, call = takes(verb, *groups)
        app.add_command(click.Command(name, params=[*own, *shared], callback=call, short_help=short,
                                      help=inspect.cleandoc(verb.__doc__ or ""), context_settings=words))
        return verb

    return add


def _file(metavar: str, name: str = "file") -> click.Argument:
    return click.Argument([name], type=PATH, metavar=metavar)


def _files(metavar: str, kind: Any = PATH) -> click.Argument:
    return click.Argument(["files"], nargs=-1, type=kind, metavar=f"[{metavar}]...")


def _switch(name: str, help: str, *more: str) -> Flag:
    return Flag([name, *more], is_flag=True, help=help)


def _path(*names: str, metavar: str, help: str) -> Flag:
    return Flag(names, type=PATH, metavar=metavar, help=help)


JSON = _switch("--json", "print JSON")


@_verb("try", "check, build, verify and time a model: start here", _file("MODEL", "model"), SEED,
       groups=(MACHINE, MODEL, FIXED, CODE, WORK, RESULT, PROJECT))
def try_(model: Path, seed: int, flags: Flags) -> int:
    """Check, build, verify and time a model: the first thing to do with it."""
    from monobloc.cli import trial

    return trial.try_model(model, seed, flags)


@_verb("check", "what a model is, and whether it can be built", _files("MODEL"), JSON,
       groups=(MACHINE, MODEL, FIXED, CODE, PROJECT))
def check(files: list[Path], json: bool, flags: Flags) -> int:
    """Say in a second what a model is and whether it can be built; nothing is compiled."""
    from monobloc.cli import look

    return look.check(files, json, flags)


@_verb("build", "models, sources and objects become an image", _files("FILE", str), OUT, words=BETWEEN,
       groups=(MACHINE, PROGRAM, MODEL, FIXED, SOURCE, CODE, LINK, WORK, DUMP, RESULT, PROJECT))
def build(files: list[str], output: Path | None, flags: Flags) -> int:
    """Compile and link models, C and C++ sources, objects and archives. Without files: the project's."""
    light_onnx()
    from monobloc.cli import make

    return make.build(files, output, flags)


@_verb("compile", "stage 1: a model or source becomes an object", _file("MODEL|SOURCE"), OUT,
       _path("--header", metavar="X.h", help="where the C header goes (default: beside OUT)"),
       groups=(MACHINE, MODEL, FIXED, PARTS, SOURCE, CODE, WORK, DUMP, RESULT, PROJECT))
def compile_(file: Path, output: Path | None, header: Path | None, flags: Flags) -> int:
    """Stage 1: a model, or a C or C++ file, becomes an object that any linker takes."""
    light_onnx()
    from monobloc.cli import make

    return make.compile_one(file, output, header, flags)


@_verb("link", "stage 2: objects become an image", _files("FILE", str), OUT,
       _switch("-r", "one object for another linker", "--relocatable"), words=BETWEEN,
       groups=(MACHINE, PROGRAM, FIXED, CODE, LINK, WORK, DUMP, RESULT))
def link(files: list[str], output: Path | None, relocatable: bool, flags: Flags) -> int:
    """Stage 2: objects and archives become an image, optimized as one program."""
    light_onnx()
    from monobloc.cli import make

    return make.link(files, output, relocatable, flags)


@_verb("run", "run an image or a model", _file("OUT|MODEL"), INPUT,
       _path("-o", "--output", metavar="OUT.npz", help="write outputs: .npz, .npy or a folder"), SEED,
       groups=(MACHINE, MODEL, FIXED, CODE, WORK, DUMP))
def run(file: Path, input: list[str], output: Path | None, seed: int, flags: Flags) -> int:
    """Run an image or a model, here or in the target's emulator; without input on random data."""
    from monobloc.cli import measure

    return measure.run(file, input, output, seed, flags)


@_verb("verify", "compare outputs with onnxruntime's", _files("MODEL"),
       _path("--data", metavar="IN_OUT.npz", help="inputs in_NAME and the outputs expected, out_NAME"), INPUT, SEED,
       Flag(["--atol"], type=float, metavar="X", help="absolute tolerance"),
       Flag(["--rtol"], type=float, metavar="X", help="relative tolerance"),
       Flag(["--against"], metavar="onnxruntime|reference", default="onnxruntime", show_default=True,
            help="the oracle"),
       _switch("--per-layer", "find the first node that differs"), JSON,
       groups=(MACHINE, MODEL, FIXED, CODE, WORK, DUMP, PROJECT))
def verify(files: list[Path], data: Path | None, input: list[str], seed: int, atol: float | None, rtol: float | None,
           against: str, per_layer: bool, json: bool, flags: Flags) -> int:
    """Build, run, and compare every output with onnxruntime's (a TFLite model's with LiteRT's)."""
    from monobloc.cli import measure

    return measure.verify(files, measure.Verify(data, input, seed, atol, rtol, against, per_layer, json), flags)


@_verb("bench", "time a model against its peers", _files("MODEL|OUT"),
       Flag(["--vs"], metavar="A,B", default="onnxruntime", show_default=True,
            help="peers: onnxruntime, openvino, none"),
       _switch("--per-layer", "time of every layer"),
       _switch("--latency", "first run, percentiles and process start"),
       Flag(["--seconds"], type=click.FloatRange(min=0.01), metavar="X", default=2.0, show_default=True,
            help="time for each contender"), INPUT, SEED, JSON,
       groups=(MACHINE, MODEL, FIXED, CODE, WORK, PROJECT))
def bench(files: list[Path], vs: str, per_layer: bool, latency: bool, seconds: float, input: list[str], seed: int,
          json: bool, flags: Flags) -> int:
    """Time a model against its peers, taking turns: medians and their ratio."""
    from monobloc.cli import measure

    return measure.bench(files, measure.Bench(vs, per_layer, latency, seconds, input, seed, json), flags)


@_verb("inspect", "look into a model, object, image or report", _file("FILE"),
       Flag(["--why"], metavar="NAME", help="why something of this name is in it, or what took it out"),
       _switch("--graph", "print the graph"), Flag(["everything", "--all"], is_flag=True, help="long tables in full"),
       JSON, groups=(MACHINE, MODEL, FIXED, CODE, WORK))
def look_into(file: Path, why: str | None, graph: bool, everything: bool, json: bool, flags: Flags) -> int:
    """Look into a model, object, archive, image, report or dump."""
    from monobloc.cli import look

    return look.inspect(file, look.Inspect(why, graph, everything, json), flags)


@_verb("opt", "run any passes on any dump", _file("IN.mb"),
       Flag(["-p", "--passes"], metavar="'fuse,layout{x=1}'", help="passes by name (default: all)"),
       _path("-o", "--output", metavar="OUT.mb", help="where to write (default: stdout)"),
       _path("--weights", metavar="MODEL|OBJECT|DIR", help="where constants are (default: weights/ beside IN.mb)"),
       groups=(MACHINE, CODE))
def opt(file: Path, passes: str | None, output: Path | None, weights: Path | None, flags: Flags) -> int:
    """Run any passes on any dump."""
    from monobloc.cli import opt as verb

    return verb.opt(file, passes, output, weights, flags)


@_verb("targets", "what can be built for, and run here", JSON)
def targets(json: bool) -> Any:
    """What can be built for, and what can run here."""
    from monobloc.cli import look

    return look.show_targets(json)


# Their arguments are clang's and lld's, so they are never parsed here: the command line calls them first.
WHOLE: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True}


def _driver(verb: str, help: str) -> None:
    @click.pass_context
    def call(context: click.Context) -> int:
        import os

        from monobloc import drivers

        return drivers.main(verb, context.args, os.environ)

    app.add_command(click.Command(verb, callback=call, context_settings=WHOLE, add_help_option=False, short_help=help,
                                  help=help))


_driver("cc", "clang's command line: fat objects, whole-program links with models")
_driver("c++", "the same for C++")
_driver("ar", "the toolchain's archiver")
_driver("ld", "lld's command line, models among the inputs compiled")
