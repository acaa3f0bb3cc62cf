"""Contractions to C: a constant descriptor, two epilogue functions, and the kernel's macro.

`select` has chosen family and tiles; here strides and places are filled in. What a kernel looks like:

    static const mb_conv conv3_d = { .batch = 1, ... };
    MB_INLINE mb_vf conv3_epi_v(const void *ctx, mb_vf acc, mb_ix ix) { ... }
    MB_INLINE float conv3_epi_s(const void *ctx, float acc, mb_ix ix) { ... }
    MB_CONV(conv3_k, conv3_d, conv3_epi)

and a layer that calls it:

    const void *const at[] = {bias, residual};
    conv3_k(at, x, w, y, 0, scratch, tid, nt);

What differs between layers of one shape are only addresses, and those are arguments: layers with equal
descriptors and epilogues share one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from monobloc.codegen.epilogue import ACC_INT, Axes, epilogue_expr, epilogue_text, index_axes
from monobloc.codegen.storage import Storage
from monobloc.ir.expr import Var
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import guess, is_open, lower, open_symbols
from monobloc.kernels import tiles
from monobloc.passes import open_tiles
from monobloc.passes.contraction import Contraction
from monobloc.passes.select import (
    caches,
    conv_descriptor,
    conv_nchw_descriptor,
    conv_scratch,
    dwconv_descriptor,
    element_types,
    iconv_descriptor,
    iconv_scratch,
    idwconv_descriptor,
    image_axes,
    packed_nv,
    zero_point,
)
from monobloc.targets import Target

SIZES = "(const void *)mem[0]"  # where the run's dimensions lie
KERNEL = "KERNEL"  # stands for the kernel's name in the texts below


@dataclass(frozen=True)
class KernelText:
    """A contraction in C: the kernel's definitions and the layer's body, both with KERNEL for its name."""

    family: str
    definitions: list[str]
    body: list[str]


@dataclass(frozen=True)
class Places:
    """Where things are, for one layer."""

    storage_of: Callable[[Value], Storage]
    pointer_of: Callable[[Value], str]  # typed pointer to the base of a value's memory
    scratch: str  # float pointer, or "0"


def contraction_text(c: Contraction, t: Target, at: Places) -> KernelText:
    """C of one contraction node or group."""
    if c.is_integer:
        return _iconv(c, t, at)
    make = {"gemm": _gemm, "dwconv": _dwconv, "conv_nchw": _conv_nchw, "conv": _conv}
    return make[c.node.attrs["kernel"]](c, t, at)


# -- epilogue -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Epilogue:
    """The two functions, and what they read: the layer's `at` array."""

    lines: list[str]
    reads: list[str]

    def sizes(self, symbols: Sequence[str]) -> list[str]:
        """C that declares dimensions of the run, which `at` leads to."""
        at = f"((const int64_t *)at[{self.reads.index(SIZES)}])" if symbols else ""
        return [f"const long {s} = {at}[{s.removeprefix('dim')}];" for s in symbols]

    @property
    def is_long(self) -> int:
        """Whether it is so long that it should be in the code once, in a loop."""
        return int(any(call in line for line in self.lines for call in LONG_CALLS))


LONG_CALLS = ("mb_exp", "mb_tanh", "mb_sigmoid", "mb_erf", "mb_gelu", "mb_silu", "mb_mish", "mb_softplus", "mb_log")


def _epilogue(
    c: Contraction, axes: Axes, at: Places, outer: bool = False, desc: Mapping[str, int] | None = None
) -> _Epilogue:
    """`outer`: the first entry of `at` is the number of the outer loops' turn. `desc` may have sizes in it."""
    body = c.node.body
    values = dict(zip(body.inputs, c.node.inputs, strict=True)) if body is not None else {}
    e = epilogue_expr(body, axes.vars, values)  # type: ignore[arg-type]
    e = ACC_INT if body is None and c.is_integer else e
    reads = ["(const void *)0"] if outer else []

    def pointer(v: Value) -> str:
        text = f"(const void *){at.pointer_of(v)}"
        if text not in reads:
            reads.append(text)
        return f"((const {v.type.memory.c} *)at[{reads.index(text)}])"

    lines, result = epilogue_text(e, axes, at.storage_of, pointer)
    symbols = open_symbols([*lines, result])
    if symbols or any(map(is_open, (desc or {}).values())):
        reads.append(SIZES)
        lines = [*_Epilogue([], reads).sizes(symbols), *lines]
    out = []
    kinds = (("mb_vi", "v"), ("int32_t", "s")) if c.is_integer else (("mb_vf", "v"), ("float", "s"))
    result = f"mb_bits_of({result})" if c.is_integer else result
    for kind, suffix in kinds:
        out.append(f"MB_INLINE {kind} {KERNEL}_epi_{suffix}(const void *ctx, {kind} acc, mb_ix ix) {{")
        out.append("  const void *const *at = (const void *const *)ctx; (void)at; (void)ix;")
        if outer:
            out.append("  const long outer = (long)at[0]; (void)outer;")
        out += [f"  {line}" for line in lines]
        out.append(f"  return {result};")
        out.append("}")
    return _Epilogue(out, reads)


def _kernel(
    family: str, desc: dict[str, int], epilogue: _Epilogue, arguments: list[str], t: Target | None = None
) -> KernelText:
    """Definitions and body of a kernel that is called once."""
    desc = desc | {"epi_loop": epilogue.is_long}
    at = "at" if epilogue.reads else "0"
    body = [f"const void *const at[] = {{{', '.join(epilogue.reads)}}};"] if epilogue.reads else []
    body.append(f"{KERNEL}_k({at}, {', '.join(arguments)}, tid, nt);")
    return KernelText(family, _definitions(family, desc, epilogue, t), body)


def _definitions(family: str, desc: dict[str, int], epilogue: _Epilogue, t: Target | None = None) -> list[str]:
    if t is not None and any(map(is_open, desc.values())):
        make = {"dwconv": _open_dwconv, "idwconv": _open_idwconv, "gemm": _open_definitions}.get(family)
        return make(desc, epilogue, t) if make is not None else _open_conv(family, desc, epilogue, t)
    desc = {k: int(v) for k, v in desc.items()}  # of an open size: this is for just the one at the hint
    return [
        f"static const mb_{family} {KERNEL}_d = {tiles.c_initializer(desc)};",
        *epilogue.lines,
        f"MB_{family.upper()}({KERNEL}_k, {KERNEL}_d, {KERNEL}_epi)",
    ]


def _open_definitions(desc: dict[str, int], epilogue: _Epilogue, t: Target) -> list[str]:
    """A product whose descriptor is made when it runs: a leaf for every height of a tile, once more for rows that are
    one tile, under which the weights stream by, and some of another width for few rows that like them better."""
    n, nv, vl = desc["n"], desc["nv"], t.f32_lanes
    fixed = {k: v for k, v in desc.items() if k not in ("mr1", "n1", "mr2", "n2", "ku")}
    pf = int(desc["pf"])
    streams = desc["b_kind"] == tiles.B_PACKED and pf != tiles.PF_NONE
    kinds = [("full", 0, "0", pf), *([("once", 0, "0", tiles.PF_STREAM)] if streams else [])]
    if is_open(n):
        kinds += [("shifted", 1, "MB_N_SHIFTED", pf), ("small", 1, "MB_N_SMALL", pf)]
    elif n % (nv * vl):
        kinds.append(("tail", 1, "0", pf))
    lines = _made_in_run("gemm", fixed, epilogue)
    panels, parts = _side_by_side(guess(desc["m"]), desc, t) if streams else (1, 1)
    made = f"{KERNEL}_many" if (panels, parts) != (1, 1) else f"{KERNEL}_d"
    if made == f"{KERNEL}_many":
        lines.append(f"MB_INLINE mb_gemm {made}(const void *ctx) "
                     f"{{ return mb_gemm_join({KERNEL}_d(ctx), {panels}, {parts}); }}")
    width = panels * nv // parts
    most = min(tiles.max_mr(width, vl, t.vector_registers), OPEN_COLUMN_ROWS if is_open(n) else OPEN_ROWS)
    plan = _few_rows(desc, t, (panels, parts)) if streams else {}
    ku = {mr: plan[mr].ku if mr in plan else tiles.chains(mr, width) for mr in range(1, most + 1)}  # the same sums
    for name, tail, how, ahead in kinds:
        least = (most + 1) // 2 if streams and name == "full" else 1  # rows of several tiles have none below
        leaves = {mr: f"{KERNEL}_{name}{mr}" for mr in _heights(desc["m"], least, most)}
        sums = dict.fromkeys(leaves, 1) if streams and name == "full" else ku  # of several tiles, as in `_few_rows`
        lines += [f"MB_GEMM_OPEN_LEAF({leaf}, {made}, {KERNEL}_epi, {mr}, {sums[mr]}, {tail}, {how}, {ahead})"
                  for mr, leaf in leaves.items()]
        table = ", ".join(leaves.get(mr, "0") for mr in range(most + 1))
        lines.append(f"static mb_gemm_leaf *const {KERNEL}_{name}[] = {{{table}}};")
    last = f"{KERNEL}_{kinds[-1][0]}"
    if is_open(n):
        last = f"d.n < MB_VL ? {KERNEL}_small : {KERNEL}_shifted"
    first = f"d.m <= {most} ? {KERNEL}_once : {KERNEL}_full" if streams else f"{KERNEL}_full"
    last = first if last == f"{KERNEL}_{kinds[0][0]}" or last == f"{KERNEL}_once" else last
    few = _few_leaves(plan, pf)
    call = f"MB_GEMM_FEW({KERNEL}_few, {KERNEL}_d, {max(plan)})" if plan else ""
    return [*lines, *few, f"MB_GEMM_OPEN({KERNEL}_k, {made}, {most}, {first}, {last}, {call})"]


def _made_in_run(family: str, desc: Mapping[str, int], epilogue: _Epilogue) -> list[str]:
    """The function that makes a descriptor of the run's sizes, and the epilogue."""
    return [
        f"MB_INLINE mb_{family} {KERNEL}_d(const void *ctx) {{",
        "  const void *const *at = (const void *const *)ctx;",
        *(f"  {line}" for line in epilogue.sizes(open_symbols([str(v) for v in desc.values()]))),
        f"  return (mb_{family}){tiles.c_initializer(desc)};", "}", *epilogue.lines,
    ]


def _open_conv(family: str, desc: dict[str, int], epilogue: _Epilogue, t: Target) -> list[str]:
    """Of floats or integers: a leaf for each width of a tile, and once more for the last, partial panel."""
    widths = open_tiles.conv_widths(desc["nv"], t.f32_lanes, t.vector_registers)
    kinds = ["full", *(["tail"] if desc["oc"] % (desc["nv"] * t.f32_lanes) else [])]
    lines, macro = _made_in_run(family, desc, epilogue), f"MB_{family.upper()}_OPEN"
    for tail, kind in enumerate(kinds):
        lines += [f"{macro}_LEAF({KERNEL}_{kind}{c}, {KERNEL}_d, {KERNEL}_epi, {c}, {tail})" for c in widths]
        table = ", ".join(f"{KERNEL}_{kind}{c}" for c in widths)
        lines.append(f"static mb_{family}_leaf *const {KERNEL}_{kind}[] = {{{table}}};")
    return [*lines, f"static const int {KERNEL}_widths[] = {{{', '.join(map(str, widths))}}};",
            f"{macro}({KERNEL}_k, {KERNEL}_d, {KERNEL}_widths, {KERNEL}_{kinds[0]}, {KERNEL}_{kinds[-1]})"]


def _open_dwconv(desc: dict[str, int], epilogue: _Epilogue, t: Target) -> list[str]:
    """A leaf for each width of a tile, and one for the widest where all of its columns are inside."""
    widths = open_tiles.dwconv_widths(desc["kw"], t.vector_registers)
    lines = _made_in_run("dwconv", desc, epilogue)
    lines += [f"MB_DWCONV_OPEN_LEAF({KERNEL}_inside, {KERNEL}_d, {KERNEL}_epi, {widths[0]}, 0)",
              *(f"MB_DWCONV_OPEN_LEAF({KERNEL}_edge{c}, {KERNEL}_d, {KERNEL}_epi, {c}, 1)" for c in widths)]
    return [*lines, f"static mb_dw_leaf *const {KERNEL}_edge[] = {{{', '.join(f'{KERNEL}_edge{c}' for c in widths)}}};",
            f"static const int {KERNEL}_widths[] = {{{', '.join(map(str, widths))}}};",
            f"MB_DWCONV_OPEN({KERNEL}_k, {KERNEL}_d, {KERNEL}_widths, {KERNEL}_inside, {KERNEL}_edge, {KERNEL}_epi)"]


def _open_idwconv(desc: dict[str, int], epilogue: _Epilogue, t: Target) -> list[str]:
    """Its tiles have one width, and what is left of a row goes pixel by pixel."""
    return [*_made_in_run("idwconv", desc, epilogue),
            f"MB_IDWCONV_OPEN({KERNEL}_k, {KERNEL}_d, {KERNEL}_epi, {desc['px']})"]


def _heights(m: int, least: int, most: int) -> Sequence[int]:
    """Of the tiles that a product's rows can take"""
    if not is_open(m):
        mr1, n1, mr2, n2 = tiles.cover(m, most)
        return [mr for mr, n in ((mr2, n2), (mr1, n1)) if n]
    return range(max(least, min(lower(m), most // 2)), most + 1)


@dataclass(frozen=True)
class _Few:
    """What a number of rows takes: `mb_gemm_few`"""

    panels: int
    parts: int
    most: int
    heights: tuple[int, ...]
    ku: int
    once: bool


def _side_by_side(m: int, desc: Mapping[str, int], t: Target) -> tuple[int, int]:
    return tiles.shared_tiles(m, desc["n"], int(desc["k"]), desc["nv"], t.f32_lanes, t.vector_registers)


def _few_rows(desc: Mapping[str, int], t: Target, many: tuple[int, int]) -> dict[int, _Few]:
    """By rows, where they take tiles of another width than `many` rows do."""
    m, found = desc["m"], {}
    for rows in range(max(lower(m), 1), tiles.FEW_ROWS + 1 if is_open(m) else m + 1):
        panels, parts = _side_by_side(rows, desc, t)
        if (panels, parts) != many:
            wide = panels * desc["nv"] // parts
            high = tiles.max_mr(wide, t.f32_lanes, t.vector_registers)
            mr1, n1, mr2, n2 = tiles.cover(rows, high)
            ku = tiles.chains(mr1, wide) if n1 + n2 == 1 else 1
            found[rows] = _Few(panels, parts, high, (mr1, mr2 or mr1), ku, n1 + n2 == 1)
    return found


def _few_leaves(plan: Mapping[int, _Few], pf: int) -> list[str]:
    """The leaves, and the table that leads to them."""
    leaves, rows = {}, ["{0}"] * (max(plan, default=-1) + 1)
    for m, few in plan.items():
        ahead = tiles.PF_STREAM if few.once else pf
        names = [f"{KERNEL}_few{mr}_{few.panels}_{few.parts}_{few.ku}_{ahead}" for mr in few.heights]
        for name, mr in zip(names, few.heights, strict=True):
            leaves[name] = (f"MB_GEMM_JOINED_LEAF({name}, {KERNEL}_d, {KERNEL}_epi, {mr}, {few.ku}, {few.panels}, "
                            f"{few.parts}, {ahead})")
        rows[m] = f"{{{few.panels}, {few.parts}, {few.most}, {', '.join(names)}}}"
    table = f"static const mb_gemm_few {KERNEL}_few[] = {{{', '.join(rows)}}};"
    return [*leaves.values(), table] if plan else []


# -- Conv ---------------------------------------------------------------------------------------------
def _spatial(s: Storage, two: bool) -> tuple[int, int, int, int]:
    """(batch, row, pixel, channel) strides of an activation"""
    if two:
        n, ch, h, w = s.strides
        return n, h, w, ch
    n, ch, w = s.strides
    return n, 0, w, ch


def _conv_axes(c: Contraction) -> Axes:
    at = index_axes(c.out.shape)
    texts = ("ix.b", "ix.n", "ix.i", "ix.j") if len(at) == 4 else ("ix.b", "ix.n", "ix.j")
    text = {v: x for v, x in zip(at, texts) if isinstance(v, Var)}
    channel = at[1] if isinstance(at[1], Var) else None
    return Axes(at, text, channel)


def _conv(c: Contraction, t: Target, at: Places) -> KernelText:
    two = c.x.type.rank == 4
    xs, ys = _spatial(at.storage_of(c.x), two), _spatial(at.storage_of(c.out), two)
    desc = conv_descriptor(c, t, xs[3], x_strides=xs, y_strides=ys[:3], plain=not c.node.attrs["packed"])
    assert not desc["copy"] or c.node.attrs["scratch"] >= conv_scratch(desc), c.node
    return _images("conv", c, at, desc, _conv_axes(c), [*_operands(c, at), "0", at.scratch], t=t)


def _dwconv(c: Contraction, t: Target, at: Places) -> KernelText:
    two = c.x.type.rank == 4
    xs, ys = _spatial(at.storage_of(c.x), two), _spatial(at.storage_of(c.out), two)
    desc = dwconv_descriptor(c, t, x_strides=xs[:3], y_strides=ys[:3])
    return _images("dwconv", c, at, desc, _conv_axes(c), _operands(c, at), t=t)


def _conv_nchw(c: Contraction, t: Target, at: Places) -> KernelText:
    """Vectors lie along a row of pixels: so do the epilogue's."""
    two = c.x.type.rank == 4
    xn, xr, xp, xc = _spatial(at.storage_of(c.x), two)
    yn, yr, _, yc = _spatial(at.storage_of(c.out), two)
    desc = conv_nchw_descriptor(c, t, x_strides=(xn, xc, xr, xp), y_strides=(yn, yc, yr))
    assert c.node.attrs["scratch"] >= tiles.conv_nchw_scratch(desc, t.f32_lanes), c.node
    index = index_axes(c.out.shape)
    texts = ("ix.b", "ix.n", "ix.i", "ix.j") if two else ("ix.b", "ix.n", "ix.j")
    text = {v: x for v, x in zip(index, texts) if isinstance(v, Var)}
    lane = index[-1] if isinstance(index[-1], Var) else None
    axes = Axes(index, text, lane, lane_text="ix.j")
    return _images("conv_nchw", c, at, desc, axes, [*_operands(c, at), at.scratch])


def _images(
    family: str, c: Contraction, at: Places, desc: dict[str, int], axes: Axes, arguments: list[str], out: int = 2,
    t: Target | None = None,
) -> KernelText:
    """A kernel whose batch is a constant; where a run chooses it, that is how often the kernel is called. `out` is the
    place of the result among the arguments, x is the first. `t`: the kernel's own sizes may be open, too."""
    images = image_axes(c)
    if not images:
        return _kernel(family, desc, _epilogue(c, axes, at, desc=desc), arguments, t)
    step = images - 1
    outer = {v: "outer" if v is axes.vars[0] and images == 1 else t for v, t in axes.text.items()}
    desc = desc | {k: 0 for k in ("x_batch", "y_batch")}
    epilogue = _epilogue(c, replace(axes, text=outer), at, outer=True, desc=desc)
    moved = dict(enumerate(arguments))
    for k, v in ((0, c.x), (out, c.out)):
        moved[k] = f"{moved[k]} + o0 * {at.storage_of(v).strides[step]}"
    return KernelText(family, _definitions(family, desc | {"epi_loop": epilogue.is_long}, epilogue, t), [
        f"const void *at[] = {{{', '.join(epilogue.reads)}}};",
        f"for (long o0 = 0; o0 < {prod(c.out.shape[:images])}; o0++) {{",
        "  at[0] = (const void *)o0;", f"  {KERNEL}_k(at, {', '.join(moved.values())}, tid, nt);", "}"])


def _operands(c: Contraction, at: Places) -> list[str]:
    """Pointers to x, w and out."""
    return [_ptr(v, at) for v in (c.x, c.w, c.out)]


def _ptr(v: Value, at: Places) -> str:
    offset = at.storage_of(v).offset
    return f"{at.pointer_of(v)} + {offset}" if offset else at.pointer_of(v)


def _iconv(c: Contraction, t: Target, at: Places) -> KernelText:
    """Integers: a matrix product is the convolution of a column of its rows."""
    xs, ys = at.storage_of(c.x), at.storage_of(c.out)
    if c.is_matrix:
        strides = (0, _row_stride(xs, c.x.shape, image_axes(c)), 0, xs.strides[-1])
        out = (0, _row_stride(ys, c.out.shape, image_axes(c)), 0)
        rows = prod(c.out.shape[image_axes(c) : -1])
        axes = _matmul_axes(c, rows, 1, len(c.out.shape) > 2)
        axes = replace(axes, text={v: x.replace("ix.j", "ix.i") for v, x in axes.text.items()}, row_text="ix.i")
    else:
        two = c.x.type.rank == 4
        strides, out = _spatial(xs, two), _spatial(ys, two)[:3]
        axes = _conv_axes(c)
    zero = zero_point(c)
    given = f"(const void *)({_ptr(zero, at)})" if isinstance(zero, Value) else "0"
    x, w, y = _operands(c, at)
    if c.node.attrs["kernel"] == "idwconv":
        desc = idwconv_descriptor(c, x_strides=strides[:3], y_strides=out)
        return _images("idwconv", c, at, desc, axes, [x, w, given, y], out=3, t=t)
    desc = iconv_descriptor(c, t, x_strides=strides, y_strides=out)
    assert 4 * c.node.attrs["scratch"] >= iconv_scratch(desc), c.node
    return _images("iconv", c, at, desc, axes, [x, w, given, y, at.scratch], out=3, t=None if c.is_matrix else t)


def _row_stride(s: Storage, shape: Sequence[int], images: int) -> int:
    """From row to row, of all axes but the last that are one column of rows; an axis of one element says nothing."""
    inner = zip(shape[images:-1], s.strides[images:-1], strict=True)
    return next((stride for d, stride in reversed(list(inner)) if d != 1), s.strides[-2])


# -- MatMul -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Batch:
    """Leading axes of a product: extent and strides of x, w and out."""

    extent: int
    x: int
    w: int
    out: int


def _leading(c: Contraction, at: Places) -> list[_Batch]:
    shape = c.out.shape[:-2]

    def strides(v: Value, dims: Sequence[int]) -> list[int]:
        s = list(at.storage_of(v).strides[:-2])
        own = [0 if d == 1 else k for d, k in zip(dims, s)]
        return [0] * (len(shape) - len(own)) + own

    xs = strides(c.x, c.x.shape[:-2])
    ws = [0] * len(shape) if c.node.attrs["packed"] else strides(c.w, c.w.shape[:-2])
    ys = strides(c.out, c.out.shape[:-2])
    return [_Batch(*b) for b in zip(shape, xs, ws, ys) if b[0] != 1]


def _collapse(batch: list[_Batch]) -> list[_Batch]:
    """Neighbouring axes that lie as one in all three operands become one."""
    out: list[_Batch] = []
    for b in batch:
        a = out[-1] if out else None
        if a and a.x == b.extent * b.x and a.w == b.extent * b.w and a.out == b.extent * b.out:
            out[-1] = _Batch(a.extent * b.extent, b.x, b.w, b.out)
        else:
            out.append(b)
    return out


def _gemm(c: Contraction, t: Target, at: Places) -> KernelText:
    x, w, y = at.storage_of(c.x), at.storage_of(c.w), at.storage_of(c.out)
    m, k, n = c.x.shape[-2], c.x.shape[-1], c.out.shape[-1]
    rows = _Batch(m, x.strides[-2], 0, y.strides[-2])
    batch = _collapse(_leading(c, at))
    joint = 0  # leading axes that become rows
    if m == 1 and batch and batch[-1].w == 0:
        rows, joint = batch.pop(), 1
    elif batch and batch[-1].w == 0 and batch[-1].x == m * rows.x and batch[-1].out == m * rows.out:
        last = batch.pop()
        rows = _Batch(last.extent * m, rows.x, 0, rows.out)
        joint = 1
    inner = batch.pop() if batch else _Batch(1, 0, 0, 0)
    chosen = _open_tiles(c, t, rows.extent, n, k)
    desc = tiles.gemm_desc(
        rows.extent, n, k, t.f32_lanes, t.vector_registers, batch=inner.extent,
        a=(inner.x, rows.x, x.strides[-1] if k > 1 else 1),
        b=None if c.node.attrs["packed"] else (w.strides[-2] if k > 1 else n, 1),
        b_batch=inner.w, c=(inner.out, rows.out), types=element_types(c)[1:],
        caches=caches(t), nv=packed_nv(c) if c.node.attrs["packed"] else 0, chosen=chosen,
    )
    axes = _matmul_axes(c, rows.extent, inner.extent, bool(joint))
    if not batch:
        return _kernel("gemm", desc, _epilogue(c, axes, at, desc=desc), [*_operands(c, at), "0"], t)
    return _with_outer_loops(c, at, desc, batch, axes, t)


OPEN_ROWS = 14  # most rows of a tile where there must be a leaf for every height
OPEN_COLUMN_ROWS = 8  # where columns are open too: enough to hide the latency of a product, and three times the leaves


def _open_tiles(c: Contraction, t: Target, m: int, n: int, k: int) -> dict[str, int] | None:
    """Tiles of a product whose sizes a run chooses: good for likely ones, right for all."""
    if not any(map(is_open, (m, n, k))):
        return None
    packed = bool(c.node.attrs["packed"])
    nv = packed_nv(c) if packed else 1 if is_open(n) else 0
    vl, nvreg = t.f32_lanes, t.vector_registers
    panels, parts = tiles.shared_tiles(guess(m), n, guess(k), nv, vl, nvreg) if packed else (1, 1)
    chosen = tiles.gemm_tiles(guess(m), guess(n), guess(k), vl, nvreg, caches(t),
                              packed=packed, b_type=element_types(c)[1], nv=panels * nv // parts)
    chosen |= {"nv": nv} if nv else {}
    ahead = {"pf": tiles.PF_NONE} if is_open(k) else {"pf_dist": 16384 // tiles.TYPE_BYTES[element_types(c)[1]]}
    return chosen | {"kc": k if is_open(k) else max(1, k)} | ahead


def _matmul_axes(c: Contraction, rows: int, inner: int, joint: bool) -> Axes:
    """Logical axes from the flat position: ix.b and ix.j together count (outer loops, batch, rows)."""
    shape = c.out.shape
    at = index_axes(shape)
    lane = at[-1] if isinstance(at[-1], Var) else None
    leading = [v for v in at[:-1] if isinstance(v, Var)]
    # which leading axes the row counter covers
    in_rows: list[Var] = []
    size = 1
    for v in reversed(leading):
        if size >= rows:
            break
        in_rows.insert(0, v)
        size *= v.extent
    text: dict[Var, str] = {}
    step = 1
    for v in reversed(in_rows):
        text[v] = f"(ix.j / {step} % {v.extent})" if len(in_rows) > 1 else "ix.j"
        step *= v.extent
    step = 1
    rest = [v for v in leading if v not in in_rows]
    size = 1
    for v in reversed(rest):
        base = "ix.b" if size < inner else "outer"
        if base == "outer" and size == inner:
            step = 1
        text[v] = f"({base} / {step} % {v.extent})"
        step *= v.extent
        size *= v.extent
        if size == inner and base == "ix.b":
            step = 1
    return Axes(at, text, lane, tuple(in_rows))


def _with_outer_loops(
    c: Contraction, at: Places, desc: dict[str, int], outer: list[_Batch], axes: Axes, t: Target
) -> KernelText:
    """The kernel has one batch axis; further ones are loops round the call."""
    epilogue = _epilogue(c, axes, at, outer=True, desc=desc)
    body = [f"const void *at[] = {{{', '.join(epilogue.reads)}}};", "long turn = 0;"]
    body += [f"for (long o{k} = 0; o{k} < {b.extent}; o{k}++)" for k, b in enumerate(outer)]
    body[-1] += " {"
    steps = [
        "".join(f" + o{k} * {getattr(b, p)}" for k, b in enumerate(outer) if getattr(b, p)) for p in ("x", "w", "out")
    ]
    operands = [f"{p}{step}" for p, step in zip(_operands(c, at), steps, strict=True)]
    body += ["  at[0] = (const void *)turn++;", f"  {KERNEL}_k(at, {', '.join(operands)}, 0, tid, nt);", "}"]
    return KernelText("gemm", _definitions("gemm", desc | {"epi_loop": epilogue.is_long}, epilogue, t), body)
