"""Random models: each step adds one node (or a small pattern) of a random kind to what is there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from builder import Builder

Step = Callable[[Builder], str]
SMALL = (1, 2, 3, 5, 7, 8, 13, 16, 17)


def some(b: Builder, *options: object) -> object:
    return options[int(b.rng.integers(len(options)))]


def number(b: Builder, low: int, high: int) -> int:
    return int(b.rng.integers(low, high + 1))


def chance(b: Builder, p: float = 0.5) -> bool:
    return bool(b.rng.random() < p)


# -- elementwise --------------------------------------------------------------------------------------
UNARY = (
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Erf", {}), ("Softplus", {}), ("Softsign", {}), ("Abs", {}),
    ("Neg", {}), ("HardSigmoid", {}), ("HardSwish", {}), ("Elu", {"alpha": 0.7}), ("Selu", {}), ("Exp", {}),
    ("LeakyRelu", {"alpha": 0.2}), ("ThresholdedRelu", {"alpha": 0.3}), ("Mish", {}), ("Celu", {"alpha": 0.4}),
    ("Sin", {}), ("Cos", {}), ("Atan", {}), ("Identity", {}), ("Sinh", {}), ("Asinh", {}),
)
SHARP = (("Floor", {}), ("Ceil", {}), ("Round", {}), ("Sign", {}))


def unary(b: Builder) -> str:
    kind, attrs = some(b, *UNARY)
    return b.one(kind, b.pick(), **attrs)


def sharp(b: Builder) -> str:
    kind, attrs = some(b, *SHARP)
    return b.one(kind, b.pick(exact=True), exact=True, **attrs)


def broadcast_partner(b: Builder, x: str, dtype: object = np.float32) -> str:
    """A value whose shape broadcasts with x's in some way."""
    shape = b.values[x].shape
    how = number(b, 0, 5)
    if how == 0:
        same = [n for n, v in b.values.items() if v.shape == shape and v.dtype == b.values[x].dtype]
        return same[number(b, 0, len(same) - 1)]
    if how == 1:
        return b.leaf((), dtype)
    if how == 2:
        return b.leaf(tuple(d if chance(b) else 1 for d in shape), dtype)
    if how == 3:
        return b.leaf(shape[number(b, 0, len(shape)):], dtype)
    if how == 4 and b.values[x].size < 4096 and len(shape) < 6:
        return b.leaf((number(b, 1, 3), *(d if chance(b) else 1 for d in shape)), dtype)
    if len(shape) >= 2:
        return b.leaf((shape[1], *(1,) * (len(shape) - 2)), dtype)
    return b.leaf(shape, dtype)


def binary(b: Builder) -> str:
    x = b.pick()
    y = broadcast_partner(b, x)
    if chance(b):
        x, y = y, x
    return b.one(str(some(b, "Add", "Sub", "Mul", "Add", "Max", "Min")), x, y)


def divide(b: Builder) -> str:
    x = b.pick()
    den = b.constant(np.abs(b.random(b.values[x].shape[-1:])) + 0.5)
    return b.one("Div", x, den) if chance(b) else b.one("Div", b.constant(np.float32(2.5)),
                                                         b.one("Softplus", x) or den)


def variadic(b: Builder) -> str:
    x = b.pick()
    ins = [x, *(broadcast_partner(b, x) for _ in range(number(b, 0, 3)))]
    return b.one(str(some(b, "Sum", "Max", "Min", "Mean")), *ins)


def clip(b: Builder) -> str:
    x = b.pick()
    lo = b.constant(np.float32(-0.5)) if chance(b, 0.7) else ""
    hi = b.constant(np.float32(0.9)) if chance(b, 0.7) else ""
    return b.one("Clip", x, lo, hi)


def prelu(b: Builder) -> str:
    x = b.pick()
    shape = b.values[x].shape
    slope = some(b, shape[1:2] + (1,) * (len(shape) - 2), (1,) * len(shape), shape[-1:])
    return b.one("PRelu", x, b.constant(b.random(slope)))


def swish(b: Builder) -> str:
    x = b.pick()
    return b.one("Mul", x, b.one("Sigmoid", x))


def gelu(b: Builder) -> str:
    x = b.pick()
    e = b.one("Erf", b.one("Div", x, b.constant(np.float32(2**0.5))))
    return b.one("Mul", b.one("Mul", x, b.one("Add", e, b.constant(np.float32(1)))), b.constant(np.float32(0.5)))


def where(b: Builder) -> str:
    x = b.pick()
    shape = b.values[x].shape
    c = b.leaf(tuple(d if chance(b) else 1 for d in shape), np.bool_)
    y = broadcast_partner(b, x)
    return b.one("Where", c, x, y) if chance(b) else b.one("Where", c, y, x)


def power(b: Builder) -> str:
    return b.one("Pow", b.pick(), b.constant(np.float32(some(b, 2, 3, 1, 0))))


def root(b: Builder) -> str:
    x = b.one("Add", b.one("Abs", b.pick()), b.constant(np.float32(0.1)))
    return b.one(str(some(b, "Sqrt", "Log", "Reciprocal")), x) if x else ""


# -- convolutions -------------------------------------------------------------------------------------
def _window(b: Builder, spatial: tuple[int, ...]) -> dict[str, object]:
    k = [number(b, 1, min(5, d)) for d in spatial]
    attrs: dict[str, object] = {"kernel_shape": k}
    if chance(b, 0.4):
        attrs["strides"] = [number(b, 1, 3) for _ in spatial]
    if chance(b, 0.2):
        attrs["dilations"] = [number(b, 1, 2) for _ in spatial]
    how = number(b, 0, 4)
    if how == 0:
        attrs["pads"] = [number(b, 0, 2) for _ in spatial * 2]
    elif how == 1:
        attrs["auto_pad"] = str(some(b, "SAME_UPPER", "SAME_LOWER", "VALID"))
    elif how <= 3:
        attrs["pads"] = [v // 2 for v in k] * 2
    return attrs


def conv(b: Builder) -> str:
    x = b.pick(low=3)
    if not x or b.values[x].ndim > 5 or 0 in b.values[x].shape:
        return ""
    shape = b.values[x].shape
    c, attrs = shape[1], _window(b, shape[2:])
    divisors = [g for g in range(1, c + 1) if c % g == 0]
    group = int(some(b, 1, 1, 1, c, *divisors))
    m = group * int(some(b, 1, 1, 2, 3)) if group > 1 else int(some(b, *SMALL, 33, 40, 64))
    w = b.random((m, c // group, *attrs["kernel_shape"])) / np.sqrt(c // group * np.prod(attrs["kernel_shape"]))
    ins = [x, b.constant(w.astype(np.float32))]
    if chance(b, 0.7):
        ins.append(b.constant(b.random((m,))))
    return b.one("Conv", *ins, group=group, **attrs)


def conv_run_time_weights(b: Builder) -> str:
    x = b.pick(low=3)
    if not x or b.values[x].ndim > 4 or 0 in b.values[x].shape:
        return ""
    shape = b.values[x].shape
    w = b.input(b.random((number(b, 1, 6), shape[1], *(1 for _ in shape[2:]))) / np.float32(np.sqrt(shape[1])))
    return b.one("Conv", x, w)


def conv_transpose(b: Builder) -> str:
    x = b.pick(low=3)
    if not x or b.values[x].ndim > 4 or b.values[x].size > 20000:
        return ""
    shape = b.values[x].shape
    c, attrs = shape[1], _window(b, shape[2:])
    group = int(some(b, 1, 1, c))
    if str(attrs.get("auto_pad", "")).startswith("SAME"):
        attrs.pop("strides", None)  # onnxruntime's size is not the specified one where the kernel is smaller
    w = b.random((c, number(b, 1, 5), *attrs["kernel_shape"])) / np.float32(np.sqrt(c) * 2)
    if chance(b, 0.3):
        attrs["output_padding"] = [0 for _ in shape[2:]]
    ins = [x, b.constant(w)]
    if chance(b):
        ins.append(b.constant(b.random((w.shape[1] * group,))))
    return b.one("ConvTranspose", *ins, group=group, **attrs)


def batch_norm(b: Builder) -> str:
    x = b.pick(low=2)
    if not x:
        return ""
    c = b.values[x].shape[1]
    var = b.constant(np.abs(b.random((c,))) + np.float32(0.3))
    return b.one("BatchNormalization", x, *(b.constant(b.random((c,))) for _ in range(3)), var)


def instance_norm(b: Builder) -> str:
    x = b.pick(low=3)
    if not x or np.prod(b.values[x].shape[2:]) < 4:
        return ""
    c = b.values[x].shape[1]
    return b.one("InstanceNormalization", x, b.constant(b.random((c,))), b.constant(b.random((c,))), epsilon=1e-2)


def pool(b: Builder) -> str:
    x = b.pick(low=3)
    if not x or b.values[x].ndim > 5 or 0 in b.values[x].shape:
        return ""
    kind = str(some(b, "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if kind.startswith("Global"):
        return b.one(kind, x)
    attrs = _window(b, b.values[x].shape[2:])
    if "auto_pad" not in attrs and chance(b, 0.4):
        attrs["ceil_mode"] = 1
    if str(attrs.get("auto_pad", "")).startswith("SAME"):
        attrs.pop("dilations", None)  # onnxruntime pads as if there were none
    if kind == "AveragePool":
        attrs["count_include_pad"] = number(b, 0, 1)
        attrs.pop("dilations", None)
    return b.one(kind, x, **attrs)


def resize(b: Builder) -> str:
    x = b.pick(low=3)
    if not x or b.values[x].ndim != 4 or b.values[x].size > 20000:
        return ""
    mode = str(some(b, "nearest", "linear", "cubic"))
    how = str(some(b, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    n, c, h, w = b.values[x].shape
    if chance(b):
        return b.one("Resize", x, "", b.constant(np.array([1, 1, some(b, 0.5, 2, 1.5), some(b, 2, 1, 3)], np.float32)),
                     mode=mode, coordinate_transformation_mode=how)
    return b.one("Resize", x, "", "", b.ints(n, c, number(b, 1, 2 * h), number(b, 1, 2 * w)), mode=mode,
                 coordinate_transformation_mode=how)


def squeeze_excite(b: Builder) -> str:
    x = b.pick(rank=4)
    if not x or 0 in b.values[x].shape:
        return ""
    c, r = b.values[x].shape[1], number(b, 1, 6)
    p = b.one("GlobalAveragePool", x) if chance(b) else b.one("ReduceMean", x, b.ints(2, 3))
    p = p and b.one("Conv", p, b.constant(b.random((r, c, 1, 1)) / np.float32(np.sqrt(c))))
    p = p and b.one("Relu", p)
    p = p and b.one("Conv", p, b.constant(b.random((c, r, 1, 1))), b.constant(b.random((c,))))
    p = p and b.one(str(some(b, "Sigmoid", "HardSigmoid")), p)
    return b.one("Mul", *((x, p) if chance(b) else (p, x))) if p else ""


def residual(b: Builder) -> str:
    """Conv of the same shape and an addition, with or without an activation."""
    x = b.pick(rank=4)
    if not x or 0 in b.values[x].shape:
        return ""
    c = b.values[x].shape[1]
    w = b.constant(b.random((c, c, 3, 3)) / np.float32(np.sqrt(9 * c)))
    y = b.one("Conv", x, w, b.constant(b.random((c,))), pads=[1, 1, 1, 1])
    y = y and b.one("Add", *((x, y) if chance(b) else (y, x)))
    return b.one("Relu", y) if y and chance(b) else y


# -- movement -----------------------------------------------------------------------------------------
def anything(b: Builder) -> str:
    return b.pick(str(some(b, "float32", "float32", "float32", "int64", "bool", "int32")))


def concat(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim:
        return ""
    v = b.values[x]
    axis = number(b, 0, v.ndim - 1)
    ins = [x]
    for _ in range(number(b, 0, 3)):
        fit = [n for n, y in b.values.items() if y.dtype == v.dtype and y.ndim == v.ndim
               and all(p == q for k, (p, q) in enumerate(zip(v.shape, y.shape, strict=True)) if k != axis)]
        how = number(b, 0, 2)
        shape = tuple(number(b, 0, 4) if k == axis else d for k, d in enumerate(v.shape))
        ins.append(b.leaf(shape, v.dtype) if how == 0 else fit[number(b, 0, len(fit) - 1)])
    b.rng.shuffle(ins)
    return b.one("Concat", *ins, axis=axis - v.ndim * number(b, 0, 1), exact=True)


def split(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim:
        return ""
    axis = number(b, 0, b.values[x].ndim - 1)
    n = b.values[x].shape[axis]
    cut = number(b, 0, n)
    outs = b.op("Split", x, b.ints(cut, n - cut), outs=2, axis=axis, exact=True)
    return outs[0] if outs else ""


def slice_(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim:
        return ""
    rank = b.values[x].ndim
    axes = [k for k in range(rank) if chance(b, 0.6)] or [0]
    steps = [int(some(b, 1, 1, 2, -1, -2, 3)) for _ in axes]
    starts, ends = [], []
    for a, s in zip(axes, steps, strict=True):
        n = b.values[x].shape[a]
        lo, hi = number(b, 0, max(0, n // 2)), number(b, (n + 1) // 2, n + 1)
        starts.append(lo if s > 0 else hi)
        ends.append(hi if s > 0 else lo - n - 1)
    return b.one("Slice", x, b.ints(*starts), b.ints(*ends), b.ints(*axes), b.ints(*steps), exact=True)


def transpose(b: Builder) -> str:
    x = anything(b)
    if not x:
        return ""
    rank = b.values[x].ndim
    perm = [int(p) for p in b.rng.permutation(rank)]
    if rank == 4 and chance(b):
        perm = list(some(b, (0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2)))
    return b.one("Transpose", x, perm=perm, exact=True)


def reshape(b: Builder) -> str:
    x = anything(b)
    if not x:
        return ""
    size = b.values[x].size
    if size == 0 or chance(b, 0.2):
        return b.one("Flatten", x, axis=number(b, 0, b.values[x].ndim), exact=True)
    shape = []
    for _ in range(number(b, 0, 4)):
        d = int(some(b, *[d for d in range(1, min(size, 40) + 1) if size % d == 0]))
        shape.append(d)
        size //= d
    if size > 1 or not shape:
        shape.insert(number(b, 0, len(shape)), -1 if chance(b) else size)
    return b.one("Reshape", x, b.ints(*shape), exact=True)


def squeeze(b: Builder) -> str:
    x = anything(b)
    if not x:
        return ""
    rank = b.values[x].ndim
    if rank < 6 and chance(b):
        return b.one("Unsqueeze", x, b.ints(number(b, 0, rank)), exact=True)
    return b.one("Squeeze", x, exact=True)


def pad(b: Builder) -> str:
    x = b.pick(low=1)
    if not x:
        return ""
    rank = b.values[x].ndim
    mode = str(some(b, "constant", "reflect", "edge", "constant", "wrap"))
    low = -1 if mode == "constant" else 0
    pads = [number(b, low, 2) for _ in range(2 * rank)]
    if mode != "constant":
        pads = [min(p, d - 1) if chance(b) else 0 for p, d in zip(pads, b.values[x].shape * 2, strict=True)]
    return b.one("Pad", x, b.ints(*pads), *([b.constant(np.float32(0.25))] if mode == "constant" else []), mode=mode,
                 exact=True)


def expand(b: Builder) -> str:
    x = anything(b)
    if not x or b.values[x].size > 5000 or b.values[x].ndim > 5:
        return ""
    shape = [int(some(b, 2, 3)) if d == 1 and chance(b) else d for d in b.values[x].shape]
    return b.one("Expand", x, b.ints(*([number(b, 1, 2)] if chance(b, 0.3) else []), *shape), exact=True)


def tile(b: Builder) -> str:
    x = anything(b)
    if not x or b.values[x].size > 5000:
        return ""
    return b.one("Tile", x, b.ints(*(number(b, 1, 2) for _ in b.values[x].shape)), exact=True)


def depth_space(b: Builder) -> str:
    x = b.pick(rank=4)
    if chance(b):
        return b.one("DepthToSpace", x, blocksize=2, mode=str(some(b, "DCR", "CRD")), exact=True)
    return b.one("SpaceToDepth", x, blocksize=2, exact=True)


def gather(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim or b.values[x].ndim > 4:
        return ""
    axis = number(b, 0, b.values[x].ndim - 1)
    n = b.values[x].shape[axis]
    if not n:
        return ""
    shape = tuple(some(b, (), (3,), (2, 2), (1,), (0,)))
    index = b.rng.integers(-n, n, shape).astype(some(b, np.int64, np.int32))
    return b.one("Gather", x, b.constant(index) if chance(b) else b.input(index), axis=axis, exact=True)


def gather_elements(b: Builder) -> str:
    x = b.pick(low=1)
    if not x or 0 in b.values[x].shape:
        return ""
    shape, axis = b.values[x].shape, number(b, 0, b.values[x].ndim - 1)
    index = b.rng.integers(-shape[axis], shape[axis], shape).astype(np.int64)
    return b.one("GatherElements", x, b.constant(index) if chance(b) else b.input(index), axis=axis, exact=True)


def gather_nd(b: Builder) -> str:
    x = b.pick(low=2)
    if not x or 0 in b.values[x].shape:
        return ""
    shape = b.values[x].shape
    index = np.stack([b.rng.integers(-d, d, (3,)) for d in shape[:2]], -1)
    return b.one("GatherND", x, b.input(index), exact=True)


def scatter_nd(b: Builder) -> str:
    x = b.pick(low=2)
    if not x or 0 in b.values[x].shape:
        return ""
    shape = b.values[x].shape
    index = b.rng.permutation(shape[0])[: number(b, 1, shape[0])][:, None].astype(np.int64)
    return b.one("ScatterND", x, b.input(index), b.leaf((len(index), *shape[1:])), exact=True)


# -- contractions and reductions ----------------------------------------------------------------------
def matmul(b: Builder) -> str:
    x = b.pick(low=1)
    if not x:
        return ""
    shape = b.values[x].shape
    k, n = shape[-1], int(some(b, *SMALL, 31, 64, 100))
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
    w = b.constant(b.random((number(b, 1, 20), b.values[x].shape[-2])) * np.float32(0.3))
    return b.one("MatMul", w, x)


def gemm(b: Builder) -> str:
    x = b.pick(rank=2)
    if not x:
        return ""
    m, k = b.values[x].shape
    ta, tb, n = number(b, 0, 1), number(b, 0, 1), int(some(b, *SMALL, 40))
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


# -- other types --------------------------------------------------------------------------------------
def integers(b: Builder) -> str:
    dtype = some(b, "int64", "int32", "int8", "uint8", "uint16", "int16", "uint32", "uint64")
    x = b.pick(str(dtype)) or b.input(b.random((2, 3, 5), dtype))
    y = broadcast_partner(b, x, dtype)
    kind = str(some(b, "Add", "Sub", "Mul", "Max", "Min", "Div", "Mod", "Abs", "Sign", "BitwiseAnd", "BitwiseXor",
                    "BitShift", "BitwiseNot"))
    if kind in ("Div", "Mod"):
        z = b.random(b.values[x].shape[-1:], dtype)
        y = b.constant(np.where(z == 0, np.array(3, z.dtype), z))
    if kind in ("Abs", "Sign", "BitwiseNot"):
        return b.one(kind, x)
    if kind == "BitShift":
        return b.one(kind, x, b.constant(np.array(some(b, 0, 1, 3), dtype)), direction=str(some(b, "LEFT", "RIGHT")))
    return b.one(kind, x, y)


def doubles(b: Builder) -> str:
    dtype = some(b, "float64", "float16")
    x = b.pick(str(dtype)) or b.input(b.random((3, 4, 6), dtype))
    kind = number(b, 0, 4)
    if kind == 0:
        return b.one(str(some(b, "Add", "Mul", "Sub")), x, broadcast_partner(b, x, dtype))
    if kind == 1:
        return b.one(str(some(b, "Sigmoid", "Tanh", "Relu", "Abs", "Exp", "Erf", "Neg")), x)
    if kind == 2 and b.values[x].ndim > 1:
        return b.one("MatMul", x, b.leaf((b.values[x].shape[-1], 5), dtype))
    if kind == 3:
        return b.one("ReduceMean", x, keepdims=1)
    return b.one("Softmax", x, axis=-1)


def compare(b: Builder) -> str:
    x = b.pick(exact=True) if chance(b) else b.pick("int64")
    if not x:
        return ""
    y = broadcast_partner(b, x, b.values[x].dtype)
    if not b.exact[y]:
        return ""
    return b.one(str(some(b, "Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")), x, y, exact=True)


def logic(b: Builder) -> str:
    x = b.pick("bool") or b.input(b.random((4, 5), np.bool_))
    if chance(b, 0.3):
        return b.one("Not", x, exact=True)
    return b.one(str(some(b, "And", "Or", "Xor")), x, broadcast_partner(b, x, np.bool_), exact=True)


def cast(b: Builder) -> str:
    dtype = str(some(b, "float32", "int64", "bool", "int32", "uint8", "float64", "float16"))
    x = b.pick(dtype, exact=True)
    if not x:
        return ""
    if dtype == "float32":
        x = b.one("Clip", x, b.constant(np.float32(0)), b.constant(np.float32(100)), exact=True) or x
        if b.values[x].min(initial=0) < 0:
            return ""
    return b.one("Cast", x, to=int(some(b, 1, 6, 7, 9, 11, 10, 2)), exact=True)


def quantize(b: Builder) -> str:
    x = b.pick(exact=True)
    zero = b.constant(np.array(some(b, 0, 3, 128), np.uint8))
    scale = b.constant(np.float32(0.037))
    q = x and b.one("QuantizeLinear", x, scale, zero, exact=True)
    return b.one("DequantizeLinear", q, scale, zero, exact=True) if q else ""


# -- recurrent ----------------------------------------------------------------------------------------
def recurrent(b: Builder) -> str:
    x = b.pick(rank=3)
    if not x or 0 in b.values[x].shape or b.values[x].size > 10000:
        return ""
    t, n, c = b.values[x].shape
    kind = str(some(b, "LSTM", "GRU", "RNN"))
    gates, h = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], int(some(b, 1, 3, 8, 17))
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


GENERIC: tuple[Step, ...] = (
    unary, unary, binary, binary, divide, variadic, clip, where, power, root, concat, concat, split, slice_, slice_,
    transpose, transpose, reshape, reshape, squeeze, pad, expand, tile, gather, reduce, reduce, softmax, sharp,
)
FAMILIES: dict[str, tuple[Step, ...]] = {
    "convnet": (conv, conv, conv, conv, conv, batch_norm, batch_norm, prelu, swish, clip, unary, binary, residual,
                squeeze_excite, pool, concat, transpose, slice_, split, pad, resize, conv_transpose, depth_space,
                instance_norm, reshape, conv_run_time_weights, softmax, matmul, where, variadic, reduce),
    "transformer": (matmul, matmul, matmul, gemm, matmul_left, attention, softmax, layer_norm, layer_norm_parts, gelu,
                    binary, unary, transpose, reshape, concat, split, slice_, gather, einsum, where, reduce, squeeze),
    "movement": (*GENERIC, gather_elements, gather_nd, scatter_nd, arg, top_k, cumsum, compare, logic, depth_space,
                 concat, transpose, slice_, split, reshape),
    "types": (integers, integers, integers, doubles, doubles, compare, logic, cast, cast, quantize, reduce, concat,
              slice_, transpose, arg, where, binary),
    "recurrent": (recurrent, recurrent, unary, binary, transpose, slice_, concat, matmul, squeeze, reduce),
    "all": tuple(dict.fromkeys((*GENERIC, conv, pool, batch_norm, matmul, gemm, einsum, integers, compare, cast, prelu,
                                layer_norm, resize, attention, recurrent, swish, residual, squeeze_excite, arg))),
}


def start(b: Builder, family: str) -> None:
    n = int(some(b, 1, 1, 2))
    if family == "convnet":
        rank = int(some(b, 1, 2, 2, 2, 2, 3))
        b.input(b.random((n, int(some(b, *SMALL, 32)), *(number(b, 1, 14) for _ in range(rank)))))
    elif family == "transformer":
        shapes = ((n, int(some(b, *SMALL)), int(some(b, *SMALL, 24, 32))), (int(some(b, *SMALL)), int(some(b, *SMALL))),
                  (2, 3, 5, 7))
        b.input(b.random(some(b, *shapes)))
    elif family == "recurrent":
        b.input(b.random((number(b, 1, 6), n, int(some(b, *SMALL)))))
    else:
        rank = number(b, 0, 6) if chance(b, 0.3) else number(b, 2, 4)
        b.input(b.random(tuple(number(b, 1, 7) if chance(b, 0.97) else 0 for _ in range(rank))))
        b.input(b.random((2, 3, 4, 5)))
        b.input(b.random((3, 4), some(b, np.int64, np.int32, np.bool_)))


def random_model(seed: int, family: str, steps: int = 10) -> Builder:
    """A model of one family; some of its intermediate values are outputs too."""
    b = Builder(seed)
    start(b, family)
    kinds = FAMILIES[family]
    for _ in range(steps):
        step = kinds[number(b, 0, len(kinds) - 1)]
        try:
            step(b)
        except (KeyError, IndexError, ValueError, ZeroDivisionError):
            continue  # a pattern that does not fit the values there are
    read = {i for n in b.nodes for i in n.input}
    made = [o for n in b.nodes for o in n.output]
    b.outputs = [o for o in made if o not in read or chance(b, 0.15)] or [b.inputs[0]]
    if chance(b, 0.1):
        b.outputs.append(b.inputs[0])
    if chance(b, 0.1) and b.constants:
        b.outputs.append(b.constants[0])
    b.outputs = list(dict.fromkeys(b.outputs))
    return b
