"""Einsum: every index of the equation is an output index or one that is summed.

The importer writes the equation in one way (no spaces, no ellipsis, an explicit output). Two operands
whose indices fall into batch, rows, columns and summed become a MatMul between transposes and
reshapes; anything else is the expression: a fold over all summed indices of the product of operands.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, call, cast, idx, reduce
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.contract import INF, NAN, Edge, f32
from monobloc.ops.elementwise import same_dtype
from monobloc.ops.reduce import np_wide, wide

Array = np.ndarray
Attrs = dict[str, Any]
LETTERS = string.ascii_letters


@dataclass(frozen=True)
class Equation:
    """Index letters per operand and of the output."""

    terms: tuple[str, ...]
    out: str

    def __str__(self) -> str:
        return ",".join(self.terms) + "->" + self.out

    @staticmethod
    def of(text: str) -> Equation:
        left, _, right = text.partition("->")
        return Equation(tuple(left.split(",")), right)


def parse(text: str, ranks: Sequence[int]) -> Equation:
    """The equation with its ellipses spelled out and its output given; ModelError when it is none."""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"Einsum equation `{text}` has {len(terms)} terms, the node {len(ranks)} inputs")
    for t in (*terms, right):
        if t.count("...") > 1 or any(c not in LETTERS for c in t.replace("...", "")):
            raise ModelError(f"Einsum equation `{text}` has the malformed term `{t}`")
    free = [c for c in LETTERS if c not in text]
    dotted = [(t, r) for t, r in zip(terms, ranks, strict=True) if "..." in t]
    hidden = max((r - len(t.replace("...", "")) for t, r in dotted), default=0)
    if hidden > len(free) or hidden < 0:
        raise ModelError(f"Einsum equation `{text}` does not fit inputs of ranks {list(ranks)}")
    dots = "".join(free[:hidden])
    full = [_spell(text, t, r, dots) for t, r in zip(terms, ranks, strict=True)]
    if not arrow:
        once = sorted(c for c in set("".join(full)) - set(dots) if "".join(full).count(c) == 1)
        right = "..." + "".join(once)
    out = right.replace("...", dots)
    if len(set(out)) != len(out) or not set(out) <= set("".join(full)):
        raise ModelError(f"Einsum equation `{text}` has an output index twice or from nowhere")
    return Equation(tuple(full), out)


def _spell(text: str, term: str, rank: int, dots: str) -> str:
    named = len(term.replace("...", ""))
    if "..." not in term and named != rank or named > rank:
        raise ModelError(f"Einsum term `{term}` of `{text}` names {named} axes, its input has {rank}")
    return term.replace("...", dots[len(dots) - (rank - named) :])


def sizes(eq: Equation, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Extent of every index; 1 broadcasts."""
    out: dict[str, int] = {}
    for term, shape in zip(eq.terms, shapes, strict=True):
        for c, d in zip(term, shape, strict=True):
            have = out.get(c, 1)
            if 1 not in (have, d) and have != d:
                raise ModelError(f"Einsum index `{c}` of `{eq}` has sizes {have} and {d}")
            out[c] = d if have == 1 else have
    return out


def as_product(b: Any, eq: Equation, ins: Sequence[Value]) -> Value | None:
    """The equation as MatMul, where it is one."""
    if len(ins) != 2:
        return None
    (left, right), out = eq.terms, eq.out
    size = sizes(eq, [v.shape for v in ins])
    exact = all(d == size[c] for t, v in zip(eq.terms, ins, strict=True) for c, d in zip(t, v.shape, strict=True))
    if not exact or len(set(left)) != len(left) or len(set(right)) != len(right):
        return None
    batch = [c for c in left if c in right and c in out]
    summed = [c for c in left if c in right and c not in out]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    if not summed or not set(rows + columns) <= set(out):
        return None
    x = _matrix(b, ins[0], left, batch, rows, summed, size)
    y = _matrix(b, ins[1], right, batch, summed, columns, size)
    made = [*batch, *rows, *columns]
    z = b.one("Reshape", b.one("MatMul", x, y), shape=[size[c] for c in made])
    return z if made == list(out) else b.one("Transpose", z, perm=[made.index(c) for c in out])


def _matrix(
    b: Any, v: Value, term: str, batch: list[str], rows: list[str], columns: list[str], size: dict[str, int]
) -> Value:
    order = [*batch, *rows, *columns]
    if order != list(term):
        v = b.one("Transpose", v, perm=[term.index(c) for c in order])
    shape = [*(size[c] for c in batch), *(math.prod(size[c] for c in part) for part in (rows, columns))]
    return v if list(v.shape) == shape else b.one("Reshape", v, shape=shape)


class Einsum(OpDef):
    name = "Einsum"
    edges = (
        Edge("NaN", "stays in its sums, also against 0", (f32([NAN, 1], [1, 1]), f32([0, 1], [0, 1])),
             (f32([NAN, NAN], [0, 2]),), {"equation": "ij,jk->ik"}),
        Edge("infinities", "by 0 is NaN", (f32(INF, 1), f32(0, 1)), (f32(NAN)[0],), {"equation": "i,i->"}),
        Edge("nothing", "a sum of no terms is 0", (f32(), f32()), (f32(0)[0],), {"equation": "i,i->"}),
    )
    since = 12

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        ins = [v for v in n.inputs if v is not None]
        eq = parse(str(n.attrs["equation"]), [v.type.rank for v in ins])
        same_dtype("Einsum", ins)
        product = as_product(b, eq, ins)
        return b.emit("Einsum", ins, {"equation": str(eq)}) if product is None else [product]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        eq = Equation.of(attrs["equation"])
        size = sizes(eq, [v.shape for v in ins if v is not None])
        return [TensorType(same_dtype("Einsum", ins), tuple(size[c] for c in eq.out))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        arrays = [np_wide(x) for x in xs if x is not None]
        eq = Equation.of(attrs["equation"])
        size = sizes(eq, [x.shape for x in arrays])
        # numpy broadcasts only under an ellipsis: spread axes of one element first
        spread = [np.broadcast_to(x, [size[c] for c in t]) for t, x in zip(eq.terms, arrays, strict=True)]
        return np.asarray(np.einsum(str(eq), *spread)).astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        eq, out = Equation.of(n.attrs["equation"]), n.outputs[0].dtype
        shapes = [v.shape for v in n.inputs if v is not None]
        size = sizes(eq, shapes)
        summed = [c for c in size if c not in eq.out]

        def at(*i: Expr) -> Expr:
            def term(*r: Expr) -> Expr:
                where = dict(zip((*eq.out, *summed), (*i, *r), strict=True))
                e: Expr | None = None
                for letters, shape, x in zip(eq.terms, shapes, xs, strict=True):
                    assert x is not None
                    f = x(*[idx(0) if d == 1 else where[c] for c, d in zip(letters, shape, strict=True)])
                    f = cast(f, wide(f.dtype))
                    e = f if e is None else call("mul", e, f)
                assert e is not None
                return e

            return cast(reduce("sum", [size[c] for c in summed], term), out)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for equation, *shapes in (
            ("ij,jk->ik", (3, 4), (4, 5)),
            ("abij,abjk->abik", (2, 1, 3, 4), (1, 5, 4, 2)),
            ("ii->i", (4, 4)),
            ("ij->", (3, 4)),
            ("i,ij,jk->k", (3,), (3, 4), (4, 5)),
            ("i,j->ji", (3,), (4,)),
        ):
            yield Case(tuple(rng.standard_normal(s).astype(np.float32) for s in shapes), {"equation": equation})
