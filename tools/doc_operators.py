"""docs/operators.md and the tables of docs/numerics.md: what OpDefs say of themselves, as pages.

    operators.md   operator x opset x element type, how it is compiled, and on which targets
    numerics.md    per operator its tolerance and what it promises of unusual operands; who answers otherwise, and why
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from monobloc.frontend.coverage import Coverage, coverage
from monobloc.frontend.signature import opset_newest, signature
from monobloc.frontend.tflite.importer import READERS
from monobloc.frontend.tflite.refused import reason
from monobloc.frontend.tflite.schema import OPERATORS
from monobloc.ir.types import DType
from monobloc.ops import EXACT, OpDef, registry
from monobloc.ops.contract import Edge
from monobloc.targets import names as target_names
from monobloc.targets import resolve

DOCS = Path(__file__).resolve().parents[1] / "docs"
FLOATS = tuple(d for d in DType if d.is_float)
INTEGERS = tuple(d for d in DType if d.is_int)
CODES = tuple(d for d in DType if d.is_code)
TOPICS = ("NaN", "infinities", "-0.0", "overflow", "division by 0", "indices", "ties", "nothing", "other")


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def sentence(text: str) -> str:
    """Up to the first full stop or blank line, on one line."""
    head = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[a-z0-9)])\. ", head)[0].rstrip(".")


# -- operators ----------------------------------------------------------------------------------------
OPERATORS_INTRO = """An operator that is not here is an error that names the node.

*Opsets*: those in which ONNX changed the operator and which are read, each as ONNX then defined it; the last one holds
from there on. *Types*: of the operator's first operand of variable type; `ints` are the eight of 8 to 64 bits, `codes`
the types of at most 8 bits that C does not have (int4, uint4, int2, uint2, float8, float4). *Compiled to*: `kernel` a
register-tiled kernel where shapes and types allow, else loops; `loops` an expression that becomes a loop nest and fuses
with its neighbours; `routine` C of its own; `made of others` nothing of its own is left.
Every row holds on every target: [below](#targets)."""
TARGETS_HEAD = """
## Targets

| target | CPU levels | vectors | half precision | integer products |
|---|---|---|---|---|"""


def operators_page(note: str) -> str:
    known = coverage()
    out = [f"# Operators\n\n{note}\n{len(known)} operators are read from ONNX models. {OPERATORS_INTRO}"]
    families: dict[str, list[Coverage]] = {}
    for c in known:
        if c.reader is not None:
            families.setdefault(type(c.reader).__module__, []).append(c)
    for module in sorted(families):
        out.append(f"\n## {module.rpartition('.')[2]}\n\n{sentence(sys.modules[module].__doc__ or '')}\n")
        out.append("| operator | opsets | types | compiled to |\n|---|---|---|---|")
        out += [operator_row(c) for c in sorted(families[module], key=lambda c: c.title)]
    out.append("\n## By ONNX's own definition\n\nThese unfold into the operators above.\n")
    out.append("| operator | opsets | types |\n|---|---|---|")
    out += [f"| {c.title} | {versions(c)} | {types(c.types)} |" for c in known if c.reader is None]
    out.append(f"\n## Control flow\n\n{CONTROL}")
    out += tflite_section()
    out.append(TARGETS_HEAD)
    out += [target_row(name) for name in target_names()]
    return "\n".join(out) + "\n"


CONTROL = "`If`, `Loop` and `Scan` are read by the importer (`frontend/control.py`), with values of any type above."


TFLITE = """
## TFLite

{read} of the {all} builtin operators of the schema are read from TFLite models ([tflite.md](tflite.md) says of
which types); besides them the custom operators {custom}.

{words}

These are not:

| operator | why |
|---|---|"""


def tflite_section() -> list[str]:
    """Builtin operators that are read, and the reason for each that is not"""
    read = [o for o in OPERATORS if o in READERS or o == "CALL_ONCE"]
    known = set(OPERATORS)
    custom = [o for o in sorted(READERS) if o not in known]
    head = TFLITE.format(read=len(read), all=len(OPERATORS), custom=_listed(custom), words=_listed(read))
    reasons: dict[str, list[str]] = {}
    for o in OPERATORS:
        if o not in read:
            reasons.setdefault(reason(o), []).append(o)
    return [head, *(f"| {_listed(names)} | {cell(why)} |" for why, names in reasons.items())]


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{o}`" for o in names)


def versions(c: Coverage) -> str:
    return ", ".join(map(str, c.versions))


def types(known: Iterable[DType]) -> str:
    """`f32 f64 ints bool`; groups that are whole have one name"""
    have, out = set(known), []
    for title, group in (("", FLOATS), ("ints", INTEGERS), ("", (DType.BOOL,)), ("codes", CODES),
                         ("strings", (DType.CHAR,))):
        mine = [d for d in group if d in have]
        out += [title] if title and len(mine) == len(group) else [d.value for d in mine]
    return " ".join(out) or "-"


def way(op: OpDef) -> str:
    found = [op.contraction and f"kernel ({op.contraction})", op.has_routine and "routine", op.has_expr and "loops"]
    return ", ".join(f for f in found if f) or "made of others"


def operator_row(c: Coverage) -> str:
    assert c.reader is not None
    return f"| {cell(c.title)} | {versions(c)} | {types(c.types)} | {way(c.reader)} |"


def target_row(name: str) -> str:
    from monobloc.targets import cpus

    levels = [resolve(name, cpu) for cpu in cpus(name)] or [resolve(name)]
    lanes = sorted({t.f32_lanes for t in levels})
    dot = [t.cpu for t in levels if t.byte_dot]
    products = f"one instruction on {', '.join(dot)}" if dot else "by widening"
    return (f"| {name} | {', '.join(cpus(name)) or levels[0].cpu} | {' or '.join(str(n) for n in lanes)} floats "
            f"| computed in float32, rounded once | {products} |")


# -- numerics -----------------------------------------------------------------------------------------
MARK = "<!-- From here on written by tools/gen_docs.py from the OpDefs. -->"
PROMISES_INTRO = """\
*Tolerance* is that of float32 against the reference: |got - ref| <= relative * |ref| + absolute, or
units in the last place (ulp); float16 and bfloat16 have 1e-2 where their row has more than `exact`; integers and
booleans are exact in every row. *Owner* is the file that sets it. *Moves* elements: every bit stays, those of NaN
and -0.0 too.
`tests/ops/test_promises.py` compiles an example of every promise. Operators that are made of others keep those
operators' promises and have no row."""
PROMISES_HEAD = "| operator | tolerance | owner | promises |\n|---|---|---|---|"
DIVERGENCES_INTRO = """\
Examples to which onnxruntime or ONNX's reference evaluator answer otherwise than this page promises.
A test asks both and fails when a difference is not in this table, and when one that is there is gone.
Differences of ONNX's own node tests are in [conformance.md](conformance.md)."""


def numerics_page() -> str:
    """The text that people write, and the tables after it."""
    text = (DOCS / "numerics.md").read_text(encoding="utf-8").split(MARK)[0].rstrip()
    ops = [op for _, op in sorted(registry().items()) if type(op).infer is not OpDef.infer and not op.internal]
    out = [text, "", MARK, "", f"## Promises\n\n{PROMISES_INTRO}\n", PROMISES_HEAD]
    out += [f"| {title(op)} | {tolerance(op)} | {owner(op)} | {cell(promises(op))} |" for op in ops]
    out.append(f"\n## Known divergences\n\n{DIVERGENCES_INTRO}\n")
    out.append("| operator | on | we | who | does | because |\n|---|---|---|---|---|---|")
    who = {"onnx": "ONNX's reference", "onnxruntime": "onnxruntime"}
    out += [f"| {title(op)} | {e.topic} | {cell(e.says)} | {who[b.who]} | {cell(b.does)} | {cell(b.why)} |"
            for op in ops for e in op.edges for b in e.but]
    return "\n".join(out) + "\n"


def title(op: OpDef) -> str:
    """As models write it."""
    names = [n for n in (op.name, *op.aliases) if signature(n, op.domain, opset_newest()) is not None]
    return cell(", ".join(names[:1]) or op.name)


def tolerance(op: OpDef) -> str:
    if op.moves or op.tol == EXACT:
        return "exact"
    known = ulps().get(getattr(op, "fn", ""))
    return f"{known} ulp" if known else f"{op.tol.rtol:g} relative, {op.tol.atol:g} absolute"


def owner(op: OpDef) -> str:
    if tolerance(op).endswith("ulp"):
        return "[math.md](math.md)"
    return f"`ops/{type(op).__module__.rpartition('.')[2]}.py`"


def ulps() -> dict[str, str]:
    """The column of docs/math.md for float."""
    text = (DOCS / "math.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9_, ]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", text, re.M)
    return {name: max(a, b, key=float) for names, a, b, _ in rows for name in names.split(", ")}


def promises(op: OpDef) -> str:
    by_topic: dict[str, list[str]] = {}
    for e in sorted(op.edges, key=topic):
        by_topic.setdefault(e.topic, []).append(e.says)
    said = [f"*{t}*: {'; '.join(v)}" if t != "other" else "; ".join(v) for t, v in by_topic.items()]
    return "; ".join([*(["moves"] if op.moves else []), *said]) or "-"


def topic(e: Edge) -> int:
    return TOPICS.index(e.topic)

