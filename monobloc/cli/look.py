"""`check`, `inspect` and `targets`: facts, nothing is built."""

from __future__ import annotations

import json as js
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from monobloc import driver, targets
from monobloc.cli import Usage, console, tables
from monobloc.cli.flags import Flags
from monobloc.cli.settings import options, work_on
from monobloc.errors import LinkError, ModelError, MonoblocError
from monobloc.frontend.describe import Facts, describe
from monobloc.ir.text import copy_graph, print_graph
from monobloc.link.objects import Module
from monobloc.object import ar, elf, fat
from monobloc.options import Options
from monobloc.report import facts, store, why


# -- check --------------------------------------------------------------------------------------------
def check(models: list[Path], json: bool, flags: Flags) -> int:
    work = work_on(models, flags)
    if not work.models:
        raise Usage("no model to check")
    bad = 0
    for path, o in work.models:
        known = facts_of_model(path, o)
        plan = facts.estimate(known.imported.graph, o) if known.imported else None
        if json:
            console.say(js.dumps(_check_json(known, plan)))
        else:
            _show_check(path, known, plan, o)
        bad += known.imported is None
    return 1 if bad else 0


def facts_of_model(path: Path, o: Options) -> Facts:
    """What the file is, and the graph as the options ask for it."""
    known = describe(path, driver.choices_of(o))
    return replace(known, imported=driver.import_model(path, o)) if known.imported and o.start_from else known


def _check_json(f: Facts, plan: facts.Estimate | None) -> dict[str, Any]:
    return {
        "model": f.name, "ok": f.imported is not None, "producer": f.producer, "opsets": f.opsets,
        "inputs": {p.name: p.type for p in f.inputs}, "outputs": {p.name: p.type for p in f.outputs},
        "ops": f.ops, "weights": f.weight_bytes, "unsupported": [str(e) for e in f.unsupported],
        "problems": [str(e) for e in f.problems], "notes": list(f.notes),
        "arena": plan.arena if plan else None, "arena_bound": plan.bound if plan else None,
        "weights_packed": plan.weights if plan else None,
    }


def _show_check(path: Path, f: Facts, plan: facts.Estimate | None, o: Options) -> None:
    console.heading(f"{path.name} for {o.target.name} {o.target.cpu}")
    kinds = ", ".join(f"{console.size(n)} {t}" for t, n in f.weight_bytes_by_type.items())
    rows: list[tuple[str, Any]] = [
        ("made by", f.producer or "unknown"), ("opset", opsets(f)),
        *[("input" if not k else "", f"{p.name} {p.type}") for k, p in enumerate(f.inputs)],
        *[("output" if not k else "", f"{p.name} {p.type}") for k, p in enumerate(f.outputs)],
        ("nodes", f"{sum(f.ops.values())}: " + ", ".join(f"{n} {op}" for op, n in f.ops.items())),
        ("weights", f"{console.size(f.weight_bytes)}" + (f" ({kinds})" if len(f.weight_bytes_by_type) > 1 else "")),
    ]
    if plan is not None:
        rows += [("arena", f"{console.size(plan.arena)} of RAM (lower bound {console.size(plan.bound)})"),
                 ("flash", f"{console.size(plan.weights)} of weights, and code"),
                 ("layers", f"{plan.layers} after fusing")]
    console.facts(rows)
    console.notes(f.notes)
    console.problems([*f.problems, *f.unsupported])
    if f.imported is not None:
        console.say(f"everything is supported: `monobloc build {path}`")


def opsets(f: Facts) -> str:
    if "tflite" in f.opsets:
        return f"TFLite, version {f.ir_version} of the format"
    if "aten" in f.opsets:
        return f"ATen {f.opsets['aten']}"
    named = (f"{domain or 'ai.onnx'} {v}" for domain, v in f.opsets.items())
    return ", ".join(named) + f" (IR {f.ir_version})"


# -- inspect ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Inspect:
    """What of a file to show"""

    name: str | None = None  # of `--why`
    graph: bool = False
    everything: bool = False
    json: bool = False


def inspect(file: Path, how: Inspect, flags: Flags) -> int:
    if not file.is_file():
        raise LinkError(f"cannot read `{file}`: no such file")
    o = options(flags)
    if how.graph:
        return _show_graphs(file, o)
    if file.suffix == ".mb":
        raise ModelError(f"`{file}` is a dump, which is text", hints=[f"`monobloc opt {file}` runs passes on it"])
    report = report_of(file, o)
    if how.name is not None:
        return _why(report, how.name, how.json)
    if how.json:
        console.say(js.dumps(report, indent=1))
        return 0
    if file.suffix != ".json":
        _show_object(file)
    tables.show(report, how.everything)
    return 0


def report_of(file: Path, o: Options) -> dict[str, Any]:
    """The facts of any file: made anew from a graph, read from a report, or kept from an image's build."""
    if file.suffix == ".json":
        return _read_report(file)
    modules = _modules(file, o)
    if modules:
        return _of_modules(file, modules, o)
    data = ar.map_file(file)
    if not elf.is_elf(data) and not ar.is_archive(data):
        raise LinkError(f"`{file}` is neither a model, an object, an image nor a report")
    known = store.find(file, driver.open_cache(o))
    if known is not None:
        return known
    if elf.is_elf(data):
        console.note("not built here, or with `--no-cache`: layers and memory plan are in the build's `--report`")
    return {"report": facts.FORMAT, "image": file.name, "bytes": len(data), **facts.of_bytes(data), "models": []}


def _read_report(file: Path) -> dict[str, Any]:
    try:
        report = js.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as e:
        raise ModelError(f"`{file}` is no report: {e}") from None
    if not isinstance(report, dict) or "report" not in report:
        raise ModelError(f"`{file}` is no report", hints=["`monobloc build --report` writes one"])
    if report["report"] != facts.FORMAT:
        raise ModelError(f"`{file}` is a report of version {report['report']}, version {facts.FORMAT} is read",
                         hints=["`monobloc build --report` writes one"])
    return report


def _modules(file: Path, o: Options) -> list[Module]:
    if driver.is_model(file):
        return [driver.module_of(file, driver.import_model(file, o), o)]
    return facts.modules_of(file)


def _of_modules(file: Path, modules: Sequence[Module], o: Options) -> dict[str, Any]:
    data = ar.map_file(file)
    programs = [facts.program_of(m, o) for m in modules]
    return {
        "report": facts.FORMAT, "image": file.name, "bytes": len(data), "target": o.target.name, "cpu": o.target.cpu,
        "features": list(o.target.features), "options": facts.options_facts(o),
        **facts.of_bytes(data, programs), "models": [
            {**facts.of_program(p), **facts.fate(m.graph, p)} for m, p in zip(modules, programs, strict=True)],
    }


def _show_object(file: Path) -> None:
    """What stage 1 wrote into an object: the summary of each."""
    data = ar.map_file(file)
    if driver.is_model(file) or not (ar.is_archive(data) or fat.is_monobloc(data)):
        return
    for x in fat.read(file):
        s = x.summary
        console.heading(f"object {x.name}")
        console.facts([
            ("prefix", s["prefix"]), ("model", s["title"]),
            *(("input", f"{n} {t}") for n, t in s["inputs"]), *(("output", f"{n} {t}") for n, t in s["outputs"]),
            ("code for", f"{s['target']} {s['cpu']} {','.join(s['features'])}".rstrip()),
            ("format", f"{s['format']}, LLVM {s['llvm']}"),
            ("graph", f"{len(x.ir):,} characters, {s['graph_hash'][:16]}"),
            ("bitcode", console.size(memoryview(x.bitcode).nbytes)),
            ("weights", f"{console.size(sum(s['weights'].values()))} in {len(s['weights'])} tensors"),
        ])
        console.say()


def _show_graphs(file: Path, o: Options) -> int:
    modules = _modules(file, o)
    if not modules:
        raise LinkError(f"`{file}` holds no graph", hints=["models, objects and archives do"])
    for g in (g for m in modules for g in m.graphs):
        console.say(print_graph(copy_graph(g)))
    return 0


def _why(report: dict[str, Any], name: str, json: bool) -> int:
    """Everything that is called so: what it is, who keeps it, what was decided about it."""
    found = why.explain(report, name)
    if not found:
        raise ModelError(f"nothing in `{report['image']}` is called '{name}'", hints=why.similar(report, name))
    if json:
        console.say(js.dumps([a.facts for a in found]))
        return 0
    for a in found:
        console.heading(a.title)
        for line in a.lines:
            console.say(f"  {line}")
        _show_chain(a.chain)
        if a.decisions:
            console.table(("node", "pass", "reason"), [(d["node"], d["pass"], d["reason"]) for d in a.decisions])
    return 0


def _show_chain(chain: list[str] | None) -> None:
    """Who refers to it, one a line; the last is what a loader or another file reaches."""
    if chain is None:
        return
    for k, name in enumerate(chain):
        console.say(f"  {'needed by' if k == 0 else '      by'} {name}")
    console.say("  which the image starts with or offers" if chain else "  the image starts with it or offers it")


# -- targets ------------------------------------------------------------------------------------------
def targets_facts() -> dict[str, Any]:
    rows = []
    for name in targets.names():
        t = targets.resolve(name)
        emulator = t.runner[0] if t.runner else ""
        rows.append({
            "name": name, "triple": t.triple, "cpus": list(targets.cpus(name)), "features": _features(name),
            "runs": "here" if targets.runs_here(t) else emulator if emulator and shutil.which(emulator) else "",
            "emulator": emulator,
        })
    try:
        host = targets.resolve()
        here: dict[str, Any] | None = {"target": host.name, "cpu": host.cpu, "features": list(host.features)}
    except MonoblocError:
        here = None
    return {"host": here, "targets": rows}


def _features(name: str) -> list[str]:
    """Names `--features` takes"""
    module = targets._module(name)  # noqa: SLF001
    return sorted(getattr(module, "FEATURES", {}))


def show_targets(json: bool) -> int:
    found = targets_facts()
    if json:
        console.say(js.dumps(found))
        return 0
    rows = [[t["name"], " ".join(t["cpus"]), _runs(t)] for t in found["targets"]]
    console.table(("target", "--cpu", "runs"), rows)
    here = found["host"]
    if here:
        console.say(f"host is {here['target']} --cpu {here['cpu']} --features {','.join(here['features'])}".rstrip())
    for t in found["targets"]:
        console.say(f"{t['name']} --features: {' '.join(t['features'])}")
    return 0


def _runs(t: dict[str, Any]) -> str:
    if t["runs"]:
        return "here" if t["runs"] == "here" else f"in {t['runs']}"
    return f"in {t['emulator']}, not installed (apt-get install qemu-user)" if t["emulator"] else "no"
