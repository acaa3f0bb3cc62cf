"""Small models that meet at a border, as ONNX files, and how to build and run the two as one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from monobloc.codegen.lower import Lowered
from monobloc.driver import import_model, module_of
from monobloc.link.connect import parse_connections
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options

OPSET = 17
TYPES = {"f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "i32": TensorProto.INT32, "u8": TensorProto.UINT8,
         "bool": TensorProto.BOOL}
Port = tuple[str, str, Sequence[int]]  # name, type, shape


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Port], outputs: Sequence[Port], opset: int = OPSET,
          **weights: np.ndarray) -> onnx.ModelProto:
    ports = [[helper.make_tensor_value_info(n, TYPES[t], list(s)) for n, t, s in p] for p in (inputs, outputs)]
    graph = helper.make_graph(list(nodes), "g", *ports, [numpy_helper.from_array(w, n) for n, w in weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    onnx.checker.check_model(made)
    return made


def module(m: onnx.ModelProto, name: str, o: Options) -> Module:
    """As it is compiled: what the link line fixes is not known yet."""
    alone = replace(o, name=None, bind={}, start_from=(), keep_outputs=())
    return module_of(Path(f"{name}.onnx"), import_model(m.SerializeToString(), alone), alone)


@dataclass(frozen=True)
class Linked:
    """One image, its one program, and its C."""

    path: Path
    low: Lowered
    c: str

    def __call__(self, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        return CompiledModel(self.path).run(feeds)

    @property
    def ops(self) -> list[str]:
        """The operators of every layer that runs, with those in groups"""
        views = self.low.placement.views
        nodes = [n for n in self.low.graph.nodes if n not in views]
        return sorted(m.op for n in nodes for m in (n.body.nodes if n.body is not None else [n]))


def build(models: dict[str, onnx.ModelProto], folder: Path, o: Options, *connect: str) -> Linked:
    """Models by name, connected, as one shared library."""
    out = folder / f"{'-'.join(models)}-{len(connect)}.so"
    modules = [module(m, name, o) for name, m in models.items()]
    o = replace(o, cache=None, connect=tuple(parse_connections(connect)))
    image = link_modules(modules, Request(out, "shared", o))
    assert len(image.programs) == 1
    low = image.programs[0]
    return Linked(out, low, "\n".join(low.files.values()))
