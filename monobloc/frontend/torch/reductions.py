"""Reductions, running sums, and what is about order."""

from __future__ import annotations

import math

import numpy as np

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.tensors import dtype_of
from monobloc.ir.graph import Value
from monobloc.ir.types import DType

BOOL, I64 = DType.BOOL, DType.I64


def typed(n: AtenNode) -> Value:
    """The tensor in the type of the result, which it is summed in"""
    given = n.get("dtype")
    return n.cast(n.x(), dtype_of(given) if given is not None else n.out)


def folded(op: str) -> Reader:
    """Over the axes named, or all; in the type of the result"""

    def read(n: AtenNode) -> Results:
        return n.fold(op, typed(n), n.axes(), bool(n.get("keepdim")))

    return read


def extreme(op: str) -> Reader:
    """amax, amin, and max and min of all elements"""

    def read(n: AtenNode) -> Results:
        return n.fold(op, n.x(), n.axes(), bool(n.get("keepdim")))

    return read


def extreme_and_place(op: str, arg: str) -> Reader:
    """max.dim, min.dim: values, and where the first of them is"""

    def read(n: AtenNode) -> Results:
        x, axis, keep = n.x(), n.axis(), bool(n.get("keepdim"))
        if not x.type.rank:
            return [x, n.b.const(np.int64(0))]
        at = n.one(arg, n.cast(x, DType.U8) if x.dtype is BOOL else x, axis=axis, keepdims=int(keep),
                   select_last_index=0)
        return [n.fold(op, x, [axis], keep), at]

    return read


def arg_extreme(arg: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x, keep = n.x(), bool(n.get("keepdim"))
        shape = [1] * x.type.rank if keep else []
        if n.get("dim") is None:
            flat = n.reshape(x, [-1])
            return n.reshape(n.one(arg, flat, axis=0, keepdims=0, select_last_index=0), shape)
        if not x.type.rank:
            return n.b.const(np.int64(0))
        return n.one(arg, x, axis=n.axis(), keepdims=int(keep), select_last_index=0)

    return read


def truth(op: str) -> Reader:
    """any and all; of bytes the result is bytes, as PyTorch has it"""

    def read(n: AtenNode) -> Results:
        y = n.fold(op, n.cast(n.x(), BOOL), n.axes(), bool(n.get("keepdim")))
        return n.cast(y, n.out)

    return read


def correction_of(n: AtenNode) -> float:
    if "correction" in n.args:
        c = n["correction"]
        return 1.0 if c is None else float(c)
    return 1.0 if n.get("unbiased", True) else 0.0


def spread(n: AtenNode, keep: bool) -> tuple[Value, Value]:
    """(variance, mean) over the axes named"""
    x, axes = n.x(), n.axes()
    mean = n.fold("ReduceMean", x, axes, True)
    apart = n.one("Sub", x, mean)
    count = math.prod(x.shape[a] for a in axes)
    total = n.fold("ReduceSum", n.one("Mul", apart, apart), axes, keep)
    correction = correction_of(n)
    left = count - (int(correction) if correction.is_integer() else correction)
    left = left if left > 0 else 0
    variance = n.one("Div", total, n.scalar(left, x.dtype))
    return variance, mean if keep else n.reshape(mean, variance.shape)


def variance(n: AtenNode) -> Results:
    return spread(n, bool(n.get("keepdim")))[0]


def deviation(n: AtenNode) -> Results:
    return n.one("Sqrt", variance(n))


def variance_and_mean(n: AtenNode) -> Results:
    return list(spread(n, bool(n.get("keepdim"))))


def deviation_and_mean(n: AtenNode) -> Results:
    v, mean = spread(n, bool(n.get("keepdim")))
    return [n.one("Sqrt", v), mean]


def logsumexp(n: AtenNode) -> Results:
    x = n.cast(n.x(), n.out)
    return n.fold("ReduceLogSumExp", x, n.axes(), bool(n.get("keepdim")))


def vector_norm(n: AtenNode) -> Results:
    x, keep = n.cast(n.x(), n.out), bool(n.get("keepdim"))
    p = n.get("ord") if "ord" in n.args else n.get("p")
    p, axes = 2.0 if p is None else float(p), n.axes()
    simple = {2.0: "ReduceL2", 1.0: "ReduceL1"}
    if p in simple:
        return n.fold(simple[p], x, axes, keep)
    size = n.one("Abs", x)
    if math.isinf(p):
        return n.fold("ReduceMax" if p > 0 else "ReduceMin", size, axes, keep)
    if p == 0:
        other = n.one("Not", n.one("Equal", x, n.scalar(0, x.dtype)))
        return n.fold("ReduceSum", n.cast(other, x.dtype), axes, keep)
    total = n.fold("ReduceSum", n.one("Pow", size, n.scalar(p, x.dtype)), axes, keep)
    return n.one("Pow", total, n.scalar(1 / p, x.dtype))


# -- running ------------------------------------------------------------------------------------------
def running(op: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x = typed(n)
        if not x.type.rank:
            return x
        return n.one(op, x, axis=n.axis(), exclusive=0, reverse=0)

    return read


# -- order --------------------------------------------------------------------------------------------
def sortable(n: AtenNode) -> Value:
    return n.cast(n.x(), DType.U8) if n.x().dtype is BOOL else n.x()


def topk(n: AtenNode) -> Results:
    x, largest = sortable(n), bool(n.get("largest", True))
    if not x.type.rank:
        return [n.x(), n.b.const(np.int64(0))]
    axis = n.axis()
    values, at = n.b.emit("TopK", [x], {"axis": axis, "k": n["k"], "largest": int(largest)}, outputs=2)
    return [n.cast(values, n.x().dtype), at]


def sort(n: AtenNode) -> Results:
    """Stable both ways: equal elements stay in order"""
    x = sortable(n)
    if not x.type.rank:
        return [n.x(), n.b.const(np.int64(0))]
    axis = n.axis()
    attrs = {"axis": axis, "k": x.shape[axis], "largest": int(bool(n.get("descending")))}
    values, at = n.b.emit("TopK", [x], attrs, outputs=2)
    return [n.cast(values, n.x().dtype), at]


def argsort(n: AtenNode) -> Results:
    return sort(n)[1]


def median(n: AtenNode) -> Results:
    """The lower of the two in the middle; NaN where there is one"""
    x = n.x()
    whole = "dim" not in n.args
    axis = 0 if whole else n.axis()
    x = n.reshape(x, [-1]) if whole or not x.type.rank else x
    size = x.shape[axis]
    values, at = n.b.emit("TopK", [x], {"axis": axis, "k": size, "largest": 0}, outputs=2)
    middle, last = (size - 1) // 2, size - 1
    found = [n.cut(v, axis, middle, 1) for v in (values, at)]
    if x.dtype.is_float:  # NaN sorts last
        ends = [n.cut(v, axis, last, 1) for v in (values, at)]
        bad = n.one("IsNaN", ends[0])
        found = [n.one("Where", bad, e, f) for e, f in zip(ends, found, strict=True)]
    keep = bool(n.get("keepdim"))
    shape = [] if whole else [d for k, d in enumerate(found[0].shape) if keep or k != axis]
    out = [n.reshape(v, shape) for v in found]
    return out[0] if whole else out


def kthvalue(n: AtenNode) -> Results:
    x, axis, k = n.x(), n.axis(), n["k"]
    values, at = n.b.emit("TopK", [x], {"axis": axis, "k": k, "largest": 0}, outputs=2)
    out = [n.cut(v, axis, k - 1, 1) for v in (values, at)]
    keep = bool(n.get("keepdim"))
    return [v if keep else n.reshape(v, [d for j, d in enumerate(v.shape) if j != axis]) for v in out]


def searchsorted(n: AtenNode) -> Results:
    """How many of a sorted row stand before: counted"""
    row = n.x("sorted_sequence" if "sorted_sequence" in n.args else "boundaries")
    x = n.x()
    right = bool(n.get("right")) or n.get("side") == "right"
    if n.get("sorter") is not None:
        n.unsupported("searchsorted in rows that another tensor sorts")
    if row.type.rank > 1:  # each row of the one in its row of the other
        row = n.reshape(row, [*row.shape[:-1], 1, row.shape[-1]])
    a = n.reshape(x, [*x.shape, 1])
    before = n.one("LessOrEqual" if right else "Less", n.cast(row, a.dtype), a)
    return n.fold("ReduceSum", n.cast(before, n.out), [x.type.rank])


def histc(n: AtenNode) -> Results:
    """How many elements lie in each of equal parts of a range; the last holds its end, what is outside is in none"""
    x, bins, low, high = n.reshape(n.x(), [-1, 1]), n["bins"], n["min"], n["max"]
    if low == high:
        n.unsupported("a histogram of a range that the data decide", ["give `min` and `max`"])
    at = n.one("Div", n.one("Mul", n.one("Sub", x, n.scalar(low, x.dtype)), n.scalar(bins, x.dtype)),
               n.scalar(high - low, x.dtype))
    at = n.one("Min", n.cast(at, I64), n.b.const(np.int64(bins - 1)))
    inside = n.one("And", *(n.one(op, x, n.scalar(v, x.dtype)) for op, v in (("GreaterOrEqual", low),
                                                                            ("LessOrEqual", high))))
    found = n.one("And", n.one("Equal", at, n.b.const(np.arange(bins))), inside)
    return n.cast(n.fold("ReduceSum", n.cast(found, I64), [0]), n.out)


READERS: dict[str, Reader] = {
    "sum.default": folded("ReduceSum"), "sum.dim_IntList": folded("ReduceSum"), "mean.default": folded("ReduceMean"),
    "mean.dim": folded("ReduceMean"), "prod.default": folded("ReduceProd"), "prod.dim_int": folded("ReduceProd"),
    "amax.default": extreme("ReduceMax"), "amin.default": extreme("ReduceMin"), "max.default": extreme("ReduceMax"),
    "min.default": extreme("ReduceMin"), "max.dim": extreme_and_place("ReduceMax", "ArgMax"),
    "min.dim": extreme_and_place("ReduceMin", "ArgMin"), "argmax.default": arg_extreme("ArgMax"),
    "argmin.default": arg_extreme("ArgMin"), "any.default": truth("ReduceMax"), "any.dim": truth("ReduceMax"),
    "any.dims": truth("ReduceMax"), "all.default": truth("ReduceMin"), "all.dim": truth("ReduceMin"),
    "all.dims": truth("ReduceMin"), "var.correction": variance, "var.dim": variance, "var.default": variance,
    "std.correction": deviation, "std.dim": deviation, "std.default": deviation,
    "var_mean.correction": variance_and_mean, "var_mean.dim": variance_and_mean, "std_mean.correction":
    deviation_and_mean, "logsumexp.default": logsumexp, "linalg_vector_norm.default": vector_norm,
    "norm.ScalarOpt_dim": vector_norm, "cumsum.default": running("CumSum"), "cumprod.default": running("CumProd"),
    "topk.default": topk, "sort.default": sort, "sort.stable": sort, "argsort.default": argsort,
    "argsort.stable": argsort, "median.default": median, "median.dim": median, "kthvalue.default": kthvalue,
    "searchsorted.Tensor": searchsorted, "bucketize.Tensor": searchsorted,
    "histc.default": histc,
}  # fmt: skip
