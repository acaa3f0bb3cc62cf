"""Folders and names that are hard on tools: results appear where they should, whole, and caches cost nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from monobloc.cache import Cache, write_atomic
from monobloc.driver import build, compile_to_object, link
from monobloc.loader import CompiledModel
from monobloc.options import Options

HARD = [
    "100%", "a%s%%d", "sp ace", "it's", 'q"uote', "dollar $HOME `x`", "semi;colon&", "comma,a=b", "é∑😀", "new\nline",
    "-o",
]


def model(path: Path) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [value("x", TensorProto.FLOAT, [3])],
        [value("y", TensorProto.FLOAT, [3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.SerializeToString())
    return path


def answers(path: Path) -> bool:
    x = np.array([-1, 0, 2], np.float32)
    return bool(np.array_equal(CompiledModel(path).run({"x": x})["y"], np.maximum(x, 0)))


def test_hard_names_of_folders_and_files(tmp_path: Path) -> None:
    for k, name in enumerate(HARD):
        folder = tmp_path / str(k) / name
        source, out, obj = model(folder / f"{name}.onnx"), folder / f"{name}.so", folder / f"{name}.o"
        o = Options(lto="thin" if k == 1 else "none", cache=folder / "cache", map=folder / f"{name}.map")
        build([source], out, None, o)
        assert answers(out), name
        assert o.map is not None and b"_run" in o.map.read_bytes(), name
        if k < 2:
            compile_to_object(source, obj, o)
            link([obj], folder / "again.so", "shared", o)
            assert (folder / "again.so").read_bytes() == out.read_bytes(), name
        left = [p.name for p in folder.iterdir() if p.name.startswith(".")]
        assert not left, f"{name}: {left}"


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    """Its folder is a file; and a link is not told of a disk too full for LLVM's cache."""
    source, blocked = model(tmp_path / "m.onnx"), tmp_path / "cache"
    blocked.write_bytes(b"")
    build([source], tmp_path / "m.so", None, Options(lto="thin", cache=blocked))
    assert answers(tmp_path / "m.so")


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    class Full(list):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="no space|No space") as e:
        write_atomic(tmp_path / "out.o", Full())
    assert e.value.filename == str(tmp_path / "out.o")
    assert not list(tmp_path.iterdir())


def test_a_damaged_entry_is_a_miss(tmp_path: Path) -> None:
    source, o = model(tmp_path / "m.onnx"), Options(lto="none", cache=tmp_path / "cache")
    build([source], tmp_path / "a.so", None, o)
    assert o.cache is not None
    entries = [p for p in (Cache(o.cache).root / "entries").glob("*/*") if p.is_file()]
    assert entries
    for k, p in enumerate(entries):
        data = p.read_bytes()
        p.write_bytes(data[: len(data) // 2] if k % 2 else data[:-1] + bytes([data[-1] ^ 1]))
    build([source], tmp_path / "b.so", None, o)
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()
