"""Where a model's numbers lie: encodings, weights left in the file, external data; hostile files."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from monobloc.errors import ModelError, MonoblocError
from monobloc.frontend.external import ExternalFiles, allowed
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.source import CUT_BYTES, read_source
from monobloc.frontend.tensors import ELEM_TYPES, tensor
from monobloc.ir.interp import interpret
from monobloc.ir.types import DType

FUZZ = Path(__file__).with_name("frontend_fuzz.py")
SHARED = Path(__file__).parents[3] / "shared" / "models"
NOWHERE = ExternalFiles(None)


def model_with(*tensors: TensorProto) -> onnx.ModelProto:
    """A model whose outputs are these initializers"""
    m = parser.parse_model('<ir_version: 8, opset_import: ["" : 18]> g (float[1] x) => () {}')
    m.graph.initializer.extend(tensors)
    for t in tensors:
        port = helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
        m.graph.output.append(port)
    return m


# -- encodings -------------------------------------------------------------------------------------
VALUES = {
    DType.BOOL: np.array([[True, False, True]]),
    DType.U8: np.array([[0, 1, 255]], np.uint8),
    DType.U16: np.array([[0, 1, 65535]], np.uint16),
    DType.U32: np.array([[0, 1, 2**32 - 1]], np.uint32),
    DType.U64: np.array([[0, 1, 2**64 - 1]], np.uint64),
    DType.I8: np.array([[-128, 1, 127]], np.int8),
    DType.I16: np.array([[-(2**15), 1, 2**15 - 1]], np.int16),
    DType.I32: np.array([[-(2**31), 1, 2**31 - 1]], np.int32),
    DType.I64: np.array([[-(2**63), 1, 2**63 - 1]], np.int64),
    DType.F16: np.array([[-0.0, 65504, np.inf]], np.float16),
    DType.BF16: np.array([[-0.0, 3.0e38, np.inf]], ml_dtypes.bfloat16),
    DType.F32: np.array([[-0.0, 3.4e38, np.nan]], np.float32),
    DType.F64: np.array([[-0.0, 1e308, np.nan]], np.float64),
}


def typed(d: DType, x: np.ndarray) -> TensorProto:
    """`x` in the typed field that ONNX names for its type"""
    t = TensorProto(name="w", data_type=ELEM_TYPES[d], dims=x.shape)
    if d in (DType.F16, DType.BF16):
        t.int32_data.extend(x.view(np.uint16).ravel().tolist())
    elif d is DType.F32:
        t.float_data.extend(x.ravel().tolist())
    elif d is DType.F64:
        t.double_data.extend(x.ravel().tolist())
    elif d in (DType.U32, DType.U64):
        t.uint64_data.extend(x.ravel().tolist())
    elif d is DType.I64:
        t.int64_data.extend(x.ravel().tolist())
    else:
        t.int32_data.extend(x.astype(np.int64).ravel().tolist())
    return t


# codes of few bits and strings: test_codes.py, test_strings.py
@pytest.mark.parametrize("d", [d for d in DType if not d.is_opaque], ids=lambda d: d.value)
def test_every_encoding_of_every_type(d: DType) -> None:
    x = VALUES[d]
    raw = TensorProto(name="w", data_type=ELEM_TYPES[d], dims=x.shape, raw_data=x.tobytes())
    for t in (typed(d, x), raw):
        type, const = tensor(t, "w", NOWHERE)
        assert type.dtype is d and type.shape == (1, 3)
        assert const.array.dtype == d.numpy and const.array.tobytes() == x.tobytes()


def sparse(places: np.ndarray, dims: list[int], name: str = "w") -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.arange(1, len(places) + 1).astype(np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places, "at"), dims)


@pytest.mark.parametrize("places", [[1, 5], [[0, 1], [1, 2]], []])
def test_sparse_tensors_become_dense(places: list[int] | list[list[int]]) -> None:
    """As initializers and as Constants, by numbers and by coordinates, as onnxruntime has them"""
    head = '<ir_version: 8, opset_import: ["" : 18]>'
    m = parser.parse_model(f"{head} g (float[2,3] x) => (float[2,3] y) {{ z = Add(x, w) }}")
    where = np.array(places, np.int64)
    m.graph.sparse_initializer.append(sparse(where, [2, 3]))
    m.graph.node.extend([helper.make_node("Constant", [], ["c"], sparse_value=sparse(where, [2, 3])),
                         helper.make_node("Sub", ["z", "c"], ["s"]), helper.make_node("Add", ["s", "w"], ["y"])])
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    (want,) = onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})
    got = interpret(load_onnx(m).graph, {"x": x})["y"]
    assert got.tobytes() == want.tobytes() and (got != x).sum() == len(places)


@pytest.mark.parametrize(("places", "dims", "said"), [
    ([6], [2, 3], "outside"), ([-1], [2, 3], "outside"), ([[0, 3]], [2, 3], "outside"), ([[0]], [2, 3], "indices"),
    ([0, 1], [1 << 20, 1 << 19], "bytes when it is dense"), ([0], [-2], "negative"),
])
def test_sparse_tensors_that_lie(places: list[int], dims: list[int], said: str) -> None:
    m = model_with()
    m.graph.sparse_initializer.append(sparse(np.array(places, np.int64), dims))
    m.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, None))
    with pytest.raises(MonoblocError, match=said):
        load_onnx(m)


def test_bools_are_zero_or_one() -> None:
    t = TensorProto(name="w", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x02\x00\xff")
    assert tensor(t, "w", NOWHERE)[1].array.tobytes() == b"\x01\x00\x01"


def test_empty_tensors_need_no_data() -> None:
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[0, 1 << 40])
    assert tensor(t, "w", NOWHERE)[1].array.shape == (0, 1 << 40)


# -- weights that stay in the file -----------------------------------------------------------------
def test_large_weights_are_cut_out_and_come_back() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    sizes = [1, CUT_BYTES // 4, CUT_BYTES // 4 + 1, 5000, 3, 70000]
    arrays = [rng.standard_normal(n).astype(np.float32) for n in sizes]
    m = model_with(*(numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(arrays)))
    source = read_source(m.SerializeToString())
    assert sorted(source.raws) == [2, 3, 5]
    whole = onnx.ModelProto()
    whole.CopyFrom(source.model)
    for i, raw in source.raws.items():
        assert not source.model.graph.initializer[i].HasField("raw_data")
        whole.graph.initializer[i].raw_data = bytes(raw.read())
    assert whole == m
    graph = load_onnx(m.SerializeToString()).graph
    for (_, v), a in zip(graph.outputs, arrays, strict=True):
        assert v.const is not None and np.array_equal(v.const.array, a)


def test_weights_are_not_read_before_somebody_asks() -> None:
    """bytes changed after the import are what the constant then holds"""
    data = bytearray(model_with(numpy_helper.from_array(np.zeros(9000, np.float32), "w")).SerializeToString())
    const = load_onnx(memoryview(data)).graph.outputs[0][1].const
    at = data.index(bytes(36000))
    data[at : at + 36000] = np.ones(9000, np.float32).tobytes()
    assert const is not None and np.array_equal(const.array, np.ones(9000))


# -- external data ---------------------------------------------------------------------------------
def external(location: str, n: int, **entries: int) -> TensorProto:
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[n])
    t.data_location = TensorProto.EXTERNAL
    for k, v in ({"location": location} | entries).items():
        t.external_data.add(key=k, value=str(v))
    return t


def write(path: Path, x: np.ndarray, before: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(before) + x.tobytes())


def weights(path: Path) -> np.ndarray:
    const = load_onnx(path).graph.outputs[0][1].const
    assert const is not None
    return const.array


@pytest.mark.parametrize("offset", [0, 64, 3])
def test_external_data_in_a_folder_below(tmp_path: Path, offset: int) -> None:
    x = np.arange(7, dtype=np.float32)
    write(tmp_path / "sub" / "w.bin", x, offset)
    path = tmp_path / "net.onnx"
    t = external("sub/w.bin", 7, offset=offset, length=28)
    path.write_bytes(model_with(t).SerializeToString())
    assert np.array_equal(weights(path), x)


def test_external_data_as_onnx_writes_it(tmp_path: Path) -> None:
    x = np.arange(3000, dtype=np.float32)
    m = model_with(numpy_helper.from_array(x, "w"), numpy_helper.from_array(x[::-1].copy(), "v"))
    path = tmp_path / "net.onnx"
    onnx.save(m, path, save_as_external_data=True, location="net.data", size_threshold=0)
    assert np.array_equal(weights(path), x)


def test_external_data_is_read_when_asked_for(tmp_path: Path) -> None:
    """a file that vanished after the check shows that nobody has read it before"""
    write(tmp_path / "w.bin", np.zeros(7, np.float32))
    path = tmp_path / "net.onnx"
    path.write_bytes(model_with(external("w.bin", 7)).SerializeToString())
    const = load_onnx(path).graph.outputs[0][1].const
    (tmp_path / "w.bin").unlink()
    assert const is not None
    with pytest.raises(ModelError, match=r"w\.bin"):
        _ = const.array


def hub_cache(root: Path) -> Path:
    """The layout of a Hugging Face cache; the path of its model"""
    blobs = root / "models--a--b" / "blobs"
    snapshot = root / "models--a--b" / "snapshots" / "0123abc"
    (snapshot / "onnx").mkdir(parents=True)
    write(blobs / "feed", np.arange(7, dtype=np.float32))
    (blobs / "c0de").write_bytes(model_with(external("w.bin", 7)).SerializeToString())
    for name, blob in (("net.onnx", "c0de"), ("w.bin", "feed")):
        (snapshot / "onnx" / name).symlink_to(f"../../../blobs/{blob}")
    return snapshot / "onnx" / "net.onnx"


def test_links_of_a_hub_cache_are_followed(tmp_path: Path) -> None:
    assert np.array_equal(weights(hub_cache(tmp_path)), np.arange(7, dtype=np.float32))


def test_links_out_of_a_hub_cache_are_not(tmp_path: Path) -> None:
    path = hub_cache(tmp_path)
    write(tmp_path / "secret", np.zeros(7, np.float32))
    (path.parent / "w.bin").unlink()
    (path.parent / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="link out of the model's folder"):
        load_onnx(path)


def test_a_hub_cache_whose_blobs_are_a_link_is_none(tmp_path: Path) -> None:
    path = hub_cache(tmp_path)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="link out of the model's folder"):
        load_onnx(path)


@pytest.mark.parametrize(
    "location",
    ["", "/w", "../w", "a/../../w", "a\\..\\..\\w", "\\w", "C:\\w", "c:w", "a\0b", "//host/w", "."],
)
def test_locations_that_are_never_read(tmp_path: Path, location: str) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "w").write_bytes(bytes(28))
    with pytest.raises(MonoblocError):
        ExternalFiles(inside).span(external(location, 7), 28)
    if location != ".":
        with pytest.raises(ModelError, match="leads out"):
            allowed(inside, location)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="no plain file"):
        ExternalFiles(tmp_path).span(external("w.bin", 7), 28)
    os.mkfifo(tmp_path / "net.onnx")
    with pytest.raises(ModelError):
        load_onnx(tmp_path / "net.onnx")


# -- hostile files ---------------------------------------------------------------------------------
def small_models(folder: Path) -> list[Path]:
    """What the fuzzer starts from when the real models are not at hand"""
    m = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
        g (float[b,4] x, bool c) => (float[b,2] y, float[b,4] z) <float[4,2] w = {1,2,3,4,5,6,7,8}> {
            t = Constant <value_int = 1> ()
            u = Cast <to = 9> (t)
            h = If(u) <then_branch = t () => (float[b,4] p) { p = Neg(x) },
                       else_branch = e () => (float[b,4] q) { q = Exp(x) }>
            y = MatMul(h, w)
            s = Shape(x)
            r = Reshape(h, s)
            z = f.F(r)
        }
        <domain: "f", opset_import: ["" : 18]> F (a) => (b) { b = LeakyRelu <alpha = 0.1> (a) }"""
    )
    (folder / "small.onnx").write_bytes(m.SerializeToString())
    big = model_with(numpy_helper.from_array(np.zeros(3000, np.float32), "w"))
    (folder / "weights.onnx").write_bytes(big.SerializeToString())
    return [folder / "small.onnx", folder / "weights.onnx"]


@pytest.mark.parametrize(("name", "said"), [("", "output '' is made by nothing"), ("gone", "which nothing makes")])
def test_a_body_gives_what_nothing_makes(tmp_path: Path, name: str, said: str) -> None:
    model = onnx.load(small_models(tmp_path)[0])
    branch = next(n for n in model.graph.node if n.op_type == "If").attribute[0].g
    branch.output[0].name = name
    with pytest.raises(MonoblocError, match=said):
        load_onnx(model)
    model = onnx.load(tmp_path / "small.onnx")
    model.functions[0].output[0] = name
    with pytest.raises(MonoblocError, match=f"output 0 \\('z'\\) is not supported|{said}"):
        load_onnx(model)


def test_fuzzer_starts_from_good_models(tmp_path: Path) -> None:
    for path in small_models(tmp_path):
        load_onnx(path)


def test_mutated_models_give_errors_never_tracebacks(tmp_path: Path) -> None:
    models = small_models(tmp_path) + [p for p in SHARED.glob("*.onnx") if p.stat().st_size < 3e5]
    command = [sys.executable, str(FUZZ), "30", *map(str, models), "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" in done.stdout and "ok" in done.stdout


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    """cut anywhere, a model is never taken for a whole one, unless what is left is one"""
    data = small_models(tmp_path)[0].read_bytes()
    for n in range(0, len(data), 7):
        with pytest.raises(MonoblocError):
            load_onnx(data[:n])
