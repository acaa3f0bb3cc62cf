"""Constant descriptors of the contraction kernels: tiles, blocks, strides and scratch.

The kernels in `csrc/include/mb` are generic C; all that makes one fast for a shape is in the
constants chosen here. A register tile is `mr` rows (or pixels) by `nv` vectors; it must leave room
for one B vector per column and one broadcast. Extents are covered
exactly by two tile heights, so there are neither masks nor idle rows. The cost of a candidate is
counted in cycles per step of the sum: FMA ports, load ports, latency of short chains and lines
read from L2.

Everything is a pure function of shapes; the formulas for scratch and packed sizes are the same as in
the headers, and tests compare them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

B_PACKED, B_PLAIN = 0, 1
PF_NONE, PF_NEXT, PF_STREAM = 0, 1, 2
SPLIT_ROWS, SPLIT_PANELS = 0, 1
TYPE_BYTES = (4, 2, 2, 1, 2, 1)  # of MB_T_F32, F16, BF16, I8, I16, U8 in `mb/narrow.h`
MAX_MR, MAX_NV = 28, 16
FEW_ROWS = 32  # up to here a product of open rows takes tiles as wide as one of just as many rows would


@dataclass(frozen=True)
class Caches:
    """Bytes of one core's caches; the defaults suit every x86-64 and AArch64 server core."""

    l1: int = 32 << 10
    l2: int = 1 << 20


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def c_initializer(desc: Mapping[str, int]) -> str:
    """`{.m = 128, .n = 64}`; fields that are zero are left out."""
    return "{" + ", ".join(f".{k} = {v}" for k, v in desc.items() if v) + "}"


# Most rows per number of vectors, by (lanes, registers): the largest tiles that clang compiles
# without moving an accumulator to the stack, which a test checks on the assembly.
_ROWS = {
    (16, 32): {1: 28, 2: 14, 3: 8, 4: 5, 5: 4, 6: 3, 7: 3, 8: 2, 16: 1},
    (4, 32): {1: 20, 2: 12, 3: 8, 4: 5, 5: 4, 6: 3, 7: 3, 8: 2, 16: 1},
    (8, 16): {1: 7, 2: 6, 3: 4, 4: 2, 8: 1},
    (4, 16): {1: 7, 2: 4, 3: 2, 4: 2, 8: 1},
}


def max_mr(nv: int, vl: int, nvreg: int) -> int:
    """Most rows of a tile of nv vectors that leave no accumulator without a register."""
    table = _ROWS.get((vl, nvreg))
    if table is not None:
        return table[min(k for k in table if k >= nv)] if nv <= max(table) else 1
    return max(1, min(MAX_MR, (nvreg - 4 - nv) // nv))


def cover(extent: int, most: int) -> tuple[int, int, int, int]:
    """(mr1, n1, mr2, n2): n1 tiles of mr1 and n2 of mr2 are exactly `extent`, as even as possible."""
    if extent <= 0:
        return 1, 0, 0, 0
    tiles = ceil_div(extent, most)
    low, more = divmod(extent, tiles)
    return (low + 1, more, low, tiles - more) if more else (low, tiles, 0, 0)


def tile_cycles(mr: int, nv: int, k: int) -> float:
    """Cycles of one tile: two FMAs and two loads a cycle, FMA latency 4, B out of L2; then the
    epilogue and the call."""
    step = max(mr * nv / 2, (mr + nv) / 2 * 1.05, 4.0, nv * 1.3) + 0.25
    return k * step + 1.5 * mr * nv + 30


def vector_counts(n: int, nv: int, vl: int) -> tuple[int, int]:
    """Whole panels of n columns, and vectors of the last, narrower panel (0: none)."""
    full, rest = divmod(n, nv * vl)
    return full, ceil_div(rest, vl)


def packed_columns(n: int, nv: int, vl: int) -> int:
    """Columns of packed B: whole panels, then whole vectors."""
    full, rest = vector_counts(n, nv, vl)
    return (full * nv + rest) * vl


def _panel_cost(mr: int, n: int, nv: int, k: int, vl: int) -> float:
    """One tile height over all panels."""
    full, rest = vector_counts(n, nv, vl)
    return full * tile_cycles(mr, nv, k) + (tile_cycles(mr, rest, k) if rest else 0)


def _best_nv(m: int, n: int, k: int, vl: int, nvreg: int) -> int:
    most = max(1, min(_most_nv(m), ceil_div(n, vl)))
    return _cheapest(range(1, most + 1), m, n, k, vl, nvreg)


def _most_nv(m: int) -> int:
    return 8 if m <= 3 else 4


def _cheapest(candidates: Sequence[int], m: int, n: int, k: int, vl: int, nvreg: int) -> int:
    """The number of vectors whose tiles take the fewest cycles"""
    def cost(nv: int) -> float:
        mr1, n1, mr2, n2 = cover(m, max_mr(nv, vl, nvreg))
        return n1 * _panel_cost(mr1, n, nv, k, vl) + n2 * _panel_cost(mr2, n, nv, k, vl)

    return min(candidates, key=lambda nv: (cost(nv), nv))


def chains(mr: int, nv: int) -> int:
    """Interleaved sums that hide the latency of an FMA when accumulators are few."""
    out = 1
    while out * 2 * mr * nv <= 8:
        out *= 2
    return out


LINE = 64  # bytes


def shared_nv(n: int, k: int, vl: int, b_type: int, caches: Caches) -> int:
    """Vectors of panels that tiles of two, three, four and eight vectors can share, or 0: one row of a panel is a line
    of memory, and three panels are whole tiles of three."""
    large = TYPE_BYTES[b_type] * n * k > caches.l1  # only then are weights fetched ahead
    return 4 if large and 4 * vl * TYPE_BYTES[b_type] == LINE and n % (12 * vl) == 0 else 0


def side_by_side(m: int, n: int, k: int, nv: int, vl: int, nvreg: int) -> tuple[int, int]:
    """(panels, parts): how m rows multiply weights that were packed for other numbers of rows, too. A leaf takes so
    many panels at once, in so many tiles, one after the other: four of three vectors over three panels of four. One
    row waits for memory, which is fastest from one place; (1, 1) is a tile for each panel."""
    panels, rest = divmod(n, nv * vl)
    ways = {nv: (1, 1)}
    for j in (1, 2, 3) if m > 1 and not rest else ():
        widths = [w for w in range(2, _most_nv(m) + 1) if j * nv % w == 0 and (w < nv or w % nv == 0)]
        if panels % j == 0:
            ways = {w: (j, j * nv // w) for w in widths} | ways
    return ways[_cheapest(list(ways), m, n, k, vl, nvreg)]


def shared_tiles(m: int, n: int, k: int, nv: int, vl: int, nvreg: int) -> tuple[int, int]:
    """`side_by_side`, where m is a likely number of rows that the run chooses. Of many rows eight, and the panels
    that three vectors are of, rest in L1; tiles of two vectors have more rows, which do not."""
    many = m > FEW_ROWS and nv == 4 and n % (12 * vl) == 0
    return (3, 4) if many else side_by_side(m, n, k, nv, vl, nvreg)


def prefetch_step(nv: int, vl: int, tiles: int) -> int:
    """Floats of the next panel that each k step asks for, when `tiles` tiles run over this one."""
    return ceil_div(nv * vl, max(1, tiles))


def gemm_tiles(
    m: int,
    n: int,
    k: int,
    vl: int,
    nvreg: int,
    caches: Caches = Caches(),
    packed: bool = True,
    b_type: int = 0,
    nv: int = 0,
) -> dict[str, int]:
    """The fields nv, mr1, n1, mr2, n2, rb, kc, ku, pf, pf_step, pf_dist of `mb_gemm`; nv may be given."""
    nv = nv or _best_nv(m, n, k, vl, nvreg)
    mr1, n1, mr2, n2 = cover(m, max_mr(nv, vl, nvreg))
    a_bytes, b_bytes = 4 * m * k, TYPE_BYTES[b_type] * n * k
    if b_bytes <= caches.l2 // 2 and a_bytes > caches.l1:
        # Weights rest in L2: take the rows once, a few tiles at a time, and write whole rows of C.
        rb = max(1, caches.l1 // 2 // max(1, 4 * mr1 * k))
    else:
        rb = max(1, caches.l2 // max(1, 4 * mr1 * k))
    pf, dist = (PF_NEXT if packed and b_bytes > caches.l1 else PF_NONE), 0
    if m <= mr1 and b_bytes > caches.l1:
        # One pass over the weights: they stream from memory, 16 KB ahead.
        pf, dist = PF_STREAM, 16384 // TYPE_BYTES[b_type]
    rb = min(rb, n1 + n2)
    names = ("nv", "mr1", "n1", "mr2", "n2", "rb", "kc", "ku", "pf", "pf_step", "pf_dist")
    ku = chains(mr1, nv) if n2 == 0 else 1
    step = prefetch_step(nv, vl, rb)
    return dict(zip(names, (nv, mr1, n1, mr2, n2, rb, max(1, k), ku, pf, step, dist), strict=True))


def joined(chosen: Mapping[str, int], panels: int, parts: int) -> dict[str, int]:
    """Tiles that take several packed panels: `mb_gemm_join` of the header."""
    nv = chosen["nv"] * parts
    streams = ceil_div(chosen["nv"], nv // panels)
    ahead = {"pf_step": chosen["pf_step"] * parts, "pf_dist": chosen["pf_dist"] // streams}
    return {**chosen, **ahead, "nv": nv, "joined": panels, "parts": parts}


def gemm_desc(
    m: int,
    n: int,
    k: int,
    vl: int,
    nvreg: int,
    *,
    batch: int = 1,
    a: tuple[int, int, int] | None = None,
    b: tuple[int, int] | None = None,
    b_batch: int = 0,
    c: tuple[int, int] | None = None,
    types: tuple[int, int] = (0, 0),
    caches: Caches = Caches(),
    nv: int = 0,
    chosen: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """A whole `mb_gemm`. `a` = (batch, row, k) strides; `b` = None for packed B, else its
    (row stride, 1) strides of a plain matrix; `c` = (batch, row) strides;
    `types` = those of b and c; `nv`: what B is packed for; `chosen`: tiles chosen before. Defaults: dense,
    float, the best."""
    panels, parts = side_by_side(m, n, k, nv, vl, nvreg) if b is None and nv and not chosen else (1, 1)
    nv = panels * nv // parts
    tiles = chosen or gemm_tiles(m, n, k, vl, nvreg, caches, packed=b is None, b_type=types[0], nv=nv)
    tiles = joined(tiles, panels, parts) if (panels, parts) != (1, 1) else tiles
    a_batch, a_row, a_k = a if a is not None else (m * k, k, 1)
    c_batch, c_row = c if c is not None else (m * n, n)
    nr = tiles["nv"] * vl
    kind, panel, row = (B_PACKED, k * nr, nr) if b is None else (B_PLAIN, nr, b[0])
    return {
        "batch": batch,
        "m": m,
        "n": n,
        "k": k,
        "a_batch": a_batch,
        "a_row": a_row,
        "a_k": a_k,
        "b_batch": b_batch,
        "b_panel": panel,
        "b_row": row,
        "c_batch": c_batch,
        "c_row": c_row,
        "b_kind": kind,
        "b_type": types[0],
        "c_type": types[1],
        **tiles,
    }


@dataclass(frozen=True)
class Geometry:
    """A convolution over two axes, channels last; what lies to the right and below follows from `out`."""

    x: tuple[int, int, int, int]  # N, H, W, C of all groups
    oc: int  # of all groups
    out: tuple[int, int]
    kernel: tuple[int, int]
    groups: int = 1
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)  # top, left

    @property
    def ic(self) -> int:
        """Input channels of one group."""
        return self.x[3] // self.groups

    @property
    def image(self) -> int:
        """Elements of one image."""
        return self.x[1] * self.x[2] * self.x[3]

    @property
    def inside(self) -> bool:
        """Whether no tap lies outside the image."""
        reach = zip(self.out, self.strides, self.kernel, self.dilations, self.x[1:3], strict=True)
        return self.pads == (0, 0) and all((o - 1) * s + (k - 1) * d < size for o, s, k, d, size in reach)

    @property
    def fields(self) -> dict[str, int]:
        """What every descriptor of a convolution says."""
        names = ("batch", "h", "w", "oh", "ow", "kh", "kw", "sh", "sw", "dh", "dw", "pt", "pl")
        values = (*self.x[:3], *self.out, *self.kernel, *self.strides, *self.dilations, *self.pads)
        return dict(zip(names, values, strict=True))

    def channel_fields(
        self, x_strides: tuple[int, int, int] | None, y_strides: tuple[int, int, int] | None
    ) -> dict[str, int]:
        """How rows and pixels lie in x and y, dense where it is not given; channels are contiguous."""
        (_, _, w, c), (_, ow) = self.x, self.out
        xs = x_strides if x_strides is not None else (self.image, w * c, c)
        ys = y_strides if y_strides is not None else (self.out[0] * ow * self.oc, ow * self.oc, self.oc)
        names = ("x_batch", "x_row", "x_pix", "y_batch", "y_row", "y_pix")
        return dict(zip(names, (*xs, *ys), strict=True))

    def group_fields(
        self, x_strides: tuple[int, int, int, int] | None, y_strides: tuple[int, int, int] | None
    ) -> dict[str, int]:
        """The same of groups, and with a stride of channels."""
        ch = x_strides[3] if x_strides is not None else 1
        oc = self.oc // self.groups
        return {"groups": self.groups, "ic": self.ic, "oc": oc, "x_ch": ch, "x_group": self.ic * ch, "y_group": oc,
                **self.channel_fields(x_strides[:3] if x_strides is not None else None, y_strides)}


def conv_cols(ow: int, kw: int, sw: int, dw: int) -> int:
    """Columns of the scratch image."""
    return (ow - 1) * sw + (kw - 1) * dw + 1


def conv_rows(out_rows: int, kh: int, sh: int, dh: int) -> int:
    """Input rows under `out_rows` output rows."""
    return (out_rows - 1) * sh + (kh - 1) * dh + 1


def scratch_rows(desc: Mapping[str, int], out_rows: int) -> int:
    """`mb_conv_rows` of the header"""
    if desc["gather"]:
        return out_rows * desc["kh"]
    return conv_rows(out_rows, desc["kh"], desc["sh"], desc["dh"])


def _gathers(desc: Mapping[str, int], caches: Caches) -> bool:
    """Whether the rows of taps alone are fewer than all between the first and the last, in the blocks that fit."""
    dense = {**desc, "gather": 0}
    unit = desc["r1"] if desc["narrow"] else 1
    rows = min(_block(dense, caches) * unit, desc["oh"])
    return desc["copy"] == 1 and desc["dh"] > 1 and rows * desc["kh"] < scratch_rows(dense, rows)


def conv_scratch(desc: Mapping[str, int]) -> int:
    """Floats of scratch of one thread: `mb_conv_scratch` of the header."""
    if not desc["copy"]:
        return 0
    unit = max(desc["r1"], desc["r2"]) if desc["narrow"] else 1
    rows = scratch_rows(desc, min(desc["bh"] * unit, desc["oh"]))
    floats = rows * conv_cols(desc["ow"], desc["kw"], desc["sw"], desc["dw"]) * desc["ic"]
    return ceil_div(floats, 16) * 16


def _conv_split(oh: int, ow: int, most: int) -> dict[str, int]:
    """The fields narrow, r1, c1, n1, r2, c2, n2: tiles inside one row, or of whole short rows."""
    if ow <= most:
        r1, n1, r2, n2 = cover(oh, max(1, most // ow))
        c1, c2 = ow, ow if n2 else 0
    else:
        c1, n1, c2, n2 = cover(ow, most)
        r1, r2 = 1, 1 if n2 else 0
    names = ("narrow", "r1", "c1", "n1", "r2", "c2", "n2")
    return dict(zip(names, (int(ow <= most), r1, c1, n1, r2, c2, n2), strict=True))


def conv_tiles(oh: int, ow: int, oc: int, taps: int, vl: int, nvreg: int, nv: int = 0) -> dict[str, int]:
    """The field nv, which may be given, and those of `_conv_split`; `taps` is KH*KW*IC of a group."""

    def cost(nv: int) -> float:
        t = _conv_split(oh, ow, max_mr(nv, vl, nvreg))
        one = t["n1"] * _panel_cost(t["r1"] * t["c1"], oc, nv, taps, vl)
        two = t["n2"] * _panel_cost(t["r2"] * t["c2"], oc, nv, taps, vl) if t["n2"] else 0
        return (one + two) * (1 if t["narrow"] else oh)

    most = max(1, min(4, ceil_div(oc, vl)))
    nv = nv or min(range(1, most + 1), key=lambda nv: (cost(nv), nv))
    return {"nv": nv, **_conv_split(oh, ow, max_mr(nv, vl, nvreg))}


def _block(desc: Mapping[str, int], caches: Caches) -> int:
    """Rows (or tiles) of a block. Weights that rest in L2 may pass again for every few rows, so the
    block, and with it the scratch, is small; larger ones should pass once for as many rows as L2
    holds."""
    units = desc["n1"] + desc["n2"] if desc["narrow"] else desc["oh"]
    weights = TYPE_BYTES[desc["w_type"]] * desc["kh"] * desc["kw"] * desc["ic"] * desc["oc"]
    if weights <= caches.l1 // 2:
        return 1
    if weights <= caches.l2 // 2:
        return min(2, units)
    unit = desc["r1"] if desc["narrow"] else 1
    row_bytes = 4 * conv_cols(desc["ow"], desc["kw"], desc["sw"], desc["dw"]) * desc["ic"]
    bh = 1
    while bh < units and scratch_rows(desc, (bh + 1) * unit) * row_bytes <= caches.l2 // 2:
        bh += 1
    return bh


def conv_desc(
    geo: Geometry,
    vl: int,
    nvreg: int,
    *,
    x_strides: tuple[int, int, int, int] | None = None,
    y_strides: tuple[int, int, int] | None = None,
    plain: bool = False,
    types: tuple[int, int, int] = (0, 0, 0),
    caches: Caches = Caches(),
    nv: int = 0,
) -> dict[str, int]:
    """A whole `mb_conv`. `x_strides` = (batch, row, pixel, channel), `y_strides` = (batch, row, pixel), both in
    elements; `plain`: the weights are HWIO, not packed; `types` = those of x, w and y;
    `nv`: what the weights are packed for, 0: the best."""
    (oh, ow), oc = geo.out, geo.oc // geo.groups
    taps = geo.kernel[0] * geo.kernel[1] * geo.ic
    tiles = conv_tiles(oh, ow, oc, taps, vl, nvreg, nv)
    nr = tiles["nv"] * vl
    kind, panel, row = (B_PLAIN, nr, geo.oc) if plain else (B_PACKED, taps * nr, nr)
    group = oc if plain else taps * packed_columns(oc, tiles["nv"], vl)
    desc = {
        **geo.fields,
        **geo.group_fields(x_strides, y_strides),
        "w_group": group,
        "w_panel": panel,
        "w_row": row,
        "w_kind": kind,
        **dict(zip(("x_type", "w_type", "y_type"), types, strict=True)),
        **tiles,
    }
    desc["copy"] = int(not geo.inside or (desc["x_ch"] != 1 and geo.ic > 1) or types[0] != 0)
    desc["gather"] = int(_gathers(desc, caches))
    desc["bh"] = _block(desc, caches)
    per_unit = 1 if tiles["narrow"] else tiles["n1"] + tiles["n2"]
    desc["pf_step"] = prefetch_step(tiles["nv"], vl, desc["bh"] * per_unit)
    weight_bytes, input_bytes = TYPE_BYTES[types[1]] * taps * oc, TYPE_BYTES[types[0]] * geo.image
    many = geo.groups == 1 and ceil_div(oc, nr) >= 4
    desc["split"] = SPLIT_PANELS if many and weight_bytes > input_bytes else SPLIT_ROWS
    desc["pf"] = PF_NEXT if kind == B_PACKED and weight_bytes > caches.l1 else PF_NONE
    return desc


def dwconv_desc(
    geo: Geometry,
    vl: int,
    nvreg: int,
    *,
    x_strides: tuple[int, int, int] | None = None,
    y_strides: tuple[int, int, int] | None = None,
    types: tuple[int, int, int] = (0, 0, 0),
) -> dict[str, int]:
    """A whole `mb_dwconv`: a group for every input channel. Arguments as in `conv_desc`; channels are contiguous."""
    (n, _, _, c), (oh, ow) = geo.x, geo.out
    # Taps of one kernel row and one input vector stay in registers beside the sums.
    most = max(1, min(14, nvreg - 3 - geo.kernel[1]))
    # Tiles between the first and the last must not see padding.
    while most * geo.strides[1] < geo.pads[1] and most < ow:
        most += 1
    xb1, n1, xb2, n2 = cover(ow, most)
    rows = n * oh >= 16 or ceil_div(geo.oc, vl) < 4
    desc = {**geo.fields, **geo.channel_fields(x_strides, y_strides), "c": geo.oc, "mult": geo.oc // c}
    desc |= dict(zip(("x_type", "w_type", "y_type"), types, strict=True))
    return desc | {"xb1": xb1, "n1": n1, "xb2": xb2, "n2": n2, "split": int(not rows)}


def conv_nchw_scratch(desc: Mapping[str, int], vl: int) -> int:
    """Floats of scratch of one thread: `mb_conv_nchw_scratch` of the header."""
    if not desc["copy"]:
        return 0
    cols = max(desc["ow"], vl) + (desc["kw"] - 1) * desc["dw"] // desc["sw"]
    rows = conv_rows(min(desc["bh"], desc["oh"]), desc["kh"], desc["sh"], desc["dh"])
    return ceil_div(desc["ic"] * rows * desc["sw"] * cols, 16) * 16


def _nchw_tiles(ow: int, oc: int, taps: int, vl: int, nvreg: int) -> dict[str, int]:
    """Vectors along the row and channels of a tile: the cheapest cover of both."""
    vectors = ceil_div(ow, vl)

    def split(nv: int) -> tuple[int, ...]:
        mids = (vectors - 1) // nv
        return (nv, mids, vectors - mids * nv, *cover(oc, max_mr(nv, vl, nvreg)))

    def tile(c: int, v: int) -> float:
        # Vectors of pixels are unaligned: each load touches two lines.
        return taps * max(c * v / 2, (c + 2 * v) / 2, 4.0) + 1.5 * c * v + 30

    def cost(nv: int) -> float:
        _, mids, last, oc1, n1, oc2, n2 = split(nv)
        return sum(n * (mids * tile(c, nv) + tile(c, last)) for c, n in ((oc1, n1), (oc2, n2)) if n)

    nv = min(range(1, min(8, vectors) + 1), key=lambda nv: (cost(nv), nv))
    names = ("nv", "n_mid", "nv_last", "oc1", "n1", "oc2", "n2")
    return dict(zip(names, split(nv), strict=True))


def conv_nchw_desc(
    geo: Geometry,
    vl: int,
    nvreg: int,
    *,
    x_strides: tuple[int, int, int, int] | None = None,
    y_strides: tuple[int, int, int] | None = None,
    types: tuple[int, int] = (0, 0),
    caches: Caches = Caches(),
) -> dict[str, int]:
    """A whole `mb_conv_nchw`. `x_strides` = (batch, channel, row, pixel) and `y_strides` = (batch, channel, row);
    `types` of x and y; weights stay [OC][IC][KH][KW], float."""
    (_, h, w, c), (oh, ow), oc = geo.x, geo.out, geo.oc
    xs = x_strides if x_strides is not None else (c * h * w, h * w, w, 1)
    ys = y_strides if y_strides is not None else (oc * oh * ow, oh * ow, ow)
    desc = {
        **geo.fields,
        "ic": c,
        "oc": oc,
        **dict(zip(("x_batch", "x_ch", "x_row", "x_pix"), xs, strict=True)),
        **dict(zip(("y_batch", "y_ch", "y_row"), ys, strict=True)),
        "x_type": types[0],
        "y_type": types[1],
        **_nchw_tiles(ow, oc, geo.kernel[0] * geo.kernel[1] * c, vl, nvreg),
        "copy": int(not geo.inside or geo.strides[1] != 1 or xs[3] != 1 or ow < vl or types[0] != 0),
        "bh": 1,
    }
    # Four rows share most of their input; more would only enlarge the scratch.
    while desc["bh"] < min(4, oh):
        if 4 * conv_nchw_scratch(desc | {"bh": desc["bh"] + 1}, vl) > caches.l2 // 4:
            break
        desc["bh"] += 1
    return desc
