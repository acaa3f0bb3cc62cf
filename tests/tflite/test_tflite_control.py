"""IF and WHILE of TFLite files: subgraphs that data choose or repeat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tfl_ask import asked
from tfl_files import OPERATORS, Net, Scalar, Writer, byte, i32

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend import load_model
from monobloc.frontend.importing import Choices
from monobloc.ir.interp import interpret

F32 = np.float32
W = np.float32([[2, 0, 1], [0, 1, 0], [1, 1, 1]])


def file(main: Net, ends: tuple[list[int], list[int]], *others: dict[int, Any]) -> bytes:
    codes = [{0: byte(min(OPERATORS.index(c), 127)), 3: i32(OPERATORS.index(c))} for c in main.codes]
    return Writer().file({0: Scalar("I", 3), 1: codes, 2: [main.graph(*ends), *others], 4: main.buffers})


def choice(wrong: bool = False) -> bytes:
    """c ? x W + 1 : -x"""
    n = Net()
    c, x, y = n.tensor("c", (), np.bool_), n.tensor("x", (1, 3), F32), n.tensor("y", (1, 3), F32)
    n.op("IF", [c, x], [y], {0: i32(1), 1: i32(2)})
    a = n.beside()
    p, q, r = (a.tensor(t, (1, 3), F32) for t in "pqr")
    a.op("FULLY_CONNECTED", [p, a.const("w", W), -1], [q], {})
    a.op("ADD", [q, a.const("one", np.ones((1, 3), F32))], [r], {0: byte(0)})
    b = n.beside()
    s, t = b.tensor("s", (1, 3), F32), b.tensor("t", (1, 6) if wrong else (1, 3), F32)
    if wrong:
        b.op("CONCATENATION", [s, s], [t], {0: i32(1)})
    else:
        b.op("NEG", [s], [t], {})
    return file(n, ([c, x], [y]), a.graph([p], [r]), b.graph([s], [t]))


def repetition() -> bytes:
    """while (k < n) { x = x W; k = k + 1 }; W goes round the loop as it is"""
    n = Net()
    k0 = n.const("k0", np.int32(0).reshape(()))
    end, x, k, y, w2, e2 = (n.tensor(t, s, d) for t, s, d in (
        ("end", (), np.int32), ("x", (1, 3), F32), ("k", (), np.int32), ("y", (1, 3), F32), ("w2", (3, 3), F32),
        ("e2", (), np.int32)))
    n.op("WHILE", [k0, x, n.const("w", W), end], [k, y, w2, e2], {0: i32(1), 1: i32(2)})
    c, b = n.beside(), n.beside()
    ports = (("i", (), np.int32), ("v", (1, 3), F32), ("m", (3, 3), F32), ("e", (), np.int32))
    i, v, m, e = (c.tensor(*p) for p in ports)
    less = c.tensor("less", (), np.bool_)
    c.op("LESS", [i, e], [less], {})
    j, u, m2, e3 = (b.tensor(*p) for p in ports)
    j2, u2 = b.tensor("j2", (), np.int32), b.tensor("u2", (1, 3), F32)
    b.op("ADD", [j, b.const("step", np.int32(1).reshape(()))], [j2], {0: byte(0)})
    b.op("FULLY_CONNECTED", [u, m2, -1], [u2], {})
    return file(n, ([end, x], [y, k]), c.graph([i, v, m, e], [less]), b.graph([j, u, m2, e3], [j2, u2, m2, e3]))


def test_a_choice() -> None:
    m = monobloc.compile(choice(), lto="none")
    x = np.float32([[1, -2, 3]])
    np.testing.assert_allclose(m.run({"c": np.array(True), "x": x})["y"], x @ W.T + 1)
    assert m.run({"c": np.array(False), "x": x})["y"].tobytes() == (-x).tobytes()


def test_a_constant_condition_leaves_one_branch() -> None:
    g = load_model(choice(), Choices(bind={"c": np.array(False)})).graph
    assert [n.op for n in g.nodes] == ["Neg"]


def test_a_repetition() -> None:
    m = monobloc.compile(repetition(), lto="none")
    x = np.float32([[1, -2, 3]])
    for times in (0, 1, 2, 5, -1):
        want = x
        for _ in range(max(times, 0)):
            want = want @ W.T
        got = m.run({"end": np.int32(times).reshape(()), "x": x})
        np.testing.assert_allclose(got["y"], want)
        assert got["k"] == max(times, 0)


def test_what_goes_round_as_it_is_stays_a_constant() -> None:
    (loop,) = (n for n in load_model(repetition()).graph.nodes if n.op == "Loop")
    assert loop.attrs["carried"] == 2 and [n.op for n in loop.attrs["do"].nodes].count("MatMul") == 1
    assert any(v.const is not None and v.shape == (3, 3) for v in loop.attrs["do"].constants())


def test_branches_of_two_types_are_refused() -> None:
    with pytest.raises(MonoblocError, match=r"choice between f32\[1,3\] and f32\[1,6\]"):
        load_model(choice(wrong=True))


def test_a_graph_that_calls_itself_is_refused() -> None:
    n = Net()
    c, x, y = n.tensor("c", (), np.bool_), n.tensor("x", (1, 3), F32), n.tensor("y", (1, 3), F32)
    n.op("IF", [c, x], [y], {0: i32(1), 1: i32(1)})
    a = n.beside()
    d, p, q = a.const("yes", np.array(True)), a.tensor("p", (1, 3), F32), a.tensor("q", (1, 3), F32)
    a.op("IF", [d, p], [q], {0: i32(1), 1: i32(1)})
    with pytest.raises(MonoblocError, match="more than 20 deep"):
        load_model(file(n, ([c, x], [y]), a.graph([p], [q])))


def test_a_branch_that_makes_no_output_is_an_error() -> None:
    n = Net()
    c, x, y = n.tensor("c", (), np.bool_), n.tensor("x", (1, 3), F32), n.tensor("y", (1, 3), F32)
    n.op("IF", [c, x], [y], {0: i32(1), 1: i32(1)})
    a = n.beside()
    p, q = a.tensor("p", (1, 3), F32), a.tensor("q", (1, 3), F32)
    with pytest.raises(MonoblocError, match="IF 'y': graph 1 gives tensor 'q', which nothing makes"):
        load_model(file(n, ([c, x], [y]), a.graph([p], [q])))


def composite(inner: str = "FULLY_CONNECTED") -> bytes:
    """Two composites of one graph, x W + 1 each, one behind the other"""
    n = Net()
    x, y, z = (n.tensor(t, (1, 3), F32) for t in "xyz")
    about = np.frombuffer(flexbuffers.Dumps({}), np.uint8)
    for a, b in ((x, y), (y, z)):
        n.op("STABLEHLO_COMPOSITE", [a], [b], {0: "odml.some", 1: i32(1), 2: about})
    a = n.beside()
    p, q, r = (a.tensor(t, (1, 3), F32) for t in "pqr")
    a.op(inner, [p, a.const("w", W), -1], [q], {})
    a.op("ADD", [q, a.const("one", np.ones((1, 3), F32))], [r], {0: byte(0)})
    return file(n, ([x], [z]), a.graph([p], [r]))


def test_composites_are_their_graphs() -> None:
    x = np.float32([[1, -2, 3]])
    got = monobloc.compile(composite())(x)
    np.testing.assert_allclose(got, (x @ W.T + 1) @ W.T + 1, rtol=1e-6)
    g = load_model(composite()).graph
    assert [m.op for m in g.nodes].count("MatMul") == 2
    with pytest.raises(MonoblocError, match="1 operator is not supported: LSH_PROJECTION"):
        load_model(composite("LSH_PROJECTION"))


def cases() -> bytes:
    """-x, x + 1 or x W, by a number"""
    n = Net()
    k, x, y = n.tensor("k", (1,), np.int32), n.tensor("x", (1, 3), F32), n.tensor("y", (1, 3), F32)
    n.op("STABLEHLO_CASE", [k, x], [y], {0: np.array([1, 2, 3], np.int32)})
    graphs = []
    for op, more in (("NEG", None), ("ADD", np.ones((1, 3), F32)), ("FULLY_CONNECTED", W)):
        g = n.beside()
        p, q = g.tensor("p", (1, 3), F32), g.tensor("q", (1, 3), F32)
        g.op(op, [p] if more is None else [p, g.const("c", more)], [q], {} if op == "FULLY_CONNECTED" else None)
        graphs.append(g.graph([p], [q]))
    return n.file([k, x], [y], others=graphs)


def test_a_choice_of_many_takes_the_last_for_a_number_that_none_has() -> None:
    x = np.float32([[1, -2, 3]])
    want = {0: -x, 1: x + 1, 2: x @ W.T, 3: x @ W.T, -1: x @ W.T}
    m = monobloc.compile(cases(), lto="none")
    for k, y in want.items():
        np.testing.assert_allclose(m.run({"k": np.array([k], np.int32), "x": x})["y"], y, rtol=1e-6)
        g = load_model(cases(), Choices(bind={"k": np.array([k], np.int32)})).graph
        assert "If" not in [n.op for n in g.nodes]
        np.testing.assert_allclose(interpret(g, {"x": x})["y"], y, rtol=1e-6)


def test_a_choice_of_many_as_litert_takes_it() -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    x, ks = np.float32([[1, -2, 3]]), [0, 1, 2, 3, -1]
    feeds = [{"k": np.array([k], np.int32), "x": x} for k in ks]
    for feed, want in zip(feeds, asked([(cases(), f) for f in feeds]), strict=True):
        assert not isinstance(want, str), want
        got = interpret(load_model(cases()).graph, feed)["y"]
        np.testing.assert_allclose(got, want[0], rtol=1e-6)
