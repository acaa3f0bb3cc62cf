"""Large constants are in memory while somebody uses them, and the same whenever they are read again."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc.errors import ModelError
from monobloc.frontend import source
from monobloc.frontend.importer import load_onnx
from monobloc.ir.graph import KEPT, Const, Graph, content_key
from monobloc.ir.spool import Spool
from monobloc.ir.types import DType, TensorType
from monobloc.link.lowerings import Lowerings
from monobloc.link.objects import Module
from monobloc.object import ar
from monobloc.options import Options

LARGE = KEPT // 4 + 1  # floats


class Source:
    """Counts how often it is read."""

    def __init__(self, n: int) -> None:
        self.data, self.reads = np.arange(n, dtype=np.float32), 0

    def __call__(self) -> np.ndarray:
        self.reads += 1
        return self.data.copy()


def test_large_data_are_lent() -> None:
    source = Source(LARGE)
    c = Const(load=source)
    mine = c.array
    assert c.array is mine and source.reads == 1
    del mine
    gc.collect()
    assert np.array_equal(c.array, source.data) and source.reads == 2


@pytest.mark.parametrize(("n", "once"), [(LARGE - 1, False), (LARGE, True)])
def test_small_data_and_slow_ones_are_read_once(n: int, once: bool) -> None:
    source = Source(n)
    c = Const(load=source, once=once)
    assert np.array_equal(c.array, source.data) and np.array_equal(c.array, source.data) and source.reads == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16])
def test_what_is_spooled_comes_back(dtype: type) -> None:
    rng, spool = np.random.default_rng(1), Spool()
    arrays = [(rng.standard_normal((300, k)) * 9).astype(dtype) for k in (257, 400, 1)]
    arrays += [arrays[1].T, np.broadcast_to(arrays[0][:1], (300, 257))]
    g = Graph("g")
    for k, a in enumerate(arrays):
        g.outputs.append((str(k), g.const_value("c", TensorType(DType.of(a.dtype), a.shape), Const(a))))
    spool.settle(g.constants())
    held = [v.const._array is not None for _, v in g.outputs if v.const]
    assert held == [a.nbytes <= KEPT for a in arrays] and not all(held)
    for (_, v), a in zip(g.outputs, arrays, strict=True):
        assert v.const is not None and v.const.array.dtype == a.dtype and v.const.array.shape == a.shape
        assert v.const.array.tobytes() == a.tobytes()


def test_a_full_disk_costs_memory_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    c = Const(np.arange(LARGE))
    monkeypatch.setattr(os, "pwrite", full)
    c.spool(Spool().keep)
    assert np.array_equal(c.array, np.arange(LARGE))


def test_of_a_program_that_is_done_no_weights_stay(tmp_path: Path) -> None:
    """A thousand small ones are a large one. The model's are read again, those that passes made are in a file."""
    rng = np.random.default_rng(4)
    weights = {"w": rng.standard_normal((40, 24)).astype(np.float32), "b": rng.standard_normal(24).astype(np.float32)}
    x, y = (helper.make_tensor_value_info(p, TensorProto.FLOAT, [2, n]) for p, n in (("x", 40), ("y", 24)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    given = load_onnx(tmp_path / "m.onnx").graph
    low = Lowerings().of(Module(given, "m", "m", "m.onnx"), Options())
    for part in (part for g in (given, low.graph) for part in g.tree()):
        held = {v.name: v.type.bytes for v in part.constants() if v.const is not None and v.const._array is not None}
        assert all(n <= 512 for n in held.values()), held
    for name, w in weights.items():
        (const,) = (v.const for v in given.constants() if v.name == name)
        assert const is not None and np.array_equal(const.array, w) and const.key == content_key(w)
    packed = {v.const.array.size for v in low.weights.values() if v.const is not None}
    assert packed and max(packed) >= 40 * 24


def test_nothing_holds_what_was_read_while_looking_for_weights(tmp_path: Path) -> None:
    model(tmp_path / "m.onnx", external=False)
    const = load_onnx(tmp_path / "m.onnx").graph.outputs[0][1].const
    gc.collect()
    assert const is not None and not [x for x in gc.get_objects() if isinstance(x, source._File)]


# -- files ---------------------------------------------------------------------------------------------
def model(path: Path, external: bool) -> Path:
    w = numpy_helper.from_array(np.ones(LARGE, np.float32), "w")
    y = helper.make_tensor_value_info("w", TensorProto.FLOAT, [LARGE])
    m = helper.make_model(helper.make_graph([], "g", [], [y], [w]), opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(m, path, save_as_external_data=external, location="w.bin", size_threshold=0)
    return path.parent / "w.bin" if external else path


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("how", ["shorter", "written again"])
def test_a_model_that_changes_is_told(external: bool, how: str, tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", external)
    const = load_onnx(tmp_path / "m.onnx").graph.outputs[0][1].const
    assert const is not None and const.array.all()
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:-8] if how == "shorter" else data)
    with pytest.raises(ModelError, match="changed while it was read"):
        _ = const.array


def test_what_is_taken_of_a_mapped_file(tmp_path: Path) -> None:
    data = np.random.default_rng(2).integers(0, 256, 100_000, np.uint8).tobytes()
    (tmp_path / "f").write_bytes(data)
    view = ar.map_file(tmp_path / "f")
    for a, b in ((0, 100_000), (5, 70_001), (4096, 8192), (17, 20), (9, 9)):
        assert bytes(ar.taken(view[a:b])) == data[a:b]
    assert bytes(view) == data and bytes(ar.taken(memoryview(data)[3:9])) == data[3:9]
