"""Operators and numerics that other compilers got wrong: tiny models with the right values.

Each has the number that it has in the collection of cases (part 4A). Values follow from ONNX's text, by
hand or in exact arithmetic; no other implementation is asked, since each is wrong in some.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

Array = np.ndarray
NAN, INF = np.nan, np.inf


@dataclass(frozen=True)
class Known:
    """A model, its inputs, and the only right outputs; `rtol` where a function has no exact value."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    want: Mapping[str, Array]
    rtol: float = 0.0


@dataclass
class _Table:
    models: dict[str, tuple[int, Callable[[], Known]]] = field(default_factory=dict)

    def case(self, *numbers: int) -> Callable[[Callable[[], Known]], Callable[[], Known]]:
        def add(f: Callable[[], Known]) -> Callable[[], Known]:
            self.models[f.__name__] = (numbers[0], f)
            return f

        return add


TABLE = _Table()
case = TABLE.case


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def i64(*values: Any) -> Array:
    return np.array(values, np.int64)


def text(body: str, opset: int = 18, ir: int = 8, **constants: Array) -> onnx.ModelProto:
    m = parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]>\n{body}')
    m.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in constants.items())
    return m


def node(op: str, ins: Sequence[Array | None], want: Array | Sequence[Array], opset: int = 18, rtol: float = 0.0,
         const: Sequence[int] = (), **attrs: Any) -> Known:
    """One node; the inputs numbered in `const` are initializers."""
    outs = [want] if isinstance(want, np.ndarray) else list(want)
    given = {f"x{k}": np.asarray(x) for k, x in enumerate(ins) if x is not None}
    kept = {n: x for n, x in given.items() if int(n[1:]) in const}
    made = helper.make_node(op, ["" if x is None else f"x{k}" for k, x in enumerate(ins)],
                            [f"y{k}" for k in range(len(outs))], name="node", **attrs)
    ports = [_info(n, x) for n, x in given.items() if n not in kept]
    graph = helper.make_graph([made], "g", ports, [_info(f"y{k}", y) for k, y in enumerate(outs)],
                              [numpy_helper.from_array(x, n) for n, x in kept.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return Known(model, {n: x for n, x in given.items() if n not in kept},
                 {f"y{k}": y for k, y in enumerate(outs)}, rtol)


def _info(name: str, x: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


TWELVE = np.arange(12, dtype=np.float32).reshape(3, 4)


# -- indices ------------------------------------------------------------------------------------------
@case(1)
def gather_counts_from_the_end() -> Known:
    return node("Gather", [TWELVE, i64(0, -1)], TWELVE[[0, 2]], axis=0)


@case(1)
def gather_counts_from_the_end_by_constants() -> Known:
    return node("Gather", [TWELVE, i64(0, -1)], TWELVE[[0, 2]], axis=0, const=[1])


@case(2)
def gather_nd_counts_from_the_end() -> Known:
    return node("GatherND", [TWELVE, i64([-1, -1], [0, -2])], f32(11, 2))


@case(2)
def gather_elements_counts_from_the_end() -> Known:
    return node("GatherElements", [TWELVE, i64([-1, -2, 0], [1, -4, -3])], f32([3, 2, 0], [5, 4, 5]), axis=1)


@case(2)
def scatter_nd_counts_from_the_end() -> Known:
    want = TWELVE.copy()
    want[2, 3], want[0, 2] = 50, 60
    return node("ScatterND", [TWELVE, i64([-1, -1], [0, -2]), f32(50, 60)], want)


@case(2)
def scatter_elements_counts_from_the_end() -> Known:
    want = TWELVE.copy()
    want[0, 3], want[0, 2], want[1, 0] = 50, 60, 70
    return node("ScatterElements", [TWELVE, i64([-1, -2], [-4, 1]), f32([50, 60], [70, 5])], want, axis=1)


@case(2)
def one_hot_counts_from_the_end() -> Known:
    want = f32([0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0])  # beyond either end: nothing is hot
    return node("OneHot", [i64(-1, -3, 3, -4), np.array(3), f32(0, 1)], want, const=[1, 2])


# -- windows and resizing -----------------------------------------------------------------------------
@case(4)
def resize_below_the_first_pixel() -> Known:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    at = [0, 0, 1, 1, 2, 3]  # floor((i + 0.5) / 1.5 - 0.5), and -1 is 0
    return node("Resize", [x, None, f32(1, 1, 1.5, 1.5)], x[:, :, at][..., at], mode="nearest", const=[2],
                coordinate_transformation_mode="half_pixel", nearest_mode="floor")


@case(7)
def resize_leaves_batches_and_channels() -> Known:
    x = np.arange(64, dtype=np.float32).reshape(4, 4, 2, 2)
    at = [1, 1, 1, 1]  # ceil((i + 0.5) / 2), at most 1
    return node("Resize", [x, f32(), f32(1, 1, 2, 2)], x[:, :, at][..., at], opset=11, mode="nearest", const=[1, 2],
                coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="ceil")


@case(9)
def average_of_a_window_over_the_end() -> Known:
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 9)
    want = f32(4, 39 / 7, 4).reshape(1, 1, 3)  # 4..9 and a pad; 7..9 and three pads: ceil_mode's overhang counts not
    return node("AveragePool", [x], want, rtol=1e-6, kernel_shape=[7], strides=[3], pads=[0, 3], ceil_mode=1,
                count_include_pad=1)


@case(11)
def a_last_window_that_lies_in_the_padding() -> Known:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    want = f32([1, 3], [9, 11], [13, 15]).reshape(1, 1, 3, 2)
    return node("MaxPool", [x], want, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=1)


# -- values that are special --------------------------------------------------------------------------
SPECIAL = f32(NAN, 1, INF, -INF, -0.0, NAN, 2, -3)
OTHER = f32(1, NAN, NAN, INF, -1, -INF, -0.0, 5)


@case(13)
def max_keeps_nan() -> Known:
    return node("Max", [SPECIAL, OTHER, f32(0.5)], f32(NAN, NAN, NAN, INF, 0.5, NAN, 2, 5))


@case(13)
def min_keeps_nan() -> Known:
    return node("Min", [SPECIAL, OTHER, f32(0.5)], f32(NAN, NAN, NAN, -INF, -1, NAN, 0, -3))


@case(13)
def relu_keeps_nan() -> Known:
    return node("Relu", [SPECIAL], f32(NAN, 1, INF, 0, 0, NAN, 2, 0))


@case(13)
def clip_keeps_nan() -> Known:
    return node("Clip", [SPECIAL, np.float32(-1), np.float32(1)], f32(NAN, 1, 1, -1, 0, NAN, 1, -1))


@case(13)
def clip_by_constants_keeps_nan() -> Known:
    return node("Clip", [SPECIAL, np.float32(-1), np.float32(1)], f32(NAN, 1, 1, -1, 0, NAN, 1, -1), const=[1, 2])


@case(13)
def pooling_keeps_nan() -> Known:
    return node("MaxPool", [SPECIAL.reshape(1, 1, 8)], f32(NAN, INF, NAN, 2).reshape(1, 1, 4), kernel_shape=[2],
                strides=[2])


@case(13)
def reductions_keep_nan() -> Known:
    return node("ReduceMax", [f32([1, NAN], [2, INF], [-INF, -1]), i64(1)], f32(NAN, INF, -1), keepdims=0, const=[1])


@case(15)
def a_bound_that_is_nan_does_not_bind() -> Known:
    return node("Clip", [SPECIAL, np.float32(-1), np.float32(NAN)], f32(NAN, 1, INF, -1, 0, NAN, 2, -1))


@case(15)
def a_constant_bound_that_is_nan_does_not_bind() -> Known:
    return node("Clip", [SPECIAL, np.float32(NAN), np.float32(1)], f32(NAN, 1, 1, -INF, 0, NAN, 1, -3), const=[1, 2])


# -- integers -----------------------------------------------------------------------------------------
SIGNED = (np.int8, np.int16, np.int32, np.int64)


def _quotients(op: str, a: Sequence[int], b: Sequence[int], want: Sequence[int], lowest: bool, **attrs: Any) -> Known:
    """One node per type and place of the divisor: at run time, and as a constant."""
    nodes, ports, feeds, outs, values, constants = [], [], {}, [], {}, []
    for dtype, const in itertools.product(SIGNED, (False, True)):
        low = int(np.iinfo(dtype).min)
        t = f"{np.dtype(dtype).name}_{'c' if const else 'v'}"
        x = np.array([low if lowest and v is None else v for v in a], dtype)
        y, z = np.array(b, dtype), np.array([low if v is None else v for v in want], dtype)
        nodes.append(helper.make_node(op, [f"a_{t}", f"b_{t}"], [f"q_{t}"], name=t, **attrs))
        feeds[f"a_{t}"] = x
        if const:
            constants.append(numpy_helper.from_array(y, f"b_{t}"))
        else:
            feeds[f"b_{t}"] = y
        values[f"q_{t}"] = z
    ports = [_info(n, x) for n, x in feeds.items()]
    outs = [_info(n, x) for n, x in values.items()]
    model = helper.make_model(helper.make_graph(nodes, "g", ports, outs, constants), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 18)])
    return Known(model, feeds, values)


@case(17)
def quotients_are_cut_towards_zero() -> Known:
    return _quotients("Div", [-7, 8, 7, -8, -1], [2, -3, 2, -3, 2], [-3, -2, 3, 2, 0], False)


@case(18)
def the_lowest_number_by_minus_one() -> Known:
    return _quotients("Div", [None, 5, None], [-1, -1, 1], [None, -5, None], True)  # type: ignore[list-item]


@case(18)
def the_rest_of_the_lowest_number_by_minus_one() -> Known:
    return _quotients("Mod", [None, 5, -7, 7], [-1, -1, 3, -3], [0, 0, 2, -2], True)  # type: ignore[list-item]


@case(18)
def the_dividends_rest_of_the_lowest_number_by_minus_one() -> Known:
    return _quotients("Mod", [None, 5, -7, 7], [-1, -1, 3, -3], [0, 0, -1, 1], True, fmod=1)  # type: ignore[list-item]


# -- half precision -----------------------------------------------------------------------------------
HALVES = np.full((2, 4096), 100, np.float16)


@case(21)
def the_mean_of_halves_whose_sum_is_none() -> Known:
    return node("ReduceMean", [HALVES, i64(1)], np.full((2, 1), 100, np.float16), const=[1])


@case(21)
def the_norm_of_halves_whose_squares_are_none() -> Known:
    return node("ReduceL2", [HALVES, i64(1)], np.full((2, 1), 6400, np.float16), const=[1])


@case(21)
def the_pool_of_halves_whose_sum_is_none() -> Known:
    return node("GlobalAveragePool", [HALVES.reshape(1, 2, 64, 64)], np.full((1, 2, 1, 1), 100, np.float16))


@case(21)
def the_variance_of_halves_that_is_none() -> Known:
    x = np.tile(np.array([300, -300], np.float16), (2, 32))
    ones, zeros = np.ones(64, np.float16), np.zeros(64, np.float16)
    return node("LayerNormalization", [x, ones, zeros], np.sign(x), const=[1, 2])


@case(21)
def the_product_of_halves_that_comes_back() -> Known:
    x, w = np.full((1, 64), 200, np.float16), np.array([200] * 32 + [-200] * 32, np.float16).reshape(64, 1)
    return node("MatMul", [x, w], np.zeros((1, 1), np.float16), const=[1])


# -- quantized ----------------------------------------------------------------------------------------
QDQ = """g (float[n] x, float[n] z) => (int8[n] y) {
    s = Constant<value_float = SCALE>()  q = Constant<value = int8 {0}>()
    xq = QuantizeLinear(x, s, q)  xd = DequantizeLinear(xq, s, q)
    zq = QuantizeLinear(z, s, q)  zd = DequantizeLinear(zq, s, q)
    t = Add(xd, zd)  y = QuantizeLinear(t, s, q)
}"""


def _quantized(x: Array, scale: float) -> Array:
    return np.clip(np.rint(x / np.float32(scale)), -128, 127).astype(np.int8)


@case(23)
def a_quantized_sum_is_rounded_as_if_it_were_none() -> Known:
    """Every sum of two bytes, at a scale that float32 does not hold."""
    steps, scale = np.arange(-128, 128, 3, dtype=np.float32), np.float32(0.16)
    x, z = (a.ravel() * scale for a in np.meshgrid(steps, steps))
    a, b = (_quantized(v, 0.16).astype(np.float32) * scale for v in (x, z))
    return Known(text(QDQ.replace("SCALE", "0.16").replace("[n]", f"[{x.size}]")), {"x": x, "z": z},
                 {"y": _quantized(a + b, 0.16)})


@case(23)
def halves_are_rounded_to_even() -> Known:
    x = f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -127.5, 200)
    want = np.array([0, 2, 2, 0, -2, -2, 126, -128, 127], np.int8)
    return node("QuantizeLinear", [x, np.float32(1), np.int8(0)], want, const=[1, 2])


# -- control flow -------------------------------------------------------------------------------------
@case(25)
def a_body_reads_the_number_of_its_turn() -> Known:
    body = """g (float[1] x) => (float[1] y, int64[5,1] seen) {
        n = Constant<value = int64 {5}>()  c = Constant<value = bool {1}>()
        y, seen = Loop(n, c, x) <body = b (int64 i, bool k, float[1] a) => (bool k2, float[1] a2, int64[1] s) {
            k2 = Identity(k)  f = Cast<to = 1>(i)  a2 = Add(a, f)  one = Constant<value_ints = [1]>()
            s = Reshape(i, one) }>
    }"""
    return Known(text(body), {"x": f32(100)}, {"y": f32(110), "seen": i64([0], [1], [2], [3], [4])})


@case(26)
def what_turns_leave_is_stacked() -> Known:
    body = """g (float[2] x, float[2] outer) => (float[2] y, float[3,2] seen) {
        n = Constant<value = int64 {3}>()
        y, seen = Loop(n, , x) <body = b (int64 i, bool k, float[2] a) => (bool k2, float[2] a2, float[2] s) {
            k2 = Identity(k)  a2 = Add(a, outer)  s = Mul(a2, outer) }>
    }"""
    x, outer = f32(1, 2), f32(10, -1)
    return Known(text(body), {"x": x, "outer": outer},
                 {"y": x + 3 * outer, "seen": np.stack([(x + k * outer) * outer for k in (1, 2, 3)])})


@case(28)
def branches_read_the_names_around_them() -> Known:
    """A name that an inner branch makes anew is its own; the branch not taken may be anything."""
    body = """g (float[2] x) => (float[2] y) {
        yes = Constant<value = bool {1}>()  no = Constant<value = bool {0}>()
        y = If(yes) <
            then_branch = a () => (float[2] r) {
                r = If(no) <then_branch = c () => (float[2] p) { p = NoSuchOperator(x) },
                            else_branch = d () => (float[2] q) { t = Mul(w, w)  q = Add(t, x) }> },
            else_branch = b () => (float[2] s) { s = Neg(x) }>
    }"""
    return Known(text(body, w=f32(3, 4)), {"x": f32(1, 2)}, {"y": f32(10, 18)})


# -- shapes -------------------------------------------------------------------------------------------
@case(29)
def nothing_beside_something() -> Known:
    x, none = f32([1, 2, 3], [4, 5, 6]), np.zeros((0, 3), np.float32)
    return node("Concat", [none, x, none], x, axis=0)


@case(29)
def a_layer_of_no_rows() -> Known:
    w = np.ones((1030, 4), np.float32)
    return node("Gemm", [np.zeros((0, 1030), np.float32), w, np.ones(4, np.float32)], np.zeros((0, 4), np.float32),
                const=[1, 2])


@case(29)
def a_sum_of_no_terms() -> Known:
    bias = f32(1, 2)
    return node("Gemm", [np.zeros((3, 0), np.float32), np.zeros((0, 2), np.float32), bias], np.tile(bias, (3, 1)))


@case(30)
def a_scalar_is_no_vector() -> Known:
    body = """g (float x, float[1] v, float[0] n) => (float y, float[1] z, float[0] e, int64[0] sx, int64[1] sv,
                                                        int64[1] sn, float[1] r) {
        y = Neg(x)  z = Add(x, v)  e = Add(x, n)  sx = Shape(x)  sv = Shape(v)  sn = Shape(n)
        zero = Constant<value_ints = [0]>()  r = Unsqueeze(x, zero)
    }"""
    feeds = {"x": np.float32(3), "v": f32(4), "n": f32()}
    want = {"y": np.array(-3, np.float32), "z": f32(7), "e": f32(), "r": f32(3)}
    want |= {"sx": i64(), "sv": i64(1), "sn": i64(0)}
    return Known(text(body), {k: np.asarray(x) for k, x in feeds.items()}, want)


# -- names and ports ----------------------------------------------------------------------------------
@case(33)
def outputs_that_are_inputs_or_constants() -> Known:
    m = text("g (float[2] x) => (float[2] y, float[2] x, float[2] w) { y = Neg(x) }", w=f32(5, 6))
    return Known(m, {"x": f32(1, 2)}, {"y": f32(-1, -2), "x": f32(1, 2), "w": f32(5, 6)})


ODD_NAMES = ("a.b", "a_b", "a/b", "a:b", "a b", "1st", "int", "main", "_Bool", "x", "X", "run", "é", "a__b", "NULL",
             "%d", 'q"t', "back\\", "*/", "??/")


@case(34)
def names_that_are_none_in_c() -> Known:
    ports = {n: np.array([k], np.float32) for k, n in enumerate(ODD_NAMES)}
    nodes = [helper.make_node("Neg", [n], [f"{n}.out"], name=n) for n in ports]
    want = {f"{n}.out": -x for n, x in ports.items()}
    graph = helper.make_graph(nodes, "main", [_info(n, x) for n, x in ports.items()],
                              [_info(n, x) for n, x in want.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return Known(model, ports, want)


@case(36)
def names_of_five_thousand_letters() -> Known:
    names = [f"{'long/' * 1000}{k}" for k in range(3)]  # they differ in the last letter only
    nodes = [helper.make_node("Neg", [a], [b], name=a) for a, b in itertools.pairwise(names)]
    x = f32(1, 2)
    graph = helper.make_graph(nodes, "g", [_info(names[0], x)], [_info(n, x) for n in names[1:]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return Known(model, {names[0]: x}, {names[1]: -x, names[2]: x})


@case(36)
def more_names_than_c_must_know() -> Known:
    """C compilers need not know more than 4,095; every output has two functions and three macros."""
    n = 1030
    nodes = [helper.make_node("Split", ["x"], [f"y{k}" for k in range(n)], num_outputs=n)]
    x, want = np.arange(n, dtype=np.float32), {f"y{k}": f32(k) for k in range(n)}
    graph = helper.make_graph(nodes, "g", [_info("x", x)], [_info(k, y) for k, y in want.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return Known(model, {"x": x}, want)


@case(36)
def nodes_of_hundreds_of_operands() -> Known:
    """Expressions must not grow as deep as a node has operands."""
    n, x = 600, f32(1, -0.5)
    kinds = {"Sum": n * x, "Max": x, "Min": x, "Mean": x, "Concat": np.tile(x, n)}
    nodes = [helper.make_node(k, ["x"] * n, [k], **({"axis": 0} if k == "Concat" else {})) for k in kinds]
    graph = helper.make_graph(nodes, "g", [_info("x", x)], [_info(k, y) for k, y in kinds.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return Known(model, {"x": x}, kinds)


# -- opsets -------------------------------------------------------------------------------------------
def _softmax(opset: int, share: float) -> Known:
    x = np.zeros((2, 2, 2), np.float32)
    return node("Softmax", [x], np.full((2, 2, 2), share, np.float32), opset=opset, axis=1)


@case(38)
def softmax_of_old_flattens() -> Known:
    return _softmax(12, 0.25)


@case(38)
def softmax_of_now_does_not() -> Known:
    return _softmax(13, 0.5)


@case(38)
def sums_take_their_axes_as_attributes_of_old() -> Known:
    return node("ReduceSum", [TWELVE], TWELVE.sum(1, keepdims=True), opset=11, axes=[-1])


@case(38)
def a_bound_of_old_is_an_attribute() -> Known:
    return node("Clip", [f32(-2, 0, 2)], f32(-1, 0, 1.5), opset=6, min=-1.0, max=1.5)
