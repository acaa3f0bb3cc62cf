"""Composition: the function of a node's, or a whole group's, outputs in terms of loads of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monobloc.ir.expr import I64, Expr, Fn, Load, Num, Op, Var, call, walk
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import HALVES, DType, TensorType
from monobloc.ops import opdef


def checked(e: Expr, at: Sequence[Expr]) -> Expr:
    """An expression behind the checks of indices that it does not need"""
    for i in at:
        if any(isinstance(x, Op) and x.fn in ("index", "index_below") for x in walk(i)):
            e = call("checked", e, i)
    return e


def reader(v: Value) -> Fn:
    """Function from an index to the element of a value in memory (constants of one element inline)."""
    if v.const is not None and v.type.size == 1:
        x = v.dtype.codes(v.const.array).reshape(-1)[0]
        num = Num(x.item() if v.dtype is not DType.BF16 else float(x), v.dtype)
        # an index that is data is checked although every index reads the same
        return lambda *i: checked(num, i)
    return lambda *i: Load(v, tuple(i), v.dtype)


def memoized(f: Fn) -> Fn:
    """Equal indices give the same object: shared reductions are recognised by identity."""
    table: dict[tuple[Expr, ...], Expr] = {}

    def at(*i: Expr) -> Expr:
        if i not in table:
            table[i] = f(*i)
        return table[i]

    return at


def node_functions(node: Node, fn_of: Callable[[Value], Fn]) -> list[Fn]:
    """The functions of a node's outputs, given those of its inputs."""
    out = opdef(node).expr(node, *[None if v is None else fn_of(v) for v in node.inputs])
    fns = out if isinstance(out, list) else [out]
    return [memoized(f if node.op in ("Cast", "Rounded") else unrounded(f)) for f in fns]


def unrounded(f: Fn) -> Fn:
    """What an operator computes in float32 as its result, a half: it is rounded where it is stored, if it is then."""

    def at(*i: Expr) -> Expr:
        e = f(*i)
        rounds = isinstance(e, Op) and e.fn == "cast" and e.dtype in HALVES and e.args[0].dtype is DType.F32
        return Op("unrounded", e.args, e.dtype) if rounds and isinstance(e, Op) else e

    return at


def compose(node: Node) -> list[Fn]:
    """Output functions of a node or a fused group, in terms of Loads of the node's inputs."""
    if node.op != "Fused":
        return node_functions(node, reader)
    body: Graph = node.attrs["body"]
    env: dict[Value, Fn] = {}
    for inner, outer in zip(body.inputs, node.inputs, strict=True):
        assert outer is not None
        env[inner] = reader(outer)
    for n in body.nodes:
        for v, f in zip(n.outputs, node_functions(n, lambda v: env.get(v) or reader(v)), strict=True):
            env[v] = f
    return [env.get(v) or reader(v) for _, v in body.outputs]


def index_vars(t: TensorType) -> tuple[Expr, ...]:
    """One index per axis; axes of one element are the literal 0."""
    return tuple(Num(0, I64) if d == 1 else Var(f"i{k}", d) for k, d in enumerate(t.shape))
