"""Files that are not trusted: what could run code is refused before PyTorch opens it; damage is an error in words."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch

from monobloc.eager import Session
from monobloc.errors import InternalError, MonoblocError, UnsupportedError
from monobloc.frontend import load_model
from monobloc.frontend.describe import describe
from monobloc.frontend.torch import archive
from monobloc.frontend.torch.archive import check_expression
from monobloc.frontend.torch.describe import facts
from monobloc.ir.interp import interpret


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    dims = ({0: torch.export.Dim("batch")},)
    path = tmp_path_factory.mktemp("saved") / "m.pt2"
    torch.export.save(torch.export.export(module, (torch.randn(2, 3),), dynamic_shapes=dims), path)
    return path.read_bytes()


def rewritten(data: bytes, change: Callable[[str, bytes], bytes], more: dict[str, bytes] | None = None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as a, zipfile.ZipFile(out, "w") as z:
        for name in a.namelist():
            z.writestr(zipfile.ZipInfo(name), change(name, a.read(name)))
        root = a.namelist()[0].partition("/")[0]
        for name, content in (more or {}).items():
            z.writestr(f"{root}/{name}", content)
    return out.getvalue()


class Harmful:
    """To unpickle it makes a file"""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_what_is_rewritten_unchanged_is_read(saved: bytes) -> None:
    assert load_model(rewritten(saved, lambda _, x: x)).graph.nodes


def test_pickles_that_run_code_are_refused(saved: bytes, tmp_path: Path) -> None:
    buffer, trace = io.BytesIO(), tmp_path / "was-here"
    torch.save({"x": Harmful(trace)}, buffer)
    for content in (buffer.getvalue(), pickle.dumps(Harmful(trace))):
        bad = rewritten(saved, lambda n, x, c=content: c if "sample_inputs" in n else x)  # type: ignore[misc]
        with pytest.raises(UnsupportedError, match="holds more than tensors, or is damaged"):
            load_model(bad)
    assert not trace.exists()
    torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    assert trace.exists()  # it would have


def test_objects_and_compiled_code_are_refused(saved: bytes) -> None:
    for name, words in (("data/constants/opaque_obj_0", "holds Python objects"),
                        ("data/aotinductor/model/m.so", "holds compiled code")):
        with pytest.raises(UnsupportedError, match=words):
            load_model(rewritten(saved, lambda _, x: x, {name: b"\x80\4"}))


def test_pickled_tensors_are_read_only_as_tensors(saved: bytes) -> None:
    def change(name: str, x: bytes) -> bytes:
        if not name.endswith("model_weights_config.json"):
            return x
        config = json.loads(x)
        for entry in config["config"].values():
            entry["use_pickle"] = True
        return json.dumps(config).encode()

    with pytest.raises(UnsupportedError, match="weight_0.* holds more than tensors"):
        load_model(rewritten(saved, change))


@pytest.mark.parametrize("target", ["torch.hub.load", "os.system", "torch.ops.load_library", "math.__loader__.x"])
def test_calls_name_operators(saved: bytes, target: str) -> None:
    bad = rewritten(saved, lambda n, x: x.replace(b"torch.ops.aten.relu.default", target.encode()))
    with pytest.raises(UnsupportedError, match="calls .* which is no operator"):
        load_model(bad)


def test_operators_of_libraries_are_named(saved: bytes) -> None:
    bad = rewritten(saved, lambda n, x: x.replace(b"torch.ops.aten.relu.default", b"torch.ops.library.moved.default"))
    with pytest.raises(UnsupportedError, match=r"PyTorch does not have: library.moved.default \(1\)"):
        load_model(bad)


def test_a_library_that_would_define_them_is_named(saved: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LIBRARIES", {"library": "library.that_is_not_here"})
    bad = rewritten(saved, lambda n, x: x.replace(b"torch.ops.aten.relu.default", b"torch.ops.library.moved.default"))
    with pytest.raises(UnsupportedError, match=r"PyTorch does not have") as e:
        load_model(bad)
    assert "pip install library" in str(e.value)


def test_sizes_are_arithmetic(saved: bytes) -> None:
    for good in ("Symbol('s53', positive=True, integer=True)", "2*s0 + 1", "Max(1, FloorDiv(s0, 2))", "Integer(3)"):
        check_expression(good, "here")
    for bad in ("__import__('os').system('true')", "exec('x')", "Add('__import__(1)', 1)", "(lambda: 1)()", "s0.x",
                "[1][0]", "Symbol('__import__(1)')", "open('x')", "f'{s0}'", "x if y else z", "(" * 300):
        with pytest.raises(UnsupportedError, match="which is no arithmetic"):
            check_expression(bad, "here")
    bad_file = rewritten(saved, lambda n, x: x.replace(b"Symbol('s", b"__import__('s"))
    assert bad_file != saved
    with pytest.raises(UnsupportedError, match="which is no arithmetic"):
        load_model(bad_file)


def test_damage_is_told_in_words(saved: bytes) -> None:
    seed = 3
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(25):
        data = bytearray(saved)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        else:
            for _ in range(rng.choice((1, 4, 30))):
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            load_model(bytes(data))
        except MonoblocError as e:
            assert not isinstance(e, InternalError), e
            assert "Traceback" not in str(e)


def test_other_things_are_told_apart(tmp_path: Path, saved: bytes) -> None:
    (tmp_path / "m.pt2").write_bytes(b"hello")
    for read in (load_model, describe):
        with pytest.raises(MonoblocError, match=r"^m\.pt2: is no file of `torch\.export\.save`, or is damaged"):
            read(tmp_path / "m.pt2")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        z.writestr("a/b.txt", "x")
    (tmp_path / "m.pt2").write_bytes(buffer.getvalue())
    with pytest.raises(MonoblocError, match="a zip file, but none that"):
        load_model(tmp_path / "m.pt2")
    (tmp_path / "renamed.bin").write_bytes(saved)
    assert load_model(tmp_path / "renamed.bin").graph.nodes  # known by what it holds


class Answer:
    """What a library would register as a structure"""

    def __init__(self, **parts: torch.Tensor) -> None:
        self.parts = parts


class Library(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 1.0, deep: bool = False) -> Answer:
        return Answer(first=x * scale, second=x + 1)


@pytest.mark.parametrize("named", [True, False])
def test_structures_of_classes_that_are_not_here(tmp_path: Path, named: bool) -> None:
    """As in files of models of `transformers` where that is not imported; numbers that an export holds are no inputs"""
    tree = torch.utils._pytree
    kind = type(f"Answer{named}", (Answer,), {})
    tree.register_pytree_node(
        kind, lambda a: (list(a.parts.values()), list(a.parts) if named else {"n": 2}),
        lambda v, keys: kind(**dict(zip(("first", "second"), v, strict=True))),
        serialized_type_name=f"library.{kind.__name__}")

    class Own(Library):
        def forward(self, x: torch.Tensor, scale: float = 1.0, deep: bool = False) -> Answer:
            return kind(**super().forward(x, scale, deep).parts)

    path = tmp_path / "own.pt2"
    torch.export.save(torch.export.export(Own(), (torch.ones(3), 2.5), {"deep": True}), path)
    for known in (tree.SUPPORTED_NODES, tree.SUPPORTED_SERIALIZED_TYPES):
        known.pop(kind)
    tree.SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(f"library.{kind.__name__}")
    names = ["first", "second"] if named else ["output_0", "output_1"]
    for _ in range(2):
        found = load_model(path)
        assert [name for name, _ in found.graph.outputs] == names and [v.name for v in found.graph.inputs] == ["x"]
        x = np.arange(3, dtype=np.float32)
        want, got = Session(path).run({"x": x}), interpret(found.graph, {"x": x})
        assert all(np.array_equal(got[k], want[k]) for k in names) and np.array_equal(want[names[0]], x * 2.5)
    assert facts(path)["inputs"] == (("x", "f32[3]"),)
