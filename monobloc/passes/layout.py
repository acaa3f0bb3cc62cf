"""Memory order of every value: channels last round convolutions, as written elsewhere.

A layout is only another set of strides, so expressions read and write any; what wants a certain one
are the convolution kernels (channels last: a kernel row is one contiguous run), row-major routines,
views of flat memory, and the interface. The pass walks the graph once, lets each group write what its
readers want, and puts a Copy where two wishes cannot be met: those are the conversions, and each is
reported. A transpose that only undoes a layout then moves nothing: planning makes it a view.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import TensorType
from monobloc.ops import opdef
from monobloc.passes import PassContext
from monobloc.passes.contraction import is_contraction, parts, root_of
from monobloc.passes.conv_family import family, input_layouts

Layout = tuple[int, ...] | None


def channels_last(rank: int) -> tuple[int, ...]:
    """memory order (N, spatial..., C) of an (N, C, spatial...) tensor"""
    return (0, *range(2, rank), 1)


def same_memory(t: TensorType, a: Layout, b: Layout) -> bool:
    """Whether two layouts of a type put every element at the same place."""
    sa, sb = t.with_layout(a).strides, t.with_layout(b).strides
    return all(x == y for x, y, d in zip(sa, sb, t.shape, strict=True) if d > 1)


class LayoutPass:
    name = "layout"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        changed = False
        exported = g.output_values
        for node in list(g.nodes):
            changed |= self._inputs(g, node, ctx)
            changed |= self._outputs(node, exported, ctx)
        for k, (name, v) in enumerate(g.outputs):
            if not same_memory(v.type, v.type.layout, None):
                g.outputs[k] = (name, self._convert(g, v, None, None, ctx, f"output '{name}'"))
                changed = True
        return changed

    def _inputs(self, g: Graph, node: Node, ctx: PassContext) -> bool:
        changed = False
        for i, v in enumerate(node.inputs):
            if v is None or v.const is not None:
                continue
            allowed = wanted_inputs(node, v, ctx)
            if allowed and not any(same_memory(v.type, v.type.layout, a) for a in allowed):
                new = self._convert(g, v, allowed[0], node, ctx, node.name)
                for k, u in enumerate(node.inputs):
                    if u is v and k >= i:
                        g.set_input(node, k, new)
                changed = True
        return changed

    def _outputs(self, node: Node, exported: set[Value], ctx: PassContext) -> bool:
        changed = False
        for v in node.outputs:
            layout = output_layout(node, v, v in exported, ctx)
            if layout is not None and not same_memory(v.type, layout, None):
                v.type = v.type.with_layout(layout)
                changed = True
        return changed

    def _convert(self, g: Graph, v: Value, to: Layout, before: Node | None, ctx: PassContext, who: str) -> Value:
        """`v` in another layout; a conversion that is there already is used again."""
        for user in v.users:
            if user.op == "Copy" and same_memory(v.type, user.outputs[0].type.layout, to) and user is not before:
                if before is None or g.nodes.index(user) < g.nodes.index(before):
                    return user.outputs[0]
        node = g.make("Copy", [v], [v.type.with_layout(to)], name=f"{v.name}.layout", before=before)
        ctx.reason(node, self.name, f"conversion of {v.type} to {node.outputs[0].type} for {who}")
        return node.outputs[0]


def wanted_inputs(node: Node, v: Value, ctx: PassContext) -> list[Layout]:
    """Layouts of input `v` that the node can read, best first; empty: any."""
    if is_contraction(node):
        c = parts(node)
        if c.is_matrix:
            return [None] if v in (c.x, c.w) else []
        if v is c.x:
            return input_layouts(c, ctx.target)
        out = output_layout(node, c.out, False, ctx)
        return [out] if v.shape == c.out.shape else []
    d = opdef(root_of(node))
    if node.op != "Fused" and (d.has_routine or getattr(d, "view", False)):
        return [None]
    return []


def output_layout(node: Node, v: Value, exported: bool, ctx: PassContext) -> Layout:
    """Layout the node writes `v` in."""
    if is_contraction(node):
        c = parts(node)
        if c.is_matrix or family(c, ctx.target) == "nchw":
            return None
        return channels_last(v.type.rank)
    d = opdef(root_of(node))
    if exported or (node.op == "Copy" and v.type.layout is not None):
        return v.type.layout if node.op == "Copy" else None
    if node.op != "Fused" and (d.has_routine or getattr(d, "view", False)):
        return None
    if v.type.rank not in (3, 4):
        return None
    return _expression_layout(node, v, ctx)


def _expression_layout(node: Node, v: Value, ctx: PassContext) -> Layout:
    """What all readers want; else what the largest input of the same rank has."""
    last = channels_last(v.type.rank)
    wishes = [wanted_inputs(u, v, ctx) for u in v.users]
    if any(w and not any(same_memory(v.type, a, last) for a in w) for w in wishes):
        return None
    if any(w and same_memory(v.type, w[0], last) for w in wishes):
        return last
    same_rank = [x for x in node.used if x.const is None and x.type.rank == v.type.rank]
    if not same_rank or moves_axes(node):
        return None
    main = max(same_rank, key=lambda x: x.type.size)
    return last if main.type.layout is not None and same_memory(main.type, main.type.layout, last) else None


def moves_axes(node: Node) -> bool:
    """Whether a group transposes or reshapes: then its output's axes are not its inputs'."""
    nodes = node.body.nodes if node.body is not None else [node]
    return any(n.op in ("Transpose", "Reshape") for n in nodes)
