"""Steps of convolutions, pools, resizing, and normalizations by channel."""

from __future__ import annotations

import numpy as np
from builder import Builder
from sizes import size
from steps import chance, number, some


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
    m = group * int(some(b, 1, 1, 2, 3)) if group > 1 else size(b, max(1, b.values[x].size // c), 192, p=0.4)
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
