"""One copy of a matrix that a product reads packed and a lookup reads by rows: tied embeddings.

A language model's embedding table is its last layer's weights, transposed: Gather reads rows of [v, h], the
product reads [h, v] in panels. Both would be stored. A lookup takes a few rows of many, so it can find
its elements in the panels; the product, which reads all of them every time, stays as fast as it was.

It pays where the lookup is little beside the product: every element of a row lies in a cache line of
its own there, and every sixteenth in a page of its own. A decoder that looks up one token and scores all
of them shares its table; an encoder of many tokens at once does so only with a very large vocabulary,
or for `--optimize size`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monobloc.ir.graph import Const, Graph, Node, Value, content_key
from monobloc.ir.symbolic import guess
from monobloc.ir.types import TensorType
from monobloc.ops import opdef
from monobloc.passes import PassContext
from monobloc.passes.contraction import ELEMENTS, is_contraction, parts
from monobloc.passes.fuse import fuse_group

MIN_BYTES = 256
# rough times on a present CPU, in nanoseconds, of which only the proportion matters
LOOKUP = 40.0  # an element in a line and often a page of its own
STREAM = 0.3  # a weight read once from memory
MULTIPLY = 0.015  # a multiplication, several vectors at a time
MAY_COST = 0.03  # of the product's time


@dataclass(frozen=True)
class Stored:
    """A matrix [k, n] that a product reads: `value` in panels, or row by row where they are None."""

    value: Value
    matrix: Const
    shape: tuple[int, int]
    panels: tuple[int, int, int, int] | None
    work: int  # multiplications of the product


class Share:
    name = "share"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        return share(g, products(g), ctx)


def share(g: Graph, stored: Sequence[Stored], ctx: PassContext) -> bool:
    """Lookups in `g` read what the products of this graph, or of another of the same image, have stored."""
    changed = False
    for v in g.constants():
        if v.dtype not in ELEMENTS or v.type.rank != 2 or v.type.bytes < MIN_BYTES or not _only_looked_up(g, v):
            continue
        for s in stored:
            if s.value is v or s.value.dtype is not v.dtype or (swapped := _same_matrix(v, s)) is None:
                continue
            assert v.const is not None
            if not ctx.agreed.setdefault(("share", v.const.key, s.matrix.key), _pays(v, s, ctx)):
                ctx.reason(v.users[0], Share.name, f"%{v.name} is stored for itself: it is read too often")
                continue
            for node in list(dict.fromkeys(v.users)):
                ctx.reason(node, Share.name, f"reads %{v.name} in %{s.value.name}, which is stored for a product")
                _read_there(g, node, v, s, swapped)
            changed = True
            break
    return changed


def products(g: Graph) -> list[Stored]:
    """The matrices that products read, as they are stored; of graphs that have their kernels."""
    out = []
    for node in g.nodes:
        if not is_contraction(node) or node.attrs.get("kernel") != "gemm":
            continue
        c = parts(node)
        k, n = c.x.shape[-1], c.out.shape[-1]
        work = c.out.type.size * k
        if c.w.const is not None and c.w.const.panels is not None:
            out.append(Stored(c.w, c.w.const.panels[0], (k, n), c.w.const.panels[1], work))
        elif c.w.const is not None and c.w.type.rank == 2 and c.w.type.layout is None:
            out.append(Stored(c.w, c.w.const, (k, n), None, work))
    return out


def _only_looked_up(g: Graph, v: Value) -> bool:
    """Whether all that read `v` are lookups that can read elsewhere too."""
    return v not in g.output_values and all(_looks_up(n, v) for n in v.users)


def _looks_up(n: Node, v: Value) -> bool:
    if n.op != "Fused" or n.body is None:
        return n.op == "Gather" and n.used[0] is v and n.used[1] is not v
    inner = [w for w, outer in zip(n.body.inputs, n.inputs, strict=True) if outer is v]
    return not is_contraction(n) and all(m.op == "Gather" and m.used[0] is w and m.used[1] is not w
                                         for w in inner for m in w.users)


def _same_matrix(v: Value, s: Stored) -> bool | None:
    """Whether `v` is the transpose of the product's matrix (True), the matrix itself (False), or neither."""
    assert v.const is not None
    if v.shape == s.shape and v.const.key == s.matrix.key:
        return False
    if v.shape != s.shape[::-1]:
        return None
    source = s.matrix.source
    if source is not None and source[0].key == v.const.key and source[1] == (1, 0):
        return True
    rows = s.matrix.array.reshape(s.shape)
    return True if content_key(rows.T) == v.const.key else None


def _pays(v: Value, s: Stored, ctx: PassContext) -> bool:
    looked_up = sum(guess(_elements(n, v)) for n in dict.fromkeys(v.users))
    product = max(s.shape[0] * s.shape[1] * STREAM, guess(s.work) * MULTIPLY)
    return ctx.optimize == "size" or looked_up * LOOKUP <= MAY_COST * product


def _elements(n: Node, v: Value) -> int:
    if n.body is None:
        return n.outputs[0].type.size
    inner = [w for w, outer in zip(n.body.inputs, n.inputs, strict=True) if outer is v]
    return sum(m.outputs[0].type.size for w in inner for m in w.users)


def _read_there(g: Graph, node: Node, v: Value, s: Stored, swapped: bool) -> None:
    """The group reads the stored form, and takes the matrix out of it element by element."""
    group = node if node.op == "Fused" else fuse_group(g, [node])
    body = group.body
    assert body is not None and s.value.const is not None
    mine = next((x for x in g.constants() if x is s.value or x.const is s.value.const), None)
    there = mine or g.const_value(f"{v.name}.stored", s.value.type, s.value.const)  # another program's
    for at, outer in enumerate(group.inputs):
        if outer is not v:
            continue
        old = body.inputs[at]
        new = body.value(f"{old.name}.stored", s.value.type)
        matrix, first = new, body.nodes[0]
        if s.panels is not None:
            attrs = dict(zip(("k", "n", "nv", "vl"), s.panels, strict=True))
            matrix = body.make("Unpack", [new], [TensorType(v.dtype, s.shape)], attrs, before=first).outputs[0]
        if swapped:
            order = {"perm": [1, 0]}
            matrix = body.make("Transpose", [matrix], opdef("Transpose").infer([matrix], order), order,
                               before=first).outputs[0]
        body.replace(old, matrix)
        body.inputs[at] = new
        g.set_input(group, at, there)
