"""Models of other frameworks are told apart by what the files hold, and answered with the lines that convert them."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from monobloc.driver import is_model
from monobloc.errors import ModelError, MonoblocError, UnsupportedError
from monobloc.frontend import formats, load_model
from monobloc.frontend.describe import describe


def zipped(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as z:
        for name in names:
            z.writestr(name, b"{}")
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def models(folder: Path) -> dict[str, tuple[Path, str]]:
    """{what: (file, a line of the answer)}"""
    saved = folder / "saved"
    saved.mkdir()
    written(saved / "saved_model.pb", b"\x08\x01")
    steps = folder / "steps"
    steps.mkdir()
    written(steps / "_CHECKPOINT_METADATA", b"{}")
    return {
        "TorchScript": (zipped(folder / "s.pt", "s/data.pkl", "s/constants.pkl", "s/code/__torch__.py"),
                        'torch.onnx.export(torch.jit.load("s.pt"), (example,), "s.onnx", dynamo=False)'),
        "what `torch.save` wrote": (zipped(folder / "w.pth", "w/data.pkl", "w/data/0"), 'torch.load("w.pth"'),
        "a pickle": (written(folder / "old.pth", b"\x80\x02\x8a\nl"), "module.load_state_dict"),
        "a Keras model": (zipped(folder / "k.keras", "config.json", "metadata.json", "model.weights.h5"),
                          'model.export("k.onnx", format="onnx")'),
        "a Keras model (HDF5)": (written(folder / "k.h5", b"\x89HDF\r\n\x1a\n"), 'load_model("k.h5")'),
        "a TensorFlow SavedModel": (saved, "python -m tf2onnx.convert --saved-model saved --output saved.onnx"),
        "StableHLO": (written(folder / "f.mlir", b"module @jit_f attributes {} {\n"), "to_onnx(function"),
        "StableHLO, as": (written(folder / "g.stablehlo", b"ML\xefR\x01"), "to_onnx(function"),
        "weights without a graph": (written(folder / "l.gguf", b"GGUF\x03"), "torch.export.save"),
        "a checkpoint of JAX": (steps, "jax2onnx"),
    }


def test_the_answer_says_what_it_is_and_how_to_convert_it(tmp_path: Path) -> None:
    for what, (path, line) in models(tmp_path).items():
        for read in (load_model, describe):
            with pytest.raises(UnsupportedError) as e:
                read(path)
            text = str(e.value)
            assert text.startswith(f"{path.name}: is {what}") and line in text, text
        assert is_model(path) or path.name == "steps"  # the command line takes it for a model, and hears the answer


def test_names_alone_decide_nothing(tmp_path: Path) -> None:
    from onnx import parser

    text = '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    data = parser.parse_model(text).SerializeToString()
    for name in ("m.onnx", "m.pt", "m.bin"):
        assert [n.op for n in load_model(written(tmp_path / name, data)).graph.nodes] == ["Neg"]


def test_without_pytorch_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "m.pt2", "m/models/model.json")
    found = importlib.util.find_spec
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "torch" else found(name))
    with pytest.raises(ModelError, match=r"^m\.pt2: PyTorch is not installed.*\n.*pip install 'monobloc\[torch\]'"):
        load_model(path)


def test_a_damaged_archive_is_an_error_in_words(tmp_path: Path) -> None:
    path = zipped(tmp_path / "m.keras", "config.json")
    data = path.read_bytes()
    for n in (5, 30, len(data) - 3):
        with pytest.raises(MonoblocError) as e:
            load_model(written(tmp_path / "m.keras", data[:n]))
        assert "Traceback" not in str(e.value)
