"""Operators that move elements: every element of the output is an element of an input, or padding.

`Split` is several `Slice`s, `DepthToSpace` and `SpaceToDepth` are a `Transpose` between two
`Reshape`s: a consumer then takes the one piece it needs into its own loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, all_of, bounds, call, cast, floormod, idx, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.contract import NAN, Edge, f32
from monobloc.ops.shape import axes_of, axis_of, flatten_index, ints_of, needed_ints, only, reshape, sizes

Array = np.ndarray


def clamp(e: Expr, n: int) -> Expr:
    """`e` moved into [0, n), where it may lie outside"""
    lo, hi = bounds(e)
    if lo < 0:
        e = call("imax", e, idx(0))
    return call("imin", e, idx(n - 1)) if hi > n - 1 else e


class Transpose(OpDef):
    """Axis k of the result is axis perm[k] of the input"""

    name = "Transpose"
    strings = "moves"
    moves = True
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        perm = n.attrs.get("perm")
        perm = list(reversed(range(x.type.rank))) if perm is None else axes_of(perm, x.type.rank, "Transpose")
        return [transpose(b, x, perm)]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, perm = only(ins[0], "Transpose"), attrs["perm"]
        if sorted(perm) != list(range(x.type.rank)):
            raise ModelError(f"Transpose of a tensor of rank {x.type.rank} has the order {list(perm)}")
        return [TensorType(x.dtype, tuple(x.shape[p] for p in perm))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.transpose(xs[0], attrs["perm"])  # type: ignore[arg-type]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, perm = xs[0], list(n.attrs["perm"])
        assert x is not None
        return lambda *i: x(*[i[perm.index(k)] for k in range(len(perm))])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        for perm in ([2, 0, 1], [0, 2, 1], [1, 0, 2]):
            yield Case((x,), {"perm": perm}, "".join(map(str, perm)))
        yield Case((x[0, 0, 0],), {"perm": []}, "rank0")


def transpose(b: Any, x: Value, perm: Sequence[int]) -> Value:
    """`x` with its axes in another order; itself where that is its own"""
    out: Value = x if list(perm) == sorted(perm) else b.one("Transpose", x, perm=list(perm))
    return out


# -- slices -----------------------------------------------------------------------------------------------
class Slice(OpDef):
    """x[starts + steps * i] for i < sizes; all three have one entry per axis, steps may be negative"""

    name = "Slice"
    strings = "moves"
    moves = True
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        starts, ends = needed_ints(n, "starts", 1, 10), needed_ints(n, "ends", 2, 10)
        axes, steps = ints_of(n, "axes", 3, 10), ints_of(n, "steps", 4, 10)
        axes = axes_of(axes if axes is not None else range(len(starts)), x.type.rank, "Slice")
        steps = steps if steps is not None else [1] * len(starts)
        if not len(starts) == len(ends) == len(axes) == len(steps):
            n.fail(f"has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
        if 0 in steps:
            n.fail(f"has a step of 0: {steps}")
        given = zip(axes, starts, ends, steps, strict=True)
        at = {a: slice_range(start, end, step, x.shape[a]) for a, start, end, step in given}
        return [slice_of(b, x, [at.get(k, (0, 1, d)) for k, d in enumerate(x.shape)])]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = only(ins[0], "Slice")
        for d, start, step, size in zip(x.shape, attrs["starts"], attrs["steps"], attrs["sizes"], strict=True):
            last = start + step * (size - 1)
            if size < 0 or (size and not (0 <= start < d and 0 <= last < d)):
                raise ModelError(f"a slice from {start} to {last} is outside an axis of size {d}")
        return [TensorType(x.dtype, tuple(attrs["sizes"]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        for axis, at in enumerate(zip(attrs["starts"], attrs["steps"], attrs["sizes"], strict=True)):
            start, step, size = at
            x = np.take(x, start + step * np.arange(size), axis)
        return x

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, at = xs[0], list(zip(n.attrs["starts"], n.attrs["steps"], strict=True))
        assert x is not None
        return lambda *i: x(*[k * step + start for k, (start, step) in zip(i, at, strict=True)])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((5, 6, 7)).astype(np.float32)
        yield Case((x,), {"starts": [1, 0, 2], "steps": [1, 1, 1], "sizes": [3, 6, 5]})
        yield Case((x,), {"starts": [4, 5, 0], "steps": [-1, -2, 3], "sizes": [5, 3, 3]}, "steps")
        yield Case((x,), {"starts": [0, 0, 0], "steps": [1, 1, 1], "sizes": [5, 0, 7]}, "empty")


ENDLESS = ((1 << 31) - 1, (1 << 63) - 1)  # ends that mean as far as it goes, in either direction


def slice_range(start: int, end: int, step: int, n: int) -> tuple[int, int, int]:
    """(first, step, count) of ONNX's start:end:step on an axis of size n"""
    if is_open(n) or is_open(start) or is_open(end):
        return _open_range(start, end, step, n)
    first, stop, step = slice(start, end, step).indices(n) if step > 0 else _backward(start, end, step, n)
    return first, step, len(range(first, stop, step))


def _open_range(start: int, end: int, step: int, n: int) -> tuple[int, int, int]:
    """The same where a run chooses sizes; backwards it is for just one."""
    if step < 0:
        return slice_range(int(start), int(end), step, int(n))

    def inside(v: int) -> int:
        v = v + n if v < 0 else v
        return 0 if v < 0 else n if v > n else v

    first, stop = inside(start), inside(end)
    count = -((first - stop) // step)
    return first, step, count if count > 0 else 0


def _backward(start: int, end: int, step: int, n: int) -> tuple[int, int, int]:
    """A start before the front is the first entry, and the largest numbers as an end are the very front, as
    onnxruntime has it"""
    first = min(max(start + n if start < 0 else start, 0), n - 1)
    stop = -1 if end in ENDLESS else min(max(end + n if end < 0 else end, -1), n)
    return first, stop, step


def slice_of(b: Any, x: Value, at: Sequence[tuple[int, int, int]]) -> Value:
    """The part of `x` that (first, step, count) name per axis; `x` itself where that is all of it."""
    whole = [(0, 1, d) for d in x.shape]
    at = [(f, s if c > 1 else 1, c) if c else (0, 1, 0) for f, s, c in at]
    starts, steps, counts = ([v[k] for v in at] for k in range(3))
    out: Value = x if at == whole else b.one("Slice", x, starts=starts, steps=steps, sizes=counts)
    return out


class Split(OpDef):
    """Vanishes: one Slice per output"""

    name = "Split"
    strings = "moves"
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axis = axis_of(n.attrs.get("axis", 0), x.type.rank, "Split")
        total = x.shape[axis]
        parts = ints_of(n, "split", 1, 13 if n.input(1) is None else 1)  # in opset 1 an input or an attribute
        if parts is None:
            count = n.attrs.get("num_outputs", n.n_outputs)
            each = -(-total // count)
            parts = [min(each, max(total - each * k, 0)) for k in range(count)]
        if sum(parts) != total or min(parts, default=0) < 0 or len(parts) < n.n_outputs:
            n.fail(f"splits an axis of size {total} into {parts} for {n.n_outputs} outputs")
        out, first = [], 0
        for count in parts[: n.n_outputs]:
            at = [(first, 1, count) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)]
            out.append(slice_of(b, x, at))
            first += count
        return out


# -- joining ----------------------------------------------------------------------------------------------
def _without(shape: Sequence[int], axis: int) -> list[int]:
    return [d for k, d in enumerate(shape) if k != axis]


def concat_axis(n: Any, rank: int) -> int:
    axis = n.attrs.get("axis", 1 if n.opset < 4 else None)
    return axis_of(axis if axis is not None else n.fail("needs an axis"), rank, "Concat")


class Concat(OpDef):
    """The inputs one after the other along `axis`"""

    name = "Concat"
    strings = "moves"
    moves = True
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        rank = n.inputs[0].type.rank
        axis = concat_axis(n, rank)
        self.infer(n.inputs, {"axis": axis})
        full = [v for v in n.inputs if v.shape[axis]] or n.inputs[:1]
        return full if len(full) == 1 else b.emit("Concat", full, {"axis": axis})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        axis, vs = attrs["axis"], [only(v, "Concat") for v in ins]
        first = vs[0]
        for v in vs[1:]:
            if v.dtype is not first.dtype:
                raise ModelError(f"Concat needs inputs of one type, got {first.dtype.value} and {v.dtype.value}")
            if v.type.rank != first.type.rank or _without(v.shape, axis) != _without(first.shape, axis):
                shapes = f"{list(first.shape)} and {list(v.shape)}"
                raise ModelError(f"Concat along axis {axis} of shapes {shapes}, which differ elsewhere")
        total = sum(v.shape[axis] for v in vs)
        return [TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.concatenate(xs, attrs["axis"])  # type: ignore[arg-type]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        axis, starts, parts = n.attrs["axis"], [0], []
        for x, v in zip(xs, n.used, strict=True):
            if x is not None and v.shape[axis]:
                parts.append((x, v.shape[axis]))
                starts.append(starts[-1] + v.shape[axis])

        def among(i: tuple[Expr, ...], low: int, high: int) -> Expr:
            """The element at `i`, which one of these parts holds: halved, so that no expression is deep."""
            if high - low == 1:
                x, size = parts[low]
                return x(*i[:axis], clamp(i[axis] - starts[low], size), *i[axis + 1 :])
            mid = (low + high) // 2
            return select(i[axis].lt(starts[mid]), among(i, low, mid), among(i, mid, high))

        return lambda *i: among(i, 0, len(parts)) if parts else lift(0, n.outputs[0].dtype)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        yield Case((x, x[:, :1] + 1, x[:, :2] * 2), {"axis": 1})
        yield Case((x, x[:, :0], x), {"axis": 1}, "empty_part")
        yield Case((x[:1], x), {"axis": 0}, "front")
        yield Case((x[:0], x[:0]), {"axis": 2}, "empty")


# -- padding ----------------------------------------------------------------------------------------------
PAD_MODES = ("constant", "reflect", "edge", "wrap")


class Pad(OpDef):
    """`pads` (all begins, then all ends, none negative) around x; inputs x, value (none: 0).

    mode: constant, reflect (the border element once), edge, wrap
    """

    name = "Pad"
    moves = True
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, mode = n.inputs[0], n.attrs.get("mode", "constant")
        if mode not in PAD_MODES:
            n.fail(f"has the unknown mode {mode!r}, must be one of {', '.join(PAD_MODES)}")
        pads = needed_ints(n, "pads" if n.opset >= 2 else "paddings", 1, 11)
        rank = x.type.rank
        axes = range(rank) if n.input(3) is None else axes_of(n.const(3, "axes").ravel(), rank, "Pad")
        if len(pads) != 2 * len(axes):
            n.fail(f"has {len(pads)} pads for {len(axes)} axes")
        low, high = [0] * rank, [0] * rank
        for a, p, q in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
            low[a], high[a] = p, q
        cut = []
        for a, (d, p, q) in enumerate(zip(x.shape, low, high, strict=True)):
            if d + p + q < 0:
                n.fail(f"takes {-p} and {-q} elements off an axis of size {d}")
            first = max(-p, 0)
            left = d - first - max(-q, 0)
            if left < 0:  # more is cut than there is: the padding of the other side is cut too
                low[a], high[a] = (p, q + left) if p < 0 else (p + left, q)
            cut.append((first, 1, max(left, 0)))
        return [pad(b, slice_of(b, x, cut), low, high, mode, self._value(b, n))]

    def _value(self, b: Any, n: Any) -> Value | None:
        if n.opset < 11:
            value = n.attrs.get("value", 0.0)
            return b.const(value, n.inputs[0].dtype) if value else None
        v: Value | None = n.input(2)
        if v is None and n.inputs[0].dtype is DType.F8E8M0:
            n.fail("pads a type without zero and gives no value")
        return v if v is None else reshape(b, v, [])

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, pads = only(ins[0], "Pad"), attrs["pads"]
        rank = x.type.rank
        if len(pads) != 2 * rank or min(pads, default=0) < 0:
            raise ModelError(f"Pad of a tensor of rank {rank} has the pads {list(pads)}")
        for d, p, q in zip(x.shape, pads[:rank], pads[rank:], strict=True):
            if d == 0 and p + q and attrs["mode"] != "constant":
                raise ModelError(f"Pad with mode {attrs['mode']} of an axis of size 0")
        if len(ins) > 1 and ins[1] is not None and ins[1].dtype is not x.dtype:
            raise ModelError(f"Pad of {x.dtype.value} with a value of {ins[1].dtype.value}")
        return [
            TensorType(x.dtype, tuple(d + p + q for d, p, q in zip(x.shape, pads[:rank], pads[rank:], strict=True)))
        ]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, value = [*xs, None][:2]
        assert x is not None
        pads, mode = attrs["pads"], attrs["mode"]
        width = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
        if mode == "constant":
            return np.pad(x, width, constant_values=0 if value is None else value.reshape(()))
        return np.pad(x, width, mode=mode)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, value = [*xs, None][:2]
        assert x is not None
        shape, low, mode, dtype = n.used[0].shape, n.attrs["pads"], n.attrs["mode"], n.outputs[0].dtype

        def at(*i: Expr) -> Expr:
            src = [k - p for k, p in zip(i, low[: len(i)], strict=True)]
            if mode != "constant":
                return x(*[_fold(mode, s, d) for s, d in zip(src, shape, strict=True)])
            fill = lift(0, dtype) if value is None else value()
            if 0 in shape:
                return fill
            inside = all_of(c for s, d in zip(src, shape, strict=True) for c in (s.ge(0), s.lt(d)))
            return select(inside, x(*[clamp(s, d) for s, d in zip(src, shape, strict=True)]), fill)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        pads = [0, 1, 2, 0, 2, 1]
        yield Case((x,), {"pads": pads, "mode": "constant"}, "zero")
        yield Case((x, np.array(np.nan, np.float32)), {"pads": pads, "mode": "constant"}, "value")
        for mode in ("reflect", "edge", "wrap"):
            yield Case((x,), {"pads": pads, "mode": mode}, mode)
            yield Case((x,), {"pads": [3, 0, 9, 4, 7, 6], "mode": mode}, mode + "_far")
        yield Case((x[:, :0],), {"pads": pads, "mode": "constant"}, "empty")
        yield Case((x.astype(np.int64), np.array(7)), {"pads": pads, "mode": "constant"}, "int")


def _fold(mode: str, s: Expr, n: int) -> Expr:
    """position outside [0, n) to the one inside that it repeats"""
    lo, hi = bounds(s)
    if lo >= 0 and hi < n:
        return s
    if mode == "wrap":
        return floormod(s, n)
    if mode == "edge" or n == 1:
        return clamp(s, n)
    period = 2 * (n - 1)
    t = floormod(s, period)
    return call("imin", t, period - t)


def pad(b: Any, x: Value, low: Sequence[int], high: Sequence[int], mode: str, value: Value | None) -> Value:
    """`x` with the positive ones of the pads around it"""
    pads = [max(p, 0) for p in (*low, *high)]
    if not any(pads):
        return x
    ins = [x] if value is None or mode != "constant" else [x, value]
    out: Value = b.emit("Pad", ins, {"pads": pads, "mode": mode})[0]
    return out


# -- blocks -----------------------------------------------------------------------------------------------
class DepthToSpace(OpDef):
    """Vanishes: Reshape, Transpose, Reshape"""

    name = "DepthToSpace"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, s = n.inputs[0], n.attrs["blocksize"]
        if x.type.rank != 4 or s < 1 or x.shape[1] % (s * s):
            n.fail(f"with blocks of {s}x{s} does not fit the shape {list(x.shape)}")
        batch, c, h, w = x.shape
        c //= s * s
        if n.attrs.get("mode", "DCR") == "DCR":
            y, perm = reshape(b, x, [batch, s, s, c, h, w]), [0, 3, 4, 1, 5, 2]
        else:
            y, perm = reshape(b, x, [batch, c, s, s, h, w]), [0, 1, 4, 2, 5, 3]
        return [reshape(b, transpose(b, y, perm), [batch, c, h * s, w * s])]


class SpaceToDepth(OpDef):
    """Vanishes: Reshape, Transpose, Reshape"""

    name = "SpaceToDepth"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, s = n.inputs[0], n.attrs["blocksize"]
        if x.type.rank != 4 or s < 1 or x.shape[2] % s or x.shape[3] % s:
            n.fail(f"with blocks of {s}x{s} does not fit the shape {list(x.shape)}")
        batch, c, h, w = x.shape
        perm = [0, 3, 5, 1, 2, 4] if n.attrs.get("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
        y = transpose(b, reshape(b, x, [batch, c, h // s, s, w // s, s]), perm)
        return [reshape(b, y, [batch, c * s * s, h // s, w // s])]


# -- parts of matrices, reversal --------------------------------------------------------------------------
class Trilu(OpDef):
    """The part of each matrix on and above (upper=1) or below (0) diagonal k; 0 elsewhere"""

    name = "Trilu"
    moves = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if n.input(1) is not None and n.input(1).const is None:
            return [self._moved(b, n.inputs[0], reshape(b, n.inputs[1], []), n.attrs.get("upper", 1))]
        k = int(np.asarray(n.const(1, "k")).ravel()[0]) if n.input(1) is not None else 0
        return b.emit("Trilu", n.inputs[:1], {"upper": n.attrs.get("upper", 1), "k": k})

    def _moved(self, b: Any, x: Value, k: Value, upper: int) -> Value:
        """Of a diagonal that is data"""
        if x.type.rank < 2:
            raise ModelError(f"Trilu needs matrices, got rank {x.type.rank}")
        rows, columns = x.shape[-2:]
        beside = b.one("Sub", b.const(np.arange(columns)), b.const(np.arange(rows)[:, None]))  # from the middle one
        kept = b.one("GreaterOrEqual" if upper else "LessOrEqual", beside, k)
        out: Value = b.one("Where", kept, x, b.const(0, x.dtype))
        return out

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = only(ins[0], "Trilu")
        if x.type.rank < 2:
            raise ModelError(f"Trilu needs matrices, got rank {x.type.rank}")
        return [x.type]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        assert xs[0] is not None
        return (np.triu if attrs["upper"] else np.tril)(xs[0], attrs["k"])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, k, upper, zero = xs[0], n.attrs["k"], n.attrs["upper"], lift(0, n.outputs[0].dtype)
        assert x is not None

        def at(*i: Expr) -> Expr:
            diagonal, column = i[-2] + k, i[-1]
            return select(column.ge(diagonal) if upper else column.le(diagonal), x(*i), zero)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 4, 5)).astype(np.float32)
        for upper in (0, 1):
            for k in (0, 2, -1, -9, 9):
                yield Case((x,), {"upper": upper, "k": k}, f"{upper}_{k}")


class ReverseSequence(OpDef):
    """The first lens[b] elements along time_axis in reverse, per index b of batch_axis"""

    name = "ReverseSequence"
    strings = "moves"
    moves = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        attrs = {"time_axis": n.attrs.get("time_axis", 0), "batch_axis": n.attrs.get("batch_axis", 1)}
        return b.emit("ReverseSequence", n.inputs, attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, lens = only(ins[0], "ReverseSequence"), only(ins[1], "ReverseSequence")
        if {attrs["time_axis"], attrs["batch_axis"]} != {0, 1} or x.type.rank < 2:
            raise ModelError(f"ReverseSequence needs the axes 0 and 1 as time and batch, got {attrs}")
        if lens.shape != (x.shape[attrs["batch_axis"]],):
            raise ModelError(f"ReverseSequence of shape {list(x.shape)} has lengths of shape {list(lens.shape)}")
        return [x.type]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, lens = xs
        assert x is not None and lens is not None
        y = np.moveaxis(x.copy(), [attrs["batch_axis"], attrs["time_axis"]], [0, 1])
        for row, k in zip(y, lens, strict=True):
            row[:k] = row[:k][::-1].copy()
        return np.moveaxis(y, [0, 1], [attrs["batch_axis"], attrs["time_axis"]])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, lens = xs
        assert x is not None and lens is not None
        time, batch, steps = n.attrs["time_axis"], n.attrs["batch_axis"], n.used[0].shape[n.attrs["time_axis"]]

        def at(*i: Expr) -> Expr:
            k, count = i[time], cast(lens(i[batch]), DType.I64)
            src = clamp(select(k.lt(count), count - 1 - k, k), steps)
            return x(*[src if a == time else v for a, v in enumerate(i)])

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((4, 3, 2)).astype(np.float32)
        yield Case((x, np.array([4, 1, 2])), {"time_axis": 0, "batch_axis": 1})
        yield Case((x, np.array([3, 1, 2, 0])), {"time_axis": 1, "batch_axis": 0}, "batch_first")


class Col2Im(OpDef):
    """Sums of the columns that cover a pixel. x: [N, C * prod(block), columns]; attributes image, block
    (sizes), dilations, pads, strides; the inverse of taking blocks apart."""

    name = "Col2Im"
    example = {"dilations": [1], "pads": [0, 0], "strides": [1], "image": [2], "block": [2]}
    edges = (
        Edge("NaN", "stays in the pixels that it is added to", (f32([[NAN], [2]]),), (f32([[NAN, 2]]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        image, block = (sizes(n, n.const(k, w), w) for k, w in ((1, "image_shape"), (2, "block_shape")))
        dims = len(image)
        attrs = {"image": image, "block": block}
        attrs["dilations"] = list(n.attrs.get("dilations", [1] * dims))
        attrs["strides"] = list(n.attrs.get("strides", [1] * dims))
        attrs["pads"] = list(n.attrs.get("pads", [0] * (2 * dims)))
        return b.emit("Col2Im", n.inputs[:1], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, image = only(ins[0], "Col2Im"), attrs["image"]
        positions = _positions(attrs)
        block, columns = int(np.prod(attrs["block"])), int(np.prod(positions))
        if x.type.rank != 3 or x.shape[1] % block or x.shape[2] != columns or min(positions) < 1:
            raise ModelError(f"Col2Im of shape {list(x.shape)} with blocks {attrs['block']} at {positions} positions")
        return [TensorType(x.dtype, (x.shape[0], x.shape[1] // block, *image))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        image, block, positions = attrs["image"], attrs["block"], _positions(attrs)
        low, wide = attrs["pads"][: len(image)], np.float64 if x.dtype.kind in "fV" else x.dtype
        cols = x.reshape(x.shape[0], -1, *block, *positions)
        out = np.zeros((*cols.shape[:2], *image), wide)
        for k in np.ndindex(*block):
            for p in np.ndindex(*positions):
                geometry = zip(p, k, attrs["strides"], attrs["dilations"], low, strict=True)
                at = tuple(pi * s + ki * d - lo for pi, ki, s, d, lo in geometry)
                if all(0 <= a < size for a, size in zip(at, image, strict=True)):
                    out[(..., *at)] += cols[(slice(None), slice(None), *k, *p)].astype(wide)
        return out.astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, a, positions, dtype = xs[0], n.attrs, _positions(n.attrs), n.outputs[0].dtype
        assert x is not None
        work = DType.F32 if dtype in (DType.F16, DType.BF16) else dtype

        def at(*i: Expr) -> Expr:
            def shifted(k: Sequence[Expr]) -> list[Expr]:
                return [v + p - j * d for v, p, j, d in zip(i[2:], a["pads"][: len(k)], k, a["dilations"], strict=True)]

            def guard(*k: Expr) -> Expr:
                spans = zip(shifted(k), a["strides"], positions, strict=True)
                return all_of(c for y, s, m in spans for c in (floormod(y, s).eq(0), y.ge(0), y.lt(s * m)))

            def body(*k: Expr) -> Expr:
                column = [clamp(y // s, m) for y, s, m in zip(shifted(k), a["strides"], positions, strict=True)]
                row = flatten_index([1, *a["block"]], [i[1], *k])
                return cast(x(i[0], row, flatten_index(positions, column)), work)

            return cast(reduce("sum", a["block"], body, guard), dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def case(image: list[int], block: list[int], **kw: list[int]) -> Case:
            d = len(image)
            attrs = {"dilations": [1] * d, "pads": [0] * (2 * d), "strides": [1] * d, **kw}
            attrs |= {"image": image, "block": block}
            x = rng.standard_normal((2, 3 * int(np.prod(block)), int(np.prod(_positions(attrs)))))
            return Case((x.astype(np.float32),), attrs)

        yield case([5, 6], [2, 3])
        yield case([5, 6], [2, 3], pads=[1, 0, 1, 2], strides=[2, 3])
        yield case([7, 6], [2, 2], dilations=[3, 2])
        yield case([4, 4, 3], [2, 1, 2])


def _positions(attrs: dict[str, Any]) -> list[int]:
    """how many blocks lie along each axis"""
    low, high = attrs["pads"][: len(attrs["image"])], attrs["pads"][len(attrs["image"]) :]
    geometry = zip(attrs["image"], low, high, attrs["dilations"], attrs["block"], attrs["strides"], strict=True)
    return [(n + p + q - d * (k - 1) - 1) // s + 1 for n, p, q, d, k, s in geometry]
