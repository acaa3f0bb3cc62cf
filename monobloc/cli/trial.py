"""`try`: all of it on one model, one table, the next commands."""

from __future__ import annotations

import math
import shlex
import tempfile
from pathlib import Path
from typing import Any

from monobloc import bench_run, driver, verify_run
from monobloc.cli import Usage, console, measure
from monobloc.cli.flags import CODE, FIXED, FLAGS, MACHINE, MODEL, Flags, word_of
from monobloc.cli.look import facts_of_model, opsets
from monobloc.cli.settings import work_on
from monobloc.errors import MonoblocError
from monobloc.feeds import random_feeds
from monobloc.frontend import MODEL_SUFFIXES
from monobloc.frontend.describe import Facts
from monobloc.object import toolchain
from monobloc.options import Options
from monobloc.oracles import own_oracle
from monobloc.report import facts, write
from monobloc.run_image import Built, Executable, build_to_run
from monobloc.targets import runs_here

Report = dict[str, Any]


def try_model(path: Path, seed: int, flags: Flags) -> int:
    work = work_on([path], flags)
    if not work.models:
        raise Usage(f"`{path}` is no model\n  hint: models end in {', '.join(MODEL_SUFFIXES)}")
    o = work.models[0][1]
    with console.progress() as progress:
        progress(f"reading {path.name}")
        known = facts_of_model(path, o)
        if known.imported is None:
            progress.clear()
            console.problems([*known.problems, *known.unsupported])
            return 1
        built = build_to_run(path, o, progress)
        exe, report = _executable(path, o, progress)
        progress(f"verifying {path.name}")
        errors, bad = _errors(path, o, built, seed)
        progress(f"timing {path.name}")
        times = _times(path, o, built, seed)
    console.notes(known.notes)
    if "report" in flags:
        write(report, flags["report"])
    console.heading(f"{path.name} on {o.target.name} {o.target.cpu}")
    console.facts([*_what(known), *_sizes(exe, report), ("error", errors), *times])
    _next(path, flags)
    return 1 if bad else 0


def _executable(path: Path, o: Options, progress: console.Progress) -> tuple[int, Report]:
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        out = Path(tmp) / path.stem
        made = driver.build([path], out, "exe", o, progress)
        return out.stat().st_size, facts.of_image(made.image, "exe", o, toolchain.tool_version(), {})


def _what(f: Facts) -> list[tuple[str, str]]:
    assert f.imported is not None
    g = f.imported.graph
    ops = ", ".join(f"{n} {op}" for op, n in list(f.ops.items())[:5])
    ins = ", ".join(f"{v.origin or v.name} {v.type}" for v in g.inputs)
    outs = ", ".join(f"{n} {v.type}" for n, v in g.outputs[:6]) + (", ..." if len(g.outputs) > 6 else "")
    return [("model", f"{sum(f.ops.values())} nodes ({ops}), "
             + (f"opset {f.opsets['']}" if "" in f.opsets else opsets(f))),
            ("inputs", ins or "none"), ("outputs", outs)]


def _sizes(exe: int, report: Report) -> list[tuple[str, str]]:
    m = report["models"][0]
    return [("executable", f"{console.size(exe)}, all it needs (weights {console.size(m['weights'])})"),
            ("arena", f"{console.size(m['arena'])} of RAM (lower bound {console.size(m['arena_bound'])})")]


def _errors(path: Path, o: Options, built: Built, seed: int) -> tuple[str, bool]:
    """The worst output, in words, and whether it is over the tolerance."""
    feeds = random_feeds(built.image.inputs, seed, built.limits)
    own = own_oracle(path)
    oracle = "onnxruntime" if verify_run.has_onnxruntime() and not o.start_from else "reference"
    if own is not None:
        oracle = measure.oracle_of(path, o, own.NAME)
    elif not verify_run.has_onnxruntime():
        console.note(f"onnxruntime is not installed: compared with our own reference\n"
                     f"  hint: {verify_run.INSTALL}")
    try:
        found = measure.compared(path, o, built, feeds, measure.Verify(against=oracle))
    except MonoblocError as e:
        return f"not compared: {e}", False
    worst = max(found, key=lambda d: (not d.ok, d.used if math.isfinite(d.used) else math.inf))
    words = worst.problem or (f"abs {console.number(worst.abs)}, rel {console.number(worst.rel)}, "
                              f"ulp {console.number(worst.ulp)}")
    verdict = "ok" if worst.ok else "FAIL"
    return f"{verdict}: {words} against {oracle}, in {worst.name} (random data, seed {seed})", not worst.ok


def _times(path: Path, o: Options, built: Built, seed: int) -> list[tuple[str, str]]:
    if isinstance(built.image, Executable) or not runs_here(o.target):
        return [("latency", "not timed: runs in an emulator")]
    feeds = random_feeds(built.image.inputs, seed, built.limits)
    contenders = [bench_run.ours(built.image, feeds, o.threads)]  # type: ignore[arg-type]
    own = own_oracle(path)
    there = own.installed() if own is not None else verify_run.has_onnxruntime()
    if there and not o.start_from:
        try:
            contenders.append(bench_run.peer("onnxruntime", path, {**feeds, **o.bind}, o.threads))
        except MonoblocError as e:
            console.warning(str(e))
    found = bench_run.interleave(contenders, 0.7)
    words = f"{console.seconds(found[0].median)} (median, {o.threads} thread{'s' * (o.threads > 1)})"
    if len(found) > 1:
        ratio = found[0].median / found[1].median
        words += f"; {contenders[1].name} {console.seconds(found[1].median)}, ratio {ratio:.2f}"
    return [("latency", words)]


def _next(path: Path, flags: Flags) -> None:
    given = _again(flags)
    console.say()
    console.say("next:")
    name, stem = shlex.quote(str(path)), shlex.quote(path.stem)
    commands = (
        (f"monobloc build {name}{given} -o {stem}", "an executable: ./" + path.stem + " x.npy -o y.npy"),
        (f"monobloc build {name}{given} -o {stem}.so", "a library: monobloc.load, or dlopen"),
        (f"monobloc compile {name}{given} -o {stem}.o", "an object and a header for your C program"),
        (f"monobloc bench {name}{given} --per-layer", "where the time goes"),
        (f"monobloc build {name}{given} --report r.html", "where the memory goes"),
    )
    width = max(len(words) for words, _ in commands)
    for words, why in commands:
        console.say(f"  {words:<{width}}  # {why}")


def _again(flags: Flags) -> str:
    """What decides the code, to be typed again."""
    words = []
    for key in (key for group in (MACHINE, MODEL, FIXED, CODE) for key in FLAGS[group]):
        values = flags.get(key, [])
        for v in values if isinstance(values, list) else [values]:
            words.append(f" --{word_of(key)}" + ("" if v is True else f" {shlex.quote(str(v))}"))
    return "".join(words)
