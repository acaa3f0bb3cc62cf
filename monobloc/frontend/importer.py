"""ONNX model to Graph: one call, all problems at once.

The model is read (`source`), its inputs get shapes (`dims`), initializers become constants
(`tensors`), and the nodes write IR in order (`walk`). Shapes are known throughout, so shape
arithmetic folds away while it is read. Whatever is wrong comes out as one MonoblocError, never as
a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from monobloc.errors import Diagnostics, InternalError, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend import proto
from monobloc.frontend.dims import Declared, declared, solve
from monobloc.frontend.external import ExternalFiles
from monobloc.frontend.functions import Functions, domain_of, functions_of
from monobloc.frontend.importing import (
    Choices,
    Imported,
    Model,
    bound_values,
    fixed_shapes,
    given_dims,
    guarded,
    kept_outputs,
)
from monobloc.frontend.signature import opset_newest
from monobloc.frontend.source import Source, read_source
from monobloc.frontend.walk import UNKNOWN, Binding, Frame, Unknown, Walker, contradiction, declared_types
from monobloc.ir.graph import Graph, Value
from monobloc.ir.strings import string_shape
from monobloc.ir.types import DType, Shape, TensorType
from monobloc.ops.sequence import ABSENT, Absent, Items
from monobloc.ops.sized import Ragged, packed


def load_onnx(model: Model, choices: Choices | None = None) -> Imported:
    """Import a model from a path, bytes or a ModelProto; MonoblocError tells everything that is wrong."""
    with guarded(model):
        return _Import(read_source(model), choices or Choices()).run()


class _Import:
    """One import; the methods in the order they run."""

    def __init__(self, source: Source, choices: Choices) -> None:
        self.source, self.choices = source, choices
        self.model, self.proto = source.model, source.model.graph
        self.loc = source.loc
        self.diagnostics = Diagnostics()
        self.notes: list[str] = []
        self.graph = Graph((source.path.stem if source.path else self.proto.name) or "model")
        files = ExternalFiles(source.path.parent if source.path else None)
        self.walker = Walker(self.graph, source.name, self._functions(), files, self.diagnostics,
                             choices.ignore_shapes, choices.max_trips, choices.max_values)
        self.frame = Frame(self._opsets())
        self.dims: dict[str, int] = {}
        self.defaults = 0
        self.sequences: dict[str, tuple[DType, list[str]]] = {}  # inputs: element type, names of their items

    def run(self) -> Imported:
        self._check_versions()
        self.walker.constants(self.proto, self.frame, self.source.raws)
        self._inputs()
        wanted = self._wanted()
        self.frame.declared = declared_types(self.proto, self.choices.ignore_shapes)
        self.walker.body(self.proto.node, self.frame, wanted)
        self._outputs(wanted)
        for e in self.walker.limits.problems(self._value_names(), whole=not self.diagnostics.errors):
            self._report(e)
        self.diagnostics.checkpoint()
        if self.walker.skipped:
            self.notes.append(f"{self.walker.skipped} nodes reach no output and are left out")
        return Imported(
            graph=self.graph,
            notes=self.notes,
            dims=self.dims,
            opsets=self.frame.opsets,
            ir_version=self.model.ir_version,
            producer=f"{self.model.producer_name} {self.model.producer_version}".strip(),
            metadata={p.key: p.value for p in self.model.metadata_props},
        )

    def _report(self, e: MonoblocError) -> None:
        self.diagnostics.report(e.at(self.loc))

    # -- versions ----------------------------------------------------------------------------------
    def _functions(self) -> Functions:
        try:
            return functions_of(self.model)
        except ModelError as e:
            self._report(e)
            return Functions({}, {})

    def _opsets(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for o in self.model.opset_import:
            domain = domain_of(o.domain)
            if out.setdefault(domain, o.version) != o.version:
                text = f"imports two opsets of domain '{domain or 'ai.onnx'}'"
                self._report(ModelError(f"{text}: {out[domain]} and {o.version}"))
        return out

    def _check_versions(self) -> None:
        ir, newest_ir = self.model.ir_version, int(proto.IR_VERSION)
        if ir > newest_ir:
            self._report(UnsupportedError(f"has IR version {ir}; the newest known is {newest_ir}"))
        opset, newest = self.frame.opsets.get("", 0), opset_newest()
        if opset > newest:
            self._report(UnsupportedError(f"imports opset {opset}; the newest known is {newest}"))
        self.diagnostics.checkpoint()  # with unknown versions nothing below means anything

    # -- inputs ------------------------------------------------------------------------------------
    def _inputs(self) -> None:
        """Every input that is no initializer becomes an input of the graph, or a bound constant."""
        types = self._declared_inputs()
        bound = bound_values(self.choices.bind, types, self.notes, self._report)
        shapes = {**fixed_shapes(self.choices), **{k: self._known_shape(v) for k, v in bound.items()}}
        empty = {k for k, (_, items) in self.sequences.items() if not items}
        empty |= {f"{k}[none]" for k, v in self.frame.names.items() if isinstance(v, Absent)}
        shapes = {k: v for k, v in shapes.items() if self.frame.names.get(k) is not UNKNOWN and k not in empty}
        sizes: dict[str, Shape] = {}
        try:
            known = {d.dim_param for v in self.proto.input for d in v.type.tensor_type.shape.dim}
            given, related = given_dims(self.choices, known)
            sizes, self.dims, notes = solve(types, shapes, given, self.source.name, related)
            self.notes += notes
        except ModelError as e:
            self._report(e)
        for name, t in types.items():
            self.frame.names[name] = self._input(name, t, sizes.get(name), bound.get(name))
        for name, (dtype, items) in self.sequences.items():
            values = [v for i in items if isinstance(v := self.frame.names.pop(i), Value)]
            self.frame.names[name] = Items(tuple(values), dtype) if len(values) == len(items) else UNKNOWN

    def _input(self, name: str, t: Declared, shape: Shape | None, bound: np.ndarray | None) -> Binding:
        if shape is None:
            return UNKNOWN
        if bound is not None:
            v = self.graph.constant(name, bound)
        else:
            shape = self._room(shape) if t.dtype is DType.CHAR else shape
            v = self.graph.add_input(name, TensorType(t.dtype, shape))
            self.walker.limits.name(name, v)
        self.walker.named[v] = 0
        return v

    def _known_shape(self, bound: np.ndarray) -> Shape:
        return string_shape(TensorType(DType.of(bound.dtype), bound.shape))

    def _room(self, shape: Shape) -> Shape:
        """A tensor of strings with the axis of their room"""
        note = f"strings of inputs have room for {self.choices.strings} bytes (`--strings N`)"
        if note not in self.notes:
            self.notes.append(note)
        return (*shape, self.choices.strings)

    def _declared_inputs(self) -> dict[str, Declared]:
        out: dict[str, Declared] = {}
        seen: set[str] = set()
        for v in self.proto.input:
            try:
                if v.name in seen:
                    raise ModelError(f"input '{v.name}' is defined twice")
                seen.add(v.name)
                if v.name in self.frame.names:
                    self._default_input(v)
                    continue
                out |= self._declared_input(v.name, v.type)
            except MonoblocError as e:
                self._report(e)
                self.frame.names.setdefault(v.name, UNKNOWN)
        if self.defaults:
            self.notes.append(f"{self.defaults} inputs have initializers and become constants")
        return out

    def _declared_input(self, name: str, type: proto.TypeProto) -> dict[str, Declared]:
        """An input's type; those of its items, if it is a sequence; nothing, if it is an optional without a value."""
        if type.WhichOneof("value") == "optional_type":
            if f"{name}[none]" in self.choices.shapes:
                self.frame.names[name] = ABSENT
                return {}
            return self._declared_input(name, type.optional_type.elem_type)
        if type.WhichOneof("value") != "sequence_type":
            return {name: declared(type, f"input '{name}'")}
        item = declared(type.sequence_type.elem_type, f"an item of input '{name}'")
        given = (*self.choices.shapes, *self.choices.bind)
        count = max((int(m[1]) + 1 for k in given if (m := re.fullmatch(re.escape(name) + r"\[(\d+)\]", k))), default=0)
        if not count and self.choices.shapes.get(name) != ():
            raise ModelError(
                f"input '{name}' is a sequence, and how many items it has is not known",
                hints=[f"give their shapes, for example `--shape '{name}=[2x3,2x3]'`"],
            )
        self.sequences[name] = item.dtype, [f"{name}[{k}]" for k in range(count)]
        dims = None if item.dims is None else tuple(None if isinstance(d, str) else d for d in item.dims)
        return dict.fromkeys(self.sequences[name][1], Declared(item.dtype, dims))  # a symbol may differ between items

    def _default_input(self, v: proto.ValueInfoProto) -> None:
        """An input that has an initializer is a constant."""
        value = self.frame.names[v.name]
        if v.name in self.choices.shapes or v.name in self.choices.bind:
            raise ModelError(f"input '{v.name}' has an initializer and cannot be given")
        if isinstance(value, Value):
            problem = contradiction(value, v.type, v.name)
            if problem is not None:
                raise ModelError(problem.message.replace("output", "initializer", 1))
        self.defaults += self.model.ir_version >= 4  # before, every initializer had to be an input

    # -- outputs -----------------------------------------------------------------------------------
    def _wanted(self) -> list[str]:
        """Names of the outputs, in order"""
        outputs = [v.name for v in self.proto.output]
        if self.choices.keep_outputs is None:
            if not outputs:
                self._report(ModelError("has no outputs"))
            return outputs
        known = {*outputs, *self.frame.names} | {o for n in self.proto.node for o in n.output}
        return kept_outputs(self.choices, [v.name for v in self.proto.input], outputs, known, self._report)

    def _outputs(self, wanted: Sequence[str]) -> None:
        taken: set[str] = set()
        types = declared_types(self.proto, self.choices.ignore_shapes)
        for name in wanted:
            v = self.frame.find(name)
            if not self.frame.knows(name):
                self._report(ModelError(f"output '{name}' is made by nothing"))
            if v is None or isinstance(v, Unknown):
                if v is not None and not self.diagnostics.errors:
                    self._report(InternalError(f"output '{name}' was lost"))
                continue
            if isinstance(v, Ragged):
                self.graph.outputs.append((self._export(name, taken), packed(self.walker.builder, v, name)))
                continue
            if not isinstance(v, Value):
                self._export_bundle(name, v, taken)
                continue
            if v.producer is None and (problem := contradiction(v, types.get(name), name)):
                self._report(problem)
            self.graph.outputs.append((self._export(name, taken), self.walker.builder.in_run(v) or v))

    def _value_names(self) -> list[str]:
        """All that a value can be called"""
        nodes = [o for n in self.proto.node for o in n.output]
        return [v.name for v in self.proto.input] + nodes

    def _export_bundle(self, name: str, v: Items | Absent, taken: set[str]) -> None:
        """A sequence leaves as its items, an optional without a value not at all."""
        items = v.values if isinstance(v, Items) else ()
        self.graph.outputs += [(self._export(f"{name}[{k}]", taken), x) for k, x in enumerate(items)]
        called = f": '{name}[0]' to '{name}[{len(items) - 1}]'" if items else ""
        self.notes.append(f"output '{name}' is {v.type}{called}")

    def _export(self, name: str, taken: set[str]) -> str:
        out, k = name, 0
        while out in taken:
            k += 1
            out = f"{name}.{k}"
        if k:
            self.notes.append(f"output '{name}' is listed more than once; this one is called '{out}'")
        taken.add(out)
        return out
