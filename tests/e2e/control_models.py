"""Models with control flow that data decide, in ONNX's text, and inputs that take every way through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper, parser

SEED = 41
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
Feeds = Mapping[str, np.ndarray]
W, U = ((RNG.standard_normal((8, 8)) / 3).astype(np.float32) for _ in range(2))


def text(body: str, opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    m = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}')
    m.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    onnx.checker.check_model(m)
    return m


def x() -> np.ndarray:
    return RNG.standard_normal((4, 8)).astype(np.float32)


def ints(name: str, *values: int) -> list[Feeds]:
    return [{"x": x(), name: np.array(v, np.int64)} for v in values]


def bools(*names: str) -> list[Feeds]:
    ways = range(2 ** len(names))
    return [{"x": x(), **{n: np.array(bool(k >> j & 1)) for j, n in enumerate(names)}} for k in ways]


def branches() -> onnx.ModelProto:
    """Weights on both sides, and what one side and what no side reads"""
    return text("""g (bool c, float[4,8] x) => (float[4,8] y) {
        t = Tanh(x)
        r = If(c) <then_branch = a () => (float[4,8] p) { m = MatMul(x, w)  p = Relu(m) },
                   else_branch = b () => (float[4,8] q) { m = MatMul(t, u)  s = Softmax(m)  q = Add(s, m) }>
        y = Sub(r, x) }""", w=W, u=U)


def as_they_are() -> onnx.ModelProto:
    """Branches that make nothing: an input, a constant, one value twice; and an If's results as outputs"""
    return text("""g (bool c, float[4,8] x) => (float[4,8] y, float[4,8] z) {
        y, z = If(c) <then_branch = a () => (float[4,8] p, float[4,8] q) { p = Identity(x)  q = Identity(k) },
                      else_branch = b () => (float[4,8] o, float[4,8] o2) { o = Exp(x)  o2 = Identity(o) }> }""",
                k=np.full((4, 8), 3, np.float32))


def nested() -> onnx.ModelProto:
    """A choice in a choice, which reads values of all three graphs"""
    return text("""g (bool c, bool d, float[4,8] x) => (float[4,8] y) {
        t = Tanh(x)
        y = If(c) <then_branch = a () => (float[4,8] p) {
                       n = Neg(t)
                       p = If(d) <then_branch = a1 () => (float[4,8] p1) { m = Mul(n, x)  p1 = Add(m, t) },
                                  else_branch = a2 () => (float[4,8] p2) { p2 = MatMul(n, w) }> },
                   else_branch = b () => (float[4,8] q) { q = Abs(x) }> }""", w=W)


def count() -> onnx.ModelProto:
    """As often as an input says, with weights and the iteration's number"""
    return text("""g (int64 n, float[4,8] x) => (float[4,8] y) {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[4,8] s) => (bool c2, float[4,8] s2) {
            m = MatMul(s, w)  t = Tanh(m)  f = Cast<to = 1>(i)  a = Add(t, f)  s2 = Add(a, x)  c2 = Identity(c) }> }""",
                w=W)


def bounded() -> onnx.ModelProto:
    """Until a sum is large, or a number of times"""
    return text("""g (int64 n, bool c0, float[4,8] x) => (float[4,8] y, float z) {
        y, z = Loop(n, c0, x, zero) <body = b (int64 i, bool c, float[4,8] s, float k)
                                           => (bool c2, float[4,8] s2, float k2) {
            e = Abs(s)  s2 = Add(s, e)  k2 = ReduceSum<keepdims = 0>(s2)  c2 = Less(k2, limit) }> }""",
                zero=np.float32(0), limit=np.float32(200))


def swapped() -> onnx.ModelProto:
    """Fibonacci: what is carried changes places; one value stays as it is, one is read by nothing"""
    return text("""g (int64 n, float[4,8] x) => (float[4,8] y) {
        y, b, k, d = Loop(n, , x, one, x, x) <body = f (int64 i, bool c, float[4,8] p, float[4,8] q, float[4,8] k0,
                                                        float[4,8] d0)
                                     => (bool c2, float[4,8] q2, float[4,8] r, float[4,8] k1, float[4,8] d1) {
            q2 = Identity(q)  r = Add(p, q)  k1 = Identity(k0)  d1 = Exp(d0)  c2 = Identity(c) }> }""",
                one=np.ones((4, 8), np.float32))


def rows() -> onnx.ModelProto:
    """A loop too long to be written out, which stacks rows and numbers"""
    return text("""g (float[4,8] x) => (float[4,8] y, float[300,8] r, float[300] k) {
        y, r, k = Loop(n, , x) <body = b (int64 i, bool c, float[4,8] s)
                                    => (bool c2, float[4,8] s2, float[8] r0, float k0) {
            m = MatMul(s, w)  s2 = Tanh(m)  r0 = ReduceSum<keepdims = 0>(s2, axis)  k0 = Cast<to = 1>(i)
            c2 = Identity(c) }> }""", n=np.int64(300), w=2 * W, axis=np.array([0], np.int64))


def scan() -> onnx.ModelProto:
    """Another axis, another direction, both ways of stacking"""
    return text("""g (float[3,90] a, float[90,3] b, float[3] s0) => (float[3] s, float[90,3] y, float[2,90,3] z) {
        s, y, z = Scan<num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
                       scan_output_axes = [0, 1], scan_output_directions = [1, 0],
                       body = f (float[3] p, float[3] u, float[3] v) => (float[3] p2, float[3] y0, float[2,3] z0) {
                           h = Mul(p, half)  d = Sub(u, v)  p2 = Add(h, d)  y0 = Tanh(p2)
                           l = Unsqueeze(u, first)  m = Unsqueeze(p2, first)  z0 = Concat<axis = 0>(l, m)
                       }>(s0, a, b) }""",
                half=np.float32(0.5), first=np.array([0], np.int64))


def deep() -> onnx.ModelProto:
    """A loop in a loop with a choice, each reading what is round it"""
    return text("""g (int64 n, float[4,8] x) => (float[4,8] y) {
        t = Tanh(x)
        y = Loop(n, , x) <body = b (int64 i, bool c, float[4,8] s) => (bool c2, float[4,8] s2) {
            o = Mul(s, half)
            z = Loop(i, , o) <body = b2 (int64 j, bool e, float[4,8] q) => (bool e2, float[4,8] q2) {
                d = Mod(j, two)
                f = Cast<to = 9>(d)
                q2 = If(f) <then_branch = h () => (float[4,8] g1) { m = MatMul(q, w)  g1 = Add(m, t) },
                            else_branch = l () => (float[4,8] g2) { g2 = Sub(q, o) }>
                e2 = Identity(e) }>
            s2 = Add(z, x)
            c2 = Identity(c) }> }""", half=np.float32(0.5), two=np.int64(2), w=W)


def scans() -> list[Feeds]:
    return [{"a": RNG.standard_normal((3, 90)).astype(np.float32), "b": RNG.standard_normal((90, 3)).astype(np.float32),
             "s0": RNG.standard_normal(3).astype(np.float32)}]


CASES: dict[str, tuple[Callable[[], onnx.ModelProto], list[Feeds]]] = {
    "branches": (branches, bools("c")),
    "as_they_are": (as_they_are, bools("c")),
    "nested": (nested, bools("c", "d")),
    "count": (count, ints("n", 0, 1, 2, 9, -4)),
    "bounded": (bounded, [{**f, "c0": np.array(c)} for c in (True, False) for f in ints("n", 0, 1, 2, 100)]),
    "swapped": (swapped, ints("n", 0, 1, 2, 7)),
    "rows": (rows, [{"x": x()}]),
    "scan": (scan, scans()),
    "deep": (deep, ints("n", 0, 1, 2, 6)),
}
