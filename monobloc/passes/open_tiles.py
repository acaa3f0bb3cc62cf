"""Descriptors of convolutions whose height and width a run chooses.

Tiles are chosen as for a likely size; the descriptor itself is made when it runs. A row is covered by tiles of a few
widths, each a leaf of its own: the widest as often as it fits, then narrower ones. That keeps the number of leaves
small, whatever sizes there are.
"""

from __future__ import annotations

from dataclasses import replace

from monobloc.ir.symbolic import guess, is_open, same_number, surely_less, upper
from monobloc.kernels import integer, tiles
from monobloc.kernels.tiles import Caches, Geometry

WIDEST = 14  # pixels of a tile: enough accumulators for any number of vectors
NARROWER = (8, 4, 2, 1)


def is_open_image(geo: Geometry) -> bool:
    return any(map(is_open, (*geo.x[1:3], *geo.out)))


def widths(most: int) -> list[int]:
    """Pixels of the tiles that a row takes, the last of them 1"""
    most = min(most, WIDEST)
    return [most, *(k for k in NARROWER if k < most)]


def conv_widths(nv: int, vl: int, nvreg: int) -> list[int]:
    return widths(tiles.max_mr(nv, vl, nvreg))


def dwconv_widths(kernel_columns: int, nvreg: int) -> list[int]:
    return widths(max(1, nvreg - 3 - kernel_columns))  # taps of a kernel row stay in registers beside the sums


def _likely(geo: Geometry) -> Geometry:
    n, h, w, c = geo.x
    return replace(geo, x=(guess(n), guess(h), guess(w), c), out=(guess(geo.out[0]), guess(geo.out[1])))


def _inside(geo: Geometry) -> bool:
    """Whether no tap lies outside the image, at any size."""
    reach = zip(geo.out, geo.strides, geo.kernel, geo.dilations, geo.x[1:3], strict=True)
    return geo.pads == (0, 0) and all(surely_less((o - 1) * s + (k - 1) * d, size) for o, s, k, d, size in reach)


def conv_desc(
    geo: Geometry, vl: int, nvreg: int, *, x_strides: tuple[int, int, int, int], y_strides: tuple[int, int, int] | None,
    plain: bool, types: tuple[int, int, int], caches: Caches, nv: int,
) -> dict[str, int]:
    """As `tiles.conv_desc`"""
    likely = _likely(geo)
    xs = (guess(x_strides[0]), guess(x_strides[1]), guess(x_strides[2]), guess(x_strides[3]))
    near = tiles.conv_desc(likely, vl, nvreg, x_strides=xs, plain=plain, types=types, caches=caches, nv=nv)
    kept = ("w_group", "w_panel", "w_row", "w_kind", "x_type", "w_type", "y_type", "nv", "pf", "pf_step", "split")
    copy = not _inside(geo) or (geo.ic > 1 and not same_number(x_strides[3], 1)) or types[0] != 0
    rows = near["bh"] * (near["r1"] if near["narrow"] else 1)
    return {**geo.fields, **geo.group_fields(x_strides, y_strides), **{k: near[k] for k in kept}, "copy": int(copy),
            "gather": int(copy and near["gather"]), "bh": max(1, rows)}


def conv_scratch(desc: dict[str, int]) -> int:
    """Floats of one thread, at the largest size"""
    return tiles.conv_scratch({**desc, "narrow": 0, "oh": upper(desc["oh"]), "ow": upper(desc["ow"])})


def dwconv_desc(
    geo: Geometry, vl: int, nvreg: int, *, x_strides: tuple[int, int, int] | None,
    y_strides: tuple[int, int, int] | None, types: tuple[int, int, int],
) -> dict[str, int]:
    """As `tiles.dwconv_desc`"""
    near = tiles.dwconv_desc(_likely(geo), vl, nvreg, types=types)
    kept = ("c", "mult", "x_type", "w_type", "y_type", "split")
    return {**geo.fields, **geo.channel_fields(x_strides, y_strides), **{k: near[k] for k in kept}}


# -- bytes ----------------------------------------------------------------------------------------------
def iconv_desc(
    geo: Geometry, vl: int, nvreg: int, *, form: int, x_strides: tuple[int, int, int, int] | None,
    y_strides: tuple[int, int, int] | None, numbers: integer.Numbers, caches: Caches, nv: int,
) -> dict[str, int]:
    """As `integer.iconv_desc`"""
    near = integer.iconv_desc(_likely(geo), vl, nvreg, form=form, numbers=numbers, caches=caches, nv=nv)
    kept = ("form", "nv", "w_panel", "w_group", "gather", "split")
    rows = near["bh"] * (near["r1"] if near["narrow"] else 1)
    return {**geo.fields, **numbers.strides(geo.group_fields(x_strides, y_strides)), **numbers.fields,
            **{k: near[k] for k in kept}, "bh": max(1, rows)}


def iconv_scratch(desc: dict[str, int]) -> int:
    """Bytes of one thread, at the largest size"""
    return integer.iconv_scratch({**desc, "narrow": 0, "oh": upper(desc["oh"]), "ow": upper(desc["ow"])})


def idwconv_desc(
    geo: Geometry, *, x_strides: tuple[int, int, int] | None, y_strides: tuple[int, int, int] | None,
    numbers: integer.Numbers,
) -> dict[str, int]:
    """As `integer.idwconv_desc`"""
    near = integer.idwconv_desc(_likely(geo), numbers=numbers)
    return {**geo.fields, **numbers.strides(geo.channel_fields(x_strides, y_strides)), **numbers.fields,
            "c": geo.oc, "px": near["px"]}
