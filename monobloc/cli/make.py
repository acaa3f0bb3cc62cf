"""`build`, `compile` and `link`: files in, files out, one line about each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from monobloc import driver
from monobloc.cli import Usage, console
from monobloc.cli.flags import Flags
from monobloc.cli.settings import Work, options, source_flags, thread_counts, work_on
from monobloc.cli.words import files_and_options
from monobloc.errors import LinkError
from monobloc.frontend import MODEL_SUFFIXES
from monobloc.link.image import Image
from monobloc.link.line import SOURCE_SUFFIXES
from monobloc.link.request import Progress
from monobloc.object import toolchain
from monobloc.options import EMIT_OF_SUFFIX, Emit, Lto, Options
from monobloc.report import comparison, depfile, facts, store, write
from monobloc.report.phases import Phases

Report = dict[str, Any]
Make = Callable[[Path, Lto, Progress], Report]  # an image in one LTO mode, and its report
_LINKER_FLAGS = {"script": "-T", "map": "-Map", "undefined": "-u", "entry": "-e", "wrap": "--wrap",
                 "linker_word": "-Xlinker"}


def build(files: list[str], output: Path | None, flags: Flags) -> int:
    words = files_and_options(files)
    work = work_on([w for w in words if isinstance(w, Path)], flags, output)
    _one_thread_count(work.flags)
    if not work.models and not work.files:
        raise Usage("no file to build")
    first = (*(m for m, _ in work.models), *work.files)[0]
    out = work.output or _default_output(first, work.flags.get("emit"))
    emit: Emit = work.flags.get("emit") or EMIT_OF_SUFFIX.get(out.suffix, "exe")
    _not_over_an_input(out, [*(m for m, _ in work.models), *work.files])
    inputs: list[Path] = [*(m for m, _ in work.models), *work.files]
    if any(isinstance(w, str) for w in words):
        raise Usage("options between files are for `monobloc link`")
    o = _for_report(_linker_words(work.options, work.flags, emit), work.flags)
    notes: list[str] = []

    def make(path: Path, lto: Lto, progress: Progress) -> Report:
        own = {m: replace(mo, map=o.map, link_args=o.link_args, lto=lto, remarks=o.remarks) for m, mo in work.models}
        whole = own[first] if inputs == [first] and first in own else replace(o, lto=lto)
        made = driver.build(inputs, path, emit, _as_asked(whole, o), progress, *_libraries(work.flags),
                            {m: _as_asked(mo, o) for m, mo in own.items()}, source_flags(work.flags))
        notes[:] = [n for i in made.imported.values() for n in i.notes]
        return _report(made.image, emit, whole, {p: i.notes for p, i in made.imported.items()})

    report = _measured(make, out, o, work.flags)
    console.notes(notes)
    _finish(report, out, inputs, work)
    return 0


def compile_one(file: Path, output: Path | None, header: Path | None, flags: Flags) -> int:
    _one_thread_count(flags)
    out = output or Path(file.stem + ".o")
    work = work_on([file], flags, out)
    _not_over_an_input(out, [file])
    if file.suffix in SOURCE_SUFFIXES:
        with console.progress():
            driver.compile_source(file, out, work.options, source_flags(work.flags))
        console.say(f"{out}: {console.size(out.stat().st_size)}")
    elif driver.is_model(file) and (work.models[0][1].split_at or work.models[0][1].partitions > 1):
        _compile_parts(file, out, work.models[0][1], header, flags)
        return 0
    elif driver.is_model(file):
        with console.progress() as progress:
            imported = driver.compile_to_object(file, out, work.models[0][1], header, progress)
        console.notes(imported.notes)
        console.say(f"{out}: {console.size(out.stat().st_size)}, header {header or out.with_suffix('.h')}")
        if "report" in flags:
            write(facts.of_objects([out], work.options), flags["report"])
    else:
        raise Usage(f"`{file}` is neither a model nor a source file\n"
                    f"  hint: models end in {', '.join(MODEL_SUFFIXES)}")
    depfile.write(work.flags.get("depfile"), out, [file, *_project(work)])
    return 0


def _compile_parts(file: Path, out: Path, o: Options, header: Path | None, flags: Flags) -> None:
    """A model as several objects, which have one interface when they are linked."""
    if o.split_at and o.partitions > 1:
        raise Usage("`--split-at` says where to cut and `--partitions` how often: give one of them")
    asked = ["--header"] * (header is not None) + [f"--{k}" for k in ("report", "depfile") if k in flags]
    if asked:
        raise Usage(f"`{asked[0]}` is not for parts of a model, of which `{file}` becomes several\n"
                    "  hint: the image that they are linked to has a header, a report and dependencies")
    with console.progress() as progress:
        imported = driver.import_model(file, o)
        made = driver.compile_parts(driver.module_of(file, imported, o), out, o, progress)
    console.notes(imported.notes)
    for path in made:
        console.say(f"{path}: {console.size(path.stat().st_size)}")


def link(files: list[str], output: Path | None, relocatable: bool, flags: Flags) -> int:
    _one_thread_count(flags)
    words = files_and_options(files)
    paths = [w for w in words if isinstance(w, Path)]
    if not paths:
        raise Usage("no object to link")
    for p in paths:
        if driver.is_model(p):
            raise LinkError(f"`{p}` is a model, and `link` takes objects",
                            hints=[f"`monobloc build {p} -o OUT` does both steps", f"`monobloc compile {p}` first"])
    emit = _link_emit(output, relocatable, flags)
    out = output or (Path("a.o") if emit == "object" else _default_output(paths[0], emit))
    _not_over_an_input(out, paths)
    o = _for_report(_linker_words(options(flags), flags, emit), flags)

    def make(path: Path, lto: Lto, progress: Progress) -> Report:
        mine = _as_asked(replace(o, lto=lto), o)
        return _report(driver.link(words, path, emit, mine, progress, *_libraries(flags)), emit, mine, {})

    report = _measured(make, out, o, flags)
    _finish(report, out, paths, Work(o, files=tuple(paths), output=out, flags=flags))
    return 0


def _link_emit(output: Path | None, relocatable: bool, flags: Flags) -> Emit:
    if relocatable and flags.get("emit", "object") != "object":
        raise Usage(f"`-r` makes an object, and `--emit {flags['emit']}` asks for something else")
    if relocatable:
        return "object"
    named = EMIT_OF_SUFFIX.get(output.suffix, "exe") if output else "exe"
    return cast(Emit, flags.get("emit") or named)


# -- parts --------------------------------------------------------------------------------------------
def _one_thread_count(flags: Flags) -> None:
    if len(thread_counts(flags)) > 1:
        raise Usage("several `--threads` are for `monobloc bench`; an image is built for one number, its most")


def _default_output(first: Path, emit: Emit | None) -> Path:
    """The first input's stem, with the suffix of what is made."""
    suffix = next((s for s, e in EMIT_OF_SUFFIX.items() if e == emit), "")
    out = Path(first.stem + suffix)
    return out if out != first and out.name != first.name else Path(f"{first.stem}.out")


def _not_over_an_input(out: Path, inputs: list[Path]) -> None:
    for p in inputs:
        if out.exists() and p.exists() and out.samefile(p):
            raise Usage(f"`-o {out}` would overwrite the input `{p}`")
    if out.is_dir():
        raise Usage(f"`-o {out}` is a folder")


def _linker_words(o: Options, flags: Flags, emit: Emit) -> Options:
    """`-T`, `-Map` and their like are for the link that lays an image out: of executables and shared libraries."""
    if emit not in ("exe", "shared"):
        if asked := [word for name, word in _LINKER_FLAGS.items() if name in flags]:
            raise Usage(f"`{asked[0]}` is for executables and shared libraries")
        return o
    script = flags.get("script")
    if script is not None and not script.is_file():
        raise LinkError(f"cannot read `{script}`: no such file")
    words = ["-T", str(script)] if script is not None else []
    words += [f"--entry={flags['entry']}"] if "entry" in flags else []
    words += [f"--{name}={symbol}" for name in ("undefined", "wrap") for symbol in flags.get(name, ())]
    return replace(o, map=flags.get("map"), link_args=(*words, *flags.get("linker_word", ())))


def _libraries(flags: Flags) -> tuple[list[str], list[Path]]:
    return list(flags.get("lib", [])), [Path(d) for d in flags.get("libdir", [])]


def _for_report(o: Options, flags: Flags) -> Options:
    """A report that is written tells LLVM's decisions too."""
    if flags.get("compare_lto") and "report" not in flags:
        raise Usage("`--compare-lto` is a part of the report: name it with `--report`")
    return replace(o, remarks="report" in flags)


def _as_asked(o: Options, asked: Options) -> Options:
    """Other LTO modes are linked for their sizes only: no map, no remarks."""
    return o if o.lto == asked.lto else replace(o, map=None, remarks=False, dump=None)


def _measured(make: Make, out: Path, o: Options, flags: Flags) -> Report:
    """The image and its report, with the times of its phases, and the other modes beside it where wanted."""
    with console.progress() as progress:
        if "report" not in flags:
            return make(out, o.lto, progress)
        with Phases(progress) as phases:
            report = make(out, o.lto, phases)
        report["timings"] = phases.facts()
        if flags.get("compare_lto"):
            report["comparison"], report["timings"]["lto"] = _other_modes(make, report, out, phases)
        return report


def _other_modes(make: Make, report: Report, out: Path, phases: Phases) -> tuple[list[Report], Report]:
    """Sizes in every LTO mode, and the seconds each took."""
    seconds = {report["options"]["lto"]: report["timings"]["seconds"]}

    def other(mode: str) -> Report:
        with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp, Phases(phases.tell) as mine:
            made = make(Path(tmp) / out.name, cast(Lto, mode), mine)
        seconds[mode] = mine.facts()["seconds"]
        return made

    return comparison.compare(report, other), seconds


def _report(image: Image, emit: Emit, o: Options, notes: dict[str, list[str]]) -> Report:
    """Facts of an image; those of an unchanged one may be at hand."""
    cache = driver.open_cache(o)
    work = {"partitions": asdict(image.partitions)}  # of this build, not of the image
    known = store.find(image.path, cache, image.modules) if image.cached else None
    if known is not None and (known["llvm"] is not None or not o.remarks):
        store.keep(known, cache, image.modules)
        return {**known, "image": image.path.name, **work}
    report = facts.of_image(image, emit, o, toolchain.tool_version(), notes)
    store.keep(report, cache, image.modules)
    return {**report, **work}


def _project(work: Work) -> list[Path]:
    return [work.project] if work.project else []


def _finish(report: Report, out: Path, inputs: list[Path], work: Work) -> None:
    if "report" in work.flags:
        write(report, work.flags["report"])
    depfile.write(work.flags.get("depfile"), out, [*inputs, *_project(work)])
    console.say(f"{out}: {console.size(out.stat().st_size)}, {report['emit']} for {report['target']} {report['cpu']}")
    for m in report["models"]:
        above = m["arena"] / m["arena_bound"] - 1 if m["arena_bound"] else 0
        bound = "the least possible" if above <= 0 else f"{100 * above:.1f}% over the bound"
        console.say(f"  {m['title']}: arena {console.size(m['arena'])} ({bound}), weights {console.size(m['weights'])}")
        if m.get("removed_outputs"):
            console.say(f"  {m['title']}: outputs nobody reads are gone: {', '.join(m['removed_outputs'])}")
    if p := report.get("partitions", {}).get("count", 0):
        console.say(f"  compiled {report['partitions']['compiled']} of {p} partitions")
