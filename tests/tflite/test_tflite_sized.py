"""Results whose size data decide, in TFLite: against what the operators mean, written in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from test_tflite_control import file
from tfl_files import Net, Scalar, byte, i32

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend import load_model
from monobloc.frontend.importing import Choices
from monobloc.ir.interp import interpret

F32, I32, I64 = np.float32, np.int32, np.int64
SEED = 61
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
Feeds = dict[str, np.ndarray]
Means = Callable[..., list[np.ndarray]]
Case = tuple[bytes, Sequence[Feeds], Means, dict[str, Sequence[int]]]


def open_(n: Net, name: str, signature: tuple[int, ...], dtype: Any = F32) -> int:
    """A tensor of whose sizes the file knows only some"""
    t = n.tensor(name, tuple(max(d, 1) for d in signature), dtype)
    n.tensors[t][7] = np.asarray(signature, np.int32)
    return t


def number(n: Net, v: Any, dtype: Any = I32) -> int:
    return n.const(f"c{len(n.tensors)}", np.array(v, dtype))


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32)


def places() -> Case:
    """What is positive: where, which numbers, their sum and exponentials"""
    n = Net()
    x, g, s = n.tensor("x", (3, 4), F32), n.tensor("g", (3, 4), np.bool_), n.tensor("s", (), F32)
    w, v, e = open_(n, "w", (-1, 2), I64), open_(n, "v", (-1,)), open_(n, "e", (-1,))
    n.op("GREATER", [x, number(n, 0, F32)], [g])
    n.op("WHERE", [g], [w])
    n.op("GATHER_ND", [x, w], [v])
    n.op("SUM", [v, number(n, [0])], [s], {0: Scalar("B", 0)})
    n.op("EXP", [v], [e])

    def means(x: np.ndarray) -> list[np.ndarray]:
        return [np.argwhere(x > 0), x[x > 0], x[x > 0].sum(), np.exp(x[x > 0])]

    return n.file([x], [w, v, s, e]), [{"x": f32(3, 4)}, {"x": -np.abs(f32(3, 4))}], means, {}


def distinct() -> Case:
    n = Net()
    x, i = n.tensor("x", (9,), I32), n.tensor("i", (9,), I32)
    u, m = open_(n, "u", (-1,), I32), open_(n, "m", (-1,), I32)
    n.op("UNIQUE", [x], [u, i], {0: byte(2)})
    n.op("MUL", [u, number(n, 2)], [m], {0: byte(0)})

    def means(x: np.ndarray) -> list[np.ndarray]:
        first = list(dict.fromkeys(x.tolist()))
        return [np.array(first, I32), np.array([first.index(v) for v in x], I32), np.array(first, I32) * 2]

    return n.file([x], [u, i, m]), [{"x": RNG.integers(0, k, 9).astype(I32)} for k in (1, 5)], means, {}


def counted() -> Case:
    n = Net()
    k, s = n.tensor("k", (), I32), n.tensor("s", (1,), I32)
    r, c, v, y = open_(n, "r", (-1,), I32), open_(n, "c", (-1,)), open_(n, "v", (-1,)), open_(n, "y", (-1,))
    n.op("RANGE", [number(n, 0), k, number(n, 1)], [r])
    n.op("CAST", [r], [c], {})
    n.op("SHAPE", [r], [s], {0: byte(2)})
    n.op("FILL", [s, number(n, 2.5, F32)], [v])
    n.op("SUB", [v, c], [y], {0: byte(1)})

    def means(k: np.ndarray) -> list[np.ndarray]:
        r = np.arange(int(k), dtype=I32)
        return [r, np.array(r.shape, I32), np.maximum(2.5 - r.astype(F32), 0).astype(F32)]

    return n.file([k], [r, s, y]), [{"k": np.array(v, I32)} for v in (0, 1, 5)], means, {"k": (5,)}


def windows() -> Case:
    """A window of fixed size at a place that is data, one of a size that is, and one by begin and end"""
    n = Net()
    x, b, q = n.tensor("x", (4, 6), F32), n.tensor("b", (2,), I32), n.tensor("q", (2,), I32)
    y, d, z, t = n.tensor("y", (1, 2), F32), open_(n, "d", (-1, -1)), open_(n, "z", (-1, -1)), open_(n, "t", (-1,))
    n.op("SLICE", [x, b, number(n, [1, 2])], [y])
    n.op("SLICE", [x, b, q], [d])
    n.op("STRIDED_SLICE", [x, b, number(n, [9, -1]), number(n, [1, 2])], [z], {})
    n.op("STRIDED_SLICE", [x, b, q, number(n, [1, 1])], [t], {0: i32(0), 1: i32(2), 4: i32(1)})

    def means(x: np.ndarray, b: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
        (i, j), (h, w) = b, (left if s == -1 else s for left, s in zip(np.array(x.shape) - b, q, strict=True))
        return [x[i : i + 1, j : j + 2], x[i : i + h, j : j + w], x[i:9, j:-1:2], x[i, j:]]

    feeds = [{"x": f32(4, 6), "b": np.array(b, I32), "q": np.array(q, I32)} for b, q in (
        ((0, 0), (4, 6)), ((2, 3), (-1, 1)), ((3, 4), (1, -1)))]
    return n.file([x, b, q], [y, d, z, t]), feeds, means, {}


def repeated() -> Case:
    n = Net()
    x, m, p = n.tensor("x", (2, 3), F32), n.tensor("m", (2,), I32), n.tensor("p", (2, 2), I32)
    y, z, c = open_(n, "y", (-1, -1)), open_(n, "z", (-1, -1)), open_(n, "c", (-1, -1))
    a = open_(n, "a", (-1,))
    n.op("TILE", [x, m], [y])
    n.op("PAD", [x, p], [z], {})
    n.op("REDUCE_MAX", [z, number(n, [1])], [a], {0: Scalar("B", 0)})
    n.op("CONCATENATION", [y, y], [c], {0: i32(0)})

    def means(x: np.ndarray, m: np.ndarray, p: np.ndarray) -> list[np.ndarray]:
        y, z = np.tile(x, m), np.pad(x, p)
        return [y, z, z.max(1), np.concatenate([y, y])]

    feeds = [{"x": f32(2, 3), "m": np.array(m, I32), "p": np.array(p, I32)} for m, p in (
        ((1, 2), ((0, 1), (2, 0))), ((3, 1), ((1, 1), (0, 0))))]
    return n.file([x, m, p], [y, z, a, c]), feeds, means, {"m": (3,), "p": (2,)}


def dense() -> Case:
    """The first rows through a product and Softmax, and their mean"""
    n, weights, bias = Net(), f32(3, 4), f32(3)
    x, k, b = n.tensor("x", (5, 4), F32), n.tensor("k", (), I32), n.tensor("b", (2,), I32)
    rows, h, y, m = open_(n, "rows", (-1, 4)), open_(n, "h", (-1, 3)), open_(n, "y", (-1, 3)), n.tensor("m", (3,), F32)
    t = open_(n, "t", (3, -1))
    n.op("PACK", [k, number(n, -1)], [b], {0: i32(2), 1: i32(0)})
    n.op("SLICE", [x, number(n, [0, 0]), b], [rows])
    n.op("FULLY_CONNECTED", [rows, n.const("weights", weights), n.const("bias", bias)], [h], {0: byte(1)})
    n.op("SOFTMAX", [h], [y], {0: Scalar("f", 1.0)})
    n.op("MEAN", [y, number(n, [0])], [m], {0: Scalar("B", 0)})
    n.op("TRANSPOSE", [y, number(n, [1, 0])], [t])

    def means(x: np.ndarray, k: np.ndarray) -> list[np.ndarray]:
        e = np.exp(np.maximum(x[: int(k)] @ weights.T + bias, 0))
        y = e / e.sum(1, keepdims=True)
        return [y, y.mean(0), y.T]

    return n.file([x, k], [y, m, t]), [{"x": f32(5, 4), "k": np.array(v, I32)} for v in (1, 5, 3)], means, {}


CASES: list[Callable[[], Case]] = [places, distinct, counted, windows, repeated, dense]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_sizes_are_those_of_the_run(case: Callable[[], Case]) -> None:
    data, feeds, means, most = case()
    g = load_model(data, Choices(max_values=most)).graph
    m = monobloc.compile(data, lto="none", max_value=most)
    for f in feeds:
        right = means(**f)
        for got in (interpret(g, f), m.run(f)):
            for (name, _), y in zip(g.outputs, right, strict=True):
                assert (got[name].shape, got[name].dtype) == (y.shape, y.dtype), (name, f)
                np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5)


def test_a_window_that_leaves_its_tensor_is_an_error() -> None:
    """ONNX's Slice would take less."""
    data, (f, *_), _, _ = windows()
    g = load_model(data).graph
    for b, q in (((3, 5), (1, 1)), ((0, 0), (5, 1)), ((-1, 0), (1, 1))):
        with pytest.raises(MonoblocError):
            interpret(g, {**f, "b": np.array(b, I32), "q": np.array(q, I32)})


def test_what_has_no_bound_and_what_is_not_read_are_told() -> None:
    with pytest.raises(MonoblocError, match="--max-value k=N"):
        load_model(counted()[0])
    n = Net()
    x, w, y = n.tensor("x", (4,), np.bool_), open_(n, "w", (-1, 1), I64), open_(n, "y", (-1, 1), I64)
    n.op("WHERE", [x], [w])
    n.op("REVERSE_V2", [w, number(n, [0])], [y])
    with pytest.raises(MonoblocError, match=r"REVERSE_V2 of i64\[<=4,1\].*not supported"):
        load_model(n.file([x], [y]))


def test_a_branch_that_gives_such_a_size_is_told() -> None:
    """Not left out of the model's outputs, as if somebody had told"""
    n = Net()
    c, x, y = n.tensor("c", (), np.bool_), n.tensor("x", (4,), np.bool_), open_(n, "y", (-1, 1), I64)
    n.op("IF", [c, x], [y], {0: i32(1), 1: i32(1)})
    a = n.beside()
    p, q = a.tensor("p", (4,), np.bool_), open_(a, "q", (-1, 1), I64)
    a.op("WHERE", [p], [q])
    with pytest.raises(MonoblocError, match="IF 'y': graph 1 gives tensor 'q', whose size data decide"):
        load_model(file(n, ([c, x], [y]), a.graph([p], [q])))


@pytest.mark.parametrize("to", [np.uint16, np.uint32, np.float64])
def test_such_tensors_become_all_types(to: type) -> None:
    n = Net()
    k, r, y = n.tensor("k", (), I32), open_(n, "r", (-1,), I32), open_(n, "y", (-1,), to)
    n.op("RANGE", [number(n, 0), k, number(n, 1)], [r])
    n.op("CAST", [r], [y], {})
    (got,) = interpret(load_model(n.file([k], [y]), Choices(max_values={"k": (5,)})).graph, {"k": np.int32(3)}).values()
    assert got.dtype == to and got.tolist() == [0, 1, 2]


def test_a_beta_is_told() -> None:
    n = Net()
    k, r, c, y = n.tensor("k", (), I32), open_(n, "r", (-1,), I32), open_(n, "c", (-1,)), open_(n, "y", (-1,))
    n.op("RANGE", [number(n, 0), k, number(n, 1)], [r])
    n.op("CAST", [r], [c], {})
    n.op("SOFTMAX", [c], [y], {0: Scalar("f", 0.5)})
    with pytest.raises(MonoblocError, match=r"SOFTMAX with the beta 0.5 of f32\[<=5\], whose size data decide, is not"):
        load_model(n.file([k], [y]), Choices(max_values={"k": (5,)}))


def test_what_is_told_of_nothing_is_an_error() -> None:
    n = Net()
    k, y = n.tensor("k", (), I32), open_(n, "y", (-1,), I32)
    n.op("RANGE", [number(n, 0), k, number(n, 1)], [y])
    with pytest.raises(MonoblocError, match="no value 'kk'.*\n.*there are: k, "):
        load_model(n.file([k], [y]), Choices(max_values={"k": (5,), "kk": (5,)}))
