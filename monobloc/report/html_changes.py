"""What the page says of the program's optimization: removed, merged, fused, inlined, and why not."""

from __future__ import annotations

from html import escape
from typing import Any

from monobloc.report.markup import count, fold, number, table

Report = dict[str, Any]


def section(r: Report) -> str:
    parts = [*(_model(m) for m in r["models"]), _merged(r), _llvm(r)]
    inner = "".join(parts)
    return f"<h2>What was optimized, and what not</h2>{inner}" if inner else ""


def _model(m: Report) -> str:
    removed = m.get("removed", [])
    out = [f"<h3>{escape(m['title'])}</h3>"]
    ports = [x for x in removed if x["what"] in ("output", "input")]
    weights = [x for x in removed if x["what"] == "weight"]
    nodes = [x for x in removed if x["what"] == "node"]
    if ports:
        out.append("<p>Not in the image: " + "; ".join(
            f"{x['what']} <code>{escape(x['name'])}</code> ({escape(x['reason'])})" for x in ports) + ".</p>")
    if weights:
        total = sum(x["bytes"] for x in weights)
        title = f"{count(len(weights), 'weight')} not in the image as in the model ({number(total)} bytes)"
        out.append(fold(title, table(
            ("weight", "bytes", "why"), [[x["name"], x["bytes"], x["reason"]] for x in weights]), bool(ports)))
    if nodes:
        out.append(fold(f"{count(len(nodes), 'node')} without code of their own", table(
            ("node", "operator", "pass", "why"), [[x["name"], x["op"], x["pass"], x["reason"]] for x in nodes])))
    if m.get("fused"):
        whole = sum(len(x["ops"]) for x in m["fused"])
        out.append(fold(f"{whole} operators run fused, as {count(len(m['fused']), 'layer')}", table(
            ("layer", "operators", "nodes of the model"),
            [[x["layer"], " + ".join(x["ops"]), ", ".join(x["from"])] for x in m["fused"]])))
    if m["decisions"]:
        rows = [[d["node"], d["pass"], d["reason"]] for d in m["decisions"]]
        out.append(fold(f"All {len(rows)} decisions, in order", table(("node", "pass", "decision"), rows)))
    return "".join(out) if len(out) > 1 else ""


def _merged(r: Report) -> str:
    rows = r.get("merged") or []
    if not rows:
        return ""
    saved = sum(x["saved"] for x in rows)
    return "<h3>Weights stored once for several tensors</h3>" + fold(
        f"{count(len(rows), 'weight')}, {number(saved)} bytes saved", table(
            ("stored as", "bytes", "saved", "tensors"),
            [[x["symbol"], x["bytes"], x["saved"],
              ", ".join(f"{t['name']} of {t['model']}" for t in x["tensors"])] for x in rows]), True)


# -- LLVM ---------------------------------------------------------------------------------------------
def _llvm(r: Report) -> str:
    told = r.get("llvm")
    if told is None:
        return ""
    out = ["<h3>Code, at the link (LLVM)</h3>"]
    for key, title in (("inlined", "inlined"), ("not_inlined", "not inlined")):
        rows = told[key]
        if rows:
            out.append(fold(f"{count(sum(x['count'] for x in rows), 'call')} {title}", table(
                ("function", "into", "times", "why not" if key == "not_inlined" else ""),
                [[x["callee"], x["into"], x["count"], x.get("reason", "")] for x in rows]), len(rows) <= 20))
    loops = told["loops"]
    if loops:
        done = sum(x["vectorized"] for x in loops)
        out.append(fold(f"Loops of {count(len(loops), 'function')}: {done} became vector loops", table(
            ("function", "vector loops", "elements", "others"),
            [[x["function"], x["vectorized"], ", ".join(x["width"]), _others(x)] for x in loops])))
    return "".join(out) if len(out) > 1 else ""


def _others(x: Report) -> str:
    words = ["written with vectors by hand"] if x["by_hand"] else []
    return "; ".join([*words, *(f"{n} times: {why}" for why, n in x["not"].items())])
