"""TFLite model to Graph: one call, all problems at once, the same Graph that ONNX models become.

Operators stand in the order they run in. Each is read by the function that its family's table names; operators that
no table names are told together, with how often they occur. Inputs and outputs have the names of the model's
signature, or their tensors' where there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.errors import Diagnostics, Loc, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend.dims import Declared
from monobloc.frontend.importing import (
    Choices,
    Imported,
    Told,
    as_declared,
    fixed_shapes,
    guarded,
    kept_outputs,
    told,
    unknown_name,
)
from monobloc.frontend.limits import Limits
from monobloc.frontend.state import finish
from monobloc.frontend.tflite import (
    arithmetic,
    boxes,
    control,
    convs,
    curves,
    filters,
    folds,
    indexing,
    lookups,
    mediapipe,
    movement,
    places,
    products,
    randoms,
    recurrent,
    resizing,
    signal,
    spectra,
    stablehlo,
    variables,
    windows,
)
from monobloc.frontend.tflite.node import EMPTY, Held, Reader, States, TflNode
from monobloc.frontend.tflite.refused import reason
from monobloc.frontend.tflite.schema import (
    COMPLEX,
    RESOURCE,
    SMALL,
    TYPES,
    Model,
    Operator,
    SubGraph,
    Tensor,
    read_model,
)
from monobloc.frontend.tflite.sized import decides, read_sized
from monobloc.frontend.tflite.stored import densified, unpacked
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import MAX_ELEMENTS, Builder
from monobloc.ops.sized import Ragged, packed

MAX_CALLS = 20

READERS: dict[str, Reader] = {
    **arithmetic.READERS, **boxes.READERS, **control.READERS, **convs.READERS, **curves.READERS, **filters.READERS,
    **folds.READERS, **indexing.READERS, **lookups.READERS, **mediapipe.READERS, **movement.READERS,
    **places.READERS, **products.READERS, **randoms.READERS, **recurrent.READERS, **resizing.READERS,
    **signal.READERS, **spectra.READERS, **stablehlo.READERS, **variables.READERS, **windows.READERS,
}  # fmt: skip


def load_tflite(model: Any, choices: Choices | None = None) -> Imported:
    """Import a model from a path or bytes."""
    with guarded(model), np.errstate(over="ignore", invalid="ignore"):
        return _Import(read_model(model), choices or Choices()).run()


class _Import:
    """One import; the methods in the order they run."""

    def __init__(self, model: Model, choices: Choices) -> None:
        self.model, self.main, self.loc = model, model.main, Loc(model.name)
        self.choices = choices
        self.diagnostics = Diagnostics()
        self.notes: list[str] = []
        self.graph = Graph((model.path.stem if model.path else model.main.name) or "model")
        self.states = States()

    def run(self) -> Imported:
        self._check_dims()
        self._check_operators()
        body = _Body(self.model, self.main, self.graph, self.states, self.diagnostics, self.choices)
        self._inputs(body)
        self.diagnostics.checkpoint()
        body.run()
        self._outputs(body)
        values = [t.name for s in self.model.subgraphs for t in s.tensors]
        for e in body.limits.problems([*port_names(self.model)[0], *values], whole=not self.diagnostics.errors):
            self._report(e)
        self.diagnostics.checkpoint()
        finish(Builder(self.graph), self.graph, self.states.before, self.states.now, self.states.start)
        if self.states.before:
            self.notes.append(f"{len(self.states.before)} variables become state, which lasts from run to run")
        return Imported(self.graph, self.notes, {}, {"tflite": self.model.version}, self.model.version,
                        self.model.description, {})

    def _check_dims(self) -> None:
        words = {d for shape in self.choices.shapes.values() for d in shape}
        for name in self.choices.dims:
            if name not in words:
                raise ModelError(f"has no size called '{name}': sizes have no names in a TFLite model",
                                 hints=["`--shape INPUT=1x96x96x3` gives an input's shape"])

    def _check_operators(self) -> None:
        """What no table names, all of it at once"""
        found = Counter(o.name for k in sorted(_reached(self.model))
                        for o in self.model.subgraphs[k].operators if o.name not in READERS and o.name != "CALL_ONCE")
        if found:
            words = ", ".join(f"{name} ({count})" for name, count in found.most_common())
            total = "operators are" if len(found) > 1 else "operator is"
            hints = [f"{name}: {why}" for name in found if (why := reason(name))]
            raise UnsupportedError(f"{len(found)} {total} not supported: {words}", hints=hints)

    # -- ports ----------------------------------------------------------------------------------------
    def _inputs(self, body: _Body) -> None:
        names = port_names(self.model)[0]
        for word, given in (("a shape", self.choices.shapes), ("a value", self.choices.bind)):
            for name in given:
                if name not in names:
                    self._report(unknown_name(f"{word} is given for '{name}', which is no input", name,
                                              names))
        for p, t in enumerate(self.main.inputs):
            try:
                v = self._input(names[p], self.main.tensors[t])
                body.held[t] = Held(last=v)
                body.limits.name(names[p], v)
            except MonoblocError as e:
                self._report(e)

    def _input(self, name: str, t: Tensor) -> Value:
        dtype = TYPES.get(t.type)
        if dtype is None:
            raise UnsupportedError(f"input '{name}' is {t.text}, which is not supported")
        shape = fixed_shapes(self.choices).get(name, t.shape)
        if len(shape) != len(t.shape) or any(s >= 0 and s != d for s, d in zip(t.signature, shape)):
            raise ModelError(f"input '{name}' is {t.text}, and its shape is given as {list(shape)}")
        if np.prod([float(d) for d in shape]) > MAX_ELEMENTS:
            raise ModelError(f"input '{name}' is {t.text}, which is too large to address")
        if name in self.choices.bind:
            self.notes.append(f"input '{name}' is bound and becomes a constant")
            given = self.choices.bind[name]
            if given.shape != shape:
                raise ModelError(f"input '{name}' has the shape {list(shape)}, the given value {list(given.shape)}")
            return self.graph.constant(name, as_declared(name, given, Declared(dtype, shape)))
        return self.graph.add_input(name, TensorType(dtype, shape))

    def _outputs(self, body: _Body) -> None:
        inputs, names = port_names(self.model)
        wanted = {names[p]: t for p, t in enumerate(self.main.outputs)}
        if self.choices.keep_outputs is not None:
            known = {**{t.name: t.index for t in self.main.tensors}, **wanted}
            wanted = {n: known[n] for n in kept_outputs(self.choices, inputs, list(wanted), known, self._report)}
        if not wanted:
            self._report(ModelError("has no outputs"))
        for name, t in wanted.items():
            if self.main.tensors[t].type == COMPLEX:
                self._report(UnsupportedError(f"output '{name}' is complex, which is not supported"))
                continue
            found = body.value(t) if t not in body.sized else packed(body.builder, body.sized[t], name)
            if found is not None:
                self.graph.outputs.append((name, found))
            elif t not in body.broken:
                self._report(ModelError(f"output '{name}' is made by nothing"))

    def _report(self, e: MonoblocError) -> None:
        self.diagnostics.report(e.at(self.loc))


def port_names(model: Model) -> tuple[list[str], list[str]]:
    """What inputs and outputs are called, in the file's order: by the signature, or as their tensors"""
    main = model.main
    signature = next((s for s in model.signatures if s.subgraph == 0), None)
    found = []
    for word, indices, given in (("input", main.inputs, signature.inputs if signature else {}),
                                 ("output", main.outputs, signature.outputs if signature else {})):
        names = [given.get(t) or main.tensors[t].name or f"{word}{p}" for p, t in enumerate(indices)]
        if len(set(names)) < len(names):
            names = [f"{name}.{p}" if names.count(name) > 1 else name for p, name in enumerate(names)]
        found.append(names)
    return found[0], found[1]


def _reached(model: Model) -> set[int]:
    """The subgraphs that the main one runs, by whatever way; numbers that there are"""
    found, todo = {0}, [0]
    while todo:
        for o in model.subgraphs[todo.pop()].operators:
            slots = {"CALL_ONCE": (0,), "IF": (0, 1), "WHILE": (0, 1), "STABLEHLO_COMPOSITE": (1,)}.get(o.name, ())
            numbers = {(o.options or EMPTY).whole(k) for k in slots}
            numbers |= {*(o.options or EMPTY).ints(0)} if o.name == "STABLEHLO_CASE" else set()
            todo += (new := {k for k in numbers - found if 0 < k < len(model.subgraphs)})
            found |= new
    return found


class _Body:
    """The operators of one subgraph, written into a graph"""

    def __init__(self, model: Model, sub: SubGraph, graph: Graph, states: States, diagnostics: Diagnostics,
                 choices: Choices, depth: int = 0, limits: Limits | None = None) -> None:
        self.model, self.sub, self.graph, self.states = model, sub, graph, states
        self.diagnostics, self.choices, self.depth = diagnostics, choices, depth
        self.reshaped = bool(choices.shapes) or choices.ignore_shapes
        self.builder = Builder(graph)
        self.held: dict[int, Held | None] = {}
        self.broken: set[int] = set()
        self.named: set[Value] = set()
        self.resources: dict[int, str] = {}
        self.sized: dict[int, Ragged] = {}
        self.limits = limits or Limits(choices.max_values)

    def run(self) -> None:
        for k, o in enumerate(self.sub.operators):
            loc = self._loc(o, k)
            try:
                self._operator(o, loc)
            except Told:  # where it is
                self.broken.update(o.outputs)
            except Exception as e:
                if isinstance(e, IndexError):
                    ends = f"{len(o.inputs)} inputs and {len(o.outputs)} outputs"
                    e = ModelError(f"has {ends}, or less in one of them than {o.name} needs")
                self.diagnostics.report(told(e, loc))
                self.broken.update(o.outputs)

    def _loc(self, o: Operator, k: int) -> Loc:
        name = self.sub.tensors[o.outputs[0]].name if o.outputs else ""
        return Loc(self.model.name, name or f"#{k}", o.name)

    def _operator(self, o: Operator, loc: Loc) -> None:
        if any(t in self.broken for t in o.inputs if t >= 0):
            self.broken.update(o.outputs)
            return
        if o.name == "CALL_ONCE":
            return self._init((o.options or EMPTY).whole(0))
        self.builder.name, self.builder.locs = loc.node, (loc.node,)
        ragged = [self.sized.get(t) for t in o.inputs]
        held = [None if t < 0 or r is not None else self._input(t) for t, r in zip(o.inputs, ragged, strict=True)]
        node = TflNode(
            o.name, self.builder, loc, held, [None if t < 0 else self.sub.tensors[t] for t in o.inputs],
            [self.sub.tensors[t] for t in o.outputs], o.options or EMPTY, self.states, self.graph, self.resources,
            [None if t < 0 else self.sub.tensors[t] for t in o.intermediates], o.custom, self.choices.micro,
            call=self._call, passes=self._passes, body=lambda k: [o.name for o in self._subgraph(k).operators],
        )
        if any(ragged) or decides(o.name, held):
            values = [r or (None if h is None else node.last(h)) for r, h in zip(ragged, held, strict=True)]
            made = read_sized(node, values, self.limits)
            found = [self._held(t, v) for t, v in zip(o.outputs, made, strict=False)]
        else:
            found = READERS[o.name](node)
        if len(found) < len(o.outputs):
            raise UnsupportedError(f"{len(o.outputs)} outputs are not supported")
        for t, v in zip(o.outputs, found, strict=False):
            self.held[t] = self._named(Held(last=v) if isinstance(v, Value) else v, self.sub.tensors[t], loc)

    def _held(self, index: int, v: Value | Ragged) -> Held | None:
        """A tensor of a size that data decide is held beside the others."""
        if isinstance(v, Value):
            return Held(last=v)
        t = self.sub.tensors[index]
        if v.dtype is not TYPES.get(t.type):
            raise ModelError(f"{t.what} is declared {t.text}, but is {v.type}")
        self.sized[index] = v
        return None

    def _named(self, h: Held | None, t: Tensor, loc: Loc) -> Held | None:
        """The tensor's own name for what was made, once its type is what the file says"""
        if h is None:
            return None
        v = h.made
        self.limits.name(t.name, v)
        shape = v.shape if h.last is not None else tuple(v.shape[k] for k in (0, 2, 3, 1))
        known = not self.reshaped and t.shape and all(s >= 0 for s in t.signature)
        dtype, declared = (DType.F32, (*t.shape, 2)) if t.type == COMPLEX else (TYPES.get(t.type), t.shape)
        if v.dtype is not dtype or (known and shape != declared):
            raise ModelError(f"{t.what} is declared {t.text}, but is {TensorType(v.dtype, shape)}", loc=loc)
        if v not in self.named and v.const is None and v.producer is not None and t.name:
            self.graph.rename(v, t.name)
        self.named.add(v)
        return h

    def _input(self, index: int) -> Held | None:
        if index in self.held:
            return self.held[index]
        t = self.sub.tensors[index]
        if index in self.resources or t.type == RESOURCE or (t.variable and t.data is None):
            return None  # variables are asked for by name
        if t.data is None and 0 not in t.shape:
            raise ModelError(f"reads {t.what}, which nothing makes before")
        held = Held(last=self.graph.constant(t.name or f"tensor{index}", constant(t)))
        self.held[index] = held
        return held

    def value(self, index: int) -> Value | None:
        """A tensor in the file's order of axes"""
        if index in self.broken:
            return None
        try:
            h = self._input(index)
        except MonoblocError:
            return None
        if h is None:
            return None
        self.builder.name, self.builder.locs = self.sub.tensors[index].name, ()
        return h.last if h.last is not None else self.builder.one("Transpose", h.made, perm=[0, 2, 3, 1])

    def _call(self, graph: Graph, number: int, given: Sequence[Value]) -> list[Value]:
        """The outputs of another subgraph, whose operators go into `graph`"""
        sub, states = self._subgraph(number), States()
        if len(sub.inputs) != len(given):
            raise ModelError(f"gives {len(given)} values to graph {number}, which takes {len(sub.inputs)}")
        if self.depth > MAX_CALLS:
            raise ModelError(f"graphs call each other more than {MAX_CALLS} deep")
        body = _Body(self.model, sub, graph, states, self.diagnostics, self.choices, self.depth + 1, self.limits)
        body.held = {t: Held(last=v) for t, v in zip(sub.inputs, given, strict=True)}
        body.run()
        if states.before:
            raise UnsupportedError(f"variables in graph {number}, which data run, are not supported")
        if sized := [sub.tensors[t].what for t in sub.outputs if t in body.sized]:
            raise UnsupportedError(f"graph {number} gives {', '.join(sized)}, whose size data decide; what IF and "
                                   "WHILE run must give fixed sizes")
        found = [body.value(t) for t in sub.outputs]
        known = [v for v in found if v is not None]
        gone = {t for t, v in zip(sub.outputs, found, strict=True) if v is None}
        if untold := [sub.tensors[t].what for t in sorted(gone - body.broken)]:
            raise ModelError(f"graph {number} gives {', '.join(untold)}, which nothing makes")
        if gone:
            raise Told(f"an output of graph {number} is not known")
        return known

    def _subgraph(self, number: int) -> SubGraph:
        if not 0 < number < len(self.model.subgraphs):
            raise ModelError(f"calls graph {number} of {len(self.model.subgraphs)}")
        return self.model.subgraphs[number]

    def _passes(self, number: int, k: int) -> bool:
        sub = self._subgraph(number)
        return k < min(len(sub.inputs), len(sub.outputs)) and sub.inputs[k] == sub.outputs[k]

    def _init(self, number: int) -> None:
        """What variables start with: the constants that a graph assigns"""
        states = States()
        body = _Body(self.model, self._subgraph(number), Graph("init"), states, self.diagnostics, Choices())
        body.run()
        for name, v in states.now.items():
            if v.const is None:
                raise UnsupportedError(f"the variable '{name}' starts with a value that is not constant, "
                                       "which is not supported")
            self.states.start[name] = v.const.array


def constant(t: Tensor) -> np.ndarray:
    """A tensor's data, checked against its type"""
    dtype = TYPES.get(t.type)
    if t.type in SMALL:
        return unpacked(t)
    if dtype is None:
        raise UnsupportedError(f"{t.what} is {t.type_text} constant, which is not supported")
    data = np.frombuffer(t.data or b"", np.uint8)
    count = int(np.prod(t.shape, dtype=np.int64))
    if t.sparsity is not None and dtype is not DType.BOOL and data.size % dtype.size == 0:
        return densified(t, data.view(dtype.numpy))
    if data.size != count * dtype.size:
        raise ModelError(f"{t.what} is {t.text} and has {data.size} bytes of data")
    if dtype is DType.BOOL:
        return np.asarray(data != 0).reshape(t.shape)
    out: np.ndarray = data.view(dtype.numpy).reshape(t.shape).copy()
    return out
