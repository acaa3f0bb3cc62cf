"""One contraction at a time against onnxruntime, interleaved, one thread.

    python bench/kernels/bench.py [--rounds 40] [--filter 3x3]

Prints minimum and median microseconds, GFLOP/s and the ratio of minima. A single convolution of
onnxruntime includes its layout conversion, so believe whole networks more than these ratios.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
from monobloc.kernels import packing, tiles  # noqa: E402
from tests.kernels import harness  # noqa: E402

VL, NVREG = 16, 32
CACHES = tiles.Caches(48 << 10, 2 << 20)
EPI = """
MB_INLINE mb_vf epi_v(const void *p, mb_vf a, mb_ix ix) {
  return mb_max(0.f, mb_add(a, mb_ld(a, (const float *)p + ix.n))); }
MB_INLINE float epi_s(const void *p, float a, mb_ix ix) {
  return mb_max(0.f, mb_add(a, mb_ld(a, (const float *)p + ix.n))); }
"""


@dataclass(frozen=True)
class Op:
    """A MatMul when hw is 0, else a square convolution."""

    name: str
    m: int
    n: int
    k: int
    hw: int = 0
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False

    @property
    def out(self) -> int:
        return (self.hw + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    @property
    def flops(self) -> float:
        if not self.hw:
            return 2.0 * self.m * self.n * self.k
        taps = self.kernel**2 * (1 if self.depthwise else self.k)
        return 2.0 * self.out**2 * self.n * taps


def conv(name: str, hw: int, ic: int, oc: int, kernel: int, stride: int = 1) -> Op:
    return Op(name, 0, oc, ic, hw, kernel, stride)


def dw(name: str, hw: int, c: int, stride: int = 1, kernel: int = 3) -> Op:
    return Op(name, 0, c, c, hw, kernel, stride, True)


OPS = [
    Op("gemm 128x768x768", 128, 768, 768),
    Op("gemm 128x3072x768", 128, 3072, 768),
    Op("gemm 128x768x3072", 128, 768, 3072),
    Op("gemm 1x4096x4096", 1, 4096, 4096),
    Op("gemm 1x1000x2048", 1, 1000, 2048),
    Op("gemm 1x10x1280", 1, 10, 1280),
    conv("7x7s2 3->64 @224", 224, 3, 64, 7, 2),
    conv("3x3s2 3->32 @224", 224, 3, 32, 3, 2),
    conv("1x1 64->256 @56", 56, 64, 256, 1),
    conv("1x1 256->64 @56", 56, 256, 64, 1),
    conv("3x3 64 @56", 56, 64, 64, 3),
    conv("3x3 128 @28", 28, 128, 128, 3),
    conv("3x3 256 @14", 14, 256, 256, 3),
    conv("3x3 512 @7", 7, 512, 512, 3),
    conv("1x1 512->2048 @7", 7, 512, 2048, 1),
    conv("1x1 1024->256 @14", 14, 1024, 256, 1),
    conv("1x1s2 256->512 @56", 56, 256, 512, 1, 2),
    conv("1x1 144->24 @56", 56, 144, 24, 1),
    conv("1x1 24->144 @56", 56, 24, 144, 1),
    conv("1x1 96->576 @14", 14, 96, 576, 1),
    conv("3x3 1->8 @28", 28, 1, 8, 3),
    conv("3x3 16 @40", 40, 16, 16, 3),
    dw("dw 32 @112", 112, 32),
    dw("dw 144 @56", 56, 144),
    dw("dw 192 @28", 28, 192),
    dw("dw 384 @14", 14, 384),
    dw("dw 960 @7", 7, 960),
    dw("dw s2 96 @112", 112, 96, 2),
    dw("dw 5x5 672 @14", 14, 672, 1, 5),
    dw("dw 72 @56", 56, 72),
]


def geometry(op: Op) -> tiles.Geometry:
    ic, groups, pad = (op.n, op.n, op.kernel // 2) if op.depthwise else (op.k, 1, op.kernel // 2)
    return tiles.Geometry((1, op.hw, op.hw, ic), op.n, (op.out, op.out), (op.kernel, op.kernel), groups,
                          (op.stride, op.stride), pads=(pad, pad))


def build(i: int, op: Op) -> tuple[str, dict[str, int]]:
    """C of one op and its descriptor."""
    args, call = (
        "const float *x, const float *w, float *y, const float *b, float *s",
        "",
    )
    if not op.hw or (op.kernel == 1 and op.stride == 1):
        m = op.m or op.hw**2
        d = tiles.gemm_desc(m, op.n, op.k, VL, NVREG, caches=CACHES)
        kind, call = "gemm", f"op{i}(b, x, w, y, 0, 0, 1)"
    elif op.depthwise:
        d = tiles.dwconv_desc(geometry(op), VL, NVREG)
        kind, call = "dwconv", f"op{i}(b, x, w, y, 0, 1)"
    else:
        d = tiles.conv_desc(geometry(op), VL, NVREG, caches=CACHES)
        kind, call = "conv", f"op{i}(b, x, w, y, 0, s, 0, 1)"
    macro = {"gemm": "MB_GEMM", "conv": "MB_CONV", "dwconv": "MB_DWCONV"}[kind]
    text = f"static const mb_{kind} d{i} = {tiles.c_initializer(d)};\n{macro}(op{i}, d{i}, epi)\n"
    return text + f"void run{i}({args}) {{ (void)s; {call}; }}\n", d


def ours(lib: ctypes.CDLL, i: int, op: Op, d: dict[str, int], x: np.ndarray, w: np.ndarray):
    b = np.zeros(op.n, np.float32)
    if op.hw:
        packed = packing.pack_dwconv_w(w) if op.depthwise else packing.pack_conv_w(w, 1, d["nv"], VL)
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        y = np.zeros((1, op.out, op.out, op.n), np.float32)
    else:
        packed, y = (
            packing.pack_gemm_b(w, d["nv"], VL),
            np.zeros((op.m, op.n), np.float32),
        )
    scratch = np.zeros(tiles.conv_scratch(d) if "copy" in d else 1, np.float32)
    keep = [harness.aligned(v) for v in (x, packed, y, b, scratch)]
    f = getattr(lib, f"run{i}")
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in keep]
    return (lambda: f(*pointers)), keep


def theirs(op: Op, x: np.ndarray, w: np.ndarray) -> Callable[[], np.ndarray]:
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.tobytes(), raw=True),
        helper.make_tensor("b", TensorProto.FLOAT, (op.n,), bytes(4 * op.n), raw=True),
    ]
    if op.hw:
        p = op.kernel // 2
        attrs = {
            "strides": [op.stride] * 2,
            "pads": [p] * 4,
            "group": op.k if op.depthwise else 1,
        }
        node = helper.make_node("Conv", ["x", "w", "b"], ["t"], **attrs)
    else:
        node = helper.make_node("Gemm", ["x", "w", "b"], ["t"])
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda: session.run(None, {"x": x})[0]


def clock(f: Callable[[], object], inner: int) -> float:
    start = time.perf_counter()
    for _ in range(inner):
        f()
    return (time.perf_counter() - start) / inner * 1e6


def measure(op: Op, mine: Callable[[], object], peer: Callable[[], object], rounds: int) -> str:
    inner = max(1, int(300 / max(1.0, min(clock(mine, 2), clock(mine, 2)))))
    a, b = [], []
    for _ in range(rounds):
        a.append(clock(mine, inner))
        b.append(clock(peer, inner))
    rate = op.flops / min(a) / 1e3
    return (
        f"{op.name:22s} ours {min(a):8.1f} {np.median(a):8.1f}  ort {min(b):8.1f} "
        f"{np.median(b):8.1f}  {rate:6.1f} GF/s  {min(b) / min(a):5.2f}x"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    chosen = [op for op in OPS if args.filter in op.name]
    parts = [build(i, op) for i, op in enumerate(chosen)]
    head = "".join(f'#include "mb/{h}.h"\n' for h in ("gemm", "conv", "dwconv")) + EPI
    with tempfile.TemporaryDirectory() as folder:
        source = head + "".join(text for text, _ in parts)
        lib = harness.compile_shared(source, Path(folder), VL)
    for i, op in enumerate(chosen):
        rng = np.random.default_rng(i)
        x = rng.standard_normal((1, op.k, op.hw, op.hw) if op.hw else (op.m, op.k), np.float32)
        shape = (op.n, 1 if op.depthwise else op.k, op.kernel, op.kernel)
        w = rng.standard_normal(shape if op.hw else (op.k, op.n), np.float32)
        mine, keep = ours(lib, i, op, parts[i][1], x, w)
        peer = theirs(op, x, w)
        mine()
        want, got = peer(), keep[2]
        want = want.transpose(0, 2, 3, 1) if op.hw else want
        error = np.abs(got - want).max() / np.abs(want).max()
        print(
            measure(op, mine, peer, args.rounds),
            "" if error < 1e-5 else f"WRONG {error}",
        )


if __name__ == "__main__":
    main()
