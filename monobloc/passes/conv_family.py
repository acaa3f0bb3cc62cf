"""Which kernel family computes a convolution, and how it wants its input to lie.

    nhwc   implicit GEMM, vectors of output channels (mb/conv.h)
    dw     depthwise, vectors of channels (mb/dwconv.h)
    int    bytes (mb/iconv.h); idw: depthwise (mb/idwconv.h)
    nchw   few output channels, vectors of pixels of a row (mb/conv_nchw.h), of images of known sizes
"""

from __future__ import annotations

from monobloc.ir.symbolic import is_open
from monobloc.passes.contraction import Contraction, is_depthwise
from monobloc.targets import Target


def family(c: Contraction, target: Target) -> str:
    """The family of a Conv group."""
    if is_depthwise(c.root):
        return "idw" if c.is_integer else "dw"
    if c.is_integer:
        return "int"
    group, out_channels = c.root.attrs.get("group", 1), c.out.shape[1]
    known = not any(map(is_open, (*c.x.shape[2:], *c.out.shape[2:])))
    if known and group == 1 and out_channels < target.f32_lanes and 2 * c.out.shape[-1] >= target.f32_lanes:
        return "nchw"
    return "nhwc"


def input_layouts(c: Contraction, target: Target) -> list[tuple[int, ...] | None]:
    """Layouts the family reads, best first."""
    last = (0, *range(2, c.x.type.rank), 1)
    kind = family(c, target)
    if kind == "int":
        return [last, None]  # its copy into scratch takes any strides
    if kind == "nchw":
        return [None, last]  # its copy into scratch transposes on the way
    if kind == "nhwc" and c.root.attrs.get("group", 1) == 1:
        return [last, None]  # its copy into scratch transposes on the way
    return [last]
