"""Tensors whose size data decide: room for the most, and how much of it is there (`ops.sized.Ragged`).

What reads them, and what makes them of numbers that data decide, is written as nodes of ONNX, whose reader knows how
(`frontend/ragged.py`, `frontend/sized_shapes.py`); what works element by element is computed in the room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.frontend.extents import Extents, Tensor, value_of
from monobloc.frontend.sized_folds import highest, lowest
from monobloc.frontend.sized_shapes import broadcast
from monobloc.frontend.torch.creation import READERS as CREATION
from monobloc.frontend.torch.elementwise import READERS as ELEMENTWISE
from monobloc.frontend.torch.node import AtenNode, DataNumber, Reader, Results, holds
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.elementwise import broadcast_shapes
from monobloc.ops.sized import Ragged

HINT = "give it a fixed size: `torch.where`, `topk`"
FAR = (1 << 63) - 1
PADS = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
I64 = DType.I64
SCATTER_KINDS = {
    "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min", "mean": "mean",
}  # fmt: skip
LIKE = {name for name in CREATION if "_like." in name or name.startswith("fill.")}


def read(n: AtenNode, sized: Mapping[str, Reader], readers: Mapping[str, Reader]) -> Results:
    """A call on tensors whose size data decide: by those who know of them, or element by element"""
    if n.op in sized:
        return sized[n.op](n)
    if n.op in ELEMENTWISE or n.op in LIKE:
        return elementwise(n, readers[n.op])
    return n.unsupported("an operator on a tensor whose size depends on data", hints=[HINT])


def elementwise(n: AtenNode, reader: Reader) -> Results:
    """In the room of what the operands broadcast to"""
    e = Extents(n.b, None, n.limits)
    given = {k: a for k, a in n.args.items() if isinstance(a, (Value, Ragged))}
    values, sizes = broadcast(e, list(given.values()))
    y = reader(replace(n, args={**n.args, **dict(zip(given, values, strict=True))}))
    rooms = tuple(max(v.shape[k - len(sizes)] for v in values if v.type.rank >= len(sizes) - k)
                  for k in range(len(sizes)))
    if not isinstance(y, Value) or y.shape != rooms:
        n.unsupported("an operator on a tensor whose size depends on data", hints=[HINT])
    return e.tensor(y, sizes)


# -- what operands are ------------------------------------------------------------------------------------
def tensor(n: AtenNode, name: str = "self") -> Tensor:
    a = n[name]
    return a if isinstance(a, Ragged) else n.x(name)


def rank_of(x: Tensor) -> int:
    return value_of(x).type.rank


def as_number(n: AtenNode, a: Any) -> Value:
    return a.value if isinstance(a, DataNumber) else n.b.const(np.int64(a))


def as_list(n: AtenNode, numbers: Sequence[Any]) -> Value:
    """Numbers, some of which are data, as a tensor"""
    if not holds(list(numbers), DataNumber):
        return n.b.ints([int(k) for k in numbers])
    parts = [n.reshape(n.cast(as_number(n, a), I64), [1]) for a in numbers]
    return parts[0] if len(parts) == 1 else n.b.emit("Concat", parts, {"axis": 0})[0]


def sizes_of(n: AtenNode, x: Tensor) -> list[Any]:
    """Numbers, as data where data decide them"""
    counts = x.counts if isinstance(x, Ragged) else {}
    return [DataNumber(n.reshape(counts[k], [])) if k in counts else d for k, d in enumerate(value_of(x).shape)]


def onnx(n: AtenNode, op: str, *inputs: Tensor | None, outputs: int = 1, **attrs: Any) -> Any:
    found = n.onnx(op, *inputs, outputs=outputs, **attrs)  # type: ignore[arg-type]
    return found[0] if outputs == 1 else found


def cast(n: AtenNode, x: Tensor, to: DType) -> Tensor:
    return x if x.dtype is to else Ragged(n.cast(x.value, to), x.counts) if isinstance(x, Ragged) else n.cast(x, to)


# -- shapes -----------------------------------------------------------------------------------------------
def shaped(n: AtenNode, x: Tensor, sizes: Sequence[Any]) -> Results:
    fixed = [a for a in sizes if not isinstance(a, DataNumber)]
    return onnx(n, "Reshape", x, as_list(n, sizes), allowzero=int(-1 not in fixed))


def view(n: AtenNode) -> Results:
    return shaped(n, tensor(n), n["size" if "size" in n.args else "shape"])


def flatten(n: AtenNode) -> Results:
    x = tensor(n)
    first, last = (n.axis_of(n[k], rank_of(x)) for k in ("start_dim", "end_dim"))
    sizes = sizes_of(n, x)
    return shaped(n, x, [*sizes[:first], -1, *sizes[last + 1 :]])


def unsqueeze(n: AtenNode) -> Results:
    x = tensor(n)
    return onnx(n, "Unsqueeze", x, n.b.ints([n.axis_of(n["dim"], rank_of(x) + 1)]))


def squeeze(n: AtenNode) -> Results:
    """Axes of one entry; those whose size data decide stay, as PyTorch traces them"""
    x = tensor(n)
    rank, given = rank_of(x), n.get("dim")
    named = range(rank) if given is None else [given] if isinstance(given, int) else given
    axes = [a for a in (n.axis_of(k, rank) for k in named) if sizes_of(n, x)[a] == 1]
    return onnx(n, "Squeeze", x, n.b.ints(axes)) if axes else x


def permuted(order: Callable[[AtenNode, int], list[int]]) -> Reader:
    return lambda n: onnx(n, "Transpose", tensor(n), perm=order(n, rank_of(tensor(n))))


def _swapped(n: AtenNode, rank: int) -> list[int]:
    perm = list(range(rank))
    a, b = (n.axis_of(n[k], rank) for k in ("dim0", "dim1"))
    perm[a], perm[b] = perm[b], perm[a]
    return perm


def expand(n: AtenNode) -> Results:
    sizes = [1 if isinstance(a, int) and a == -1 else a for a in n["size"]]
    return onnx(n, "Expand", tensor(n), as_list(n, sizes))


def repeat(n: AtenNode) -> Results:
    x, times = tensor(n), list(n["repeats"])
    for _ in range(len(times) - rank_of(x)):
        x = onnx(n, "Unsqueeze", x, n.b.ints([0]))
    return onnx(n, "Tile", x, as_list(n, times))


def tile(n: AtenNode) -> Results:
    """As `repeat`, with ones for axes that are not named"""
    times = list(n["dims"])
    return repeat(replace(n, args={**n.args, "repeats": [1] * (rank_of(tensor(n)) - len(times)) + times}))


# -- parts, and what is put together ----------------------------------------------------------------------
def select(n: AtenNode) -> Results:
    x, at = tensor(n), n["index"]
    at = at if isinstance(at, Value) else as_number(n, at)
    return onnx(n, "Gather", x, n.reshape(n.cast(at, I64), []), axis=n.axis_of(n["dim"], rank_of(x)))


def sliced(n: AtenNode) -> Results:
    x = tensor(n)
    ends = (n.get("start"), 0), (n.get("end"), FAR)
    bounds = [as_list(n, [other if a is None else a]) for a, other in ends]
    axis = n.b.ints([n.axis_of(n["dim"], rank_of(x))])
    return onnx(n, "Slice", x, *bounds, axis, n.b.ints([n.get("step", 1)]))


def part(n: AtenNode, x: Tensor, axis: int, start: Value, end: Value) -> Tensor:
    return onnx(n, "Slice", x, start, end, n.b.ints([axis]))  # type: ignore[no-any-return]


def split(n: AtenNode) -> Results:
    """Parts of sizes that may be data; of one size, where the axis has a fixed one"""
    x, sizes = tensor(n), n[next(k for k in ("split_sizes", "split_size", "sizes") if k in n.args)]
    axis = n.axis_of(n.get("dim", 0), rank_of(x))
    if not isinstance(sizes, (list, tuple)):
        whole = sizes_of(n, x)[axis]
        if isinstance(whole, DataNumber) or isinstance(sizes, DataNumber):
            n.unsupported("a split into a number of parts that depends on data")
        sizes = [min(sizes, whole - k) for k in range(0, whole, sizes)]
    made, start = [], n.b.ints([0])
    for size in sizes:
        end = n.one("Add", start, as_list(n, [size]))
        made.append(part(n, x, axis, start, end))
        start = end
    return made


def unbind(n: AtenNode) -> Results:
    x = tensor(n)
    axis = n.axis_of(n.get("dim", 0), rank_of(x))
    count = sizes_of(n, x)[axis]
    if isinstance(count, DataNumber):
        n.unsupported("unbind along an axis whose size depends on data")
    return [onnx(n, "Gather", x, n.b.const(np.int64(k)), axis=axis) for k in range(count)]


def flip(n: AtenNode) -> Results:
    x = tensor(n)
    axes = [n.axis_of(a, rank_of(x)) for a in n["dims"]]
    back, far = n.b.ints([-1] * len(axes)), n.b.ints([-FAR] * len(axes))
    return onnx(n, "Slice", x, back, far, n.b.ints(axes), back) if axes else x


def padded(fixed: str = "") -> Reader:
    """Pads are given from the last axis on, and may be data; negative ones cut."""
    def read(n: AtenNode) -> Results:
        x, mode = tensor(n), fixed or PADS.get(n.get("mode") or "constant", "")
        if not mode:
            n.unsupported(f"padding in mode {n['mode']} of a tensor whose size depends on data")
        given = list(n["pad" if "pad" in n.args else "padding"])
        rest = [0] * (rank_of(x) - len(given) // 2)
        pads = as_list(n, [*rest, *given[-2::-2], *rest, *given[::-2]])
        fill = [n.scalar(n.get("value") or 0, x.dtype)] if mode == "constant" else []
        return onnx(n, "Pad", x, pads, *fill, mode=mode)

    return read


def cat(n: AtenNode) -> Results:
    given = [cast(n, v, n.out) for v in n["tensors"] if isinstance(v, (Value, Ragged))]
    real = [v for v in given if value_of(v).shape != (0,)] or given[:1]
    return onnx(n, "Concat", *real, axis=n.axis_of(n["dim"], rank_of(real[0])))


def stack(n: AtenNode) -> Results:
    given = [cast(n, v, n.out) for v in n["tensors"]]
    axis = n.axis_of(n["dim"], rank_of(given[0]) + 1)
    return onnx(n, "Concat", *(onnx(n, "Unsqueeze", v, n.b.ints([axis])) for v in given), axis=axis)


def index(n: AtenNode) -> Results:
    """x[..., at, ...], x[mask], and tuples of leading indices"""
    x, given = tensor(n), n["indices"]
    axes = [k for k, v in enumerate(given) if v is not None]
    ats = [given[k] for k in axes]
    if len(ats) == 1 and ats[0].dtype is DType.BOOL:
        if rank_of(ats[0]) != 1:
            n.unsupported("indexing by a mask of several dimensions on a tensor whose size depends on data")
        return onnx(n, "Gather", x, marked(n, ats[0]), axis=axes[0])
    if any(v.dtype is DType.BOOL for v in ats):
        n.unsupported("indexing by several masks on a tensor whose size depends on data")
    if len(ats) == 1:
        return onnx(n, "Gather", x, cast(n, ats[0], I64), axis=axes[0])
    if axes != list(range(len(axes))) or len({rank_of(v) for v in ats}) > 1:
        n.unsupported("indexing like this on a tensor whose size depends on data")
    wide = [onnx(n, "Unsqueeze", cast(n, v, I64), n.b.ints([rank_of(v)])) for v in ats]
    return onnx(n, "GatherND", x, onnx(n, "Concat", *wide, axis=rank_of(ats[0])), batch_dims=0)


def marked(n: AtenNode, mask: Tensor) -> Tensor:
    """Where a mask of one dimension is set"""
    return onnx(n, "Squeeze", onnx(n, "NonZero", mask), n.b.ints([0]))  # type: ignore[no-any-return]


def picked(n: AtenNode) -> Results:
    x = tensor(n, "weight" if "weight" in n.args else "self")
    at = cast(n, tensor(n, "indices" if "indices" in n.args else "index"), I64)
    return onnx(n, "Gather", x, at, axis=n.axis_of(n.get("dim", 0), rank_of(x)))


def gather(n: AtenNode) -> Results:
    x = tensor(n)
    return onnx(n, "GatherElements", x, cast(n, tensor(n, "index"), I64), axis=n.axis_of(n["dim"], rank_of(x)))


def nonzero(n: AtenNode) -> Results:
    """One row of indices per element that is not zero"""
    x = tensor(n)
    if isinstance(x, Value) and x.const is not None:
        return n.b.const(np.stack(np.nonzero(x.const.array), 1), I64)
    return onnx(n, "Transpose", onnx(n, "NonZero", x), perm=[1, 0])


def masked_select(n: AtenNode) -> Results:
    x, mask = tensor(n), tensor(n, "mask")
    if isinstance(x, Ragged) or isinstance(mask, Ragged):
        if rank_of(x) != 1 or rank_of(mask) != 1:
            n.unsupported("masked_select of several dimensions on a tensor whose size depends on data")
        return onnx(n, "Gather", x, marked(n, mask), axis=0)
    shape = list(broadcast_shapes(x.shape, mask.shape))
    return ragged_rows(n, n.expand(x, shape), n.expand(mask, shape))


def ragged_rows(n: AtenNode, x: Value, mask: Value) -> Any:
    """What a mask marks of the first axes: as many rows as it marks"""
    rest = list(x.shape[mask.type.rank :])
    flat = n.reshape(x, [mask.type.size, *rest])
    found: Any = n.onnx("NonZero", n.reshape(n.cast(mask, DType.BOOL), [mask.type.size]))[0]
    at = n.reshape(found.value, [mask.type.size])
    return Ragged(n.one("Gather", flat, at, axis=0), {0: found.counts[1]})


def unique(n: AtenNode) -> Results:
    """Sorted, with the place of each element among them and how often each is there"""
    x = tensor(n)
    axes = {} if n.get("dim") is None else {"axis": n.axis_of(n["dim"], rank_of(x))}
    y, _, inverse, counts = onnx(n, "Unique", x, outputs=4, sorted=1, **axes)
    at = n.reshape(inverse, value_of(x).shape) if not axes and isinstance(inverse, Value) else inverse
    return asked(n, y, at, counts)


def asked(n: AtenNode, *found: Any) -> Results:
    """Places and counts only where the program wants them: PyTorch traces them as empty otherwise"""
    return [v if not k or k in n.needed else None for k, v in enumerate(found)]


def unique_consecutive(n: AtenNode) -> Results:
    """Those that differ from the one before"""
    x = tensor(n)
    if n.get("dim") is not None or not isinstance(x, Value) or not x.type.size:
        n.unsupported("unique_consecutive along an axis, or of a tensor whose size depends on data,")
    flat, size = n.reshape(x, [-1]), x.type.size
    new = n.one("Not", n.one("Equal", n.cut(flat, 0, 0, size - 1), n.cut(flat, 0, 1, size - 1)))
    first = n.b.emit("Concat", [n.b.const(np.array([True])), new], {"axis": 0})[0]
    at = n.one("Sub", n.one("CumSum", n.cast(first, I64), axis=0, exclusive=0, reverse=0), n.scalar(1, I64))
    often = n.onnx("ScatterND", n.expand(n.scalar(0, I64), [size]), n.reshape(at, [size, 1]),
                   n.expand(n.scalar(1, I64), [size]), reduction="add")[0]
    y = ragged_rows(n, flat, first)
    return asked(n, y, n.reshape(at, x.shape), Ragged(often, y.counts))


# -- writes -----------------------------------------------------------------------------------------------
def scatter(reduction: str, source: str) -> Reader:
    def read(n: AtenNode) -> Results:
        kind = SCATTER_KINDS.get(n["reduce"], "") if n.get("reduce") else reduction
        if not kind or kind == "mean":
            n.unsupported("a scatter of this kind of a tensor whose size depends on data")
        x, at = tensor(n), cast(n, tensor(n, "index"), I64)
        src = as_many(n, tensor(n, source) if not isinstance(n[source], (int, float)) else n.expand(
            n.scalar(n[source], x.dtype), value_of(at).shape), at)
        axis = n.axis_of(n["dim"], rank_of(x))
        if n.get("include_self", True) is False:  # what was there is what changes nothing
            start = {"max": lowest(x.dtype), "min": highest(x.dtype), "mul": 1}.get(kind, 0)
            room = n.expand(n.scalar(start, x.dtype), value_of(at).shape)
            x = onnx(n, "ScatterElements", x, at, as_many(n, room, at), axis=axis)
        return onnx(n, "ScatterElements", x, at, cast(n, src, x.dtype), axis=axis, reduction=kind)

    return read


def as_many(n: AtenNode, src: Tensor, at: Tensor) -> Tensor:
    """Of what a scatter writes, as many entries as it has places: PyTorch takes the first ones of more"""
    if isinstance(src, Ragged) or not isinstance(at, Ragged):
        return src
    for k, room in enumerate(at.value.shape):
        src = n.cut(src, k, 0, room) if src.shape[k] > room else src
    return Ragged(src, at.counts) if src.shape == at.value.shape else src


def index_put(n: AtenNode) -> Results:
    """x[mask] = values, one value or as many as the mask marks; and rows at places"""
    x, given = tensor(n), n["indices"]
    if any(v is None for v in given) or any(v.dtype is DType.BOOL for v in given[1:]):
        n.unsupported("writing like this to a tensor whose size depends on data")
    at = marked(n, given[0]) if given[0].dtype is DType.BOOL and rank_of(given[0]) == 1 else cast(n, given[0], I64)
    if given[0].dtype is DType.BOOL and (rank_of(given[0]) != 1 or len(given) > 1):
        n.unsupported("writing by a mask of several dimensions to a tensor whose size depends on data")
    ats = [at, *(cast(n, v, I64) for v in given[1:])]
    wide = [onnx(n, "Unsqueeze", v, n.b.ints([rank_of(v)])) for v in ats]
    places = onnx(n, "Concat", *wide, axis=rank_of(at)) if len(wide) > 1 else wide[0]
    rows = [*sizes_of(n, at), *sizes_of(n, x)[len(ats) :]]
    values = onnx(n, "Expand", cast(n, tensor(n, "values"), x.dtype), as_list(n, rows))
    return onnx(n, "ScatterND", x, places, values, reduction="add" if n.get("accumulate") else "none")


def index_add(n: AtenNode) -> Results:
    """Whole rows added along the first axis"""
    x, src = tensor(n), cast(n, tensor(n, "source"), tensor(n).dtype)
    if n.axis_of(n["dim"], rank_of(x)) or n.get("alpha", 1) != 1:
        n.unsupported("index_add along this axis of a tensor whose size depends on data")
    at = onnx(n, "Unsqueeze", cast(n, tensor(n, "index"), I64), n.b.ints([1]))
    return onnx(n, "ScatterND", x, at, src, reduction="add")


# -- folds ------------------------------------------------------------------------------------------------
def folded(op: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x, given = tensor(n), n.get("dim")
        axes = [given] if isinstance(given, int) else list(given or range(rank_of(x)))
        x = cast(n, x, n.out) if op in ("ReduceSum", "ReduceMean", "ReduceProd") else x
        truth = n.out is DType.BOOL and op in ("ReduceMax", "ReduceMin")
        if truth:  # of any number whether it is one
            x = cast(n, cast(n, x, DType.BOOL), DType.I32)
        y = onnx(n, op, x, n.b.ints([n.axis_of(a, rank_of(x)) for a in axes]), keepdims=int(bool(n.get("keepdim"))))
        return onnx(n, "Greater", y, n.scalar(0, DType.I32)) if truth else y  # of nothing: the least, the most

    return read


def best(op: str, place: str) -> Reader:
    def read(n: AtenNode) -> Results:
        return [folded(op)(replace(n, made=n.made[0])), placed(place)(n)]

    return read


def placed(op: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x, given = tensor(n), n.get("dim")
        x = x if given is not None else shaped(n, x, [-1])
        return onnx(n, op, x, axis=n.axis_of(given or 0, rank_of(x)), keepdims=int(bool(n.get("keepdim"))))

    return read


def along(op: str) -> Reader:
    return lambda n: onnx(n, op, cast(n, tensor(n), n.out), axis=n.axis_of(n["dim"], rank_of(tensor(n))))


def cumsum(n: AtenNode) -> Results:
    x = cast(n, tensor(n), n.out)
    return onnx(n, "CumSum", x, n.b.const(np.int64(n.axis_of(n["dim"], rank_of(x)))))


def topk(n: AtenNode) -> Results:
    x = tensor(n)
    axis = n.axis_of(n["dim"], rank_of(x))
    return onnx(n, "TopK", x, as_list(n, [n["k"]]), outputs=2, axis=axis, largest=int(bool(n.get("largest", True))))


def sort(n: AtenNode) -> Results:
    x = tensor(n)
    axis = n.axis_of(n.get("dim", -1), rank_of(x))
    return onnx(n, "TopK", x, as_list(n, [sizes_of(n, x)[axis]]), outputs=2, axis=axis,
                largest=int(bool(n.get("descending"))))


# -- sizes that numbers say -------------------------------------------------------------------------------
def filled(value: int | None) -> Reader:
    def read(n: AtenNode) -> Results:
        v = n.scalar(n["fill_value"] if value is None else value, n.out)
        return onnx(n, "Expand", v, as_list(n, n["size"]))

    return read


def arange(n: AtenNode) -> Results:
    if not n.out.is_int:
        n.unsupported("an arange of floats up to a number that data decide")
    numbers = n.get("start", 0), n["end"], n.get("step", 1)
    return onnx(n, "Range", *(n.cast(n.reshape(as_number(n, a), []), n.out) for a in numbers))


def sym_size(n: AtenNode) -> Results:
    return sizes_of(n, tensor(n))[n["dim"]]


def sym_numel(n: AtenNode) -> Results:
    return DataNumber(n.reshape(onnx(n, "Size", tensor(n)), []))


READERS: dict[str, Reader] = {
    "nonzero.default": nonzero, "masked_select.default": masked_select, "_unique2.default": unique,
    "unique_dim.default": unique, "unique_consecutive.default": unique_consecutive,
}  # fmt: skip
SIZED: dict[str, Reader] = {
    **READERS,
    **dict.fromkeys(("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default"), view),
    "flatten.using_ints": flatten, "unsqueeze.default": unsqueeze, "squeeze.default": squeeze, "squeeze.dim": squeeze,
    "squeeze.dims": squeeze, "permute.default": permuted(lambda n, r: [n.axis_of(a, r) for a in n.ints("dims")]),
    "transpose.int": permuted(_swapped), "t.default": permuted(lambda n, r: list(reversed(range(r)))),
    "expand.default": expand, "repeat.default": repeat, "tile.default": tile, "select.int": select,
    "slice.Tensor": sliced,
    "split.Tensor": split, "split_with_sizes.default": split, "split.sizes": split, "unbind.int": unbind,
    "flip.default": flip, "constant_pad_nd.default": padded("constant"), "pad.default": padded(),
    **{f"{name}_pad{k}d.default": padded(mode) for k in (1, 2, 3)
       for name, mode in (("reflection", "reflect"), ("replication", "edge"))},
    "cat.default": cat, "stack.default": stack, "index.Tensor": index, "index_select.default": picked,
    "embedding.default": picked, "gather.default": gather,
    "scatter_add.default": scatter("add", "src"), "scatter.src": scatter("none", "src"),
    "scatter.value": scatter("none", "value"), "scatter_reduce.two": scatter("none", "src"),
    "index_add.default": index_add, "index_put.default": index_put,
    **{f"sum.{k}": folded("ReduceSum") for k in ("default", "dim_IntList")},
    **{f"mean.{k}": folded("ReduceMean") for k in ("default", "dim")},
    **{f"prod.{k}": folded("ReduceProd") for k in ("default", "dim_int")},
    **{f"{name}.{k}": folded(op) for name, op in (("any", "ReduceMax"), ("all", "ReduceMin"))
       for k in ("default", "dim", "dims")},
    **dict.fromkeys(("amax.default", "max.default"), folded("ReduceMax")),
    **dict.fromkeys(("amin.default", "min.default"), folded("ReduceMin")),
    "max.dim": best("ReduceMax", "ArgMax"), "min.dim": best("ReduceMin", "ArgMin"), "argmax.default": placed("ArgMax"),
    "argmin.default": placed("ArgMin"), "cumsum.default": cumsum, "topk.default": topk, "sort.default": sort,
    "sort.stable": sort, "argsort.default": lambda n: sort(n)[1], "argsort.stable": lambda n: sort(n)[1],
    **dict.fromkeys(("_softmax.default", "softmax.int"), along("Softmax")),
    **dict.fromkeys(("_log_softmax.default", "log_softmax.int"), along("LogSoftmax")),
    "full.default": filled(None), "new_full.default": filled(None), "zeros.default": filled(0),
    "ones.default": filled(1), "new_zeros.default": filled(0), "new_ones.default": filled(1),
    "empty.memory_format": filled(0), "new_empty.default": filled(0), "arange.start_step": arange,
    "arange.start": arange, "arange.default": arange, "sym_size.int": sym_size, "sym_numel.default": sym_numel,
}  # fmt: skip
