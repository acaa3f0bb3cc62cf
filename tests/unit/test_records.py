"""Our dataclasses do what the standard library's do."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from monobloc import records


def make(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """The same classes, by one of the two decorators."""

    @dataclass(frozen=True)
    class Point:
        x: int
        y: float = 0.5
        tags: tuple[str, ...] = ()
        kind: ClassVar[str] = "point"

    @dataclass(frozen=True)
    class Named(Point):
        name: str = ""
        seen: list[int] = field(default_factory=list, compare=False, repr=False)

    @dataclass
    class Counter:
        """Counts"""

        count: int = 0
        all: list[int] = field(default_factory=list)
        double: int = field(init=False, default=0)
        made: dict[str, int] = field(init=False, default_factory=dict)

        def __post_init__(self) -> None:
            self.double = 2 * self.count

    @dataclass(frozen=True, eq=False)
    class Apart:
        x: int

    @dataclass(frozen=True)
    class One:
        x: float

    @dataclass(frozen=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.x % 2 == other.x % 2

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True)
    class Keyed:
        x: int

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass
    class Loop:
        me: Any = None

    found = locals()
    return {k: v for k, v in found.items() if isinstance(v, type)}


OURS, THEIRS = make(records._record), make(dataclasses.dataclass)
BOTH = pytest.mark.parametrize("made", [OURS, THEIRS], ids=["ours", "theirs"])


@BOTH
def test_instances(made: dict[str, Any]) -> None:
    Point, Named, Counter = made["Point"], made["Named"], made["Counter"]
    assert repr(Point(1, tags=("a",))).endswith("Point(x=1, y=0.5, tags=('a',))")
    assert repr(Named(1, name="n")).endswith("Named(x=1, y=0.5, tags=(), name='n')")
    a, b = Counter(3), Counter(3)
    assert a == b and a.double == 6 and a.all is not b.all and a.made is not b.made
    assert Counter(1, [2]).all == [2] and Counter(all=[4]).count == 0
    loop = made["Loop"]()
    loop.me = loop
    assert repr(loop).endswith("Loop(me=...)")


@BOTH
def test_wrong_calls(made: dict[str, Any]) -> None:
    for args, kwargs in (((), {}), ((1, 2, 3, 4), {}), ((1,), {"z": 3}), ((1,), {"x": 3})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            made["Point"](*args, **kwargs)
    with pytest.raises(TypeError):
        made["Counter"](double=3)


@BOTH
def test_equality_and_hashes(made: dict[str, Any]) -> None:
    Point, Named, Apart, One, Own = (made[k] for k in ("Point", "Named", "Apart", "One", "Own"))
    assert Point(1) == Point(1) and Point(1) != Point(2) and Point(1) != Named(1) and Point(1) != (1, 0.5, ())
    assert len({Point(1), Point(1), Point(2)}) == 2
    assert Named(1, seen=[1]) == Named(1, seen=[2]) and hash(Named(1, seen=[1])) == hash(Named(1))
    assert Apart(1) != Apart(1) and len({Apart(1), Apart(1)}) == 2
    nan = float("nan")
    assert One(nan) == One(nan) and hash(One(1.0)) == hash((1.0,)), "compared as tuples are"
    assert Own(1) == Own(3) and repr(Own(1)) == "own" and hash(Own(1)) == hash((1,))
    assert hash(made["Keyed"](1)) == 7 and made["Empty"]() == made["Empty"]() and hash(made["Empty"]()) == hash(())
    with pytest.raises(TypeError, match="unhashable"):
        hash(made["Counter"]())


@BOTH
def test_frozen(made: dict[str, Any]) -> None:
    p = made["Named"](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        p.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del p.x
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.other = 2
    assert p.x == 1


@BOTH
def test_the_librarys_functions(made: dict[str, Any]) -> None:
    Point, Named = made["Point"], made["Named"]
    p = dataclasses.replace(Named(1, name="n"), y=2.0)
    assert (p.x, p.y, p.name) == (1, 2.0, "n") and type(p) is Named
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 0.5, "tags": ()}
    assert dataclasses.astuple(Point(1)) == (1, 0.5, ())
    assert [f.name for f in dataclasses.fields(Named)] == ["x", "y", "tags", "name", "seen"]
    match Point(5, 6.0):
        case Point(x, y):
            assert (x, y) == (5, 6.0)


@records.dataclass(frozen=True)
class Kept:
    x: int
    y: str = ""


def test_pickled_before_any_was_made() -> None:
    data = pickle.dumps(Kept(1, "a"))
    assert pickle.loads(data) == Kept(1, "a") and repr(pickle.loads(data)) == "Kept(x=1, y='a')"
