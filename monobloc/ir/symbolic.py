"""Sizes that are known when a run begins: polynomials of the run's dimensions that stand for integers.

Problem: the compiler's every decision rests on shapes, and none of its code should have to know that one
may be open. Idea: a `Size` stands where an integer would. Arithmetic keeps the expression. A comparison is
decided where all points of the space agree; where they do not, it goes as it goes at the *hint*, one point
of the space, and the condition is kept as a *guard*: what is compiled then holds for the points that
satisfy all guards, and is compiled again, with another hint, for the others. Whoever takes a plain integer
of a Size (`range`, an index, numpy) makes the guard that it is just that. So code that knows nothing of
Sizes is right at once, at the price of versions; code that knows them asks `upper` or `guess`, which decide
nothing.

A Size prints as C: `(dim0*384)`, with `dim0`, `dim1` for the dimensions.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any, cast

import numpy as np

MAX_POINTS = 1 << 16


@dataclass(frozen=True)
class Quotient:
    """floor(above / below) of sizes that are not negative, which no polynomial is"""

    above: Terms
    below: Terms

    def __str__(self) -> str:
        return f"({_text(self.above)}/{_text(self.below)})"


Atom = str | Quotient
Monomial = tuple[Atom, ...]
Terms = tuple[tuple[Monomial, int], ...]


def _text(terms: Terms) -> str:
    """C of a polynomial, the highest terms first."""
    out = ""
    for mono, k in terms:
        word = "*".join([*map(str, mono), *([str(abs(k))] if abs(k) != 1 or not mono else [])])
        out += ("-" if k < 0 else "+" if out else "") + word
    return f"({out or '0'})"


def _sorted(terms: Mapping[Monomial, int]) -> Terms:
    return tuple(sorted(((m, k) for m, k in terms.items() if k), key=lambda x: (-len(x[0]), [str(a) for a in x[0]])))


class Space:
    """The points for which something is compiled: rows of sizes, one column for each symbol."""

    def __init__(self, symbols: Sequence[str], points: np.ndarray, hint: Sequence[int] = (),
                 fixed: Mapping[str, int] | None = None) -> None:
        assert 0 < len(points) <= MAX_POINTS
        self.symbols, self.points, self.fixed = tuple(symbols), points, dict(fixed or {})
        self.rows = np.arange(len(points))  # of those that are left, their places in what was given
        hint = hint or choose_hint(points)
        self.hint = dict(zip(symbols, map(int, hint), strict=True))
        self.guards: dict[tuple[Terms, str, bool], None] = {}
        self.boxes: dict[Terms, tuple[int, ...]] = {}  # sizes that the points were left with before any guard
        self._known: dict[tuple[Terms, str], bool] = {}

    def symbol(self, name: str) -> int:
        """A dimension, open or not."""
        return self.fixed[name] if name in self.fixed else cast(int, Size(self, (((name,), 1),)))

    @property
    def known(self) -> tuple[str, ...]:
        return (*self.symbols, *self.fixed)

    def values(self, terms: Terms) -> np.ndarray:
        """At every point."""
        columns = {s: self.points[:, k] for k, s in enumerate(self.symbols)}
        return np.broadcast_to(np.asarray(_evaluate(terms, columns)), (len(self.points),))

    def holds(self, terms: Terms, relation: str) -> bool:
        """Whether the polynomial is zero ("eq") or negative ("lt"): at all points, or at the hint under a guard."""
        if (terms, relation) not in self._known:
            at = self.values(terms)
            true = at == 0 if relation == "eq" else at < 0
            if not true.all() and true.any():
                value = int(_evaluate(terms, self.hint))
                outcome = value == 0 if relation == "eq" else value < 0
                self.guards[terms, relation, outcome] = None
                self.points, self.rows = self.points[true == outcome], self.rows[true == outcome]
                self._known[terms, relation] = outcome
            else:
                self._known[terms, relation] = bool(true[0])
        return self._known[terms, relation]

    def restrict(self, condition: str, names: Space | None = None) -> None:
        """Only where a guard holds that another space has met, as its text says it; `names`: who knows its symbols.

        It is kept where it holds at all of these points, too: a run asks it of others."""
        text, word, sizes = _RELATION.fullmatch(condition).groups()  # type: ignore[union-attr]
        terms = _as_written(ast.parse(text, mode="eval").body, names or self)
        at = self.values(terms)
        if word == "in":
            true = np.isin(at, _sizes_of(sizes))
            self.boxes |= {terms: _sizes_of(sizes)} if terms and terms[0][0] else {}
        else:
            relation, outcome = _WORDS[word]
            true = (at == 0 if relation == "eq" else at < 0) == outcome
            self.guards |= {(terms, relation, outcome): None} if terms and terms[0][0] else {}
        if not true.any():
            raise ValueError(f"no size satisfies {condition!r}")
        if not true.all():
            self.points, self.rows = self.points[true], self.rows[true]
            self.hint = dict(zip(self.symbols, choose_hint(self.points), strict=True))

    def bound(self, sizes: Mapping[str, Sequence[int]]) -> None:
        """Which of all sizes the points have: guards do not say what earlier versions have taken, and a text of the
        guards alone is read as wider."""
        for s, column in zip(self.symbols, self.points.T, strict=True):
            here = tuple(np.unique(column).tolist())
            if here != tuple(sizes[s]):
                self.boxes[(((s,), 1),)] = here

    @property
    def conditions(self) -> list[str]:
        """C of the guards."""
        word = {meant: w for w, meant in _WORDS.items()}
        return [f"{_text(t)} {word[r, outcome]} 0" for t, r, outcome in self.guards]

    @property
    def said(self) -> list[str]:
        """What `restrict` takes to leave another space the same points"""
        return [*(f"{_text(t)} in {_listed(sizes)}" for t, sizes in self.boxes.items()), *self.conditions]


_WORDS = {"==": ("eq", True), "!=": ("eq", False), "<": ("lt", True), ">=": ("lt", False)}
_RELATION = re.compile(r"(.*) (==|!=|<|>=|in) ([0-9.:,]+)")


def _listed(sizes: Sequence[int]) -> str:
    """Sizes in order, those of equal steps in short"""
    steps = {b - a for a, b in pairwise(sizes)}
    return f"{sizes[0]}..{sizes[-1]}:{steps.pop()}" if len(steps) == 1 else ",".join(map(str, sizes))


def _sizes_of(text: str) -> tuple[int, ...]:
    if ".." not in text:
        return tuple(map(int, text.split(",")))
    first, last, step = map(int, text.replace("..", ":").split(":"))
    found = range(first, last + 1, step)
    if len(found) > MAX_POINTS:
        raise ValueError(f"{text!r} are too many sizes")
    return tuple(found)


class Renamed(Space):
    """What the symbols of a graph are in another space, which its guards then restrict."""

    def __init__(self, space: Space, sizes: Mapping[str, int]) -> None:
        super().__init__((), np.zeros((1, 0), np.int64), fixed=sizes)
        self.of = space

    def restrict(self, condition: str, names: Space | None = None) -> None:
        self.of.restrict(condition, self)


def values_at(n: int, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
    """A size at `count` points, of which `columns` has the symbols' sizes."""
    return np.broadcast_to(np.asarray(_evaluate(n.terms, columns) if isinstance(n, Size) else n), (count,))


def conditions_at(space: Space, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
    """Where all guards of a space hold, at such points."""
    out = np.ones(count, bool)
    for terms, relation, outcome in space.guards:
        at = np.broadcast_to(np.asarray(_evaluate(terms, columns)), (count,))
        out &= (at == 0 if relation == "eq" else at < 0) == outcome
    for terms, sizes in space.boxes.items():
        out &= np.isin(_evaluate(terms, columns), sizes)
    return out


def _evaluate(terms: Terms, at: Mapping[str, Any]) -> Any:
    total: Any = 0
    for mono, k in terms:
        value: Any = k
        for a in mono:
            value = value * (at[a] if isinstance(a, str) else _evaluate(a.above, at) // _evaluate(a.below, at))
        total = total + value
    return total


def _make(space: Space, terms: Mapping[Monomial, int]) -> Any:
    kept = _sorted(terms)
    if any(isinstance(a, Quotient) for mono, _ in kept for a in mono):
        kept = _reduced(space, kept)
    if not kept:
        return 0
    return kept[0][1] if kept[0][0] == () else Size(space, kept)


class Size:
    """See the module's text. Made by `Space.symbol` and arithmetic; typed as `int` wherever it goes."""

    __slots__ = ("space", "terms")

    def __init__(self, space: Space, terms: Terms) -> None:
        self.space, self.terms = space, terms

    # -- arithmetic --
    def __add__(self, o: Any) -> Any:
        return o if _infinite(o) else self._with(o, lambda t: _sum(self.terms, t, 1), operator.add)

    __radd__ = __add__

    def __sub__(self, o: Any) -> Any:
        return -o if _infinite(o) else self._with(o, lambda t: _sum(self.terms, t, -1), operator.sub)

    def __rsub__(self, o: Any) -> Any:
        return o if _infinite(o) else self._with(o, lambda t: _sum(t, self.terms, -1), lambda a, b: b - a)

    def __mul__(self, o: Any) -> Any:
        if _infinite(o):
            return o if self > 0 else -o if self < 0 else float("nan")
        return self._with(o, lambda t: _product(self.terms, t), operator.mul)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return _make(self.space, {m: -k for m, k in self.terms})

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def _with(
        self, o: Any, f: Callable[[Terms], Mapping[Monomial, int]], plain: Callable[[Any, Any], Any]
    ) -> Any:
        t = self._other(o)
        if t is not None:
            return _make(self.space, f(t))
        return plain(int(self), o) if isinstance(o, (float, np.floating)) else NotImplemented

    def _other(self, o: Any) -> Terms | None:
        """Terms of an operand, which must be of one space with this."""
        assert not isinstance(o, Size) or o.space is self.space, f"{self} and {o} are of two spaces"
        return _terms(o)

    def __floordiv__(self, o: Any) -> Any:
        t = self._other(o)
        return int(self) // o if t is None else _divide(self.space, self.terms, t)

    def __rfloordiv__(self, o: Any) -> Any:
        if _infinite(o):
            return o if self > 0 else -o
        t = self._other(o)
        return o // int(self) if t is None else _divide(self.space, t, self.terms)

    def __mod__(self, o: Any) -> Any:
        return self - (self // o) * o

    def __rmod__(self, o: Any) -> Any:
        return o - (o // self) * self

    def __divmod__(self, o: Any) -> Any:
        q = self // o
        return q, self - q * o

    def __rdivmod__(self, o: Any) -> Any:
        q = o // self
        return q, o - q * self

    # -- questions --
    def __eq__(self, o: object) -> bool:
        return self._ask(o, "eq", False)

    def __ne__(self, o: object) -> bool:
        return not self == o

    def __lt__(self, o: Any) -> bool:
        return self._ask(o, "lt", False)

    def __gt__(self, o: Any) -> bool:
        return self._ask(o, "lt", True)

    def __le__(self, o: Any) -> bool:
        return not self > o

    def __ge__(self, o: Any) -> bool:
        return not self < o

    def _ask(self, o: Any, relation: str, swapped: bool) -> bool:
        t = self._other(o)
        if t is None:
            return _beside(self, o, relation, swapped)
        return self.space.holds(_sorted(_sum(t, self.terms, -1) if swapped else _sum(self.terms, t, -1)), relation)

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return hash(self.terms)

    # -- an integer after all --
    def __index__(self) -> int:
        value = int(_evaluate(self.terms, self.space.hint))
        assert self == value
        return value

    __int__ = __trunc__ = __floor__ = __ceil__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __round__(self, digits: int | None = None) -> int:
        return int(self)

    def __truediv__(self, o: Any) -> Any:
        return int(self) / o

    def __rtruediv__(self, o: Any) -> Any:
        return o / int(self)

    def __pow__(self, o: Any) -> Any:
        return self * self if o == 2 else int(self) ** o

    def __rpow__(self, o: Any) -> Any:
        return o ** int(self)

    def __getattr__(self, name: str) -> Any:
        """Whatever else an integer can do it does as one."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(int(self), name)

    # -- text --
    def __str__(self) -> str:
        return _text(self.terms)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self) if not spec else format(int(self), spec)


def _infinite(x: Any) -> bool:
    return isinstance(x, (float, np.floating)) and bool(np.isinf(x))


def _terms(x: Any) -> Terms | None:
    if isinstance(x, Size):
        return x.terms
    if isinstance(x, (int, np.integer)):
        return (((), int(x)),) if x else ()
    if isinstance(x, float) and x.is_integer():
        return _terms(int(x))
    return None


def _beside(a: Size, o: Any, relation: str, swapped: bool) -> bool:
    """Compared with what is no integer: infinity, a fraction, or something else."""
    if not isinstance(o, (float, np.floating)):
        return False
    if np.isinf(o) or np.isnan(o):
        return relation == "lt" and bool(o < 0 if swapped else o > 0)
    value = float(a)
    return relation == "lt" and bool(o < value if swapped else value < o)


def _sum(a: Terms, b: Terms, k: int) -> dict[Monomial, int]:
    out = dict(a)
    for m, f in b:
        out[m] = out.get(m, 0) + k * f
    return out


def _product(a: Terms, b: Terms) -> dict[Monomial, int]:
    out: dict[Monomial, int] = {}
    for m, f in a:
        for n, g in b:
            mono = tuple(sorted((*m, *n), key=str))
            out[mono] = out.get(mono, 0) + f * g
    return out


def _divide(space: Space, a: Terms, b: Terms) -> Any:
    """floor(a / b), as a polynomial where it is one."""
    if not b:
        raise ZeroDivisionError("division of a size by zero")
    if len(b) == 1:
        (mono, k), = b
        whole = {_without(m, mono): f // k for m, f in a if f % k == 0 and _without(m, mono) is not None}
        rest = _sorted({m: f for m, f in a if f % k or _without(m, mono) is None})
        if not rest:
            return _make(space, cast(dict[Monomial, int], whole))
        if not mono and k > 0:
            low = _sorted({m: f % k for m, f in rest})  # coefficients that are not negative
            high = {m: f // k for m, f in rest}
            q = _make(space, _sum(_sorted(cast(dict[Monomial, int], whole)), _sorted(high), 1))
            return q + _quotient(space, low, b)
    if a == b:
        return 1
    return _quotient(space, a, b)


def _quotient(space: Space, a: Terms, b: Terms) -> Any:
    if not a:
        return 0
    above, below = _make(space, dict(a)), _make(space, dict(b))
    if above >= 0 and below > 0:
        if above < below:
            return 0
        return Size(space, (((_plain(space, a, b),), 1),))
    return int(above) // int(below)


def _reduced(space: Space, terms: Terms) -> Terms:
    """With factors taken out of exact quotients: of 4*(n/8), where 8 divides n at all points, is left (n/2)."""
    out: Terms = ()
    for mono, k in terms:
        term: Terms = ((mono, k),)
        for q in mono:
            c = q.below[0][1] if isinstance(q, Quotient) and len(q.below) == 1 and not q.below[0][0] else 1
            if isinstance(q, Quotient) and (g := gcd(c, k)) > 1 and not (space.values(q.above) % c).any():
                whole = q.above if c == g else (((Quotient(q.above, (((), c // g),)),), 1),)
                term = _sorted(_product(whole, (((_without(mono, (q,)) or ()), k // g),)))
                break
        out = _sorted(_sum(out, term, 1))
    return out


def _plain(space: Space, a: Terms, b: Terms) -> Quotient:
    """a / b in one way of many: with no more above than divides where that is the same at all points, and a quotient
    of a quotient as one."""
    rest = space.values(a) % space.values(b)
    if (rest == rest[0]).all():
        a = _sorted(_sum(a, (((), int(rest[0])),), -1))
    if len(a) == 1 and a[0][1] == 1 and len(a[0][0]) == 1 and isinstance(inner := a[0][0][0], Quotient):
        return Quotient(inner.above, _sorted(_product(inner.below, b)))
    return Quotient(a, b)


def _without(m: Monomial, divisor: Monomial) -> Monomial | None:
    """m / divisor"""
    out = list(m)
    for a in divisor:
        if a not in out:
            return None
        out.remove(a)
    return tuple(out)


# -- for code that knows them ---------------------------------------------------------------------------
def is_open(n: int) -> bool:
    """Whether a size is known only when a run begins."""
    return isinstance(n, Size)


def upper(n: int) -> int:
    """The largest value that a size takes in its space."""
    return int(n.space.values(n.terms).max()) if isinstance(n, Size) else n


def closed(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that is large enough for any."""
    return tuple(map(upper, shape))


def lower(n: int) -> int:
    """The smallest value that a size takes in its space."""
    return int(n.space.values(n.terms).min()) if isinstance(n, Size) else n


def surely_less(a: float, b: float) -> bool:
    """Whether a < b at all points; makes no guard."""
    for n in (a, b):
        if isinstance(n, Size) and not any(map(_infinite, (a, b))):
            return bool((n.space.values(_sorted(_sum(_terms(a) or (), _terms(b) or (), -1))) < 0).all())
    return bool(a < b)


def least(a: float, b: float) -> float:
    """A lower bound of both, the smaller one where that is known."""
    return a if surely_less(a, b + 1) else b if surely_less(b, a + 1) else min(lower(a), lower(b))  # type: ignore[arg-type]


def largest(a: float, b: float) -> float:
    """An upper bound of both, the larger one where that is known."""
    return a if surely_less(b, a + 1) else b if surely_less(a, b + 1) else max(upper(a), upper(b))  # type: ignore[arg-type]


def exact_rest(f: int, k: int) -> int:
    """0 where f is k times a polynomial, else something that is not: nothing is decided."""
    a, b = _terms(f) or (), _terms(k) or ()
    if len(b) != 1 or not a:
        return 0 if a == b or not a else 1
    (mono, c), = b
    return 0 if all(n % c == 0 and _without(m, mono) is not None for m, n in a) else 1


def factor(a: int, b: int) -> int:
    """The k with which a == k * b at all points, 0 where there is none; nothing is decided."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return a // b if b and a % b == 0 else 0
    space = a.space if isinstance(a, Size) else cast(Size, b).space
    above, below = (space.values(_terms(x) or ()) for x in (a, b))
    k = int(above[0] // max(below[0], 1))
    return k if (above == k * below).all() else 0


def same_number(a: Any, b: Any) -> bool:
    """Equal as literals: 0.0 and -0.0, 1 and True are not; sizes only within one space."""
    if isinstance(a, Size) or isinstance(b, Size):
        return isinstance(a, Size) and isinstance(b, Size) and a.space is b.space and a.terms == b.terms
    return repr(a) == repr(b)


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Equal by what they say; makes no guard."""
    return len(a) == len(b) and all(map(same_number, a, b))


def guess(n: int) -> int:
    """A likely value, for decisions that are right for any."""
    return int(_evaluate(n.terms, n.space.hint)) if isinstance(n, Size) else n


def whole(n: Any) -> int:
    """`int(n)`, but for a size, which stays what it is."""
    return cast(int, n) if isinstance(n, Size) else int(n)


def has_open(array: np.ndarray) -> bool:
    """Whether there are sizes among a constant's elements."""
    return array.dtype == object


def open_symbols(texts: Sequence[str]) -> list[str]:
    """The symbols that occur in texts."""
    return sorted({s for t in texts for s in SYMBOL.findall(t)}, key=lambda s: int(s[3:]))


SYMBOL = re.compile(r"\bdim\d+\b")
SIZE = r"\([\w+*/()\-]+\)"  # the text of a Size


def choose_hint(points: np.ndarray) -> tuple[int, ...]:
    """A point near the largest, whose sizes are unlikely to be a model's own: primes, where there are some."""
    ordered = points[np.lexsort((*points.T, points.prod(axis=1)))[::-1]]
    likely = ordered[: max(len(ordered) // 2, 1)]
    best = max(range(len(likely)), key=lambda k: (sum(map(_is_prime, likely[k].tolist())), -k))
    return tuple(map(int, likely[best]))


def _is_prime(n: int) -> bool:
    return n > 4 and not any(int(n) % k == 0 for k in range(2, int(n**0.5) + 1))


def integers(values: Any, dtype: Any) -> np.ndarray:
    """An array of numbers, as objects where sizes are among them."""
    out = np.array(values, dtype=object)
    return out if any(isinstance(x, Size) for x in out.flat) else out.astype(dtype)


def parse_size(text: str, space: Space | None) -> int:
    """An integer or the text of a Size; ValueError for anything else."""
    if text.isdigit():
        return int(text)
    if space is None or len(text) > 4000:
        raise ValueError(f"{text!r} is no size")
    return whole(_value(ast.parse(text, mode="eval").body, space))


def _value(e: ast.expr, space: Space) -> Any:
    if isinstance(e, ast.Constant) and type(e.value) is int:
        return e.value
    if isinstance(e, ast.Name) and e.id in space.known:
        return space.symbol(e.id)
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        return -_value(e.operand, space)
    if isinstance(e, ast.BinOp):
        a, b = _value(e.left, space), _value(e.right, space)
        for kind, f in _OPERATORS:
            if isinstance(e.op, kind):
                return f(a, b)
    raise ValueError(f"{ast.unparse(e)!r} is no size")


def _as_written(e: ast.expr, space: Space) -> Terms:
    """The text of a Size as terms, with nothing left out that is so at the points of a space"""
    if isinstance(e, ast.BinOp):
        a, b = _as_written(e.left, space), _as_written(e.right, space)
        if isinstance(e.op, ast.Div):
            return (((Quotient(a, b),), 1),) if any(m for m, _ in (*a, *b)) else _terms(_value(e, space)) or ()
        if isinstance(e.op, ast.Mult):
            return _sorted(_product(a, b))
        return _sorted(_sum(a, b, 1 if isinstance(e.op, ast.Add) else -1))
    if isinstance(e, ast.UnaryOp):
        return _sorted(_sum((), _as_written(e.operand, space), -1))
    return _terms(_value(e, space)) or ()


_OPERATORS: tuple[tuple[type, Callable[[Any, Any], Any]], ...] = (
    (ast.Add, lambda a, b: a + b), (ast.Sub, lambda a, b: a - b), (ast.Mult, lambda a, b: a * b),
    (ast.Div, lambda a, b: a // b),
)
