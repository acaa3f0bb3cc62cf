"""The verbs, their arguments and their help. What they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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
    PROGRAM,
    PROJECT,
    RESULT,
    SEED,
    SOURCE,
    WORK,
    Flags,
    takes,
)

app = typer.Typer(
    rich_markup_mode=None,  # plain help starts twice as fast
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Models in, one native program out.",
)
BETWEEN = {"ignore_unknown_options": True}  # linker options keep their place among the files

Model = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False)]
Models = Annotated[list[Path] | None, typer.Argument(metavar="MODEL", show_default=False)]
Words = Annotated[list[str] | None, typer.Argument(metavar="FILE", show_default=False)]
Atol = Annotated[float | None, typer.Option("--atol", show_default=False, help="absolute tolerance")]
Rtol = Annotated[float | None, typer.Option("--rtol", show_default=False, help="relative tolerance")]
Data = Annotated[Path | None, typer.Option("--data", metavar="IN_OUT.npz", show_default=False,
                                           help="inputs in_NAME and the outputs expected, out_NAME")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def _version(wanted: bool) -> None:
    if wanted:
        from monobloc import __version__

        print(f"monobloc {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
) -> None:
    """Models in, one native program out."""


@app.command("try", short_help="check, build, verify and time a model: start here")
@takes(MACHINE, MODEL, FIXED, CODE, WORK, RESULT, PROJECT)
def try_(model: Model, seed: SEED = 0, *, flags: Flags) -> int:
    """Check, build, verify and time a model: the first thing to do with it."""
    from monobloc.cli import trial

    return trial.try_model(model, seed, flags)


@app.command(short_help="what a model is, and whether it can be built")
@takes(MACHINE, MODEL, FIXED, CODE, PROJECT)
def check(models: Models = None, json: Json = False, *, flags: Flags) -> int:
    """Say in a second what a model is and whether it can be built; nothing is compiled."""
    from monobloc.cli import look

    return look.check(models or [], json, flags)


@app.command(context_settings=BETWEEN, short_help="models, sources and objects become an image")
@takes(MACHINE, PROGRAM, MODEL, FIXED, SOURCE, CODE, LINK, WORK, DUMP, RESULT, PROJECT)
def build(files: Words = None, output: OUT = None, *, flags: Flags) -> int:
    """Compile and link models, C and C++ sources, objects and archives. Without files: the project's."""
    from monobloc.cli import make

    return make.build(files or [], output, flags)


@app.command("compile", short_help="stage 1: a model or source becomes an object")
@takes(MACHINE, MODEL, FIXED, PARTS, SOURCE, CODE, WORK, DUMP, RESULT, PROJECT)
def compile_(
    file: Annotated[Path, typer.Argument(metavar="MODEL|SOURCE", show_default=False)],
    output: OUT = None,
    header: Annotated[Path | None, typer.Option("--header", metavar="X.h", show_default=False,
                                                help="where the C header goes (default: beside OUT)")] = None,
    *,
    flags: Flags,
) -> int:
    """Stage 1: a model, or a C or C++ file, becomes an object that any linker takes."""
    from monobloc.cli import make

    return make.compile_one(file, output, header, flags)


@app.command(context_settings=BETWEEN, short_help="stage 2: objects become an image")
@takes(MACHINE, PROGRAM, FIXED, CODE, LINK, WORK, DUMP, RESULT)
def link(
    files: Words = None,
    output: OUT = None,
    relocatable: Annotated[bool, typer.Option("-r", "--relocatable", help="one object for another linker")] = False,
    *,
    flags: Flags,
) -> int:
    """Stage 2: objects and archives become an image, optimized as one program."""
    from monobloc.cli import make

    return make.link(files or [], output, relocatable, flags)


@app.command(short_help="run an image or a model")
@takes(MACHINE, MODEL, FIXED, CODE, WORK, DUMP)
def run(
    file: Annotated[Path, typer.Argument(metavar="OUT|MODEL", show_default=False)],
    input: INPUT = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="OUT.npz", show_default=False,
                                                help="write outputs: .npz, .npy or a folder")] = None,
    seed: SEED = 0,
    *,
    flags: Flags,
) -> int:
    """Run an image or a model, here or in the target's emulator; without input on random data."""
    from monobloc.cli import measure

    return measure.run(file, input or [], output, seed, flags)


@app.command(short_help="compare outputs with onnxruntime's")
@takes(MACHINE, MODEL, FIXED, CODE, WORK, DUMP, PROJECT)
def verify(
    models: Models = None,
    data: Data = None,
    input: INPUT = None,
    seed: SEED = 0,
    atol: Atol = None,
    rtol: Rtol = None,
    against: Annotated[str, typer.Option("--against", metavar="onnxruntime|reference", help="the oracle")]
    = "onnxruntime",
    per_layer: Annotated[bool, typer.Option("--per-layer", help="find the first node that differs")] = False,
    json: Json = False,
    *,
    flags: Flags,
) -> int:
    """Build, run, and compare every output with onnxruntime's (a TFLite model's with LiteRT's)."""
    from monobloc.cli import measure

    how = measure.Verify(data, input or [], seed, atol, rtol, against, per_layer, json)
    return measure.verify(models or [], how, flags)


@app.command(short_help="time a model against its peers")
@takes(MACHINE, MODEL, FIXED, CODE, WORK, PROJECT)
def bench(
    files: Annotated[list[Path] | None, typer.Argument(metavar="MODEL|OUT", show_default=False)] = None,
    vs: Annotated[str, typer.Option("--vs", metavar="A,B", help="peers: onnxruntime, openvino, none")] = "onnxruntime",
    per_layer: Annotated[bool, typer.Option("--per-layer", help="time of every layer")] = False,
    latency: Annotated[bool, typer.Option("--latency", help="first run, percentiles and process start")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="time for each contender")] = 2.0,
    input: INPUT = None,
    seed: SEED = 0,
    json: Json = False,
    *,
    flags: Flags,
) -> int:
    """Time a model against its peers, taking turns: medians and their ratio."""
    from monobloc.cli import measure

    how = measure.Bench(vs, per_layer, latency, seconds, input or [], seed, json)
    return measure.bench(files or [], how, flags)


@app.command(short_help="look into a model, object, image or report")
@takes(MACHINE, MODEL, FIXED, CODE, WORK)
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    why: Annotated[str | None, typer.Option("--why", metavar="NAME", show_default=False,
                                            help="why something of this name is in it, or what took it out")] = None,
    graph: Annotated[bool, typer.Option("--graph", help="print the graph")] = False,
    everything: Annotated[bool, typer.Option("--all", help="long tables in full")] = False,
    json: Json = False,
    *,
    flags: Flags,
) -> int:
    """Look into a model, object, archive, image, report or dump."""
    from monobloc.cli import look

    return look.inspect(file, look.Inspect(why, graph, everything, json), flags)


@app.command(short_help="run any passes on any dump")
@takes(MACHINE, CODE)
def opt(
    file: Annotated[Path, typer.Argument(metavar="IN.mb", show_default=False)],
    passes: Annotated[str | None, typer.Option("-p", "--passes", metavar="'fuse,layout{x=1}'", show_default=False,
                                               help="passes by name (default: all)")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="OUT.mb", show_default=False,
                                                help="where to write (default: stdout)")] = None,
    weights: Annotated[Path | None, typer.Option("--weights", metavar="MODEL|OBJECT|DIR", show_default=False,
                                                 help="where constants are (default: weights/ beside IN.mb)")] = None,
    *,
    flags: Flags,
) -> int:
    """Run any passes on any dump."""
    from monobloc.cli import opt as verb

    return verb.opt(file, passes, output, weights, flags)


@app.command(short_help="what can be built for, and run here")
def targets(json: Json = False) -> Any:
    """What can be built for, and what can run here."""
    from monobloc.cli import look

    return look.show_targets(json)


# Their arguments are clang's and lld's, so they are never parsed here: the command line calls them first.
WHOLE: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True}


def _driver(verb: str, help: str) -> None:
    @app.command(verb, context_settings=WHOLE, add_help_option=False, short_help=help, help=help)
    def call(context: typer.Context) -> int:
        import os

        from monobloc import drivers

        return drivers.main(verb, context.args, os.environ)


_driver("cc", "clang's command line: fat objects, whole-program links with models")
_driver("c++", "the same for C++")
_driver("ar", "the toolchain's archiver")
_driver("ld", "lld's command line, models among the inputs compiled")
