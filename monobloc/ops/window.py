"""Geometry of sliding windows: what pooling and convolution share.

ONNX says it in four ways (explicit pads, SAME_UPPER, SAME_LOWER, VALID); the importer turns all of
them into explicit pads `(begin..., end...)`, since every shape is known. From then on an op has
`kernel_shape`, `strides`, `pads`, `dilations` as lists of one entry per spatial axis (two for pads).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, all_of, idx

Attrs = dict[str, Any]


def extent(k: int, dilation: int) -> int:
    """elements that a dilated kernel spans"""
    return (k - 1) * dilation + 1


def window_attrs(n: Any, spatial: Sequence[int], kernel: Sequence[int]) -> Attrs:
    """Normalized attributes of a pooling or convolution node over `spatial` axes."""
    rank = len(spatial)
    kernel = [int(k) for k in kernel]
    strides = n.ints("strides", [1] * rank)
    dilations = n.ints("dilations", [1] * rank)
    pads = n.ints("pads", [0] * (2 * rank))
    for what, got, want in (
        ("kernel_shape", kernel, rank),
        ("strides", strides, rank),
        ("dilations", dilations, rank),
        ("pads", pads, 2 * rank),
    ):
        if len(got) != want:
            n.fail(f"attribute `{what}` has {len(got)} entries, the input has {rank} spatial axes and needs {want}")
    if min(kernel, default=1) < 1 or min(strides, default=1) < 1 or min(dilations, default=1) < 1:
        n.fail(f"kernel {kernel}, strides {strides} and dilations {dilations} must be positive")
    pads = resolve_pads(n, spatial, kernel, strides, dilations, pads)
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}


def auto_pad(n: Any) -> str:
    mode = n.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        n.fail(f"auto_pad is `{mode}`, must be NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return str(mode)


def resolve_pads(
    n: Any,
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> list[int]:
    mode = auto_pad(n)
    if mode == "NOTSET":
        return [int(p) for p in pads]
    if mode == "VALID":
        return [0] * (2 * len(spatial))
    totals = [
        max((-(-d // s) - 1) * s + extent(k, r) - d, 0)
        for d, k, s, r in zip(spatial, kernel, strides, dilations, strict=True)
    ]
    return split_pads(totals, mode)


def split_pads(totals: Sequence[int], mode: str) -> list[int]:
    """The odd element goes to the end for SAME_UPPER, to the begin for SAME_LOWER. What a transposed
    convolution lacks (a negative total) is missing at the end."""
    small = [max(t, 0) // 2 for t in totals]
    large = [max(t, 0) - h for t, h in zip(totals, small, strict=True)]
    begin, end = (small, large) if mode == "SAME_UPPER" else (large, small)
    return begin + [e + min(t, 0) for e, t in zip(end, totals, strict=True)]


def out_extents(op: str, spatial: Sequence[int], attrs: Attrs) -> list[int]:
    """Output size per spatial axis; ModelError when the window does not fit."""
    rank = len(spatial)
    out = []
    for a, d in enumerate(spatial):
        begin, end = attrs["pads"][a], attrs["pads"][rank + a]
        span = extent(attrs["kernel_shape"][a], attrs["dilations"][a])
        room = d + begin + end - span
        if room < 0:
            raise ModelError(
                f"{op} window of {span} does not fit into axis {a + 2} of {d} with padding {begin} and {end}"
            )
        s = attrs["strides"][a]
        size = room // s + 1
        if attrs.get("ceil_mode") and room % s:
            # a window that would start in the end padding does not exist
            size += 1 if size * s < d + begin else 0
        out.append(size)
    return out


def positions(attrs: Attrs, at: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
    """Input coordinate per spatial axis of window tap `taps` for the output at `at`."""
    return [
        idx(y) * s + idx(t) * d - p
        for y, t, s, d, p in zip(at, taps, attrs["strides"], attrs["dilations"], attrs["pads"], strict=False)
    ]


def inside(coords: Sequence[Expr], spatial: Sequence[int]) -> Expr:
    """Whether every coordinate is in the tensor (decided at once where ranges decide it)."""
    return all_of(c for x, d in zip(coords, spatial, strict=True) for c in (x.ge(0), x.lt(d)))
