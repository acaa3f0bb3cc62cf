"""Descriptors and packed weights of the integer kernels, `mb/iconv.h` and `mb/idwconv.h`.

One kernel computes matrix products and convolutions of bytes or int16, the other depthwise ones. Weights are
signed bytes with one zero point. Where the machine multiplies bytes in quads, the weights must be free of
a zero point; else bytes are widened to pairs of int16. In quads, and where x has 16 bits, the sums of their
columns stand before the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from monobloc.kernels.packing import column_order
from monobloc.kernels.tiles import (
    Caches,
    Geometry,
    ceil_div,
    conv_cols,
    conv_tiles,
    cover,
    packed_columns,
    scratch_rows,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUADS, PAIRS = 4, 2
DEFAULT_CACHES = Caches()


def form_of(byte_dot: bool, weight_zero: int, x_size: int = 1) -> int:
    """How many products one step of a sum takes."""
    return QUADS if byte_dot and weight_zero == 0 and x_size == 1 else PAIRS


def has_sums(form: int, x_size: int) -> bool:
    """Whether the sums of columns stand before the weights: they take the zero point of x off."""
    return form == QUADS or x_size == 2


@dataclass(frozen=True)
class Numbers:
    """What is stored: bytes of an element, the sign and zero point of x (None: it is given at run time) and that of
    the weights."""

    x_size: int = 1
    y_size: int = 4
    x_signed: bool = False
    zx: int | None = 0
    zw: int = 0

    @property
    def fields(self) -> dict[str, int]:
        return {"x_size": self.x_size, "y_size": self.y_size, "x_signed": int(self.x_signed), "zx": self.zx or 0,
                "zx_given": int(self.zx is None), "zw": self.zw}

    def strides(self, elements: Mapping[str, int]) -> dict[str, int]:
        """As the kernels count them: those of x in bytes"""
        return {k: v * self.x_size if k.startswith("x_") else v for k, v in elements.items()}


BYTES = Numbers()


def iconv_desc(
    geo: Geometry,
    vl: int,
    nvreg: int,
    *,
    form: int,
    x_strides: tuple[int, int, int, int] | None = None,
    y_strides: tuple[int, int, int] | None = None,
    numbers: Numbers = BYTES,
    caches: Caches = DEFAULT_CACHES,
    nv: int = 0,
) -> dict[str, int]:
    """A whole `mb_iconv`: arguments as in `tiles.conv_desc`."""
    (oh, ow), (kh, kw), oc = geo.out, geo.kernel, geo.oc // geo.groups
    desc = {**geo.fields, **numbers.strides(geo.group_fields(x_strides, y_strides)), **numbers.fields, "form": form}
    runs, steps = run_steps(geo.ic, kh, kw, geo.dilations[1], form)
    desc |= conv_tiles(oh, ow, oc, runs * steps, vl, nvreg, nv)
    panel_bytes = runs * steps * form
    desc["w_panel"] = panel_bytes * desc["nv"] * vl
    columns = packed_columns(oc, desc["nv"], vl)
    desc["w_group"] = columns * (panel_bytes + (4 if has_sums(form, numbers.x_size) else 0))
    weights = panel_bytes * columns
    desc["gather"] = int(_gathers(desc, weights, caches))
    desc["bh"] = _block(desc, weights, caches)
    desc["split"] = int(geo.groups == 1 and ceil_div(oc, desc["nv"] * vl) >= 4 and weights > geo.image)
    return desc


def run_steps(ic: int, kh: int, kw: int, dw: int, form: int) -> tuple[int, int]:
    """Runs of contiguous x under one output, and steps of each."""
    flat = dw == 1
    return (kh if flat else kh * kw), ceil_div(ic * kw if flat else ic, form)


def iconv_scratch(desc: Mapping[str, int]) -> int:
    """Bytes of scratch of one thread: `mb_iconv_scratch` of the header."""
    unit = max(desc["r1"], desc["r2"]) if desc["narrow"] else 1
    rows = scratch_rows(desc, min(desc["bh"] * unit, desc["oh"]))
    return ceil_div(rows * _row_bytes(desc) + 4, 64) * 64


def _row_bytes(desc: Mapping[str, int]) -> int:
    size = 1 if desc["form"] == QUADS else 2
    return conv_cols(desc["ow"], desc["kw"], desc["sw"], desc["dw"]) * desc["ic"] * size


def _block(desc: Mapping[str, int], weight_bytes: int, caches: Caches) -> int:
    """Units of a block: few where weights rest in the nearest cache, else as many as L2 holds."""
    units = desc["n1"] + desc["n2"] if desc["narrow"] else desc["oh"]
    room = caches.l1 // 2 if weight_bytes <= caches.l1 // 2 else caches.l2 // 4
    unit = desc["r1"] if desc["narrow"] else 1
    bh = 1
    while bh < units and scratch_rows(desc, (bh + 1) * unit) * _row_bytes(desc) <= room:
        bh += 1
    return bh


def _gathers(desc: Mapping[str, int], weight_bytes: int, caches: Caches) -> bool:
    """As `mb_conv` does: whether a block's rows of taps are fewer than all between the first and the last."""
    dense = {**desc, "gather": 0}
    unit = desc["r1"] if desc["narrow"] else 1
    rows = min(_block(dense, weight_bytes, caches) * unit, desc["oh"])
    return desc["dh"] > 1 and rows * desc["kh"] < scratch_rows(dense, rows)


def idwconv_desc(
    geo: Geometry,
    *,
    x_strides: tuple[int, int, int] | None = None,
    y_strides: tuple[int, int, int] | None = None,
    numbers: Numbers = BYTES,
) -> dict[str, int]:
    """A whole `mb_idwconv`; arguments as in `iconv_desc`, channels are contiguous."""
    return {**geo.fields, **numbers.strides(geo.channel_fields(x_strides, y_strides)), **numbers.fields,
            "c": geo.oc, "px": cover(geo.out[1], 8)[0]}


def pack_idwconv_w(w: NDArray[np.int8]) -> NDArray[np.int8]:
    """[C][1][KH][KW] -> [KH][KW][C]"""
    return np.ascontiguousarray(w[:, 0].transpose(1, 2, 0)).reshape(-1)


def pack_iconv_w(
    w: NDArray[np.int8], groups: int, dilated: bool, form: int, nv: int, vl: int, zero: int = 0, x_size: int = 1
) -> NDArray[np.int8]:
    """[OC][IC/g][KH][KW] -> per group: sums of columns (`has_sums`), panels [run][step][column][form]."""
    oc, ic, kh, kw = w.shape
    og = oc // groups
    runs, steps = run_steps(ic, kh, kw, 2 if dilated else 1, form)
    taps = w.reshape(groups, og, ic, kh, kw).transpose(0, 3, 4, 2, 1).reshape(groups, runs, -1, og)
    padding = steps * form - taps.shape[2]
    padded = np.pad(taps, ((0, 0), (0, 0), (0, padding), (0, 0)), constant_values=np.int8(zero))
    order = column_order(og, vl)
    columns = np.where(order >= 0, padded[..., order], np.int8(zero))
    parts = []
    if has_sums(form, x_size):
        total = (taps.astype(np.int32) - zero).sum((1, 2))
        sums = np.where(order >= 0, total[:, order], 0).astype("<i4")
        parts.append(np.ascontiguousarray(sums).view(np.int8).reshape(groups, -1))
    nr = nv * vl
    for at in range(0, columns.shape[-1], nr):
        panel = columns[..., at : at + nr].reshape(groups, runs, steps, form, -1)
        parts.append(panel.swapaxes(-1, -2).reshape(groups, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.int8).reshape(-1)
