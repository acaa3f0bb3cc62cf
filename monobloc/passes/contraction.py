"""What a contraction is and how its parts are found: shared by fusion, layout, selection and codegen.

A contraction is a MatMul or Conv that a register-tiled kernel computes, alone or as the first node of
a `Fused` group, whose other nodes are the epilogue. It sums in float32; weights may be stored as halves or
small integers, a convolution's input and every result as halves. Or it is an integer product of bytes or int16 by
constant bytes, which sums in int32.
"""

from __future__ import annotations

from dataclasses import dataclass

from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType

KERNEL_OPS = ("MatMul", "Conv")
FLOATS = (DType.F32, DType.F16, DType.BF16)
# what kernels read, by their number in `mb/narrow.h`
ELEMENTS = {DType.F32: 0, DType.F16: 1, DType.BF16: 2, DType.I8: 3, DType.I16: 4, DType.U8: 5}
INTEGER_OPS = ("MatMulInteger", "ConvInteger")
BYTES = (DType.I8, DType.U8)
SHORTS = (DType.I16, DType.U16)
PACKABLE = "packable"  # an integer product whose weights are ready for the kernel


@dataclass(frozen=True)
class Contraction:
    """The parts of a contraction node or group."""

    node: Node  # what stands in the graph
    root: Node  # the MatMul or Conv itself
    x: Value
    w: Value
    out: Value
    others: tuple[Value, ...]  # what the epilogue reads besides

    @property
    def is_matrix(self) -> bool:
        return self.root.op in ("MatMul", "MatMulInteger")

    @property
    def depth(self) -> int:
        """How many products one element of the result sums."""
        w = self.root.used[1]
        return self.x.shape[-1] if self.is_matrix else w.type.size // max(self.out.shape[1], 1)

    @property
    def is_integer(self) -> bool:
        return self.root.op in INTEGER_OPS


def root_of(n: Node) -> Node:
    """The first node of a group, or the node itself."""
    return n.body.nodes[0] if n.op == "Fused" and n.body is not None else n


def is_contraction(n: Node) -> bool:
    """Whether a kernel family computes this node (or the root of this group)."""
    r = root_of(n)
    if r.op in INTEGER_OPS:
        return bool(r.attrs.get(PACKABLE)) and r.outputs[0].type.size > 0
    if r.op not in KERNEL_OPS or r.outputs[0].type.size == 0 or any(v.type.size == 0 for v in r.used):
        return False
    x, w, *rest = r.used
    inputs = (DType.F32,) if r.op == "MatMul" else FLOATS
    if rest or x.dtype not in inputs or w.dtype not in ELEMENTS or r.outputs[0].dtype not in FLOATS:
        return False
    if r.op == "MatMul":
        return all(v.type.rank >= 2 for v in r.used)
    return conv_is_kernel(r, n)


def conv_is_kernel(r: Node, n: Node) -> bool:
    """Constant weights, one or two spatial axes; other convolutions are loops."""
    x, w = r.inputs[0], r.inputs[1]
    assert x is not None and w is not None
    if n.body is not None:  # inside a group the weights are an input: the group's own value tells
        w = dict(zip(n.body.inputs, n.inputs, strict=True)).get(w) or w
    return x.type.rank in (3, 4) and w.const is not None


def is_depthwise(r: Node) -> bool:
    """One input and one output channel in every group."""
    x, w = r.inputs[0], r.inputs[1]
    assert x is not None and w is not None
    return bool(r.attrs.get("group", 1) == x.shape[1] == w.shape[0] > 1)


def outer_values(c: Contraction) -> dict[Value, Value]:
    """What the group's inputs are outside of it."""
    body = c.node.body
    pairs = zip(body.inputs, c.node.inputs, strict=True) if body is not None else ()
    return {v: o for v, o in pairs if o is not None}


def parts(n: Node) -> Contraction:
    """The parts in terms of the outer graph's values."""
    r = root_of(n)
    if n.op != "Fused":
        x, w = r.inputs[:2]
        assert x is not None and w is not None
        return Contraction(n, r, x, w, n.outputs[0], ())
    assert n.body is not None
    outer = dict(zip(n.body.inputs, n.inputs, strict=True))
    x, w = (outer[v] for v in r.inputs[:2] if v is not None)
    assert x is not None and w is not None
    seen = dict.fromkeys(v for m in n.body.nodes[1:] for v in m.used if v in outer)
    others = tuple(o for v in seen if (o := outer[v]) is not None)
    return Contraction(n, r, x, w, n.outputs[0], others)
