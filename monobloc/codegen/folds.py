"""Folds that any order gives the same result run along memory, as one long loop where they can.

A maximum over channels, rows and columns of an image whose channels lie last would take a strided step at a time, each
waiting for the one before. Sums of floats keep their order: it is part of the numeric contract.
"""

from __future__ import annotations

from collections.abc import Iterator

from monobloc.ir.expr import I64, Expr, Load, Num, Reduce, Var, children, free_vars, linear, rebuild, walk

ANY_ORDER = ("max", "min", "and", "or")


def along_memory(e: Expr) -> Expr:
    """With the variables of such folds in the order of memory, and merged where they walk it as one would."""
    memo: dict[Expr, Expr] = {}

    def visit(x: Expr) -> Expr | None:
        if not isinstance(x, Reduce) or x.guard is not None or not _any_order(x):
            return None
        body = rebuild(x.body, visit, memo)
        return _merged(Reduce(x.kind, _by_stride(x.vars, body), body, None, x.dtype))

    return rebuild(e, visit, memo)


def _any_order(r: Reduce) -> bool:
    return r.kind in ANY_ORDER or (r.kind in ("sum", "prod") and r.dtype.is_int)


def _loads(e: Expr) -> Iterator[Load]:
    return (x for x in walk(e) if isinstance(x, Load))


def _by_stride(vars: tuple[Var, ...], body: Expr) -> tuple[Var, ...]:
    """Those with the longest steps first, as the load says that the most of them move"""
    terms = [linear(x.index[0])[0] for x in _loads(body)]
    best = max(terms, key=lambda t: sum(v in t for v in vars), default={})
    return tuple(sorted(vars, key=lambda v: -abs(best.get(v, 0))))


def _merged(r: Reduce) -> Reduce:
    vars, body, k = list(r.vars), r.body, 0
    while k + 1 < len(vars):
        a, b = vars[k], vars[k + 1]
        if used_outside_loads(body, {a, b}) or not all(merges(linear(x.index[0])[0], a, b) for x in _loads(body)):
            k += 1
            continue
        v = Var(a.name + b.name[1:], a.extent * b.extent)
        body = rebuild(body, lambda x, a=a, b=b, v=v: merged_address(x, a, b, v))  # type: ignore[misc]
        vars[k : k + 2] = [v]
        k = max(k - 1, 0)
    return Reduce(r.kind, tuple(vars), body, None, r.dtype)


def merged_address(x: Expr, a: Var, b: Var, v: Var) -> Expr | None:
    return Load(x.source, (with_merged(x.index[0], a, b, v),), x.dtype) if isinstance(x, Load) else None


def merges(terms: dict[Expr, int], a: Var, b: Var) -> bool:
    if terms.get(a, 0) != b.extent * terms.get(b, 0):
        return False
    return not any({a, b} & free_vars(t) for t in terms if t not in (a, b))


def with_merged(address: Expr, a: Var, b: Var, v: Var) -> Expr:
    terms, const = linear(address)
    step = terms.pop(b, 0)
    terms.pop(a, None)
    out: Expr = v * step if step else Num(0, I64)
    for t, k in terms.items():
        out = out + t * k
    return out + const


def used_outside_loads(e: Expr, vars: set[Var]) -> bool:
    """Whether any of the indices is used as a value, not only inside addresses."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x in seen or isinstance(x, Load):
            continue
        seen.add(x)
        if x in vars:
            return True
        stack.extend(children(x))
    return False
