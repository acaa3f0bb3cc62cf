"""Exported program to Graph: one call, all problems at once, the same Graph that ONNX models become.

The program is in core ATen, a list of calls in the order they run. Each is read by the function that its family's
table names. Sizes are numbers by then: what the program computes of them is computed here. Every result is compared
with the type that PyTorch traced, so a reader that errs cannot go unnoticed. Buffers that the program assigns to are
state of the image.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from monobloc.errors import Diagnostics, InternalError, Loc, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend.dims import Declared, solve
from monobloc.frontend.importing import (
    Choices,
    Imported,
    Told,
    bound_values,
    fixed_shapes,
    given_dims,
    guarded,
    kept_outputs,
    told,
)
from monobloc.frontend.limits import Limits
from monobloc.frontend.state import finish, flipped
from monobloc.frontend.torch import constant
from monobloc.frontend.torch.complexes import Complex
from monobloc.frontend.torch.complexes import read as read_complex
from monobloc.frontend.torch.control import CONTROL
from monobloc.frontend.torch.families import READERS, SIZED
from monobloc.frontend.torch.node import AtenNode, DataNumber, holds
from monobloc.frontend.torch.numbers import ITEM, item, python
from monobloc.frontend.torch.numbers import read as read_numbers
from monobloc.frontend.torch.program import OPSETS, PRODUCER, Program, read_program
from monobloc.frontend.torch.sized import read as read_ragged
from monobloc.frontend.torch.sizes import IGNORED, NUMBERS, computed
from monobloc.frontend.torch.tensors import array_of, dtype_of, identity_of
from monobloc.frontend.torch.where import Missing, full_name, label, place
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import TensorType
from monobloc.ops.build import Builder
from monobloc.ops.sized import Ragged, packed
from monobloc.passes.intervals import Range

EFFECTS = "with_effects"  # a call that may fail, in order with others
UNBOUNDED = 1 << 40  # a number above is what PyTorch has where nobody says
UNKNOWN = object()  # what a call that failed would have made


def load_torch(model: Any, choices: Choices | None = None) -> Imported:
    """Import a .pt2 file, its bytes, or an ExportedProgram."""
    return loader(model)(choices or Choices())


def loader(model: Any) -> Callable[[Choices], Imported]:
    """What imports a program at any sizes, read once"""
    with guarded(model):
        program = read_program(model)
        exported = program.core

    def load(choices: Choices) -> Imported:
        with guarded(model):
            return _Import(program, exported, choices).run()

    return load


class _Import:
    """One import; the methods in the order they run."""

    def __init__(self, program: Program, exported: Any, choices: Choices) -> None:
        self.program, self.exported, self.choices = program, exported, choices
        self.loc = Loc(program.name)
        self.signature = exported.graph_signature
        self.graph = Graph(program.path.stem if program.path else program.name)
        self.builder = Builder(self.graph)
        self.diagnostics = Diagnostics()
        self.limits = Limits(choices.max_values)
        self.notes = list(program.notes)
        self.env: dict[Any, Any] = {}
        self.named: set[Value] = set()
        self.shared: dict[Any, Value] = {}
        self.before: dict[str, Value] = {}  # buffers that change: what they held before the run
        self.starts: dict[str, np.ndarray] = {}
        self.missing = Missing()
        self.dims: dict[str, int] = {}

    def run(self) -> Imported:
        nodes = list(self.exported.graph.nodes)
        wanted = self._wanted(nodes[-1].args[0], nodes)
        self._placeholders(nodes)
        self.diagnostics.checkpoint()
        for n in self._needed(nodes, [v for _, v in wanted]):
            self._node(n)
        for problem in self.missing.errors():
            self._report(problem)
        self._outputs(wanted)
        for e in self.limits.problems([str(n.name) for n in nodes], whole=not self.diagnostics.errors):
            self._report(e)
        self.diagnostics.checkpoint()
        self._state(nodes[-1].args[0])
        return Imported(self.graph, self.notes, self.dims, OPSETS, 0, PRODUCER, {})

    def _report(self, e: MonoblocError) -> None:
        self.diagnostics.report(e.at(self.loc))

    # -- inputs -------------------------------------------------------------------------------------
    def _placeholders(self, nodes: Sequence[Any]) -> None:
        specs = {s.arg.name: s for s in self.signature.input_specs if hasattr(s.arg, "name")}
        users = {n.name: n for n in nodes if n.op == "placeholder" and specs[n.name].kind.name == "USER_INPUT"}
        self._users(users)
        mutated = set(self.signature.buffers_to_mutate.values())
        for n in nodes:
            if n.op != "placeholder" or n.name in users:
                continue
            spec = specs[n.name]
            try:
                self.env[n] = self._held(spec, n.name, mutated)
            except MonoblocError as e:
                self._report(e)
                self.env[n] = UNKNOWN

    def _held(self, spec: Any, name: str, mutated: set[str]) -> Any:
        """A parameter, buffer or constant of the module"""
        kind, target = spec.kind.name, spec.target
        what = f"{kind.lower().replace('_', ' ')} '{target}'"
        if kind == "TOKEN":
            return None
        if kind == "CUSTOM_OBJ":
            raise UnsupportedError(f"the object '{target}' is not supported")
        source = self.exported.state_dict if target in self.exported.state_dict else self.exported.constants
        if target not in source:
            raise ModelError(f"{what} has no data")
        t = source[target]
        if target in mutated:
            return self._changing(target, t, what)
        if t.is_complex():
            re, im = (array_of(p, what) for p in (t.real, t.imag))
            return Complex(self.graph.constant(f"{target}.real", re), self.graph.constant(f"{target}.imag", im))
        key = identity_of(t)
        if key not in self.shared:
            self.shared[key] = self.graph.constant(target, array_of(t, what))
            self.named.add(self.shared[key])
        return self.shared[key]

    def _changing(self, target: str, t: Any, what: str) -> Value:
        """A buffer that the program assigns to: state, as an input"""
        start = array_of(t, what)
        v = self.graph.add_input(target, TensorType(dtype_of(t.dtype), start.shape))
        self.named.add(v)
        self.before[target], self.starts[target] = v, start
        self.builder.name = target
        return flipped(self.builder, v, start)

    def _users(self, users: Mapping[str, Any]) -> None:
        """What the caller gives: inputs of the graph, bound constants, and sizes"""
        types: dict[str, Declared] = {}
        for name, n in users.items():
            val = n.meta.get("val")
            if isinstance(val, torch.Tensor):
                try:
                    types[name] = Declared(dtype_of(val.dtype), tuple(self._dim(d) for d in val.shape))
                except MonoblocError as e:
                    self._report(UnsupportedError(f"input '{name}': {e.message}"))
        bound = bound_values(self.choices.bind, types, self.notes, self._report)
        try:
            shapes = {**fixed_shapes(self.choices), **{k: v.shape for k, v in bound.items()}}
            given, related = self._given(types, shapes)
            sizes, self.dims, notes = solve(types, shapes, given, self.program.name, related)
            self.notes += notes
            self._check_ranges()
        except ModelError as e:
            self._report(e)
            return
        for name, n in users.items():
            self.env[n] = self._user(name, n, types.get(name), sizes.get(name), bound.get(name))

    def _user(self, name: str, n: Any, t: Declared | None, shape: Any, bound: np.ndarray | None) -> Any:
        if t is None:  # a number, None, or a size of its own
            val = n.meta.get("val")
            return self.dims.get(self._dim(val), UNKNOWN) if isinstance(val, torch.SymInt) else val
        if bound is not None:
            v = self.graph.constant(name, bound)
        else:
            v = self.graph.add_input(name, TensorType(t.dtype, shape))
        self.named.add(v)
        self.limits.name(name, v)
        return v

    def _dim(self, d: Any) -> Any:
        """A size: a number, or the text of an expression of symbols"""
        if isinstance(d, int):
            return d
        text = str(d)
        return self.program.dim_names.get(text, text)

    def _given(self, types: Mapping[str, Declared], shapes: Mapping[str, Any]
               ) -> tuple[dict[str, int], dict[str, str]]:
        """`--dim`, and the least size of leading dimensions that nobody gave and that may not be 1"""
        given, related = given_dims(self.choices, {d for t in types.values() for d in t.dims or ()})
        lower = {name: low for name, low, _ in self._ranges()}
        for name, t in types.items():
            d = t.dims[0] if t.dims else None
            if isinstance(d, str) and d not in given and d not in related and lower.get(d, 0) > 1 and not any(
                    d in (types[k].dims or ()) for k in shapes if k in types):
                given[d] = lower[d]
                self.notes.append(f"dimension '{d}' of input '{name}' is not given and becomes {lower[d]}, "
                                  f"the least it may be (`--dim {d}=N`)")
        return given, related

    def _ranges(self) -> list[tuple[str, int, int | None]]:
        """(symbol, least, most) as the export says"""
        out = []
        for symbol, r in self.exported.range_constraints.items():
            low, high = (_finite(x) for x in (r.lower, r.upper))
            out.append((self._dim(symbol), low or 0, high))
        return out

    def _check_ranges(self) -> None:
        for name, low, high in self._ranges():
            size = self.dims.get(name)
            if size is not None and (size < low or (high is not None and size > high)):
                upto = f"{low} to {high}" if high is not None else f"{low} or more"
                raise ModelError(f"dimension '{name}' is {size}, and the program was exported for {upto}")

    # -- nodes --------------------------------------------------------------------------------------
    def _needed(self, nodes: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
        """The calls that what is wanted needs, in order"""
        seen, stack = set(), [v for v in wanted if isinstance(v, torch.fx.Node)]
        while stack:
            n = stack.pop()
            if n not in seen:
                seen.add(n)
                stack += n.all_input_nodes
        return [n for n in nodes if n in seen and n.op != "placeholder"]

    def _node(self, n: Any) -> None:
        if n.op == "get_attr":
            self.env[n] = getattr(n.graph.owning_module, n.target, UNKNOWN)
            return
        loc = Loc(self.program.name, label(n), op_name(n.target))
        try:
            if not readable(n.target) and not constant.known(n.target, *self._operands(n)):
                self.missing.add(op_name(n.target), n)
                self.env[n] = UNKNOWN
                return
            if any(self.env.get(i, UNKNOWN) is UNKNOWN for i in n.all_input_nodes):
                self.env[n] = UNKNOWN
                return
            self.env[n] = self._call(n, loc)
            self._check(n, self.env[n], loc)
            self._name(n, self.env[n])
        except Told:
            self.env[n] = UNKNOWN
        except Exception as e:
            error = told(e, loc)
            if place(n) and not error.notes:
                error.notes = (f"it stands in {place(n)}",)
            self.diagnostics.report(error)
            self.env[n] = UNKNOWN

    def _call(self, n: Any, loc: Loc) -> Any:
        args, kwargs = self._value(n.args), self._value(n.kwargs)
        if n.target is operator.getitem:
            return args[0][args[1]]
        name = op_name(n.target)
        if name in IGNORED:
            return None
        self.builder.name, self.builder.locs = loc.node, (loc.node,)
        if holds(args, DataNumber) and not isinstance(n.target, torch._ops.OperatorBase):
            return python(self.builder, name, args, loc)
        found, number = computed(n.target, name, args)
        if found:
            return number
        if name == ITEM:
            return self._number(item(self.builder, args[0]), n.meta.get("val"))
        if name == EFFECTS and op_name(args[1]) in IGNORED:
            return [None, None]
        if isinstance(n.target, torch._ops.HigherOrderOperator):
            return CONTROL[name](args, self.builder, self._body)
        try:
            return self._read(n, name, args, kwargs, loc)
        except UnsupportedError:
            if not constant.known(n.target, args, kwargs):
                raise
            made = constant.computed(self.builder, n.target, args, kwargs, n.meta.get("val"))
            if made is None:
                raise
            return made

    def _operands(self, n: Any) -> tuple[Any, Any]:
        """Of a call; unknown where one of them is"""
        if any(i not in self.env for i in n.all_input_nodes):
            return UNKNOWN, UNKNOWN
        return self._value(n.args), self._value(n.kwargs)

    def _read(self, n: Any, name: str, args: Any, kwargs: Any, loc: Loc) -> Any:
        reader = READERS.get(name) or SIZED.get(name)
        if reader is None:
            raise UnsupportedError(f"{full_name(name)} of data is not supported")
        named = named_arguments(n.target, args, kwargs)
        metas = named_arguments(n.target, _metas(n.args), _metas(n.kwargs))
        needed = frozenset(u.args[1] for u in n.users if u.target is operator.getitem)
        call = AtenNode(name, self.builder, loc, named, metas, n.meta.get("val"), needed, self.limits)
        if holds(named, DataNumber):
            return read_numbers(call, SIZED, READERS)
        if holds(named, Ragged):
            return read_ragged(call, SIZED, READERS)
        return read_complex(call, READERS) if holds(named, Complex) else reader(call)

    def _number(self, v: DataNumber, traced: Any) -> DataNumber:
        """A number out of a tensor; how large it gets where the program checks that (`torch._check`)"""
        r = self.exported.range_constraints.get(traced.node.expr) if isinstance(traced, torch.SymInt) else None
        low, high = (None, None) if r is None else (_finite(r.lower), _finite(r.upper))
        if low is not None and high is not None and high < UNBOUNDED:
            self.limits.likely.known[v.value] = Range(low, high)
        return v

    def _body(self, module: Any, given: Sequence[Any], graph: Graph) -> list[Any]:
        """What a subgraph makes of these inputs, written into `graph`; it may be read more than once."""
        outer, before = self.builder, dict(self.env)
        nodes = list(module.graph.nodes)
        self.builder = Builder(graph)
        self.env.update(zip((n for n in nodes if n.op == "placeholder"), given, strict=True))
        leaves = nodes[-1].args[0]
        leaves = leaves if isinstance(leaves, (list, tuple)) else [leaves]
        for n in self._needed(nodes, leaves):
            self._node(n)
        found = [self._value(leaf) for leaf in leaves]
        self.builder, self.env = outer, before
        if any(v is UNKNOWN for v in found):
            raise Told("")
        return found

    def _value(self, a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            return self.env[a]
        if isinstance(a, (list, tuple)):
            return [self._value(x) for x in a]
        if isinstance(a, dict):
            return {k: self._value(v) for k, v in a.items()}
        return a

    def _check(self, n: Any, got: Any, loc: Loc) -> None:
        """The type is the one that PyTorch traced."""
        val = n.meta.get("val")
        pairs = zip(got, val, strict=False) if isinstance(got, (list, tuple)) and isinstance(
            val, (list, tuple)) else [(got, val)]
        for v, t in pairs:
            if isinstance(v, Complex) and isinstance(t, torch.Tensor):
                v, t = v.re, t.real
            counts = v.counts if isinstance(v, Ragged) else {}
            v = v.value if isinstance(v, Ragged) else v
            if not isinstance(v, Value) or not isinstance(t, torch.Tensor):
                continue
            fixed = [d if type(d) is int and k not in counts else None for k, d in enumerate(t.shape)]
            same = len(fixed) == v.type.rank and all(d is None or d == s for d, s in zip(fixed, v.shape, strict=True))
            if not same or v.dtype is not dtype_of(t.dtype):
                want = f"{dtype_of(t.dtype).value}[{','.join(map(str, t.shape))}]"
                raise InternalError(f"is read as {v.type}, and PyTorch makes {want}", loc=loc)

    def _name(self, n: Any, v: Any) -> None:
        if isinstance(v, (Value, DataNumber)):
            self.limits.name(n.name, v if isinstance(v, Value) else v.value)
        if isinstance(v, Value) and v not in self.named and v.const is None and v.producer is not None:
            self.builder.graph.rename(v, n.name)
            self.named.add(v)

    # -- outputs ------------------------------------------------------------------------------------
    def _wanted(self, leaves: Sequence[Any], nodes: Sequence[Any]) -> list[tuple[str, Any]]:
        """(name, what leaves by it), and what changes in place"""
        users = [leaf for leaf, s in zip(leaves, self.signature.output_specs, strict=True)
                 if s.kind.name == "USER_OUTPUT"]
        names = self.program.output_names()
        if len(names) != len(users):
            names = [f"output_{k}" for k in range(len(users))] if len(users) > 1 else ["output"]
        own = dict(zip(names, users, strict=True))
        if self.choices.keep_outputs is None:
            out = [(name, leaf) for name, leaf in own.items() if leaf is not None]
        else:
            known = {**{n.name: n for n in nodes if n.op == "call_function"}, **own}
            inputs = [n.name for n in self.program.user_inputs()]
            out = [(n, known[n]) for n in kept_outputs(self.choices, inputs, names, known, self._report)]
        if not out and not self.signature.buffers_to_mutate:
            self._report(ModelError("has no outputs"))
        for leaf, s in zip(leaves, self.signature.output_specs, strict=True):
            if s.kind.name == "USER_INPUT_MUTATION":
                out.append((f"{s.target}/next", leaf))
                self.notes.append(f"input '{s.target}' is changed in place: it becomes output '{s.target}/next'")
            elif s.kind.name != "USER_OUTPUT":
                out.append(("", leaf))  # needed, and named by its buffer
        return out

    def _outputs(self, wanted: Sequence[tuple[str, Any]]) -> None:
        for name, leaf in wanted:
            v = self.env.get(leaf, UNKNOWN) if isinstance(leaf, torch.fx.Node) else leaf
            if not name or v is UNKNOWN or v is None:
                continue
            if isinstance(v, Ragged):
                v = packed(self.builder, v, name)
            if isinstance(v, DataNumber):
                v = v.value
            if isinstance(v, Complex):
                self._report(UnsupportedError(f"output '{name}' is complex, which is not supported",
                                              hints=["return `torch.view_as_real(y)`"]))
            if is_open(v):  # a number that a size decides: a version for each
                v = int(v)
            if isinstance(v, (bool, int, float)):
                self.notes.append(f"output '{name}' is always {v}")
                v = self.builder.const(np.asarray(v))
            if isinstance(v, Value):
                self.graph.outputs.append((name, v))
            elif not self.diagnostics.errors:
                self._report(UnsupportedError(f"output '{name}' is no tensor, which is not supported"))

    def _state(self, leaves: Sequence[Any]) -> None:
        now = {}
        for leaf, s in zip(leaves, self.signature.output_specs, strict=True):
            if s.kind.name == "BUFFER_MUTATION" and s.target in self.before:
                now[s.target] = self.env[leaf]
        finish(self.builder, self.graph, {k: self.before[k] for k in now}, now, self.starts)
        if now:
            self.notes.append(f"{len(now)} buffers are assigned to and become state, which lasts from run to run")


def readable(target: Any) -> bool:
    """Whether somebody reads a call: a table, or Python, of numbers"""
    name = op_name(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return name in CONTROL or name == EFFECTS
    return name in READERS or name in IGNORED or name in NUMBERS or not isinstance(target, torch._ops.OpOverload)


def op_name(target: Any) -> str:
    """`linear.default`: as the tables name it; other namespaces in front"""
    text = str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))
    return text.removeprefix("aten.")


def named_arguments(target: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """By the schema's names, defaults filled in"""
    if not isinstance(target, torch._ops.OpOverload):
        return {str(k): v for k, v in enumerate(args)} | dict(kwargs)
    out = {}
    for k, a in enumerate(target._schema.arguments):
        default = a.default_value if a.has_default_value() else None
        out[a.name] = args[k] if k < len(args) else kwargs.get(a.name, default)
    return out


def _metas(a: Any) -> Any:
    """What PyTorch traced of arguments; sizes stand for any number"""
    if isinstance(a, torch.fx.Node):
        a = a.meta.get("val")
    if isinstance(a, (list, tuple)):
        return [_metas(x) for x in a]
    if isinstance(a, dict):
        return {k: _metas(v) for k, v in a.items()}
    kinds = ((torch.SymBool, True), (torch.SymInt, 2), (torch.SymFloat, 2.0))
    return next((plain for kind, plain in kinds if isinstance(a, kind)), a)


def _finite(x: Any) -> int | None:
    return int(x) if isinstance(x, int) or getattr(x, "is_Integer", False) else None
