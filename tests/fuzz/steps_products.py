"""Steps of products, reductions, normalizations by row, and recurrent layers."""

from __future__ import annotations

import numpy as np
from builder import Builder
from sizes import size
from steps import chance, number, some


def matmul(b: Builder) -> str:
    x = b.pick(low=1)
    if not x:
        return ""
    shape = b.values[x].shape
    k, n = shape[-1], size(b, max(1, b.values[x].size // max(1, shape[-1])), p=0.4)
    how = number(b, 0, 4)
    scale = np.float32(1 / np.sqrt(max(1, k)))
    if how == 0:
        w = b.constant(b.random((k,)) * scale)
    elif how == 1 and len(shape) > 2:
        w = b.leaf((*(d if chance(b) else 1 for d in shape[:-2]), k, n))
    elif how == 2 and len(shape) >= 2:  # with itself transposed
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        t = b.one("Transpose", x, perm=perm, exact=True)
        w = b.one("Mul", t, b.constant(scale)) if t and chance(b) else t
    elif how == 3:
        w = b.one("Transpose", b.leaf((n, k)), perm=[1, 0], exact=True)
    else:
        w = b.constant(b.random((k, n)) * scale)
    return b.one("MatMul", x, w) if w else ""


def matmul_left(b: Builder) -> str:
    x = b.pick(low=2)
    if not x:
        return ""
    m = size(b, b.values[x].size // max(1, b.values[x].shape[-2]))
    w = b.constant(b.random((m, b.values[x].shape[-2])) * np.float32(0.3))
    return b.one("MatMul", w, x)


def gemm(b: Builder) -> str:
    x = b.pick(rank=2)
    if not x:
        return ""
    m, k = b.values[x].shape
    ta, tb, n = number(b, 0, 1), number(b, 0, 1), size(b, min(m, k), p=0.4)
    if ta:
        m, k = k, m
    w = b.leaf((n, k) if tb else (k, n))
    c = [b.leaf(some(b, (n,), (1, n), (m, 1), (), (m, n)))] if chance(b, 0.7) else []
    return b.one("Gemm", x, w, *c, transA=ta, transB=tb, alpha=0.25, beta=float(some(b, 1, 0.5)))


def attention(b: Builder) -> str:
    x = b.pick(rank=3)
    if not x or 0 in b.values[x].shape or b.values[x].size > 20000:
        return ""
    n, t, c = b.values[x].shape
    h, d = int(some(b, 1, 2, 3)), int(some(b, 1, 4, 8))
    parts = []
    for _ in range(3):
        q = b.one("MatMul", x, b.constant(b.random((c, h * d)) / np.float32(np.sqrt(c))))
        q = q and b.one("Reshape", q, b.ints(n, t, h, d))
        parts.append(q)
    if not all(parts):
        return ""
    q, k, v = parts
    q = b.one("Transpose", q, perm=[0, 2, 1, 3])
    k = b.one("Transpose", k, perm=[0, 2, 3, 1])
    v = b.one("Transpose", v, perm=[0, 2, 1, 3])
    s = b.one("Mul", b.one("MatMul", q, k), b.constant(np.float32(d**-0.5)))
    if chance(b):
        mask = b.input(np.where(b.random((n, 1, 1, t), np.bool_), np.float32(0), np.float32(-1e3)))
        s = b.one("Add", s, mask)
    y = s and b.one("MatMul", b.one("Softmax", s, axis=-1), v)
    y = y and b.one("Transpose", y, perm=[0, 2, 1, 3])
    return b.one("Reshape", y, b.ints(n, t, h * d)) if y else ""


def softmax(b: Builder) -> str:
    x = b.pick(low=1)
    if not x:
        return ""
    return b.one(str(some(b, "Softmax", "Softmax", "LogSoftmax")), x,
                 axis=number(b, -b.values[x].ndim, b.values[x].ndim - 1))


def layer_norm(b: Builder) -> str:
    x = b.pick(low=1)
    if not x:
        return ""
    axis = number(b, 0, b.values[x].ndim - 1)
    shape = b.values[x].shape[axis:]
    if np.prod(shape) < 2:
        return ""
    return b.one("LayerNormalization", x, b.constant(b.random(shape)), *([b.constant(b.random(shape))]
                 if chance(b) else []), axis=axis, epsilon=1e-2)


def layer_norm_parts(b: Builder) -> str:
    x = b.pick(low=2)
    if not x or b.values[x].shape[-1] < 2:
        return ""
    m = b.one("ReduceMean", x, b.ints(-1), keepdims=1)
    c = m and b.one("Sub", x, m)
    s = c and b.one("ReduceMean", b.one("Pow", c, b.constant(np.float32(2))), b.ints(-1), keepdims=1)
    s = s and b.one("Sqrt", b.one("Add", s, b.constant(np.float32(1e-2))))
    return b.one("Div", c, s) if s else ""


REDUCE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
          "ReduceLogSumExp", "ReduceProd")


def reduce(b: Builder) -> str:
    x = b.pick(str(some(b, "float32", "float32", "float32", "int32", "int64")))
    if not x:
        return ""
    rank = b.values[x].ndim
    axes = [k - rank * number(b, 0, 1) for k in range(rank) if chance(b)]
    kind = str(some(b, *REDUCE))
    if kind == "ReduceMean" and not b.values[x].size:
        return ""  # the mean of nothing is undefined
    if kind == "ReduceLogSumExp" and b.values[x].dtype.kind == "i":
        return ""  # onnxruntime rounds its parts to integers
    more = [b.ints(*axes)] if axes or chance(b) else []
    return b.one(kind, x, *more, keepdims=number(b, 0, 1), noop_with_empty_axes=number(b, 0, 1))


def arg(b: Builder) -> str:
    x = b.pick(exact=True, low=1)
    if not x:
        return ""
    kind = str(some(b, "ArgMax", "ArgMin"))
    return b.one(kind, x, axis=number(b, -b.values[x].ndim, b.values[x].ndim - 1), keepdims=number(b, 0, 1),
                 select_last_index=number(b, 0, 1), exact=True)


def top_k(b: Builder) -> str:
    x = b.pick(exact=True, low=1)
    if not x:
        return ""
    axis = number(b, 0, b.values[x].ndim - 1)
    k = number(b, 0, b.values[x].shape[axis])
    outs = b.op("TopK", x, b.ints(k), outs=2, axis=axis, largest=number(b, 0, 1), exact=True)
    return outs[number(b, 0, 1)] if outs else ""


def cumsum(b: Builder) -> str:
    x = b.pick(low=1)
    if not x:
        return ""
    axis = b.constant(np.array(number(b, 0, b.values[x].ndim - 1), np.int64))
    return b.one("CumSum", x, axis, exclusive=number(b, 0, 1), reverse=number(b, 0, 1))


def einsum(b: Builder) -> str:
    x = b.pick(rank=int(some(b, 2, 3, 4)))
    if not x or not 0 < b.values[x].size <= 20000:  # onnxruntime itself divides by a size of zero here
        return ""
    s = b.values[x].shape
    if len(s) == 2:
        eq, other = some(b, ("ij,jk->ik", (s[1], 5)), ("ij,kj->ki", (3, s[1])), ("ij,j->i", (s[1],)),
                         ("ij,k->ikj", (3,)), ("ij,ij->", s))
    elif len(s) == 3:
        eq, other = some(b, ("bij,bjk->bik", (s[0], s[2], 4)), ("bij,kj->bki", (6, s[2])),
                         ("bij,bik->bjk", (s[0], s[1], 2)),
                         ("bij,bij->b", s), ("...ij,...j->...i", (s[0], s[2])))
    else:
        eq, other = some(b, ("bhij,bhjk->bihk", (s[0], s[1], s[3], 3)), ("bchw,cd->bdhw", (s[1], 5)),
                         ("bhid,bhjd->bhij", (s[0], s[1], 4, s[3])))
    return b.one("Einsum", x, b.leaf(other), equation=eq)


def recurrent(b: Builder) -> str:
    x = b.pick(rank=3)
    if not x or 0 in b.values[x].shape or b.values[x].size > 10000:
        return ""
    t, n, c = b.values[x].shape
    kind = str(some(b, "LSTM", "GRU", "RNN"))
    gates, h = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], size(b, t * n, 65)
    direction = str(some(b, "forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    ins = [x, b.constant(b.random((d, gates * h, c)) * np.float32(0.3)),
           b.constant(b.random((d, gates * h, h)) * np.float32(0.3))]
    ins.append(b.constant(b.random((d, 2 * gates * h)) * np.float32(0.3)) if chance(b) else "")
    ins.append(b.input(b.rng.integers(1, t + 1, n).astype(np.int32)) if chance(b, 0.3) else "")
    ins.append(b.leaf((d, n, h)) if chance(b) else "")
    attrs: dict[str, object] = {"hidden_size": h, "direction": direction}
    if kind == "LSTM":
        ins.append(b.leaf((d, n, h)) if chance(b) else "")
        if chance(b, 0.3):
            ins.append(b.constant(b.random((d, 3 * h)) * np.float32(0.3)))
    if kind == "GRU":
        attrs["linear_before_reset"] = number(b, 0, 1)
    while not ins[-1]:
        ins.pop()
    outs = b.op(kind, *ins, outs=3 if kind == "LSTM" else 2, **attrs)
    return outs[0] if outs else ""
