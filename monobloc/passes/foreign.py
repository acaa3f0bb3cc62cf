"""Operators that a function of a foreign library computes: the first kernel row that fits wins.

Rows are tried on the graph as it is before grouping, in its element types: a float16 product meets a
float16 row before our own code would widen it. Operators that earlier passes take apart (Gemm, Conv
with its bias, ...) and rows that ask for it are tried on the model as it was read. The node becomes a
`Foreign` node with the call's constants filled in; where no row fits, our own code stays, and the
report says why.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Sequence
from typing import Any

from monobloc.errors import Diagnostics, LinkError, Loc
from monobloc.ir.graph import Graph, Node, Value
from monobloc.kernels.foreign import Place, Row
from monobloc.kernels.patterns import Facts, NoValue, Operand, bind_dims, evaluate
from monobloc.passes import PassContext

# What canonicalize and decompose always replace.
TAKEN_APART = ("Gemm", "BatchNormalization", "Flatten", "Squeeze", "Unsqueeze", "Split", "ConvTranspose")
WITH_BIAS = ("Conv",)


class Foreign:
    name = "foreign"

    def __init__(self, imported: bool = False) -> None:
        self.imported = imported

    def run(self, g: Graph, ctx: PassContext) -> bool:
        rows = [r for r in ctx.kernels if any(_early(r, op) == self.imported for op in r.ops)]
        problems = Diagnostics()
        changed = False
        for node in list(g.nodes) if rows else ():
            mine = [r for r in rows if node.op in r.ops and _early(r, node.op) == self.imported]
            if mine:
                changed |= self._node(g, node, mine, ctx, problems)
        problems.checkpoint()
        return changed

    def _node(self, g: Graph, node: Node, rows: Sequence[Row], ctx: PassContext, problems: Diagnostics) -> bool:
        for row in rows:
            try:
                attrs = fitted(row, node, ctx)
            except NoValue as e:
                ctx.reason(node, self.name, f"{row.function} ({row.where}) does not fit: {e}")
                continue
            except LinkError as e:
                problems.report(e)
                return False
            replace_node(g, node, {**attrs, "row": ctx.kernels.index(row)})
            ctx.reason(node, self.name, f"computed by {row.function} ({row.where})")
            return True
        return False


def _early(row: Row, op: str) -> bool:
    return row.imported or op in TAKEN_APART or (op in WITH_BIAS and len(row.inputs) > 2)


def replace_node(g: Graph, node: Node, attrs: dict[str, Any]) -> None:
    names = [v.name for v in node.outputs]
    g.release([node])
    new = g.make("Foreign", node.inputs, [v.type for v in node.outputs], attrs, name=node.name, out_names=names,
                 locs=node.locs, before=node)
    for old, v in zip(node.outputs, new.outputs, strict=True):
        v.origin = old.origin
        g.replace(old, v)
    g.remove(node)


# -- does a row fit -------------------------------------------------------------------------------------
def fitted(row: Row, node: Node, ctx: PassContext) -> dict[str, Any]:
    """Attributes of the `Foreign` node; NoValue says why the row does not fit."""
    facts = facts_of(row, node, ctx)
    for text, condition in row.when:
        if not evaluate(condition, facts):
            raise NoValue(f"`{text}` is not so")
    scratch = evaluate(row.scratch, facts) if row.scratch is not None else 0
    if not isinstance(scratch, int) or scratch < 0:
        raise NoValue(f"`scratch` is {scratch!r}, which is no size")
    return {
        "op": node.op, "of": [[k, v] for k, v in sorted(node.attrs.items())],
        "call": call_pieces(row, facts), "returns": row.returns, "scratch": scratch, "splits": row.threads,
        "declaration": row.declaration, "file": row.file, "line": row.line, "function": row.function,
    }  # fmt: skip


def facts_of(row: Row, node: Node, ctx: PassContext) -> Facts:
    if ctx.numerics == "strict" and not row.strict:
        raise NoValue("`--numerics strict` takes only rows that say `strict = true`")
    if node.body is not None or any(v.type.size == 0 for v in [*node.used, *node.outputs]):
        raise NoValue("a tensor is empty, or the operator holds a graph")
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    for what, values, patterns in (("inputs", inputs, row.inputs), ("outputs", node.outputs, row.outputs)):
        if len(values) != len(patterns) or None in values:
            raise NoValue(f"the node has {sum(v is not None for v in values)} {what}, the row takes {len(patterns)}")
    dims: dict[str, int] = {}
    operands: dict[str, dict[str, Any]] = {}
    for o, v in zip(row.operands, [*node.used, *node.outputs], strict=True):
        check_operand(o, v, dims)
        operands[o.name] = {"rank": v.type.rank, "size": v.type.size, "bytes": v.type.bytes, "dim": v.shape,
                            "stride": v.type.strides}
    return Facts(dims, operands, node.attrs, node.op, ctx.threads)


def check_operand(o: Operand, v: Value, dims: dict[str, int]) -> None:
    if v.dtype.value not in o.dtypes:
        raise NoValue(f"`{o.name}` is {v.dtype.value}, the row takes {' or '.join(o.dtypes)}")
    if o.const and v.const is None:
        raise NoValue(f"`{o.name}` is no constant")
    if why := bind_dims(o, v.shape, dims):
        raise NoValue(why)


# -- the call ---------------------------------------------------------------------------------------------
def call_pieces(row: Row, facts: Facts) -> list[str]:
    """C text in pieces; pointers stay names until places are known."""
    pointers = {o.name: f"@in{k}" for k, o in enumerate(row.inputs)}
    pointers |= {o.name: f"@out{k}" for k, o in enumerate(row.outputs)}
    out = []
    for piece in row.call:
        if isinstance(piece, str):
            out.append(piece)
        elif piece.tree is None:
            out.append(pointers.get(piece.text, f"@{piece.text}"))
        else:
            out.append(_constant(piece, piece.tree, facts, row))
    return out


def _constant(p: Place, tree: ast.expr, facts: Facts, row: Row) -> str:
    value = evaluate(tree, facts)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"({value})" if value < 0 else str(value)
    if isinstance(value, float):
        plain = {math.inf: "__builtin_inf()", -math.inf: "(-__builtin_inf())"}
        return "__builtin_nan(\"\")" if value != value else plain.get(value, f"({value!r})")
    if isinstance(value, str):
        return json.dumps(value)
    raise LinkError(f"`{{{p.text}}}` is {value!r}, which is no number", loc=Loc(row.where))
