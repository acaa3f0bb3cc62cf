"""What a report says about one name: why it is in the image, or which decision took it out.

A name may be a symbol, a tensor, a weight, a layer, a node of the model, an output, a file or a library,
and several of these at once; every answer is given.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from monobloc.report.demangle import readable

Report = dict[str, Any]


@dataclass
class Answer:
    """One thing of that name: what is known, who keeps it, what was decided about it."""

    title: str
    lines: list[str] = field(default_factory=list)
    chain: list[str] | None = None  # who refers to it, up to what a loader reaches
    decisions: list[Report] = field(default_factory=list)

    @property
    def facts(self) -> Report:
        return {"title": self.title, "facts": self.lines, "chain": self.chain, "decisions": self.decisions}


def explain(r: Report, name: str) -> list[Answer]:
    found = [*_symbols(r, name), *_groups(r, name)]
    for m in r["models"]:
        found += [*_layers(m, name), *_tensors(m, name), *_weights(r, m, name), *_ports(m, name), *_gone(m, name)]
        decided = _decisions(m, name)
        if decided:
            found.append(Answer(f"decisions about {name} in model {m['title']}", decisions=decided))
    return [*found, *_inlined(r, name)]


# -- what is in the file ------------------------------------------------------------------------------
def _symbols(r: Report, name: str) -> Iterator[Answer]:
    for b in (*r.get("boxes", ()), *r.get("memory", ())):
        if name in (b["path"][-1], *_symbols_of(b)):
            a = Answer(f"{b['bytes']:,} bytes of {b['section']}: {' > '.join(b['path'])}", chain=_chain(b))
            if b.get("also"):
                a.lines.append(f"the same bytes are {', '.join(b['also'])}: equal code is kept once")
            a.lines += [f"used by {u}" for u in b.get("users", ())]
            if a.chain is None and b in r.get("boxes", ()):
                a.lines.append(_unreached(r))
            yield a


def _symbols_of(b: Report) -> tuple[str, ...]:
    return (b.get("symbol", ""), *b.get("also", ()))


def _chain(b: Report) -> list[str] | None:
    return list(b["chain"]) if "chain" in b else None


def _unreached(r: Report) -> str:
    if r.get("emit") in ("object", "archive"):
        return "a relocatable keeps what it has; whoever links it drops what nothing names"
    return "no reference to it is known: the file itself needs it, or its references were not recorded"


def _groups(r: Report, name: str) -> Iterator[Answer]:
    """Files and libraries: all of theirs, and who reaches for the first of it."""
    for depth in (0, 1):
        inside: dict[tuple[str, ...], list[Report]] = {}
        for b in r.get("boxes", ()):
            if name in (b["path"][depth], b["path"][depth].removeprefix("library ")):
                inside.setdefault(tuple(b["path"][: depth + 1]), []).append(b)
        for path, rows in inside.items():
            named = [b["symbol"] for b in rows if "symbol" in b]
            a = Answer(f"{sum(b['bytes'] for b in rows):,} bytes: {' > '.join(path)}")
            if named:
                more = f" and {len(named) - 8} more" if len(named) > 8 else ""
                a.lines.append(f"holds {', '.join(named[:8])}{more}")
            reached = [b for b in rows if "chain" in b]
            if reached:
                first = min(reached, key=lambda b: len(b["chain"]))
                a.chain = [str(first.get("symbol", first["path"][-1])), *first["chain"]]
            yield a


# -- models -------------------------------------------------------------------------------------------
def _layers(m: Report, name: str) -> Iterator[Answer]:
    for x in m["layers"]:
        if name == x["name"] or name in x["from"]:
            kernel = x["kernel"] or "loops"
            work = f"{' + '.join(x['ops'])} as {kernel} -> {', '.join(x['types'])}"
            a = Answer(f"layer {x['name']} of {m['title']}: {work}")
            if len(x["from"]) > 1:
                a.lines.append(f"does the work of {', '.join(x['from'])}")
            if x["weights"]:
                a.lines.append(f"reads {', '.join(x['weights'])}")
            yield a
    if name in m["views"]:
        yield Answer(f"{name} of {m['title']} is a view: no code, no memory of its own")


def _tensors(m: Report, name: str) -> Iterator[Answer]:
    for b in m["buffers"]:
        if b["name"] == name:
            where = f"{b['bytes']:,} bytes at {b['offset']:,} of the memory of {m['title']}"
            yield Answer(f"tensor {name} {b['type']}: {where}",
                         [f"made by layer {b['node'] or '(an input)'}, alive from step {b['first']} to {b['last']}"])


def _weights(r: Report, m: Report, name: str) -> Iterator[Answer]:
    for w in m["constants"]:
        if name in (w["name"], w["symbol"]) or w["name"].startswith(f"{name}."):
            a = Answer(f"weight {w['name']} {w['type']} of {m['title']}: {w['bytes']:,} bytes as {w['symbol']}")
            a.lines.append(f"read by {', '.join(w['nodes'])}")
            box = next((b for b in r.get("boxes", ()) if w["symbol"] in _symbols_of(b)), None)
            if box and name not in (*_symbols_of(box), box["path"][-1]):  # else it was told already
                a.chain = _chain(box)
            yield a
    for x in r.get("merged", ()):
        for t in x["tensors"]:
            if t["model"] == m["title"] and name in (t["name"], x["symbol"]):
                others = ", ".join(f"{o['name']} of {o['model']}" for o in x["tensors"] if o != t)
                yield Answer(f"weight {t['name']} of {m['title']} is stored once with {others}",
                             [f"{x['saved']:,} bytes saved"])
                break


def _ports(m: Report, name: str) -> Iterator[Answer]:
    for kind, ports in (("in", m["inputs"]), ("out", m["outputs"])):
        if any(p["name"] == name for p in ports):
            chain = m.get("readers", {}).get(f"{kind} {name}")
            a = Answer(f"{kind}put {name} of {m['title']}", chain=chain)
            a.lines.append("living code names it" if chain else "a part of the interface")
            yield a


def _gone(m: Report, name: str) -> Iterator[Answer]:
    for x in m.get("removed", ()):
        if x["name"] == name:
            size = f", {x['bytes']:,} bytes" if "bytes" in x else ""
            by = f" (pass {x['pass']})" if x.get("pass") else ""
            yield Answer(f"{x['what']} {name}{size} of {m['title']} is not in the image: {x['reason']}{by}")


def _decisions(m: Report, name: str) -> list[Report]:
    wanted = {name} | {x["name"] for x in m["layers"] if name in x["from"] or x["name"].removeprefix("fused.") == name}
    wanted |= {b["node"] for b in m["buffers"] if b["name"] == name and b["node"]}
    for w in m["constants"]:
        if name in (w["name"], w["symbol"]):
            wanted |= set(w["nodes"])
    return [d for d in m["decisions"] if d["node"] in wanted or d["node"].startswith(f"{name}.")]


# -- code that was inlined ----------------------------------------------------------------------------
def _inlined(r: Report, name: str) -> Iterator[Answer]:
    told = r.get("llvm") or {}
    for x in told.get("inlined", ()):
        if x["callee"] in (name, readable(name)):
            yield Answer(f"{x['callee']} was inlined into {x['into']}")
    for x in told.get("not_inlined", ()):
        if x["callee"] in (name, readable(name)):
            yield Answer(f"{x['callee']} was not inlined into {x['into']}: {x['reason']}")


# -- nothing of that name -----------------------------------------------------------------------------
def similar(r: Report, name: str) -> list[str]:
    """Hints: names that look like it."""
    near = difflib.get_close_matches(name, sorted(_names(r)), 3)
    return [f"did you mean {' or '.join(repr(n) for n in near)}?"] if near else ["`monobloc inspect` lists the layers"]


def _names(r: Report) -> set[str]:
    out = {str(n) for b in (*r.get("boxes", ()), *r.get("memory", ())) for n in (b.get("symbol"), *b["path"][1:]) if n}
    out |= {x["callee"] for k in ("inlined", "not_inlined") for x in (r.get("llvm") or {}).get(k, ())}
    for m in r["models"]:
        out |= {x["name"] for k in ("layers", "buffers", "constants", "inputs", "outputs") for x in m[k]}
        out |= {x["name"] for x in m.get("removed", ())} | {d["node"] for d in m["decisions"]}
    return out
