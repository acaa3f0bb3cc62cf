"""Index-space expressions: what one element of a tensor is, as a function of its index.

An op that is a *tensor expression* says how the element at `(i, j, ...)` of its output follows from
elements of its inputs. Composition of such functions is fusion; the loop generator turns the result
into C. Expressions are immutable, shared by structure and simplified when they are made, so that the
index arithmetic of reshapes, slices and transposes melts away.

    Var     an index with a known extent          Num     a literal
    Load    an element of a tensor                Op      a scalar function of other expressions
    Reduce  a fold over further indices
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from monobloc.ir.symbolic import exact_rest, is_open, largest, least, same_number, surely_less, whole
from monobloc.ir.types import DType

I64, BOOL = DType.I64, DType.BOOL


class Expr:
    """Base: operators build integer or float arithmetic, comparisons build booleans."""

    dtype: DType

    def __add__(self, o: Any) -> Expr:
        return add(self, lift(o, self.dtype))

    def __radd__(self, o: Any) -> Expr:
        return add(lift(o, self.dtype), self)

    def __sub__(self, o: Any) -> Expr:
        return sub(self, lift(o, self.dtype))

    def __rsub__(self, o: Any) -> Expr:
        return sub(lift(o, self.dtype), self)

    def __mul__(self, o: Any) -> Expr:
        return mul(self, lift(o, self.dtype))

    def __rmul__(self, o: Any) -> Expr:
        return mul(lift(o, self.dtype), self)

    def __floordiv__(self, o: int) -> Expr:
        return floordiv(self, o)

    def __mod__(self, o: int) -> Expr:
        return floormod(self, o)

    def __neg__(self) -> Expr:
        return mul(self, Num(-1, I64)) if self.dtype is I64 else call("neg", self)

    def lt(self, o: Any) -> Expr:
        return compare("lt", self, lift(o, self.dtype))

    def le(self, o: Any) -> Expr:
        return compare("le", self, lift(o, self.dtype))

    def ge(self, o: Any) -> Expr:
        return compare("le", lift(o, self.dtype), self)

    def gt(self, o: Any) -> Expr:
        return compare("lt", lift(o, self.dtype), self)

    def eq(self, o: Any) -> Expr:
        return compare("eq", self, lift(o, self.dtype))


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """An index that runs over [0, extent)."""

    name: str
    extent: int
    dtype: DType = I64


@dataclass(frozen=True)
class Num(Expr):
    value: int | float | bool
    dtype: DType

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))

    def __eq__(self, o: object) -> bool:  # 0.0 and -0.0, 1 and True, NaN and NaN are told apart by text
        return isinstance(o, Num) and o.dtype is self.dtype and same_number(o.value, self.value)


@dataclass(frozen=True)
class Op(Expr):
    """A scalar function by name (`mb_<fn>` in C); `args` may be of another dtype than the result."""

    fn: str
    args: tuple[Expr, ...]
    dtype: DType
    _hash: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.fn, self.args, self.dtype)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Load(Expr):
    """The element at `index` of `source` (a Value, told apart by identity)."""

    source: Any
    index: tuple[Expr, ...]
    dtype: DType
    _hash: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((id(self.source), self.index)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Reduce(Expr):
    """Fold `body` with `kind` (sum, prod, max, min, and, or) over all values of `vars`.

    Where `guard` is false the element does not take part. An empty fold gives the neutral element.
    """

    kind: str
    vars: tuple[Var, ...]
    body: Expr
    guard: Expr | None
    dtype: DType
    _hash: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kind, self.vars, self.body, self.guard)))

    def __hash__(self) -> int:
        return self._hash


Fn = Callable[..., Expr]


# -- making -----------------------------------------------------------------------------------------
def lift(x: Any, dtype: DType) -> Expr:
    """A Python number as a literal of `dtype`; an Expr as it is."""
    if isinstance(x, Expr):
        return x
    if is_open(x):
        return Num(x, dtype)
    return Num(float(x) if dtype.is_float else x if dtype is BOOL else int(x), dtype)


def idx(x: Any) -> Expr:
    return lift(x, I64)


def call(fn: str, *args: Expr, dtype: DType | None = None) -> Expr:
    """A scalar function; the result has the first argument's dtype unless said otherwise."""
    return Op(fn, tuple(args), dtype or args[0].dtype)


def cast(x: Expr, dtype: DType) -> Expr:
    return x if x.dtype is dtype else Op("cast", (x,), dtype)


def select(c: Expr, a: Expr, b: Expr) -> Expr:
    if isinstance(c, Num):
        return a if c.value else b
    return a if a == b else Op("select", (c, a, b), a.dtype)


def both(a: Expr, b: Expr) -> Expr:
    """logical and of two conditions"""
    if isinstance(a, Num):
        return b if a.value else a
    if isinstance(b, Num):
        return a if b.value else b
    return Op("land", (a, b), BOOL)


def all_of(conditions: Iterable[Expr]) -> Expr:
    out: Expr = Num(True, BOOL)
    for c in conditions:
        out = both(out, c)
    return out


def reduce(kind: str, extents: Iterable[int], body: Fn, guard: Fn | None = None) -> Expr:
    """Fold over a box of indices: `body(*indices)`, taking part where `guard(*indices)`."""
    at: list[Expr] = []
    variables: list[Var] = []
    for extent in extents:
        if extent == 1:
            at.append(Num(0, I64))
        else:
            variables.append(Var("r", extent))
            at.append(variables[-1])
    e = body(*at)
    g = guard(*at) if guard else None
    if isinstance(g, Num):
        g = None if g.value else g
    if not variables and g is None:
        return e
    return Reduce(kind, tuple(variables), e, g, e.dtype)


def compare(fn: str, a: Expr, b: Expr) -> Expr:
    """A comparison; decided at once where the ranges of integer indices decide it."""
    if a.dtype is I64:
        (al, ah), (bl, bh) = bounds(a), bounds(b)
        yes, no = {
            "lt": (surely_less(ah, bl), surely_less(bh, al + 1)),
            "le": (surely_less(ah, bl + 1), surely_less(bh, al)),
            "eq": (all(surely_less(x, y + 1) for x, y in ((ah, bl), (bl, al), (bh, al))),
                   surely_less(ah, bl) or surely_less(bh, al)),
        }[fn]
        if yes or no:
            return Num(bool(yes), BOOL)
    return Op(fn, (a, b), BOOL)


# -- integer arithmetic in sum-of-products form -------------------------------------------------------
def _sum(terms: dict[Expr, int], const: int) -> Expr:
    parts: list[Expr] = []
    for atom, k in terms.items():
        if k:
            parts.append(atom if k == 1 else Op("mul", (atom, Num(k, I64)), I64))
    if const or not parts:
        parts.append(Num(const, I64))
    out = parts[0]
    for p in parts[1:]:
        out = Op("add", (out, p), I64)
    return out


@lru_cache(maxsize=1 << 16)
def _linear(e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
    terms, const = _linear_dict(e)
    return tuple(terms.items()), const


def _linear_dict(e: Expr) -> tuple[dict[Expr, int], int]:
    if isinstance(e, Num):
        return {}, whole(e.value)
    if isinstance(e, Op) and e.dtype is I64:
        if e.fn == "add":
            return _merge(linear(e.args[0]), linear(e.args[1]), 1)
        if e.fn == "mul" and isinstance(e.args[1], Num):
            k = whole(e.args[1].value)
            t, c = linear(e.args[0])
            return {a: f * k for a, f in t.items()}, c * k
    return {e: 1}, 0


def linear(e: Expr) -> tuple[dict[Expr, int], int]:
    """Integer expression as (coefficient per atom, constant)."""
    items, const = _linear(e)
    return dict(items), const


def _merge(a: tuple[dict[Expr, int], int], b: tuple[dict[Expr, int], int], k: int) -> tuple[dict[Expr, int], int]:
    out = dict(a[0])
    for atom, f in b[0].items():
        out[atom] = out.get(atom, 0) + k * f
    return {t: f for t, f in out.items() if f}, a[1] + k * b[1]


def add(a: Expr, b: Expr) -> Expr:
    if a.dtype is not I64:
        return Op("add", (a, b), a.dtype)
    return _sum(*_merge(linear(a), linear(b), 1))


def sub(a: Expr, b: Expr) -> Expr:
    if a.dtype is not I64:
        return Op("sub", (a, b), a.dtype)
    return _sum(*_merge(linear(a), linear(b), -1))


def mul(a: Expr, b: Expr) -> Expr:
    if a.dtype is not I64:
        return Op("mul", (a, b), a.dtype)
    if isinstance(a, Num):
        a, b = b, a
    if isinstance(b, Num):
        t, c = linear(a)
        k = whole(b.value)
        return _sum({x: f * k for x, f in t.items()}, c * k)
    return Op("mul", (a, b), I64)


@lru_cache(maxsize=1 << 16)
def bounds(e: Expr) -> tuple[float, float]:
    """Smallest and largest value of an integer expression (infinite where not known)."""
    if isinstance(e, Num):
        return (whole(e.value), whole(e.value))
    if isinstance(e, Var):
        return (0, e.extent - 1)
    if isinstance(e, Op) and e.dtype is I64:
        if e.fn in ("add", "mul"):
            terms, const = linear(e)
            if e not in terms:
                lo: float = const
                hi: float = const
                for atom, k in terms.items():
                    al, ah = bounds(atom)
                    lo, hi = lo + least(al * k, ah * k), hi + largest(al * k, ah * k)
                return (lo, hi)
        if e.fn == "floordiv" and isinstance(e.args[1], Num):
            lo, hi = bounds(e.args[0])
            k = whole(e.args[1].value)
            return (lo // k, hi // k)
        if e.fn == "floormod" and isinstance(e.args[1], Num):
            return (0, whole(e.args[1].value) - 1)
        if e.fn.startswith("index"):
            return (0, whole(e.args[1].value) - 1)  # type: ignore[attr-defined]
        if e.fn in ("imin", "imax"):
            (al, ah), (bl, bh) = bounds(e.args[0]), bounds(e.args[1])
            f = least if e.fn == "imin" else largest
            return (f(al, bl), f(ah, bh))
        if e.fn == "select":
            (al, ah), (bl, bh) = bounds(e.args[1]), bounds(e.args[2])
            return (least(al, bl), largest(ah, bh))
    return (float("-inf"), float("inf"))


def _split(e: Expr, k: int) -> tuple[Expr, Expr]:
    """e = k*q + r with the multiples of k collected in q"""
    terms, const = linear(e)
    q = {a: f // k for a, f in terms.items() if _multiple(f, k)}
    r = {a: f for a, f in terms.items() if not _multiple(f, k)}
    if is_open(k) or is_open(const):
        c = const // k if _multiple(const, k) else 0
        return _sum(q, c), _sum(r, const - c * k)
    return _sum(q, const // k), _sum(r, const % k)


def _multiple(f: int, k: int) -> bool:
    """Whether f is known to be one of k."""
    rest = f % k if not is_open(f) and not is_open(k) else exact_rest(f, k)
    return not is_open(rest) and rest == 0


def floordiv(e: Expr, k: int) -> Expr:
    """floor(e / k) for k > 0"""
    if k == 1:
        return e
    q, r = _split(e, k)
    lo, hi = bounds(r)
    if surely_less(-1, lo) and surely_less(hi, k):
        return q
    if isinstance(e, Op) and e.fn == "floordiv" and isinstance(e.args[1], Num):
        return floordiv(e.args[0], k * whole(e.args[1].value))
    if isinstance(r, Num):
        return q
    common = _common_divisor(r, k)
    if common > 1:
        inner = floordiv(_divide(r, common), k // common)
        return add(q, inner)
    return add(q, Op("floordiv", (r, Num(k, I64)), I64))


def floormod(e: Expr, k: int) -> Expr:
    """e - k * floor(e / k) for k > 0"""
    if k == 1:
        return Num(0, I64)
    _, r = _split(e, k)
    lo, hi = bounds(r)
    if surely_less(-1, lo) and surely_less(hi, k):
        return r
    if isinstance(r, Op) and r.fn == "floormod" and _multiple(whole(r.args[1].value), k):  # type: ignore
        return floormod(r.args[0], k)
    common = _common_divisor(r, k)
    if common > 1:
        return mul(floormod(_divide(r, common), k // common), Num(common, I64))
    return Op("floormod", (r, Num(k, I64)), I64)


def _common_divisor(e: Expr, k: int) -> int:
    import math

    terms, const = linear(e)
    if any(map(is_open, (k, const, *terms.values()))):
        return 1
    return math.gcd(k, const, *terms.values())


def _divide(e: Expr, k: int) -> Expr:
    terms, const = linear(e)
    return _sum({a: f // k for a, f in terms.items()}, const // k)


# -- walking ----------------------------------------------------------------------------------------
def children(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Op):
        return e.args
    if isinstance(e, Load):
        return e.index
    if isinstance(e, Reduce):
        return (e.body,) if e.guard is None else (e.body, e.guard)
    return ()


def walk(e: Expr, seen: set[Expr] | None = None) -> Iterator[Expr]:
    """Every sub-expression once, operands first."""
    seen = set() if seen is None else seen
    if e in seen:
        return
    seen.add(e)
    for c in children(e):
        yield from walk(c, seen)
    yield e


def free_vars(e: Expr) -> frozenset[Var]:
    return _free(e)


@lru_cache(maxsize=1 << 16)
def _free(e: Expr) -> frozenset[Var]:
    if isinstance(e, Var):
        return frozenset((e,))
    out: frozenset[Var] = frozenset()
    for c in children(e):
        out |= _free(c)
    return out - frozenset(e.vars) if isinstance(e, Reduce) else out


def rebuild(e: Expr, f: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Replace sub-expressions top down: where `f` gives an Expr it stands, elsewhere go deeper."""
    memo = {} if memo is None else memo
    if e in memo:
        return memo[e]
    out = f(e)
    if out is None:
        out = _remake(e, tuple(rebuild(c, f, memo) for c in children(e)))
    memo[e] = out
    return out


def _remake(e: Expr, kids: tuple[Expr, ...]) -> Expr:
    if kids == children(e):
        return e
    if isinstance(e, Load):
        return Load(e.source, kids, e.dtype)
    if isinstance(e, Reduce):
        guard = kids[1] if e.guard is not None else None
        return Reduce(e.kind, e.vars, kids[0], guard, e.dtype)
    assert isinstance(e, Op)
    if e.dtype is I64 and e.fn in _INDEX_OPS:
        return _INDEX_OPS[e.fn](*kids)
    if e.fn == "land":
        return both(*kids)
    if e.fn == "select":
        return select(*kids)
    if e.fn in ("lt", "le", "eq"):
        return compare(e.fn, *kids)
    return Op(e.fn, kids, e.dtype)


_INDEX_OPS: dict[str, Callable[..., Expr]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "floordiv": lambda a, b: floordiv(a, whole(b.value)),
    "floormod": lambda a, b: floormod(a, whole(b.value)),
}


def substitute(e: Expr, table: dict[Expr, Expr]) -> Expr:
    return rebuild(e, lambda x: table.get(x))
