"""Contractions to C: a constant descriptor, two epilogue functions, and the kernel's macro.

`select` has chosen family and tiles; here strides and places are filled in. What a layer looks like:

    static const mb_conv conv1_d = { .batch = 1, ... };
    MB_INLINE mb_vf conv1_epi_v(const void *ctx, mb_vf acc, mb_ix ix) { ... }
    MB_INLINE float conv1_epi_s(const void *ctx, float acc, mb_ix ix) { ... }
    MB_CONV(conv1_k, conv1_d, conv1_epi)
    ... conv1_k(ram, x, w, y, 0, scratch, tid, nt);
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monobloc.kernels import tiles
from monobloc.codegen.epilogue import Axes, epilogue_expr, epilogue_text, index_axes
from monobloc.codegen.storage import Storage
from monobloc.ir.expr import Var
from monobloc.ir.graph import Value
from monobloc.passes.contraction import Contraction
from monobloc.passes.select import conv_descriptor, conv_geometry, conv_nchw_descriptor
from monobloc.targets import Target


@dataclass(frozen=True)
class KernelText:
    """What a contraction adds to its C file: definitions before the layer function, and its body."""

    definitions: list[str]
    body: list[str]


@dataclass(frozen=True)
class Places:
    """Where things are, for one layer."""

    storage_of: Callable[[Value], Storage]
    pointer_of: Callable[[Value], str]  # typed pointer to the base of a value's memory
    scratch: str  # float pointer, or "0"


def contraction_text(c: Contraction, name: str, t: Target, at: Places) -> KernelText:
    """C of one contraction node or group; `name` is a C identifier."""
    kernel = c.node.attrs["kernel"]
    if kernel == "gemm":
        return _gemm(c, name, t, at)
    return {"dwconv": _dwconv, "conv_nchw": _conv_nchw, "conv": _conv}[kernel](c, name, t, at)


# -- epilogue -----------------------------------------------------------------------------------------
def _epilogue(c: Contraction, name: str, axes: Axes, at: Places) -> list[str]:
    body = c.node.body
    outer = dict(zip(body.inputs, c.node.inputs, strict=True)) if body is not None else {}
    e = epilogue_expr(body, axes.vars, outer)  # type: ignore[arg-type]
    lines, result = epilogue_text(e, axes, at.storage_of, at.pointer_of)
    out = []
    for kind, suffix in (("mb_vf", "v"), ("float", "s")):
        out.append(f"MB_INLINE {kind} {name}_epi_{suffix}(const void *ctx, {kind} acc, mb_ix ix) {{")
        out.append("  char *const ram = (char *)ctx; (void)ram; (void)ix;")
        out += [f"  {line}" for line in lines]
        out.append(f"  return {result};")
        out.append("}")
    return out


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


def _conv(c: Contraction, name: str, t: Target, at: Places) -> KernelText:
    two = c.x.type.rank == 4
    xs, ys = _spatial(at.storage_of(c.x), two), _spatial(at.storage_of(c.out), two)
    desc = conv_descriptor(c, t, xs[3], x_strides=xs, y_strides=ys[:3], plain=not c.node.attrs["packed"])
    assert not desc["copy"] or c.node.attrs["scratch"] >= tiles.conv_scratch(desc), c.node
    call = f"{name}_k(ram, {_ptr(c.x, at)}, {_weights(c, at)}, {_ptr(c.out, at)}, 0, {at.scratch}, tid, nt);"
    epilogue = _epilogue(c, name, _conv_axes(c), at)
    desc["epi_loop"] = _is_long(epilogue)
    return KernelText(
        [f"static const mb_conv {name}_d = {tiles.c_initializer(desc)};", *epilogue,
         f"MB_CONV({name}_k, {name}_d, {name}_epi)"],
        [call],
    )


def _dwconv(c: Contraction, name: str, t: Target, at: Places) -> KernelText:
    geo, two = conv_geometry(c), c.x.type.rank == 4
    xs, ys = _spatial(at.storage_of(c.x), two), _spatial(at.storage_of(c.out), two)
    desc = tiles.dwconv_desc(geo["x"], geo["out"], geo["kernel"], t.f32_lanes, t.vector_registers,
                             strides=geo["strides"], dilations=geo["dilations"], pads=geo["pads"],
                             x_strides=xs[:3], y_strides=ys[:3])
    call = f"{name}_k(ram, {_ptr(c.x, at)}, {_weights(c, at)}, {_ptr(c.out, at)}, tid, nt);"
    epilogue = _epilogue(c, name, _conv_axes(c), at)
    desc["epi_loop"] = _is_long(epilogue)
    return KernelText(
        [f"static const mb_dwconv {name}_d = {tiles.c_initializer(desc)};", *epilogue,
         f"MB_DWCONV({name}_k, {name}_d, {name}_epi)"],
        [call],
    )


def _conv_nchw(c: Contraction, name: str, t: Target, at: Places) -> KernelText:
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
    epilogue = _epilogue(c, name, axes, at)
    desc["epi_loop"] = _is_long(epilogue)
    call = f"{name}_k(ram, {_ptr(c.x, at)}, {_weights(c, at)}, {_ptr(c.out, at)}, {at.scratch}, tid, nt);"
    return KernelText(
        [f"static const mb_conv_nchw {name}_d = {tiles.c_initializer(desc)};", *epilogue,
         f"MB_CONV_NCHW({name}_k, {name}_d, {name}_epi)"],
        [call],
    )


LONG_CALLS = ("mb_exp", "mb_tanh", "mb_sigmoid", "mb_erf", "mb_gelu", "mb_silu", "mb_mish", "mb_softplus", "mb_log")


def _is_long(epilogue: list[str]) -> int:
    """Whether an epilogue is so long that it should be in the code once, in a loop."""
    return int(any(call in line for line in epilogue for call in LONG_CALLS))


def _ptr(v: Value, at: Places) -> str:
    offset = at.storage_of(v).offset
    return f"{at.pointer_of(v)} + {offset}" if offset else at.pointer_of(v)


def _weights(c: Contraction, at: Places) -> str:
    return _ptr(c.w, at)


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


def _gemm(c: Contraction, name: str, t: Target, at: Places) -> KernelText:
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
    desc = tiles.gemm_desc(
        rows.extent, n, k, t.f32_lanes, t.vector_registers, batch=inner.extent,
        a=(inner.x, rows.x, x.strides[-1] if k > 1 else 1),
        b=None if c.node.attrs["packed"] else (w.strides[-2] if k > 1 else n, 1),
        b_batch=inner.w, c=(inner.out, rows.out), caches=tiles.Caches(t.l1_bytes, t.l2_bytes),
    )
    if c.node.attrs["packed"]:
        desc = _as_packed(desc, dict(c.node.attrs["tiles"])["nv"], rows.extent, t)
    axes = _matmul_axes(c, rows.extent, inner.extent, bool(joint))
    return _with_outer_loops(c, name, at, desc, batch, axes)


def _as_packed(desc: dict[str, int], nv: int, rows: int, t: Target) -> dict[str, int]:
    """The same product in tiles of the width the weights were packed for."""
    if desc["nv"] == nv:
        return desc
    mr1, n1, mr2, n2 = tiles.cover(rows, tiles.max_mr(nv, t.f32_lanes, t.vector_registers))
    nr = nv * t.f32_lanes
    return desc | {"nv": nv, "mr1": mr1, "n1": n1, "mr2": mr2, "n2": n2, "rb": min(desc["rb"], n1 + n2),
                   "b_panel": desc["k"] * nr, "b_row": nr, "ku": 0, "pf": tiles.PF_NONE}


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
    c: Contraction, name: str, at: Places, desc: dict[str, int], outer: list[_Batch], axes: Axes
) -> KernelText:
    """The kernel has one batch axis; further ones are loops round the call."""
    epilogue = _epilogue(c, name, axes, at)
    desc["epi_loop"] = _is_long(epilogue)
    x, w, y = _ptr(c.x, at), _weights(c, at), _ptr(c.out, at)
    definitions = [f"static const mb_gemm {name}_d = {tiles.c_initializer(desc)};"]
    if not outer:
        if any("outer" in line for line in epilogue):
            epilogue = [line.replace("outer", "0L") for line in epilogue]
        definitions += [*epilogue, f"MB_GEMM({name}_k, {name}_d, {name}_epi)"]
        return KernelText(definitions, [f"{name}_k(ram, {x}, {w}, {y}, 0, tid, nt);"])
    head = f"struct {name}_at {{ char *ram; long outer; }};"
    epilogue = [
        line.replace("char *const ram = (char *)ctx;",
                     f"char *const ram = ((const struct {name}_at *)ctx)->ram; "
                     f"const long outer = ((const struct {name}_at *)ctx)->outer; (void)outer;")
        for line in epilogue
    ]
    definitions += [head, *epilogue, f"MB_GEMM({name}_k, {name}_d, {name}_epi)"]
    body = [f"struct {name}_at at = {{ram, 0}};"]
    for k, b in enumerate(outer):
        body.append(f"for (long o{k} = 0; o{k} < {b.extent}; o{k}++)")
    body[-1] += " {"
    offs = {p: "".join(f" + o{k} * {getattr(b, p)}" for k, b in enumerate(outer) if getattr(b, p))
            for p in ("x", "w", "out")}
    body.append(f"  {name}_k(&at, {x}{offs['x']}, {w}{offs['w']}, {y}{offs['out']}, 0, tid, nt);")
    body += ["  at.outer++;", "}"]
    return KernelText(definitions, body)
