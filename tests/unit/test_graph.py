"""The graph's own invariants: names, links in both directions, order; and that the verifier sees breaches."""

from __future__ import annotations

import numpy as np
import pytest

from monobloc.errors import InternalError
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ir.verify import verify

T = TensorType(DType.F32, (2, 3))


def chain(*ops: str) -> tuple[Graph, list[Value]]:
    g = Graph("g")
    values = [g.add_input("x", T)]
    for op in ops:
        values += g.make(op, [values[-1]], [T]).outputs
    g.outputs = [("y", values[-1])]
    return g, values


def test_names_are_unique() -> None:
    g = Graph("g")
    names = [g.value(n, T).name for n in ("a", "a", "a.1", "a", "b")]
    assert len(set(names)) == len(names) and names[0] == "a"
    nodes = [g.make("Relu", [g.add_input("a", T)], [T], name="n").name for _ in range(3)]
    assert len(set(nodes)) == 3 and nodes[0] == "n"


def test_equal_data_have_equal_keys_whatever_their_shape() -> None:
    g = Graph("g")
    a, b = g.constant("a", np.arange(6.0)), g.constant("b", np.arange(6.0).reshape(2, 3))
    c = g.constant("c", np.arange(6.0)[::-1])
    assert a.const and b.const and c.const
    assert a.const.key == b.const.key != c.const.key
    assert c.const.key == g.constant("d", np.arange(6.0)[::-1].copy()).const.key  # type: ignore[union-attr]


def test_replace_moves_users_and_outputs() -> None:
    g, (x, a, b) = chain("Relu", "Tanh")
    other = g.make("Abs", [x], [T], before=a.producer).outputs[0]
    g.make("Add", [a, a], [T])
    g.replace(a, other)
    assert not a.users and len(other.users) == 3
    g.replace(b, x)
    assert g.outputs == [("y", x)]
    verify(g)


def test_remove_refuses_what_is_used() -> None:
    g, (x, a, b) = chain("Relu", "Tanh")
    for v in (a, b):
        with pytest.raises(AssertionError, match="still used"):
            g.remove(v.producer)  # type: ignore[arg-type]
    g.outputs = [("y", x)]
    g.remove(b.producer)  # type: ignore[arg-type]
    g.remove(a.producer)  # type: ignore[arg-type]
    assert not g.nodes and not x.users
    verify(g)


def test_sort_restores_order_and_keeps_it() -> None:
    g, _ = chain("Relu", "Tanh", "Abs", "Neg")
    before = list(g.nodes)
    g.sort()
    assert g.nodes == before
    g.nodes = [before[k] for k in (2, 0, 3, 1)]
    g.sort()
    assert g.nodes == before


def test_uses_counts_leaving_the_graph() -> None:
    g, (x, a) = chain("Relu")
    g.outputs.append(("again", a))
    g.make("Mul", [a, a], [T])
    assert (g.uses(a), g.uses(x), len(a.users)) == (4, 1, 2)


def test_names_go_to_replacements() -> None:
    g, (x, a) = chain("Relu")
    old = a.producer
    assert old is not None
    g.release([old])
    new = g.make("Abs", [x], [T], name=old.name, out_names=[a.name])
    assert (new.name, new.outputs[0].name) == (old.name, a.name)


def broken_order(g: Graph, values: list[Value]) -> None:
    g.nodes.reverse()


def broken_users(g: Graph, values: list[Value]) -> None:
    values[0].users.clear()


def broken_producer(g: Graph, values: list[Value]) -> None:
    values[1].producer = values[2].producer


def broken_type(g: Graph, values: list[Value]) -> None:
    values[1].type = TensorType(DType.F32, (3, 2))


def broken_output(g: Graph, values: list[Value]) -> None:
    g.outputs.append(("z", Value("nowhere", T)))


def defined_twice(g: Graph, values: list[Value]) -> None:
    g.nodes.append(g.nodes[-1])


@pytest.mark.parametrize(
    "breach", [broken_order, broken_users, broken_producer, broken_type, broken_output, defined_twice]
)
def test_verifier_sees(breach: object) -> None:
    g, values = chain("Relu", "Tanh")
    verify(g)
    breach(g, values)  # type: ignore[operator]
    with pytest.raises(InternalError):
        verify(g)
