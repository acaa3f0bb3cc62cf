"""Tensor expressions to C loops: the way down for everything that is not a contraction or a routine.

One output becomes one loop nest over its elements in memory order. The element's expression comes from
composing the OpDefs' functions (a fused group is just a deeper composition). The idea per step:

* addresses: every Load becomes `pointer[linear form of the loop indices]`;
* order: loops follow the output's memory, but indices on which a row reduction (softmax, mean) does
  not depend go innermost, so that the reduction is computed once, outside them;
* a reduction that varies with the innermost index is *blocked*: a strip of accumulators along that
  index, the reduction's loops outside the strip; everything stays contiguous;
* a reduction along contiguous memory runs in a fixed number of lanes, combined in a fixed order, so
  that it vectorizes and gives the same bits whatever the compiler does (LANES is part of the target's
  numeric contract);
* a fold whose order does not matter (max, min, integers) follows memory first (folds.py);
* a copy that reads along one index and writes along another goes by squares (mb/turn.h);
* the outermost loop that is long enough is divided among the threads, which never changes a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from monobloc.codegen.folds import along_memory, merged_address, merges, used_outside_loads, with_merged
from monobloc.codegen.scalars import combine, compute_type, literal, neutral, spell
from monobloc.codegen.storage import Storage, same_layout
from monobloc.ir.expr import (
    Expr,
    Load,
    Num,
    Op,
    Reduce,
    Var,
    children,
    free_vars,
    linear,
    rebuild,
    walk,
)
from monobloc.ir.functions import EXPENSIVE_FNS
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import guess, is_open, same_shape, upper
from monobloc.ir.types import DType, TensorType
from monobloc.ops.compose import compose, index_vars, reader

LANES = 32  # MB_LANES in mb/base.h
VECTOR_FOLDS = ("sum", "prod", "max", "min")  # whose lanes are joined by vectors: mb_lanes_sum and so on
STRIP = 64
TURN = 8  # rows and columns from which a transposition goes by squares
StorageOf = Callable[[Value], Storage]


def flatten_loads(e: Expr, storage_of: StorageOf) -> Expr:
    """Loads by index become Loads by flat address."""
    memo: dict[Expr, Expr] = {}

    def visit(x: Expr) -> Expr | None:
        if not isinstance(x, Load):
            return None
        at = tuple(rebuild(i, visit, memo) for i in x.index)
        return Load(x.source, (storage_of(x.source).address(at),), x.dtype)

    return rebuild(e, visit, memo)


# -- writing ------------------------------------------------------------------------------------------
@dataclass
class Writer:
    """Lines of C with indentation."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    fresh: int = 0

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.line("}")

    def name(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}{self.fresh}"


def vector_loop(extent: int, e: Expr) -> str:
    """What stands before a loop over `e` that becomes vectors. A size that a run knows is rarely a multiple of theirs,
    and where an element is expensive those of the rest must not be computed one by one."""
    dear = is_open(extent) and any(isinstance(x, Op) and x.fn in EXPENSIVE_FNS for x in walk(e))
    return "MB_OPEN_LOOP" if dear else "#pragma clang loop vectorize(assume_safety)"


@dataclass(frozen=True)
class LoopContext:
    """What the generator must know of the surroundings."""

    storage_of: StorageOf
    pointer_of: Callable[[Value], str]  # C name of a typed pointer to the value's base
    threads: int
    done: frozenset[Node] = frozenset()  # nodes that need no code


def emit_outputs(node: Node, ctx: LoopContext, w: Writer) -> None:
    """Loop nests for all outputs of a node or fused group."""
    if node.op == "Concat":
        _emit_concat(node, ctx, w)
        return
    if node.op == "Reshape" and _emit_reshape(node, ctx, w):
        return
    for v, f in zip(node.outputs, compose(node), strict=True):
        if v.type.size == 0:
            continue
        at = index_vars(v.type)
        _Nest(flatten_loads(f(*at), ctx.storage_of), at, v, ctx.storage_of(v), ctx, w).emit()


def _emit_reshape(node: Node, ctx: LoopContext, w: Writer) -> bool:
    """A copy to a place without gaps is one in the shape of what is read, whose addresses need no divisions."""
    x, v = node.used[0], node.outputs[0]
    place, plain = ctx.storage_of(v), TensorType(v.dtype, v.shape).strides
    if not same_shape(place.strides, plain) or x.type.size == 0:
        return False
    at = index_vars(TensorType(x.dtype, x.shape))
    there = Storage(place.base, place.dtype, place.offset, TensorType(x.dtype, x.shape).strides)
    _Nest(flatten_loads(reader(x)(*at), ctx.storage_of), at, v, there, ctx, w).emit()
    return True


def _emit_concat(node: Node, ctx: LoopContext, w: Writer) -> None:
    """One copy per input that does not lie in its place already."""
    v = node.outputs[0]
    axis, start, whole = node.attrs["axis"] % v.type.rank, 0, ctx.storage_of(v)
    for x in node.inputs:
        assert x is not None
        part = whole.at(start * whole.strides[axis])
        start += x.shape[axis]
        if x.type.size == 0 or _lies_there(ctx.storage_of(x), part, x.shape):
            continue
        at = index_vars(x.type)
        _Nest(flatten_loads(reader(x)(*at), ctx.storage_of), at, v, part, ctx, w).emit()


def _lies_there(a: Storage, b: Storage, shape: tuple[int, ...]) -> bool:
    return a.base == b.base and a.offset == b.offset and same_layout(a, b, shape)


class _Nest:
    """The loop nest of one output."""

    def __init__(
        self, e: Expr, at: tuple[Expr, ...], out: Value, storage: Storage, ctx: LoopContext, w: Writer
    ) -> None:
        self.e, self.out, self.ctx, self.w = along_memory(e), out, ctx, w
        e = self.e
        self.stride = {v: s for v, s in zip(at, storage.strides) if isinstance(v, Var)}
        self.store = storage.address(at)
        self.names: dict[Expr, str] = {}
        self.reductions = [x for x in walk(e) if isinstance(x, Reduce)]
        self.indices = _unguarded_indices(e)
        self.order = self._order()
        self._collapse()
        self.inner = self.order[-1] if self.order else None
        self.blocked = {r for r in self.reductions if self._is_blocked(r)}
        self.split = self._split_loop()

    # -- decisions --
    def _order(self) -> list[Var]:
        by_memory = sorted(self.stride, key=lambda v: (-abs(self.stride[v]), v.name))
        every = frozenset(by_memory)
        rows = [free_vars(r) & every for r in self.reductions if free_vars(r) & every != every]
        kept = frozenset().union(*rows) if rows else every
        return [v for v in by_memory if v in kept] + [v for v in by_memory if v not in kept]

    def _collapse(self) -> None:
        """Merge neighbouring loops that walk all memory as one loop would."""
        k = 0
        while k + 1 < len(self.order):
            a, b = self.order[k], self.order[k + 1]
            if not self._mergeable(a, b):
                k += 1
                continue
            v = Var(a.name + b.name[1:], a.extent * b.extent)
            self.e = rebuild(self.e, lambda x, a=a, b=b, v=v: merged_address(x, a, b, v))  # type: ignore[misc]
            self.store = with_merged(self.store, a, b, v)
            self.order[k : k + 2] = [v]
            self.reductions = [x for x in walk(self.e) if isinstance(x, Reduce)]
            self.indices = _unguarded_indices(self.e)
            k = max(k - 1, 0)

    def _mergeable(self, a: Var, b: Var) -> bool:
        addresses = [self.store]
        for x in walk(self.e):
            if isinstance(x, Load):
                addresses.append(x.index[0])
        if any(not merges(linear(address)[0], a, b) for address in addresses):
            return False
        return not used_outside_loads(self.e, {a, b})

    def _is_blocked(self, r: Reduce) -> bool:
        """Along the innermost index in strips, unless the fold itself runs along memory."""
        if self.inner is None or self.inner not in free_vars(r):
            return False
        return not (r.vars and self._contiguous(r, r.vars[-1]) and not self._contiguous(r, self.inner))

    def _contiguous(self, r: Reduce, v: Var) -> bool:
        loads = [x for c in children(r) for x in walk(c) if isinstance(x, Load)]
        return any(linear(x.index[0])[0].get(v, 0) == 1 for x in loads)

    def _split_loop(self) -> Var | None:
        """The outermost loop with enough turns for every thread, else the longest."""
        if self.ctx.threads == 1 or not self.order:
            return None
        for v in self.order[:-1]:
            if guess(v.extent) >= 4 * self.ctx.threads:
                return v
        return max(self.order, key=lambda v: guess(v.extent))

    # -- emission --
    def emit(self) -> None:
        w = self.w
        if self.ctx.threads > 1 and self.split is None:
            w.open("if (tid == 0)")
            self._level(0)
            w.close()
        else:
            self._level(0)

    def _level(self, k: int) -> None:
        known = frozenset(self.order[:k])
        self._hoist(known)
        if k == 0 and self._turn():
            return
        if k == len(self.order):
            self._store()
            return
        v = self.order[k]
        if k == len(self.order) - 1 and self.blocked:
            self._strip(v)
            return
        lo, hi = self._range(v)
        if k == len(self.order) - 1:
            self._pragma()
        self.w.open(f"for (long {self._var(v)} = {lo}; {v.name} < {hi}; {v.name}++)")
        names = dict(self.names)
        self._level(k + 1)
        self.names = names
        self.w.close()

    def _turn(self) -> bool:
        """A copy that reads along one index and writes along another is a transposition of these two (mb/turn.h)."""
        e, v, stored = self.e, self.inner, self.out.type.memory
        size = stored.size
        if not isinstance(e, Load) or e.source.type.memory is not stored or v is None or size not in (1, 2, 4, 8):
            return False
        reads, writes = (linear(address)[0] for address in (e.index[0], self.store))
        across = [u for u in self.order if reads.get(u) == 1 and u is not v]
        if writes.get(v) != 1 or len(across) != 1 or any(t not in self.order for t in (*reads, *writes)):
            return False
        if v not in reads:  # one element for the whole line: `v` runs in registers as it is
            return False
        u = across[0]
        if guess(u.extent) < TURN or guess(v.extent) < TURN or is_open(reads[v]) or is_open(writes[u]):
            return False
        rest = [w for w in self.order if w not in (u, v)]
        for w in rest:
            lo, hi = self._range(w)
            self.w.open(f"for (long {self._var(w)} = {lo}; {w.name} < {hi}; {w.name}++)")
        counts = []
        for w in (u, v):
            lo, hi = self._range(w)
            self.names[w] = lo
            counts.append(f"{hi} - {lo}" if lo != "0" else hi)
        to, source = (f"{self.ctx.pointer_of(x)} + {self.text(at)}" for x, at in
                      ((self.out, self.store), (e.source, e.index[0])))
        self.w.line(f"mb_turn{size}({to}, {writes[u]}, {source}, {reads[v]}, {', '.join(counts)});")
        for _ in rest:
            self.w.close()
        return True

    def _pragma(self) -> None:
        if not any(isinstance(x, Reduce) and self.inner in free_vars(x) for x in walk(self.e)):
            assert self.inner is not None
            self.w.line(vector_loop(self.inner.extent if len(self.order) > 1 else 0, self.e))  # a single one is long

    def _range(self, v: Var) -> tuple[str, str]:
        if v is not self.split:
            return "0", str(v.extent)
        lo, hi = self.w.name("lo"), self.w.name("hi")
        n = str(v.extent) if is_open(v.extent) else f"{v.extent}L"
        self.w.line(f"const long {lo} = {n} * tid / nt, {hi} = {n} * (tid + 1) / nt;")
        return lo, hi

    def _var(self, v: Var) -> str:
        self.names[v] = v.name
        return v.name

    def _hoist(self, known: frozenset[Expr]) -> None:
        """Compute reductions, and indices that are data, as soon as all indices they depend on are known."""
        loops = frozenset(self.order)
        for x in self.indices if len(known) < len(loops) else ():
            if x not in self.names and free_vars(x) <= known and not any(isinstance(y, Reduce) for y in walk(x)):
                value = self.text(x)
                name = self.w.name("at")
                self.w.line(f"const long {name} = {value};")
                self.names[x] = name
        for r in self.reductions:
            if r not in self.names and r not in self.blocked and (free_vars(r) & loops) <= known and not (
                free_vars(r) - loops
            ):
                self._reduce(r)

    def _store(self) -> None:
        value = self.text(self.e)
        self.w.line(f"{self._element(self.out, self.store)} = {self._to_memory(value)};")

    def _to_memory(self, value: str) -> str:
        d = self.out.type.memory
        if compute_type(d) is not d:
            return f"mb_{d.value}({value})"
        return f"({d.c})({value})" if d is DType.BOOL else value

    def _element(self, v: Value, address: Expr) -> str:
        return f"{self.ctx.pointer_of(v)}[{self.text(address)}]"

    # -- reductions --
    def _strip(self, v: Var) -> None:
        """Innermost loop in strips with an accumulator per element and blocked reduction."""
        w, n = self.w, v.extent
        step = _strip_length(n)
        lo, hi = self._range(v)
        whole = v is not self.split and not is_open(n) and n % step == 0
        base = w.name("s")
        w.open(f"for (long {base} = {lo}; {base} < {hi}; {base} += {step})")
        count = str(step)
        if not whole:
            count = w.name("n")
            w.line(f"const long {count} = mb_min_long({step}, {hi} - {base});")
        names = dict(self.names)
        self.names[v] = v.name
        for r in self.reductions:
            if r in self.blocked and not (free_vars(r) - frozenset(self.order)):
                self._blocked_reduce(r, v, base, step, count)
        self._strip_loop(v, base, count, self._fold_and_store)
        self.names = names
        w.close()

    def _fold_and_store(self) -> None:
        """A reduction beside the blocked ones that runs along memory itself is made per element."""
        self._hoist(frozenset(self.order))
        self._store()

    def _strip_loop(self, v: Var, base: str, count: str, body: Callable[[], None]) -> None:
        self.w.line(vector_loop(v.extent, self.e))
        self.w.open(f"for (long l = 0; l < {count}; l++)")
        self.w.line(f"const long {v.name} = {base} + l; (void){v.name};")
        names = dict(self.names)
        body()
        self.names = names
        self.w.close()

    def _blocked_reduce(self, r: Reduce, v: Var, base: str, step: int, count: str) -> None:
        w, acc, d = self.w, self.w.name("acc"), compute_type(r.dtype)
        w.line(f"{d.c} {acc}[{step}];")
        w.line(f"for (long l = 0; l < {step}; l++) {acc}[l] = {neutral(r.kind, d)};")
        depth = self._open_fold(r)
        guard_inside = r.guard is not None and v in free_vars(r.guard)
        if r.guard is not None and not guard_inside:
            w.open(f"if ({self.text(r.guard)})")
            depth += 1

        def step_body() -> None:
            value = self.text(r.body)
            text = f"{acc}[l] = {combine(r.kind, f'{acc}[l]', value)};"
            w.line(f"if ({self.text(r.guard)}) {text}" if guard_inside and r.guard is not None else text)

        self._strip_loop(v, base, count, step_body)
        for _ in range(depth):
            w.close()
        self.names[r] = f"{acc}[l]"

    def _open_fold(self, r: Reduce, last: bool = True) -> int:
        for v in r.vars if last else r.vars[:-1]:
            name = self.w.name("r")
            self.names[v] = name
            self.w.open(f"for (long {name} = 0; {name} < {v.extent}; {name}++)")
        return len(r.vars) if last else len(r.vars) - 1

    def _reduce(self, r: Reduce) -> None:
        """A fold to one scalar, at the present place."""
        d = compute_type(r.dtype)
        acc = self.w.name("acc")
        outer = dict(self.names)
        if r.vars and r.guard is None and upper(r.vars[-1].extent) >= 2 * LANES and not self._holds_fold(r):
            self._lanes_fold(r, acc, d)
        else:
            self._scalar_fold(r, acc, d)
        self.names = outer
        self.names[r] = acc

    def _holds_fold(self, r: Reduce) -> bool:
        return any(isinstance(x, Reduce) and free_vars(x) & set(r.vars) for x in walk(r.body))

    def _scalar_fold(self, r: Reduce, acc: str, d: DType) -> None:
        w = self.w
        w.line(f"{d.c} {acc} = {neutral(r.kind, d)};")
        depth = self._open_fold(r)
        for x in walk(r.body):
            if isinstance(x, Reduce) and x not in self.names:
                self._reduce(x)
        guard = f"if ({self.text(r.guard)}) " if r.guard is not None else ""
        w.line(f"{guard}{acc} = {combine(r.kind, acc, self.text(r.body))};")
        for _ in range(depth):
            w.close()

    def _lanes_fold(self, r: Reduce, acc: str, d: DType) -> None:
        """LANES partial results along the last index, then halves onto each other."""
        w, v, lanes = self.w, r.vars[-1], self.w.name("lane")
        main = f"({v.extent} / {LANES} * {LANES})" if is_open(v.extent) else v.extent // LANES * LANES
        w.line(f"{d.c} {lanes}[{LANES}];")
        w.line(f"for (int l = 0; l < {LANES}; l++) {lanes}[l] = {neutral(r.kind, d)};")
        depth = self._open_fold(r, last=False)
        name = w.name("r")
        w.open(f"for (long {name} = 0; {name} < {main}; {name} += {LANES})")
        self._lane_loop(r, name, LANES, lanes)
        w.close()
        if is_open(v.extent):
            self._lane_loop(r, str(main), f"{v.extent} % {LANES}", lanes)
        elif v.extent % LANES:
            self._lane_loop(r, str(main), v.extent % LANES, lanes)
        for _ in range(depth):
            w.close()
        if d is DType.F32 and r.kind in VECTOR_FOLDS:
            w.line(f"const float {acc} = mb_lanes_{r.kind}({lanes});")
            return
        w.line(f"for (int h = {LANES // 2}; h > 0; h /= 2)")
        w.line(f"  for (int l = 0; l < h; l++) {lanes}[l] = {combine(r.kind, lanes + '[l]', lanes + '[l + h]')};")
        w.line(f"const {d.c} {acc} = {lanes}[0];")

    def _lane_loop(self, r: Reduce, base: str, count: int | str, lanes: str) -> None:
        w, v = self.w, r.vars[-1]
        names = dict(self.names)
        w.line(vector_loop(v.extent if count != LANES else LANES, r.body))
        w.open(f"for (long l = 0; l < {count}; l++)")
        name = w.name("r")
        w.line(f"const long {name} = {base} + l;")
        self.names[v] = name
        value = self.text(r.body)
        w.line(f"{lanes}[l] = {combine(r.kind, f'{lanes}[l]', value)};")
        w.close()
        self.names = names

    # -- expressions --
    def text(self, e: Expr) -> str:
        """C of an expression; sub-expressions used more than once get a name first."""
        counts: dict[Expr, int] = {}
        self._count(e, counts)
        return self._text(e, counts)

    def _count(self, e: Expr, counts: dict[Expr, int]) -> None:
        counts[e] = counts.get(e, 0) + 1
        if counts[e] == 1 and e not in self.names:
            for c in children(e):
                self._count(c, counts)

    def _text(self, e: Expr, counts: dict[Expr, int]) -> str:
        if e in self.names:
            return self.names[e]
        if isinstance(e, Num):
            return literal(e.value, compute_type(e.dtype))
        assert not isinstance(e, (Var, Reduce)), f"{e} is not in scope"
        text = self._spelled(e, counts)
        if counts.get(e, 0) > 1 and not (isinstance(e, Op) and e.fn == "neg"):
            name = self.w.name("t")
            self.w.line(f"const {_c_value(e.dtype)} {name} = {text};")
            self.names[e] = name
            return name
        return text

    def _spelled(self, e: Expr, counts: dict[Expr, int]) -> str:
        if isinstance(e, Load):
            text = f"{self.ctx.pointer_of(e.source)}[{self._text(e.index[0], counts)}]"
            stored = e.source.type.memory
            return text if compute_type(stored) is stored else f"mb_wide({text})"
        assert isinstance(e, Op)
        args = [self._text(a, counts) for a in e.args]
        return spell(e.fn, args, [a.dtype for a in e.args], e.dtype)


def _unguarded_indices(e: Expr) -> list[Op]:
    """Indices that are data and are read whatever a condition says: they may be checked before a loop."""
    out: dict[Op, None] = {}
    stack, seen = [e], set()
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if isinstance(x, Op) and x.fn.startswith("index"):
            out[x] = None
        guarded = isinstance(x, Reduce) and x.guard is not None
        kids = () if guarded else children(x)
        stack.extend(reversed(kids[:1] if isinstance(x, Op) and x.fn == "select" else kids))
    return list(out)


def _c_value(d: DType) -> str:
    return "int" if d is DType.BOOL else compute_type(d).c


def _strip_length(n: int) -> int:
    if is_open(n):
        return min(STRIP, upper(n))
    if n <= 2 * STRIP:
        return n
    for step in range(STRIP, STRIP // 2, -16):
        if n % step == 0:
            return step
    return STRIP
