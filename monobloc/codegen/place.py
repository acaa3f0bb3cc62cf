"""Places: which values share memory, in which order the steps run, and where every buffer lies.

Most of this is deciding what needs no memory of its own:

* a node that only moves elements is a *view* when every element stays where it is: reshapes, and any
  transpose or slice whose addresses are linear and whose readers take strides;
* the inputs of a Concat are written straight into its output;
* a value whose only further use is a view that leaves the graph is written into the output's buffer.

What remains are buffers with lifetimes, which `monobloc.plan` orders and packs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeGuard

from monobloc import plan
from monobloc.codegen.loops import flatten_loads
from monobloc.codegen.regions import accesses, ram_regions, spread
from monobloc.codegen.sizes import Room, ports_of
from monobloc.codegen.storage import Storage, dense, is_dense
from monobloc.ir.expr import Expr, Load, Op, Var, free_vars, linear, walk
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import same_number, upper
from monobloc.ir.types import HALVES, DType
from monobloc.ops import opdef
from monobloc.ops.compose import compose, index_vars
from monobloc.ops.control import outside_of
from monobloc.ops.sized import sizes_of
from monobloc.passes import PassContext
from monobloc.passes.contraction import is_contraction, parts, root_of
from monobloc.passes.conv_family import family
from monobloc.passes.fuse import reads_per_element
from monobloc.targets import Region

ALIGN = 64
SIZES = " sizes"  # the planner's name for the run's dimensions; no value has a blank in front


@dataclass(frozen=True)
class Bank:
    """A stretch of the plan that has an address of its own at run time.

    "io" holds what keeps its value between runs, "work" what lives within one: models that never run
    at the same time share that memory.
    """

    name: str
    start: int  # its place in the arena of a run that gets one piece of memory
    bytes: int
    kept: bool  # inputs, outputs and state: each model's own
    region: Region | None = None  # None: the main RAM

    @property
    def pointer(self) -> str:
        """its variable in generated C"""
        return f"mem_{self.name}"

    @property
    def shareable(self) -> bool:
        """whether its content is worth nothing between runs"""
        return not self.kept

    @property
    def skew(self) -> int:
        """distance of its first byte from an aligned address, which keeps all alignments"""
        return self.start % ALIGN


@dataclass(frozen=True)
class Placement:
    """The finished plan of a graph."""

    order: tuple[Node, ...]
    storage: Mapping[Value, Storage]
    offset: Mapping[int, int]  # buffer id -> byte offset in the arena
    buffers: tuple[tuple[Value, int, int, int], ...]  # (root value, offset, first step, last step)
    views: frozenset[Node]  # nodes that generate no code
    scratch: Mapping[Node, int]  # byte offset of a node's scratch
    scratch_bytes: Mapping[Node, int]  # how much it is, for all threads
    arena: int
    bound: int
    order_optimal: bool
    banks: tuple[Bank, ...]
    inner: Mapping[Graph, tuple[Node, ...]] = field(default_factory=dict)  # the order of every region

    def steps(self, g: Graph | None = None) -> Iterator[Node]:
        """All nodes in the order they run; a control node before what its regions hold."""
        for node in self.order if g is None else self.inner[g]:
            yield node
            for region in node.regions:
                yield from self.steps(region)

    def bank_at(self, offset: int) -> Bank:
        """The bank that holds this byte."""
        return next(b for b in reversed(self.banks) if b.start <= offset)


@dataclass
class _Aliases:
    """Storage by value: roots have a buffer of their own, the others follow their parent."""

    numbers: Iterator[int]  # for ids: of a whole program, regions included
    ids: dict[Value, int] = field(default_factory=dict)
    storage: dict[Value, Storage] = field(default_factory=dict)
    views: set[Node] = field(default_factory=set)


def place(g: Graph, ctx: PassContext, scratch_bytes: Mapping[Node, int], room: Room | None = None) -> Placement:
    """Plan a selected graph: aliases, order, offsets. `room`: what its versions have in common."""
    main = _arrange(g, ctx, scratch_bytes, count(), room=room)
    program, made, regions = main.program, main.plan, ram_regions(ctx.regions)
    if regions:
        made = spread(program, made, _heat(g, main.aliases), _names(main.aliases), regions)
        main = replace(main, plan=made)
    found = Found()
    main.settle(0, {}, found)
    roots = list(main.aliases.ids)
    return Placement(
        order=found.order[g],
        storage=found.storage,
        offset=found.offset,
        buffers=_lifetimes(found.order[g], roots, main.aliases, found.offset),
        views=frozenset(found.views),
        scratch=found.scratch,
        scratch_bytes=main.needs,
        arena=made.arena,
        bound=made.bound,
        order_optimal=made.order_optimal,
        banks=_banks(made, regions, room is not None),
        inner={r: order for r, order in found.order.items() if r is not g},
    )


@dataclass
class Found:
    """What is known of all graphs of a program, by value, buffer and node."""

    order: dict[Graph, tuple[Node, ...]] = field(default_factory=dict)
    storage: dict[Value, Storage] = field(default_factory=dict)
    offset: dict[int, int] = field(default_factory=dict)
    scratch: dict[Node, int] = field(default_factory=dict)
    views: set[Node] = field(default_factory=set)

    def address(self, v: Value) -> int:
        """The byte of the plan at which a value lies"""
        s = self.storage[v]
        return self.offset[int(s.base)] + s.offset * s.dtype.size


@dataclass(frozen=True)
class _Arranged:
    """One graph's plan. A region's starts at zero, and lies where its node has scratch."""

    graph: Graph
    aliases: _Aliases
    program: plan.Program
    plan: plan.Plan
    needs: Mapping[Node, int]  # scratch of every node
    regions: Mapping[Node, Sequence[_Arranged]]

    def settle(self, at: int, outside: Mapping[Value, int], found: Found) -> None:
        """Say where everything is, for a plan that starts at `at`; `outside` are addresses of what lies around it."""
        nodes = {n.name: n for n in self.graph.nodes}
        found.order[self.graph] = tuple(nodes[str(k)] for k in self.plan.order)
        found.storage.update(self.aliases.storage)
        found.views |= self.aliases.views
        for v, k in self.aliases.ids.items():
            found.offset[k] = outside[v] if v in outside else at + self.plan.offset[v.name]
        found.scratch.update((nodes[str(k)], at + offset) for k, offset in self.plan.scratch.items())
        for node, inner in self.regions.items():
            for r in inner:
                places = {v: found.address(o) for v, o in outside_of(node, r.graph)}
                r.settle(found.scratch.get(node, at), places, found)


def _arrange(
    g: Graph, ctx: PassContext, scratch: Mapping[Node, int], numbers: Iterator[int],
    outside: frozenset[Value] = frozenset(), room: Room | None = None,
) -> _Arranged:
    """Plan a graph once its regions are: what they need is scratch of their node, and branches share it."""
    regions = {
        n: [_arrange(r, ctx, scratch, numbers, frozenset(v for v, _ in outside_of(n, r))) for r in n.regions]
        for n in g.nodes if n.regions
    }  # fmt: skip
    needs = {**scratch, **{n: max(r.plan.arena for r in inner) for n, inner in regions.items()}}
    aliases = find_aliases(g, ctx, numbers)
    program = planner_program(g, aliases, needs, outside)
    if room is not None:
        program = replace(program, values=_with_room(g, program.values, room))
    return _Arranged(g, aliases, program, plan.make_plan(program), needs, regions)


def _banks(made: plan.Plan, regions: Sequence[Region], every: bool) -> tuple[Bank, ...]:
    """The planner puts everything that lives for all time below the rest, in each region. `every`: empty banks too, as
    versions of one program need them, where one may use what another does not."""
    out: list[Bank] = []
    used = {s.region: s for s in made.stretches}
    for k, r in enumerate((None, *regions)):
        end = out[-1].start + out[-1].bytes if out else 0
        s = used.get(k) or plan.Stretch(k, *[plan.align_up(end, ALIGN)] * 3)
        name = f"{r.name}_" if r else ""
        if s.floor > s.start or r is None or every:
            out.append(Bank(f"{name}io", s.start, s.floor - s.start, True, r))
        if s.end > s.floor or r is None or every:
            out.append(Bank(f"{name}work", s.floor, s.end - s.floor, False, r))
    return tuple(out)


def _heat(g: Graph, a: _Aliases) -> dict[plan.Id, float]:
    """Accesses per byte of every buffer in one run."""
    root = {i: v for v, i in a.ids.items()}
    total: dict[plan.Id, float] = {v.name: 1.0 for v in a.ids}
    for node in g.nodes:
        for v in node.used:
            if v.const is None and node not in a.views:
                r = root[int(a.storage[v].base)]
                total[r.name] += accesses(node, v) * v.type.size / max(r.type.size, 1)
    return {v.name: total[v.name] / v.type.memory.size for v in a.ids}


def _names(a: _Aliases) -> dict[plan.Id, frozenset[str]]:
    """What users may call a buffer: the names of all values in it."""
    root = {i: v.name for v, i in a.ids.items()}
    out: dict[plan.Id, set[str]] = {}
    for v, s in a.storage.items():
        if isinstance(s.base, int):
            out.setdefault(root[s.base], set()).update({v.name, v.origin or v.name})
    return {k: frozenset(names) for k, names in out.items()}


# -- aliases ------------------------------------------------------------------------------------------
def find_aliases(g: Graph, ctx: PassContext, numbers: Iterator[int] | None = None) -> _Aliases:
    a = _Aliases(count() if numbers is None else numbers)
    exported = g.output_values
    into = _concat_parts(g, exported, ctx)
    into.update(_into_outputs(g, exported, into))
    for v in g.inputs:
        _own(a, v)
    for node in g.nodes:
        for v in node.outputs:
            if v in into:
                continue  # its place follows from a value that comes later
            if v not in exported and len(node.outputs) == 1:
                s = view_storage(node, a.storage)
                if s is not None and all(accepts(u, v, s, ctx) for u in v.users):
                    a.storage[v] = s
                    a.views.add(node)
                    ctx.reason(node, "plan", "a view: its elements stay where they are")
                    continue
            _own(a, v)
            _settle(v, into, a)
    for node in g.nodes:
        if len(node.outputs) == 1 and node not in a.views and _nothing_moves(node, a.storage):
            a.views.add(node)
            ctx.reason(node, "plan", "its input was written into its output already")
    return a


def _own(a: _Aliases, v: Value) -> None:
    a.ids[v] = next(a.numbers)
    a.storage[v] = dense(a.ids[v], v.type)


def _settle(v: Value, into: dict[Value, tuple[Value, Storage]], a: _Aliases) -> None:
    """Give a place to all values that are written into `v`."""
    for inner, (outer, _) in into.items():
        if outer is v and inner not in a.storage:
            a.storage[inner] = _part_storage(inner, v, into[inner][1], a.storage[v])
            _settle(inner, into, a)


def _part_storage(inner: Value, outer: Value, relative: Storage, base: Storage) -> Storage:
    """A part's storage: `relative` says offset per axis of the outer value (concat) or is a whole view."""
    if relative.base == "whole":
        return Storage(base.base, base.dtype, base.offset, relative.strides)
    offset = base.offset + relative.offset * base.strides[relative.strides[0]]
    return Storage(base.base, base.dtype, offset, base.strides)


def _concat_parts(g: Graph, exported: set[Value], ctx: PassContext) -> dict[Value, tuple[Value, Storage]]:
    """Values that can be written straight into the Concat that reads them."""
    out: dict[Value, tuple[Value, Storage]] = {}
    for node in g.nodes:
        if node.op != "Concat":
            continue
        v, axis, at = node.outputs[0], node.attrs["axis"] % node.outputs[0].type.rank, 0
        for x in node.inputs:
            assert x is not None
            alone = x not in exported and x not in out and node.inputs.count(x) == 1
            if alone and x.type.memory is v.type.memory and _writes_strided(x, v, ctx):
                out[x] = (v, Storage("part", x.type.memory, at, (axis,)))
            at += x.shape[axis]
    return out


def _writes_strided(x: Value, v: Value, ctx: PassContext) -> bool:
    """Whether x's producer can write with the strides of `v`, and every reader can read that."""
    p = x.producer
    if p is None or x.type.size == 0 or x.type.order != v.type.order or len(p.outputs) > 1:
        return False
    part = _part_of_larger(x)
    for u in x.users:
        if u.op != "Concat" and (_needs_dense(u, x) or (is_contraction(u) and not _kernel_accepts(u, x, part, ctx))):
            return False
    if is_contraction(p):
        if parts(p).is_integer and parts(p).is_matrix and x.type.rank > 2:
            return False  # its rows are counted as one
        return x.shape[axis := _run_axis(p, ctx)] == 1 or x.type.order[-1] == axis
    return _writes_anywhere(p)


def _part_of_larger(x: Value) -> Storage:
    """x inside a tensor of the same order of which nothing else is known: only the fastest axis has stride 1.

    That an axis is the fastest since those behind it have size 1 is not so any more in a larger tensor.
    """
    fastest = x.type.order[-1] if x.type.rank else -1
    return Storage("part", x.type.memory, 0, tuple(1 if k == fastest else 2 for k in range(x.type.rank)))


def _run_axis(p: Node, ctx: PassContext) -> int:
    """The axis along which a kernel writes runs: channels, or the elements of a row."""
    c = parts(p)
    return c.out.type.rank - 1 if c.is_matrix or family(c, ctx.target) == "nchw" else 1


def _writes_anywhere(p: Node) -> bool:
    """Whether a producer computes its result (a view would only show somebody else's memory)."""
    return is_contraction(p) or (is_loops(p) and not _is_view_op(p) and not _pure_load(p))


def _is_view_op(node: Node) -> bool:
    return node.op != "Fused" and bool(getattr(opdef(node), "view", False))


def _pure_load(p: Node) -> bool:
    e = compose(p)[0](*index_vars(p.outputs[0].type))
    return isinstance(e, Load)


def _into_outputs(
    g: Graph, exported: set[Value], into: dict[Value, tuple[Value, Storage]]
) -> dict[Value, tuple[Value, Storage]]:
    """Values that are only reshaped into an output: they live in the output's buffer."""
    out: dict[Value, tuple[Value, Storage]] = {}
    for node in g.nodes:
        v = node.outputs[0]
        if v not in exported or len(node.outputs) > 1 or not node.used:
            continue
        x = node.inputs[0]
        if x is None or x.producer is None or x in exported or x in into or x.type.size != v.type.size:
            continue
        if not _writes_anywhere(x.producer):
            continue
        trial = {x: dense(0, x.type)}
        s = view_storage(node, trial) if len(node.used) == 1 else None
        if s is not None and s.offset == 0 and is_dense(s, v.type):
            out[x] = (v, Storage("whole", x.type.memory, 0, x.type.strides))
    return out


def view_storage(node: Node, storage: Mapping[Value, Storage]) -> Storage | None:
    """Storage of the node's result inside its input's memory, if the node only moves elements linearly."""
    v = node.outputs[0]
    if v.type.size == 0 or is_contraction(node) or not is_loops(node):
        return None
    if _is_view_op(node):
        x = node.inputs[0]
        if x is not None and x in storage and is_dense(storage[x], x.type) and v.type.layout is None:
            s = storage[x]
            return _shown(s, s.offset, v.type.strides, v)
    if any(x.const is not None or x not in storage for x in node.used):
        return None
    if node.op == "Concat" or not (_moves_only(node) or _widens_only(node, storage)):
        return None
    at = index_vars(v.type)
    e = flatten_loads(compose(node)[0](*at), lambda x: storage[x])
    e = e.args[0] if _widens(e) else e
    if not isinstance(e, Load):
        return None
    terms, const = linear(e.index[0])
    if any(not isinstance(t, Var) for t in terms):
        return None
    strides = tuple(terms.get(i, 0) for i in at)
    if any(s == 0 for s, d in zip(strides, v.shape) if d > 1):
        return None  # an expansion: many elements at one place cannot be written, reading them is fine but rare
    return _shown(storage[e.source], const, strides, v)


def _shown(x: Storage, offset: int, strides: tuple[int, ...], v: Value) -> Storage | None:
    """`v` in x's memory, where elements are of its type there."""
    return Storage(x.base, x.dtype, offset, strides) if x.dtype is v.type.memory else None


def _widens(e: Expr) -> TypeGuard[Op]:
    """Whether an expression makes a float32 of a half: the same number."""
    return isinstance(e, Op) and e.fn == "cast" and e.dtype is DType.F32 and e.args[0].dtype in HALVES


def _widens_only(node: Node, storage: Mapping[Value, Storage]) -> bool:
    """Whether it makes float32 of halves that are stored as float32, and nothing else."""
    v, x = node.outputs[0], node.inputs[0] if node.inputs else None
    if x is None or v.dtype is not DType.F32 or x.dtype not in HALVES or storage[x].dtype is not DType.F32:
        return False
    return _widens(compose(node)[0](*index_vars(v.type)))


def _moves_only(node: Node) -> bool:
    nodes = node.body.nodes if node.body is not None else [node]
    return all(n.op in ("Transpose", "Reshape", "Slice", "Copy", "DepthToSpace", "SpaceToDepth") for n in nodes)


def is_loops(node: Node) -> bool:
    if is_contraction(node):
        return False
    d = opdef(root_of(node))
    return node.op == "Fused" or (d.has_expr and not d.has_routine)


def _needs_dense(u: Node, v: Value) -> bool:
    return not is_contraction(u) and not is_loops(u)


def accepts(u: Node, v: Value, s: Storage, ctx: PassContext) -> bool:
    """Whether reader `u` can read `v` with these strides without loss."""
    if is_contraction(u):
        return _kernel_accepts(u, v, s, ctx)
    if not is_loops(u):
        return is_dense(s, v.type)
    if _is_view_op(u):
        return True  # it copies where it cannot show
    fastest = min((abs(x) for x, d in zip(s.strides, v.shape) if d > 1), default=1)
    return fastest == 1 or reads_per_element(root_or_self(u), _inner(u, v)) <= 1.01


def root_or_self(u: Node) -> Node:
    """The node of a group that reads from outside first (for counting reads)."""
    return u if u.body is None else u.body.nodes[0]


def _inner(u: Node, v: Value) -> Value:
    if u.body is None:
        return v
    return dict(zip(u.inputs, u.body.inputs))[v]


def _kernel_accepts(u: Node, v: Value, s: Storage, ctx: PassContext) -> bool:
    c = parts(u)
    if v not in (c.x, c.w):  # of the epilogue: what counts is its stride along the kernel's vectors
        axis = (-1 if c.is_matrix else 1 - c.out.type.rank) + v.type.rank
        return axis < 0 or v.shape[axis] == 1 or s.strides[axis] == 1
    if c.is_integer:  # its copy takes any strides, of rows that are counted as one
        if not c.is_matrix and family(c, ctx.target) == "idw":
            return s.strides[1] == 1
        return not c.is_matrix or v.type.rank == 2 or is_dense(s, v.type)
    if c.is_matrix:
        return s.strides[-1] == 1 or v.shape[-1] == 1
    if family(c, ctx.target) == "nchw":
        return bool(c.node.attrs["scratch"])  # its copy takes any strides
    copies = c.root.attrs.get("group", 1) == 1 and bool(c.node.attrs["scratch"])
    return s.strides[1] == 1 or v.shape[1] == 1 or copies


def _nothing_moves(node: Node, storage: Mapping[Value, Storage]) -> bool:
    """Every element's address in is its address out: the work is done already."""
    if is_contraction(node) or not is_loops(node) or not all(x in storage for x in node.used):
        return False
    v = node.outputs[0]
    if v.type.size == 0 or len(node.outputs) > 1:
        return False
    if node.op == "Concat":
        return _concat_done(node, storage)
    x = node.inputs[0] if node.inputs else None
    if x is None or storage[x].base != storage[v].base or not (_moves_only(node) or _widens_only(node, storage)):
        return False
    s = view_storage(node, {k: storage[k] for k in node.used})
    return s is not None and s.offset == storage[v].offset and all(
        a == b for a, b, d in zip(s.strides, storage[v].strides, v.shape) if d > 1
    )


def _concat_done(node: Node, storage: Mapping[Value, Storage]) -> bool:
    return all(part_done(node, k, storage) for k in range(len(node.inputs)))


def part_done(node: Node, k: int, storage: Mapping[Value, Storage]) -> bool:
    """Whether input `k` of a Concat already lies in its place of the output."""
    v = node.outputs[0]
    axis = node.attrs["axis"] % v.type.rank
    x = node.inputs[k]
    assert x is not None
    at = sum(y.shape[axis] for y in node.inputs[:k] if y is not None)
    if x not in storage or storage[x].base != storage[v].base:
        return False
    want = storage[v]
    return storage[x].offset == want.offset + at * want.strides[axis] and all(
        a == b for a, b, d in zip(storage[x].strides, want.strides, x.shape) if d > 1
    )


# -- order and offsets -----------------------------------------------------------------------------------
def planner_program(
    g: Graph, a: _Aliases, scratch: Mapping[Node, int], outside: frozenset[Value] = frozenset()
) -> plan.Program:
    """The planner's view: one value per buffer, one step per node that does work or defines a view.

    What lies `outside` needs no memory here.
    """
    root_of_id = {i: v for v, i in a.ids.items()}

    def root(v: Value) -> Value:
        return root_of_id[int(a.storage[v].base)]

    exported = g.output_values
    first_writer: dict[Value, Node] = {}
    steps: list[plan.Step] = []
    for node in g.nodes:
        defines, after = [], []
        for v in node.outputs:
            r = root(v)
            if r.producer is None or node in a.views:
                continue
            if r in first_writer:
                after.append(first_writer[r].name)
            else:
                first_writer[r] = node
                defines.append(r.name)
        uses = [root(v).name for v in node.used if v.const is None]
        # a writer of a part, and a view, keeps the buffer alive; a view also waits for what it shows
        uses += [root(v).name for v in node.outputs if root(v).name not in defines]
        steps.append(plan.Step(node.name, tuple(defines), tuple(dict.fromkeys(uses)), scratch.get(node, 0),
                               tuple(dict.fromkeys(after + _producers(node)))))
    values = []
    sizes = {at for v in exported if (at := sizes_of(v)) is not None}
    for v in a.ids:
        size = 0 if v in outside else upper(v.type.bytes)
        pinned = v not in outside and (v.producer is None or v in exported or v in sizes)
        values.append(plan.Value(v.name, size, plan.natural_align(size), pinned, v in exported))
    pairs = (p for p in _in_place(g, a) if not outside or {p.input, p.output}.isdisjoint(v.name for v in outside))
    return plan.Program(tuple(values), tuple(steps), tuple(pairs))


def _with_room(g: Graph, values: Sequence[plan.Value], room: Room) -> tuple[plan.Value, ...]:
    """The sizes first, then ports in order, each as large as in any version: so all versions place them alike."""
    by_id = {v.id: v for v in values}
    ports: dict[plan.Id, plan.Value] = {SIZES: plan.Value(SIZES, room.sizes, pinned=True)}
    for name, v in ports_of(g):
        most = max(room.ports[name], ports[v.name].bytes if v.name in ports else 0)
        ports[v.name] = replace(by_id[v.name], bytes=most, align=plan.natural_align(most))
    return (*ports.values(), *(v for v in values if v.id not in ports))


def _producers(node: Node) -> list[str]:
    """Data dependences by node: through shared buffers the planner would not see them."""
    return [v.producer.name for v in node.used if v.producer is not None]


def _in_place(g: Graph, a: _Aliases) -> list[plan.InPlace]:
    """Nodes that may write their result over an input of the same place and size."""
    out = []
    for node in g.nodes:
        if node in a.views or len(node.outputs) != 1:
            continue
        v = node.outputs[0]
        if v not in a.ids or v.type.size == 0:
            continue
        for x in dict.fromkeys(node.used):
            if x not in a.ids or x.producer is None or not same_number(x.type.bytes, v.type.bytes):
                continue
            if overwrites(node, x, v):
                out.append(plan.InPlace(node.name, x.name, v.name))
    return out


def overwrites(node: Node, x: Value, v: Value) -> bool:
    """Whether every element of `x` is read only where, and before, the same place of `v` is written."""
    if is_contraction(node):
        c = parts(node)
        return x in c.others and x not in (c.x, c.w) and x.type.strides == v.type.strides and x.shape == v.shape
    if not is_loops(node) or node.op == "Concat" or x.type.memory.size != v.type.memory.size:
        return False
    at = index_vars(v.type)
    e = flatten_loads(compose(node)[0](*at), lambda y: dense(0 if y.const is None else "c", y.type))
    store = dense(0, v.type).address(at)
    loads = [y for y in walk(e) if isinstance(y, Load) and y.source is x]
    return bool(loads) and all(y.index[0] == store and not (free_vars(y) - free_vars(store)) for y in loads)


def _lifetimes(
    order: tuple[Node, ...], roots: list[Value], a: _Aliases, offset: Mapping[int, int]
) -> tuple[tuple[Value, int, int, int], ...]:
    """For the report: when each buffer is first and last touched."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for k, node in enumerate(order):
        for v in [*node.used, *node.outputs]:
            if v in a.storage and isinstance(a.storage[v].base, int):
                b = int(a.storage[v].base)
                first.setdefault(b, k)
                last[b] = k
    return tuple((v, offset[a.ids[v]], first.get(a.ids[v], 0), last.get(a.ids[v], 0)) for v in roots)
