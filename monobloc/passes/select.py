"""A kernel for every contraction: its family, its tiles for this shape and machine, its packed weights.

The node gets `kernel` (family), `tiles` (what the descriptor fixes beyond shapes and strides) and
`scratch` (floats per thread); its constant weights become a packed constant. Strides are filled in by
the code generator, when places are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from monobloc.ir.graph import Const, Graph, Node, Value
from monobloc.ir.symbolic import guess, is_open
from monobloc.ir.types import DType, TensorType
from monobloc.kernels import integer, packing, tiles
from monobloc.passes import PassContext, open_tiles
from monobloc.passes.contraction import ELEMENTS, Contraction, is_contraction, outer_values, parts
from monobloc.passes.conv_family import family
from monobloc.targets import Target


class Select:
    name = "select"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        packed: dict[tuple[str, str], Value] = {}
        changed = False
        for node in g.nodes:
            if not is_contraction(node) or "kernel" in node.attrs:
                continue
            c = parts(node)
            pick = select_integer if c.is_integer else select_matmul if c.is_matrix else select_conv
            pick(g, c, ctx, packed)
            ctx.spool.settle(node.used)
            ctx.reason(node, self.name, f"kernel {node.attrs['kernel']} with {dict(node.attrs['tiles'])}")
            changed = True
        return changed


def caches(t: Target) -> tiles.Caches:
    return tiles.Caches(t.l1_bytes, t.l2_bytes)


# -- MatMul -------------------------------------------------------------------------------------------
def collapsed_rows(c: Contraction) -> int:
    """Rows of one product: all leading axes of x when the weights are one matrix, else its own rows."""
    if all(d == 1 for d in c.w.shape[:-2]):
        return c.x.type.size // c.x.shape[-1]
    return c.x.shape[-2]


def select_matmul(g: Graph, c: Contraction, ctx: PassContext, packed: dict[tuple[str, str], Value]) -> None:
    t = ctx.target
    m, k, n = collapsed_rows(c), c.x.shape[-1], c.w.shape[-1]
    constant = c.w.const is not None and all(d == 1 for d in c.w.shape[:-2]) and ctx.stage == "image"
    b_type = ELEMENTS[c.w.dtype]
    shared = tiles.shared_nv(n, k, t.f32_lanes, b_type, caches(t)) if constant and is_open(m) else 0
    chosen = tiles.gemm_tiles(guess(m), guess(n), guess(k), t.f32_lanes, t.vector_registers, caches(t), packed=constant,
                              b_type=b_type, nv=(_agreed(c, "gemm", ctx) or shared) if constant else 0)
    set_kernel(c.node, "gemm", chosen, 0)
    c.node.attrs["packed"] = constant
    if constant:
        nv = _agree(c, "gemm", ctx)
        pack(g, c, f"gemm.{nv}.{t.f32_lanes}", packed,
             lambda w: packing.pack_gemm_b(w.reshape(k, n), nv, t.f32_lanes), panels=(k, n, nv, t.f32_lanes))


# -- versions -----------------------------------------------------------------------------------------
def _agreed(c: Contraction, how: str, ctx: PassContext) -> int:
    """The width of panels that another version of the program has packed these weights for, or 0."""
    return ctx.agreed.get((how, c.w.const.key), 0) if c.w.const is not None else 0


def _agree(c: Contraction, how: str, ctx: PassContext) -> int:
    """The width of panels, which other versions will follow."""
    nv = packed_nv(c)
    return ctx.agreed.setdefault((how, c.w.const.key), nv) if c.w.const is not None else nv


def packed_nv(c: Contraction) -> int:
    """The width of panels that a selected contraction's weights are packed for; 0 before."""
    return int(dict(c.node.attrs.get("tiles", ())).get("nv", 0))


# -- Conv ---------------------------------------------------------------------------------------------
def image_axes(c: Contraction) -> int:
    """How many leading axes are turns of a loop round the kernel, whose own sizes are constants: those up to the
    last that a run chooses, where only such are."""
    leading = c.out.shape[:-1] if c.is_matrix else c.out.shape[:1]
    return max((k + 1 for k, d in enumerate(leading) if is_open(d)), default=0)


def conv_geometry(c: Contraction) -> tiles.Geometry:
    """Shapes and attributes with two spatial axes: one-dimensional convolutions have height 1, and the integer
    kernel's matrix product is the convolution of a column of rows."""
    images = image_axes(c)
    if c.is_matrix:
        rows = math.prod(c.out.shape[images:-1])
        return tiles.Geometry((1, rows, 1, c.x.shape[-1]), c.out.shape[-1], (rows, 1), (1, 1))
    a, two = c.root.attrs, c.x.type.rank == 4
    x, w, y = c.x.shape, c.root.inputs[1].shape, c.out.shape  # type: ignore[union-attr]
    x = (1, *x[1:]) if images else x

    def pair(v: Any, fill: int) -> tuple[int, int]:
        return (int(v[0]), int(v[1])) if two else (fill, int(v[0]))

    return tiles.Geometry(
        x=(x[0], x[2] if two else 1, x[-1], x[1]), oc=y[1], out=(y[2] if two else 1, y[-1]),
        kernel=(w[2] if two else 1, w[-1]), groups=a.get("group", 1), strides=pair(a["strides"], 1),
        dilations=pair(a["dilations"], 1), pads=pair(list(a["pads"]), 0))


def select_conv(g: Graph, c: Contraction, ctx: PassContext, packed: dict[tuple[str, str], Value]) -> None:
    t = ctx.target
    kind = family(c, t)
    if kind == "dw":
        keys = ("xb1", "n1", "xb2", "n2", "split")
        desc = dwconv_descriptor(c, t)
        set_kernel(c.node, "dwconv", {k: desc[k] for k in keys if k in desc}, 0)
        pack(g, c, "dw", packed, lambda w: packing.pack_dwconv_w(_four(w)), permutes=True)
        return
    if kind == "nchw":
        two = c.x.type.rank == 4
        xs = c.x.type.strides
        desc = conv_nchw_descriptor(c, t, x_strides=(xs[0], xs[1], xs[2] if two else 0, xs[-1]))
        set_kernel(c.node, "conv_nchw", {k: desc[k] for k in ("nv", "oc1", "oc2", "bh")},
                   tiles.conv_nchw_scratch(desc | {"copy": 1}, t.f32_lanes))
        if c.w.dtype is not DType.F32:
            pack(g, c, "wide", packed, lambda w: w.astype(np.float32))
        return
    plain = ctx.stage == "object"
    desc = conv_descriptor(c, t, x_channel_stride(c), plain=plain, nv=_agreed(c, "conv", ctx))
    set_kernel(c.node, "conv", {"nv": desc["nv"]}, conv_scratch(desc))
    c.node.attrs["packed"] = not plain
    nv, groups = _agree(c, "conv", ctx), desc["groups"]
    if plain:
        pack(g, c, "hwio", packed, lambda w: packing.hwio(_four(w)), permutes=True)
        return
    pack(g, c, f"conv.{groups}.{nv}.{t.f32_lanes}", packed,
         lambda w: packing.pack_conv_w(_four(w), groups, nv, t.f32_lanes))


def refit(node: Node, t: Target) -> None:
    """The scratch of a selected kernel whose input has become another type in memory: some copy rows just to widen
    them."""
    if node.attrs.get("kernel") == "conv":
        c = parts(node)
        desc = conv_descriptor(c, t, x_channel_stride(c), plain=not node.attrs["packed"])
        node.attrs["scratch"] = conv_scratch(desc)


def conv_scratch(desc: dict[str, int]) -> int:
    """Floats of one thread"""
    return open_tiles.conv_scratch(desc) if "n1" not in desc else tiles.conv_scratch(desc)


def _four(w: np.ndarray) -> np.ndarray:
    return w if w.ndim == 4 else w[:, :, None, :]


def x_channel_stride(c: Contraction) -> int:
    return c.x.type.strides[1] if c.x.shape[1] > 1 else 1


def conv_descriptor(c: Contraction, t: Target, channel_stride: int, **strides: Any) -> dict[str, int]:
    """`mb_conv` of a group; only the channel stride of x matters for the choice of tiles."""
    geo = conv_geometry(c)
    if "x_strides" not in strides:
        _, _, w, ch = geo.x
        strides["x_strides"] = (geo.image, w * ch, ch, channel_stride)
    strides.setdefault("nv", packed_nv(c))
    make: Callable[..., dict[str, int]] = tiles.conv_desc
    if open_tiles.is_open_image(geo):
        make, strides = open_tiles.conv_desc, {"y_strides": None, "plain": False, **strides}
    return make(geo, t.f32_lanes, t.vector_registers, types=element_types(c), caches=caches(t), **strides)


def dwconv_descriptor(c: Contraction, t: Target, **strides: Any) -> dict[str, int]:
    """`mb_dwconv` of a group."""
    geo = conv_geometry(c)
    make: Callable[..., dict[str, int]] = tiles.dwconv_desc
    if open_tiles.is_open_image(geo):
        make, strides = open_tiles.dwconv_desc, {"x_strides": None, "y_strides": None, **strides}
    return make(geo, t.f32_lanes, t.vector_registers, types=element_types(c), **strides)


def conv_nchw_descriptor(c: Contraction, t: Target, **strides: Any) -> dict[str, int]:
    """`mb_conv_nchw` of a group; weights stay as they are in the model."""
    return tiles.conv_nchw_desc(conv_geometry(c), t.f32_lanes, t.vector_registers, types=element_types(c)[::2],
                                caches=caches(t), **strides)


# -- bytes --------------------------------------------------------------------------------------------
def select_integer(g: Graph, c: Contraction, ctx: PassContext, packed: dict[tuple[str, str], Value]) -> None:
    if not c.is_matrix and family(c, ctx.target) == "idw":
        set_kernel(c.node, "idwconv", {"px": idwconv_descriptor(c)["px"]}, 0)
        c.node.attrs["packed"] = True
        pack(g, c, "idw", packed, lambda w: integer.pack_idwconv_w(_four(w)), permutes=True)
        return
    t, desc = ctx.target, iconv_descriptor(c, ctx.target, nv=_agreed(c, "iconv", ctx))
    set_kernel(c.node, "iconv", {k: desc[k] for k in ("nv", "form")}, tiles.ceil_div(iconv_scratch(desc), 4))
    c.node.attrs["packed"] = True
    form, nv, groups, x_size = desc["form"], _agree(c, "iconv", ctx), desc["groups"], desc["x_size"]
    dilated = desc["dw"] != 1

    def four(w: np.ndarray) -> np.ndarray:
        return w.reshape(w.shape[-2:]).T[:, :, None, None] if c.is_matrix else _four(w)

    pack(g, c, f"iconv.{form}.{groups}.{dilated}.{nv}.{t.f32_lanes}.{desc['zw']}.{c.is_matrix}.{x_size}", packed,
         lambda w: integer.pack_iconv_w(four(w), groups, dilated, form, nv, t.f32_lanes, desc["zw"], x_size))


def iconv_descriptor(c: Contraction, t: Target, **strides: Any) -> dict[str, int]:
    """`mb_iconv` of a group."""
    form = integer.form_of(t.byte_dot, weight_zero(c), c.x.dtype.size)
    strides.setdefault("nv", packed_nv(c))
    geo = conv_geometry(c)
    make: Callable[..., dict[str, int]] = integer.iconv_desc
    if _open_image(c, geo):
        make, strides = open_tiles.iconv_desc, {"x_strides": None, "y_strides": None, **strides}
    return make(geo, t.f32_lanes, t.vector_registers, form=form, caches=caches(t), numbers=_numbers(c), **strides)


def iconv_scratch(desc: dict[str, int]) -> int:
    """Bytes of one thread"""
    return open_tiles.iconv_scratch(desc) if "n1" not in desc else integer.iconv_scratch(desc)


def _open_image(c: Contraction, geo: tiles.Geometry) -> bool:
    """Not of a product: its rows are one column of pixels, of which no tile has more than one, so nothing is open."""
    return not c.is_matrix and open_tiles.is_open_image(geo)


def idwconv_descriptor(c: Contraction, **strides: Any) -> dict[str, int]:
    """`mb_idwconv` of a group."""
    geo = conv_geometry(c)
    make: Callable[..., dict[str, int]] = integer.idwconv_desc
    if open_tiles.is_open_image(geo):
        make, strides = open_tiles.idwconv_desc, {"x_strides": None, "y_strides": None, **strides}
    return make(geo, numbers=_numbers(c), **strides)


def _numbers(c: Contraction) -> integer.Numbers:
    """What a descriptor must know of the integers."""
    zx = zero_point(c)
    given = None if isinstance(zx, Value) else zx
    return integer.Numbers(c.x.dtype.size, c.out.dtype.size, c.x.dtype.is_signed, given, weight_zero(c))


def weight_zero(c: Contraction) -> int:
    """What is left of the zero point of the weights."""
    zw = [*c.root.inputs, None, None][3]
    return 0 if zw is None or zw.const is None else int(zw.const.array.reshape(()))


def zero_point(c: Contraction) -> int | Value:
    """Of x: a number, or the value outside of the group that has it when it runs."""
    v = [*c.root.inputs, None, None][2]
    v = None if v is None else outer_values(c).get(v, v)
    if v is None:
        return 0
    return int(v.const.array.reshape(())) if v.const is not None else v


# -- both ---------------------------------------------------------------------------------------------
def element_types(c: Contraction) -> tuple[int, int, int]:
    """x's, w's and the result's, as the kernels number them."""
    x, w, out = (ELEMENTS[v.type.memory] for v in (c.x, c.w, c.out))
    return x, w, out


def set_kernel(node: Node, kernel: str, chosen: dict[str, int], scratch: int) -> None:
    node.attrs["kernel"] = kernel
    node.attrs["tiles"] = sorted([k, v] for k, v in chosen.items())
    node.attrs["scratch"] = scratch


def pack(
    g: Graph, c: Contraction, how: str, packed: dict[tuple[str, str], Value],
    f: Callable[[np.ndarray], np.ndarray], permutes: bool = False,
    panels: tuple[int, int, int, int] | None = None,
) -> None:
    """Replace the weights by a packed constant; equal weights packed alike are one constant.

    `permutes`: the packing is [OC, IC, spatial...] -> [spatial..., IC, OC] and nothing else.
    `panels`: it is that of a matrix: k, n, and the width of a panel.
    """
    assert c.w.const is not None
    key = (c.w.const.key, f"{how} of {c.w.shape}")  # equal bytes may be matrices of other shapes
    if key not in packed:
        data = np.ascontiguousarray(f(c.w.const.array)).reshape(-1)
        t = TensorType(DType.of(data.dtype), data.shape)
        order = (*range(2, c.w.type.rank), 1, 0)
        source = (c.w.const, order) if permutes else None
        matrix = None if panels is None else (c.w.const, panels)
        packed[key] = g.const_value(f"{c.w.name}.packed", t, Const(data, source=source, panels=matrix))
    i = c.node.inputs.index(c.w)
    g.set_input(c.node, i, packed[key])
