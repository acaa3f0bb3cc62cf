"""Normalization, quantization, means of windows and distinct slices of tensors whose size data decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sized_models import RNG, Model, agree, f32, ints

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx


def layers() -> Model:
    """Along the axis, before it, both; with what data size beside it, and what was averaged"""
    return Model("""g (float[3,9,4] x, int64[1] n) => (float[3,a,4] y, float[3,b,4] z, float[3,c,4] w,
        float[3,d,4] v, float[3,1,1] m, float[3,1,1] i, float[3,e,1] r, float[3,f,4] t) {
        s = Slice(x, zero, n, one)  y = LayerNormalization<axis = -2>(s, four, four)
        z, m, i = LayerNormalization<axis = 1, epsilon = 0.01>(s, four)  z1, r = LayerNormalization(s, four)
        size = Shape<start = 1, end = 3>(s)  ones = Expand(half, size)
        w = LayerNormalization<axis = 1>(s, ones, ones)
        v = LayerNormalization<axis = -1>(s, four, four)
        t = Relu(z) }""",
                 [{"x": 9 + f32(3, 9, 4), "n": ints(n)} for n in (9, 5, 2, 1)],
                 zero=ints(0), one=ints(1), four=f32(4), half=np.float32(0.5).reshape(1))


def by_channels() -> Model:
    return Model("""g (float[2,4,8] x, int64[1] n) => (float[2,4,a] g, float[2,4,b] i, float[2,4,c] l, float[2,4,d] h,
        float[2,4,e] mv, float[2,4,f] k) {
        s = Slice(x, zero, n, two)  g = GroupNormalization<num_groups = 2>(s, four, four)
        i = InstanceNormalization(s, four, four)  l = LpNormalization<axis = 2>(s)
        h = LpNormalization<axis = 1, p = 1>(s)  mv = MeanVarianceNormalization<axes = [0, 2]>(s)
        k = RMSNormalization<axis = -1>(s, one) }""",
                 [{"x": f32(2, 4, 8), "n": ints(n)} for n in (8, 5, 3)], opset=23,
                 zero=ints(0), two=ints(2), four=f32(4), one=np.float32([2]))


def quantized() -> Model:
    """Rows as many as a mask marks, through a product of bytes; scales of the other axis"""
    return Model("""g (float[6,4] x, bool[6] a) => (float[N,4] y, float[N,4] z, int32[N,3] m, float[N,4] d) {
        k = Compress<axis = 0>(x, a)  q = QuantizeLinear(k, scale, zp)  y = DequantizeLinear(q, scale, zp)
        qc = QuantizeLinear<axis = 1>(k, scales, zps)  z = DequantizeLinear<axis = 1>(qc, scales, zps)
        m = MatMulInteger(q, w, zp)  u, s, zero = DynamicQuantizeLinear(k)  d = DequantizeLinear(u, s, zero) }""",
                 [{"x": f32(6, 4), "a": np.arange(6) < n} for n in (6, 4, 1)],
                 scale=np.float32(0.05), zp=np.uint8(130), scales=np.float32([0.05, 0.1, 0.02, 0.04]),
                 zps=np.int8([0, 3, -5, 1]), w=RNG.integers(-128, 128, (4, 3)).astype(np.int8))


def pooled() -> Model:
    """Means of what is there alone, at both ends"""
    return Model("""g (float[1,2,9,7] x, int64[1] n) => (float[1,2,a,b] y, float[1,2,c,7] z, float[1,2,d,7] l) {
        s = Slice(x, zero, n, two)  y = AveragePool<kernel_shape = [3, 2], pads = [1, 1, 1, 0], strides = [2, 1]>(s)
        z = AveragePool<kernel_shape = [3, 3], pads = [2, 1, 2, 1]>(s)  l = LRN<size = 3>(s) }""",
                 [{"x": f32(1, 2, 9, 7), "n": ints(n)} for n in (9, 6, 2)], zero=ints(0), two=ints(2))


def slices() -> Model:
    """Rows that data choose, columns of as many rows; as they come and sorted"""
    return Model("""g (int64[7,2] x, bool[7] a) => (int64[N,2] y, int64[N] f, int64[M] b, int64[N] c, int64[L,2] u,
        int64[L] often, int64[M,K] z, int64[2] back) {
        p = Compress<axis = 0>(x, a)  y, f, b, c = Unique<axis = 0>(p)
        u, uf, ub, often = Unique<axis = 0, sorted = 0>(p)  z, zf, back = Unique<axis = 1>(p) }""",
                 [{"x": RNG.integers(0, 2, (7, 2)), "a": RNG.random(7) < k} for k in (0.5, 0.8, 1)] +
                 [{"x": np.repeat(RNG.integers(0, 9, (7, 1)), 2, 1), "a": np.arange(7) < k} for k in (1, 7)])


CASES: list[Callable[[], Model]] = [layers, by_channels, quantized, pooled, slices]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_what_is_not_there_does_not_count(case: Callable[[], Model], tmp_path: Path) -> None:
    agree(case(), tmp_path)


def test_a_scale_that_may_not_fit_is_an_error() -> None:
    m = Model("""g (float[3,9] x, int64[1] n) => (float[3,a] y) {
        s = Slice(x, zero, n, one)  y = LayerNormalization(s, nine) }""", [], zero=ints(0), one=ints(1), nine=f32(9))
    with pytest.raises(MonoblocError, match="LayerNormalization of .*whose size data decide, is not supported"):
        load_onnx(m.proto)
