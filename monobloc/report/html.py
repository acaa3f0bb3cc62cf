"""A report as one page that needs nothing else: no network, no fonts, no further files.

Everything on it comes from the report's JSON, which the page carries; so the two cannot differ. Tables
and drawings are written here and can be read without scripts; the treemap is drawn by `page.js`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from monobloc.report import html_changes, html_memory
from monobloc.report.markup import bars, cards, fold, number, table

Report = dict[str, Any]
HERE = Path(__file__).parent
KINDS = {"weights": "weights", "code": "code", "data": "constants and data", "structure": "headers, tables",
         "padding": "alignment"}  # fmt: skip


def page(r: Report) -> str:
    body = [_head(r), _sizes(r), html_memory.section(r), _modes(r), html_changes.section(r), _timings(r), _details(r)]
    data = json.dumps(r, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    return (f'<!doctype html>\n<html lang="en"><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width"><title>{escape(r["image"])}: report</title>\n'
            f'<style>\n{(HERE / "page.css").read_text(encoding="utf-8")}</style>\n<body>\n{"".join(body)}\n'
            f'<script type="application/json" id="report">{data}</script>\n<script>\n{script}</script>\n</html>\n')


def _head(r: Report) -> str:
    models = ", ".join(m["title"] for m in r["models"])
    machine = " ".join(x for x in (r.get("target", ""), r.get("cpu", "")) if x)
    saved = sum(x["saved"] for x in r.get("merged", ()))
    gone = sum(x.get("bytes", 0) for m in r["models"] for x in m.get("removed", ()) if x["what"] == "weight"
               and "only removed outputs" in x["reason"])
    facts = [(number(r["bytes"]), "bytes of file")]
    facts += [(number(r["ram"]), "bytes of RAM for models")] if "ram" in r else []
    stack = max((m["stack_bound"] for m in r["models"]), default=0)
    facts += [(number(stack), "bytes of stack at most")] if stack else []
    facts += [(number(gone), "bytes of weights dropped as unread")] if gone else []
    facts += [(number(saved), "bytes saved by sharing weights")] if saved else []
    mode = f", LTO {r['options']['lto']}" if r.get("options") else ""
    what = {"exe": "Executable", "shared": "Shared library", "archive": "Archive", "object": "Relocatable"}
    kind = what.get(r.get("emit", ""), "File")
    return (f"<h1>{escape(r['image'])}</h1><p class=soft>{kind} for {escape(machine)}{mode}"
            f"{', with the models ' + escape(models) if models else ''}.</p>{cards(facts)}")


# -- sizes --------------------------------------------------------------------------------------------
def _sizes(r: Report) -> str:
    if not r.get("boxes"):
        return ""
    legend = "".join(f"<i class={k}></i>{escape(text)}" for k, text in KINDS.items())
    buttons = "".join(f'<button data-by="{k}">{escape(text)}</button> ' for k, text in (
        ("owner", "by whose it is"), ("kind", "by kind"), ("section", "by section")))
    return ("<h2>Where the bytes go</h2><p>The area of a box is its part of the file; all boxes together are "
            "the file. Click a box to go into it, and the names above the drawing to come back.</p>"
            f"<div>{buttons}<span class=legend>{legend}</span></div><div id=way style='margin:6px 0'></div>"
            "<div id=map></div><div class=tip id=tip>Point at a box to read what it is and what needs it.</div>"
            + bars("whose", r["totals"]["owner"], r["bytes"]))


def _modes(r: Report) -> str:
    rows = r.get("comparison")
    if not rows:
        return ""
    owners = list(dict.fromkeys(n for row in rows for n in row["owner"]))
    seconds = r.get("timings", {}).get("lto", {})
    head = ["bytes of", *(f"LTO {row['lto']}" for row in rows)]
    body: list[list[Any]] = [[n, *(row["owner"].get(n, 0) for row in rows)] for n in owners]
    total: list[Any] = ["the whole file", *(row["bytes"] for row in rows)]
    out = table(head, body, total)
    if seconds:
        out += f"<p class=soft>Seconds to build: {', '.join(f'{m} {s:.1f}' for m, s in seconds.items())}.</p>"
    return "<h2>LTO modes</h2><p>The same program linked in each mode: bytes by owner.</p>" + out


# -- how it was built ---------------------------------------------------------------------------------
def _timings(r: Report) -> str:
    timings = r.get("timings")
    if not timings:
        return ""
    most = max((p["seconds"] for p in timings["phases"]), default=0) or 1
    rows = [[p["phase"], f"{p['seconds']:.2f}", _bar(p["seconds"] / most), _mib(p["own_memory"]),
             _mib(p["tools_memory"])] for p in timings["phases"]]
    head = ("phase", "seconds", "", "memory of monobloc", "of clang and lld")
    return (f"<h2>Time and memory of this build</h2><p>{timings['seconds']:.1f} seconds. What the cache held was not "
            f"made again.</p>{table(head, rows, raw=(2,), right=(1, 3, 4))}")


def _bar(part: float) -> str:
    return f'<span class=bar style="width:{220 * part:.0f}px"></span>'


def _mib(n: int) -> str:
    return f"{n / 2**20:.0f} MiB" if n else ""


# -- everything else ----------------------------------------------------------------------------------
def _details(r: Report) -> str:
    out = ["<h2>Details</h2>"]
    for m in r["models"]:
        out.append(fold(f"Layers of {m['title']} ({len(m['layers'])})", table(
            ("step", "layer", "operators", "output", "kernel", "does the work of"), _layers(m))))
        weights = sorted(m["constants"], key=lambda w: (-w["bytes"], w["name"]))
        out.append(fold(f"Weights of {m['title']} ({len(weights)}, {number(m['weights'])} bytes)", table(
            ("weight", "bytes", "type", "read by"), [[w["name"], w["bytes"], w["type"], ", ".join(w["nodes"])]
                                                     for w in weights])))
    out.append(fold(f"Sections ({len(r['sections'])})", table(
        ("section", "bytes", "flags"), [[s["name"], s["bytes"], s["flags"]] for s in r["sections"]])))
    out.append(fold(f"Symbols ({len(r['symbols'])})", table(
        ("symbol", "bytes", "section"), [[s["name"], s["bytes"], s["section"]] for s in r["symbols"]])))
    settings = [[k, str(v)] for k, v in (r.get("options") or {}).items() if v is not None]
    made = [["made by", f"monobloc {r.get('monobloc', '')}, {r.get('toolchain', '')}"],
            ["sha256", r.get("sha256", "")], ["features", " ".join(r.get("features", ()))]]
    return "".join([*out, fold("How it was asked for", table((), [*made, *settings]))])


def _layers(m: Report) -> Iterable[Sequence[Any]]:
    for k, x in enumerate(m["layers"]):
        others = [n for n in x["from"] if n != x["name"]]
        yield k, x["name"], " + ".join(x["ops"]), ", ".join(x["types"]), x["kernel"] or "loops", ", ".join(others)
