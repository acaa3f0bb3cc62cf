"""The TFLite front end on files made here: layouts, integers, names, state, and what is wrong with a file."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfl_cases
import tfl_single
from tfl_files import OPERATORS, Net, Scalar, Writer, byte, i32
from tfl_single import Case, Q

import monobloc
from monobloc import driver, litert
from monobloc.cli import run
from monobloc.errors import ErrorList, InternalError, LinkError, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend import load_model
from monobloc.frontend.describe import describe
from monobloc.frontend.tflite import load_tflite
from monobloc.frontend.tflite.importer import READERS
from monobloc.frontend.tflite.refused import REASONS, reason
from monobloc.frontend.tflite.scaling import multiplier, quantized_clamp
from monobloc.ir.interp import interpret
from monobloc.ops.tfl import np_scale
from monobloc.options import Options
from monobloc.passes import PassContext, run_passes
from monobloc.targets import resolve

RNG = np.random.default_rng(0)
F32, I8 = np.float32, np.int8


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32)


def two_convs() -> tuple[bytes, np.ndarray, np.ndarray, np.ndarray]:
    """conv 3x3 with relu, then depthwise 3x3 of stride 2, then add of a value per channel"""
    n, w, d, c = Net(), floats(4, 3, 3, 2), floats(1, 3, 3, 4), floats(4)
    x = n.tensor("x", (1, 6, 5, 2), F32)
    a, b, y = (n.tensor(t, s, F32) for t, s in (("a", (1, 6, 5, 4)), ("b", (1, 3, 3, 4)), ("y", (1, 3, 3, 4))))
    n.op("CONV_2D", [x, n.const("w", w), -1], [a], {0: byte(0), 1: i32(1), 2: i32(1), 3: byte(1)})
    n.op("DEPTHWISE_CONV_2D", [a, n.const("d", d), -1], [b], {0: byte(0), 1: i32(2), 2: i32(2), 3: i32(1)})
    n.op("ADD", [b, n.const("c", c)], [y], {0: byte(0)})
    return n.file([x], [y]), w, d, c


def conv_last(x: np.ndarray, w: np.ndarray, stride: int, depthwise: bool) -> np.ndarray:
    """A 3x3 convolution with padding `same`, as it is written down, channels last"""
    h, wd = x.shape[1:3]
    oh, ow = -(-h // stride), -(-wd // stride)
    top, left = (max((o - 1) * stride + 3 - d, 0) // 2 for o, d in ((oh, h), (ow, wd)))
    p = np.pad(x, ((0, 0), (top, 3), (left, 3), (0, 0)))
    out = np.zeros((1, oh, ow, w.shape[3] if depthwise else w.shape[0]))
    for i in range(oh):
        for j in range(ow):
            part = p[0, i * stride : i * stride + 3, j * stride : j * stride + 3]
            out[0, i, j] = (part * w[0]).sum((0, 1)) if depthwise else np.einsum("hwc,ohwc->o", part, w)
    return out


def test_channels_last() -> None:
    data, w, d, c = two_convs()
    x = floats(1, 6, 5, 2)
    got = interpret(load_model(data).graph, {"x": x})["y"]
    want = conv_last(np.maximum(conv_last(x, w, 1, False), 0), d, 2, True) + c
    assert got.shape == (1, 3, 3, 4)
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_products_of_int16_are_integer_kernels() -> None:
    """Their sums are in 64 bits; int32 holds what these weights can make"""
    ops = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    cases = [c for c in tfl_cases.every() if "int16" in c.name and c.op in ops]
    g, _ = tfl_single.graph_of(cases)
    run_passes(g, PassContext(resolve()))
    assert len(cases) >= 7 and sum(n.attrs.get("kernel") in ("iconv", "idwconv") for n in g.nodes) == len(cases)


def test_no_transpose_between_convolutions() -> None:
    assert [n.op for n in load_model(two_convs()[0]).graph.nodes].count("Transpose") == 2  # at both ends


def test_names_of_the_signature() -> None:
    n = Net()
    x, y = n.tensor("serving_default_x:0", (2,), F32), n.tensor("StatefulPartitionedCall:0", (2,), F32)
    n.op("NEG", [x], [y])
    known = describe(n.file([x], [y], ({"audio": x}, {"score": y})))
    assert known.imported is not None
    g = known.imported.graph
    assert [v.name for v in g.inputs] == ["audio"] and [name for name, _ in g.outputs] == ["score"]
    assert [p.name for p in (*known.inputs, *known.outputs)] == ["audio", "score"]  # as `check` shows them


def quantized_product(k: int = 40) -> tuple[bytes, np.ndarray, np.ndarray]:
    n = Net()
    w, b = RNG.integers(-127, 128, (9, k)).astype(I8), RNG.integers(-3000, 3000, 9).astype(np.int32)
    x, y = n.tensor("x", (1, k), I8, 0.05, 4), n.tensor("y", (1, 9), I8, 0.11, -7)
    n.op("FULLY_CONNECTED", [x, n.const("w", w, 0.02), n.const("b", b, 0.001)], [y], {0: byte(1)})
    return n.file([x], [y]), w, b


def test_integer_product_rounds_in_float64_and_compiled_is_the_reference() -> None:
    data, w, b = quantized_product()
    x = RNG.integers(-128, 128, (1, 40)).astype(I8)
    total = (x.astype(np.int32) - 4) @ w.T.astype(np.int32) + b
    real = total * (float(F32(0.05)) * float(F32(0.02)) / float(F32(0.11)))
    want = np.clip(np.copysign(np.floor(np.abs(real) + 0.5), real) - 7, -7, 127).astype(I8)
    assert np.array_equal(interpret(load_model(data).graph, {"x": x})["y"], want)
    assert np.array_equal(monobloc.compile(data, lto="none").run({"x": x})["y"], want)


def test_tflite_micros_integers_are_asked_for(tmp_path: Path) -> None:
    """Straight, and through an object, whose numerics the link asks for"""
    case = next(c for c in tfl_cases.every() if c.name == "ties product int8")
    data, (feeds,) = case.model()
    (tmp_path / "m.tflite").write_bytes(data)
    answers = {k: tfl_single.digest(monobloc.compile(data, lto="none", numerics=k).run(feeds)["y0"])
               for k in ("default", "tflm")}
    kept = [json.loads(p.read_text())[case.name] for p in (tfl_single.HASHES, tfl_single.MICRO)]
    assert list(answers.values()) == kept and kept[0] != kept[1]
    o = Options(numerics="tflm", lto="none")
    driver.compile_to_object(tmp_path / "m.tflite", tmp_path / "m.o", o)
    driver.link([tmp_path / "m.o"], tmp_path / "m.so", "shared", o)
    assert tfl_single.digest(monobloc.load(tmp_path / "m.so").run(feeds)["y0"]) == kept[1]
    with pytest.raises(LinkError, match="compiled for other numerics"):
        driver.link([tmp_path / "m.o"], tmp_path / "n.so", "shared", Options(lto="none"))


def test_two_roundings_are_not_one() -> None:
    m, s = multiplier(0.02099346)
    x = np.arange(-40000, 40000)
    two, one = np_scale(x, np.int64(m), np.int64(s)), np.floor(x * 0.02099346 + 0.5)
    assert np.abs(two - one).max() == 1 and (two != one).sum() > 100


def test_multipliers() -> None:
    assert multiplier(0.5) == (1 << 30, 0) and multiplier(1.0) == (1 << 30, 1) and multiplier(0.0) == (0, 0)
    assert multiplier(1 - 2**-40) == (1 << 30, 1)  # rounds up to one
    assert multiplier(2.0**-40) == (0, 0)
    assert quantized_clamp(3, F32(0.05), -10, np.iinfo(I8)) == (-10, 110)


def counting() -> bytes:
    """y = x + what the variable holds; the variable becomes y. It starts at 3."""
    n = Net()
    x, y, old = (n.tensor(t, (2,), F32) for t in ("x", "y", "old"))
    h = n.tensor("h", (), "resource")
    n.op("VAR_HANDLE", [], [h], {1: "sum"})
    n.op("READ_VARIABLE", [h], [old])
    n.op("ADD", [x, old], [y], {0: byte(0)})
    n.op("ASSIGN_VARIABLE", [h, y], [])
    n.op("CALL_ONCE", [], [], {0: i32(1)})
    n.operators.insert(0, n.operators.pop())
    init = Net([], n.buffers, [], n.codes)
    h2 = init.tensor("h", (), "resource")
    init.op("VAR_HANDLE", [], [h2], {1: "sum"})
    init.op("ASSIGN_VARIABLE", [h2, init.const("three", np.full(2, 3, F32))], [])
    codes = [{0: byte(min(OPERATORS.index(c), 127)), 3: i32(OPERATORS.index(c))} for c in n.codes]
    return Writer().file({0: Scalar("I", 3), 1: codes, 2: [n.graph([x], [y]), init.graph([], [])], 4: n.buffers})


def test_variables_keep_their_value_and_start_where_the_model_says() -> None:
    m = monobloc.compile(counting(), lto="none")
    one = np.array([1, 10], F32)
    assert [list(m.run({"x": one})["y"]) for _ in range(3)] == [[4, 13], [5, 23], [6, 33]]
    assert [s.name for s in m.inputs] == ["x"]


def test_unsupported_operators_are_told_together() -> None:
    n = Net()
    x, y = n.tensor("x", (2,), F32), n.tensor("y", (2,), F32)
    for op in ("SKIP_GRAM", "LSH_PROJECTION", "LSH_PROJECTION"):
        n.op(op, [x], [y])
    with pytest.raises(UnsupportedError, match=r"2 operators are not supported: LSH_PROJECTION \(2\), SKIP_GRAM \(1\)",
                       ) as e:
        load_model(n.file([x], [y]))
    assert "SKIP_GRAM: takes strings" in str(e.value)


def test_every_operator_of_the_schema_is_read_or_has_a_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text().partition("## TFLite")[2]
    read = [o for o in OPERATORS if o in READERS or o == "CALL_ONCE"]
    assert not [o for o in OPERATORS if o not in read and not reason(o)]
    assert not [o for o in OPERATORS if not re.search(rf"`{o}`", page)]
    assert not set(REASONS) & set(read) and not set(REASONS) - set(OPERATORS)


def test_what_check_shows() -> None:
    known = describe(two_convs()[0])
    assert known.imported is not None and known.ops == {"CONV_2D": 1, "DEPTHWISE_CONV_2D": 1, "ADD": 1}
    assert [str(p.type) for p in known.inputs] == ["f32[1,6,5,2]"] and known.weight_bytes == 4 * (72 + 36 + 4)


def test_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"hello, world")
    with pytest.raises(ModelError, match="is no TFLite model"):
        load_model(tmp_path / "m.tflite")
    with pytest.raises(ModelError, match="cannot read"):
        load_model(tmp_path / "none.tflite")


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_errors_of_ours(seed: int) -> None:
    rng = random.Random(seed)
    print(f"seed {seed}")
    every = [two_convs()[0], quantized_product()[0], counting(), *(c.model()[0] for c in tfl_cases.every()[seed::12])]
    for k in range(300):
        whole = every[k % len(every)]
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(8, len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        if rng.random() < 0.2:
            del data[rng.randrange(8, len(data)) :]
        try:
            load_model(bytes(data))
        except MonoblocError as e:
            assert not any(isinstance(x, InternalError) for x in (e.errors if isinstance(e, ErrorList) else [e])), e


@pytest.mark.parametrize(("met", "kind"), [(AttributeError("no x"), InternalError), (ValueError("no x"), ModelError)])
def test_a_bug_of_ours_is_not_told_as_the_models_fault(monkeypatch: Any, met: Exception, kind: type) -> None:
    def stumbles(*_: Any) -> Any:
        raise met

    monkeypatch.setitem(READERS, "NEG", stumbles)
    n = Net()
    x, y = n.tensor("x", (2,), F32), n.tensor("y", (2,), F32)
    n.op("NEG", [x], [y])
    with pytest.raises(kind, match=rf"model: NEG 'y': .*: {type(met).__name__}: no x") as e:
        load_model(n.file([x], [y]))
    assert e.value.__cause__ is met


def test_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(b"\x08\0\0\0TFL3" + bytes([0xF8, 0xFF, 0xFF, 0x7F]) + bytes(32))
    for read in (load_model, describe):
        with pytest.raises(ModelError, match=r"^net\.tflite: is damaged"):
            read(tmp_path / "net.tflite")


def test_two_sums_in_one_loop() -> None:
    """A 3x3 and a 1x1 convolution that one ADD takes: one fold runs in strips, the other per element."""
    n = Net()
    x = n.tensor("x", (1, 8, 8, 16), I8, 0.1, 3)
    a, b, y = (n.tensor(t, (1, 4, 4, 32), I8, s, z) for t, s, z in (("a", 0.3, 1), ("b", 0.2, -5), ("y", 0.4, 2)))
    for out, size in ((a, 3), (b, 1)):
        w = RNG.integers(-127, 128, (32, size, size, 16)).astype(I8)
        bias = n.const(f"b{size}", RNG.integers(-99, 99, 32).astype(np.int32), 0.001)
        n.op("CONV_2D", [x, n.const(f"w{size}", w, np.full(32, 0.01)), bias], [out], {0: byte(0), 1: i32(2), 2: i32(2)})
    n.op("ADD", [a, b], [y], {0: byte(0)})
    data, value = n.file([x], [y]), RNG.integers(-128, 128, (1, 8, 8, 16)).astype(I8)
    want = interpret(load_model(data).graph, {"x": value})["y"]
    assert np.array_equal(monobloc.compile(data, lto="none").run({"x": value})["y"], want)


def test_bytes_of_a_damaged_vtable() -> None:
    """Offsets that lead in circles end."""
    with pytest.raises(ModelError, match="damaged"):
        load_model(b"\x08\0\0\0TFL3" + bytes([0xF8, 0xFF, 0xFF, 0x7F]) + bytes(32))


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "q.tflite").write_bytes(quantized_product()[0])
    (tmp_path / "sum.tflite").write_bytes(counting())  # keeps state
    for words, name, wanted in ((["check"], "q", "1 FULLY_CONNECTED"), (["verify", "--lto", "none"], "q", "int8[1, 9]"),
                                (["verify", "--lto", "none", "--against", "reference"], "sum", "float32[2]")):
        line = [sys.executable, "-m", "monobloc", *words, f"{name}.tflite"]
        p = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert p.returncode == 0 and wanted in p.stdout, p.stdout + p.stderr


def test_what_is_wrong_with_an_operator() -> None:
    n = Net()
    x, y = n.tensor("x", (2,), I8, 0.1, 0), n.tensor("y", (2,), I8, 0.1, 300)
    n.op("RELU", [x], [y])
    with pytest.raises(ModelError, match=r"RELU 'y': tensor 'y' is i8\[2\] with the zero point 300, which is out of"):
        load_model(n.file([x], [y]))
    n = Net()
    x, y = n.tensor("x", (2,), I8, 0.1, 0), n.tensor("y", (2,), I8, 0.1, 0)
    n.op("RELU", [x], [y])
    n.operators[0][2] = np.asarray([], np.int32)
    with pytest.raises(MonoblocError, match="RELU '#0': has 1 inputs and 0 outputs"):
        load_model(n.file([x], [y]))


@pytest.mark.parametrize(("bias", "want"), [(0.0, np.inf), (-1.0, np.nan), (4.0, 0.5)])
def test_a_norm_of_nothing_divides_by_a_power_of_its_bias(bias: float, want: float) -> None:
    n = Net()
    x, y = n.tensor("x", (1, 1, 1, 2), F32), n.tensor("y", (1, 1, 1, 2), F32)
    real = [Scalar("f", v) for v in (bias, 1.0, 0.5)]
    n.op("LOCAL_RESPONSE_NORMALIZATION", [x], [y], {0: i32(0), 1: real[0], 2: real[1], 3: real[2]})
    got = interpret(load_model(n.file([x], [y])).graph, {"x": np.ones((1, 1, 1, 2), F32)})["y"]
    np.testing.assert_array_equal(got, np.full((1, 1, 1, 2), want, F32))


def test_a_reset_goes_back_to_the_start() -> None:
    m = monobloc.compile(counting(), lto="none")
    one = {"x": np.array([1, 10], F32)}
    m.run(one)
    m.reset()
    assert list(m.run(one)["y"]) == [4, 13]


@pytest.mark.parametrize("lengths", [(4, 8), (8, 4)])
def test_spectra(lengths: tuple[int, int]) -> None:
    """Complex values exist between operators; one that is an output is refused."""
    n, shape = Net(), (2, *lengths[:1], lengths[1] // 2 + 1)
    x, z = n.tensor("x", (2, 5, 6), F32), n.tensor("z", shape, "complex")
    n.op("RFFT2D", [x, n.const("lengths", np.array(lengths, np.int32))], [z])
    outs = {op: n.tensor(op, shape, F32) for op in ("REAL", "IMAG", "COMPLEX_ABS")}
    for op, t in outs.items():
        n.op(op, [z], [t])
    value = floats(2, 5, 6)
    want = np.fft.rfft2(value, lengths)
    got = monobloc.compile(n.file([x], list(outs.values())), lto="none").run({"x": value})
    for op, f in (("REAL", np.real), ("IMAG", np.imag), ("COMPLEX_ABS", np.abs)):
        np.testing.assert_allclose(got[op], f(want), rtol=1e-5, atol=1e-4)
    with pytest.raises(UnsupportedError, match="output 'z' is complex"):
        load_model(n.file([x], [z]))


def test_an_integer_lstm_of_both_ways_is_refused() -> None:
    """LiteRT has no kernel for it: no answer could be compared with one."""
    (one,) = (c for c in tfl_cases.every() if c.name == "lstm int8")
    x, way, held = one.ins[0], one.ins[1:18], one.ins[18:20]
    ins = (x, *way, *way, *held, *held, *[None] * 9)
    data, _ = replace(one, op="BIDIRECTIONAL_SEQUENCE_LSTM", ins=ins, out=(one.out, one.out),
                      options=one.options | {4: Scalar("B", 0)}).model()
    with pytest.raises(UnsupportedError, match="BIDIRECTIONAL_SEQUENCE_LSTM of integers is not supported"):
        load_model(data)


def sizes_that_lie() -> list[tuple[bytes, str]]:
    """A few bytes that ask for gigabytes"""
    far, row, w, r = 60000, Q((1, 2), F32), np.ones((3, 2), F32), np.ones((3, 3), F32)
    bias, gone, state = np.ones(3, F32), [None] * 3, Q((far, far), F32, state=True)
    lstm = (row, *[w] * 4, *[r] * 4, *gone, *[bias] * 4, None, None, state, state)
    few = np.zeros((1, 4), F32)
    few[0, 1] = 1
    sparse = Net()
    t = sparse.sparse("w", few)
    sparse.tensors[t][0] = np.array([far, far], np.int32)
    sparse.op("DENSIFY", [t], [y := sparse.tensor("y", (far, far), F32)])
    return [
        (Case("state", "LSTM", lstm, Q((1, 3), F32), {0: byte(4)}).model()[0], "has a state of f32"),
        (Case("eye", "MATRIX_DIAG", (np.ones(far, F32),), Q((far, far), F32)).model()[0], ""),
        (Case("fill", "FILL", (np.array([far, far], np.int32), np.array(1, F32)), Q((far, far), F32)).model()[0], ""),
        (sparse.file([], [y]), "too few for a sparse constant"),
    ]


def test_few_bytes_do_not_ask_for_gigabytes() -> None:
    tracemalloc.start()
    try:
        for data, words in sizes_that_lie():
            tracemalloc.reset_peak()
            if words:
                with pytest.raises(ModelError, match=words):
                    load_tflite(data)
            else:
                load_tflite(data)
            assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not litert.installed(), reason=f"LiteRT is the reference: {litert.INSTALL}")
def test_verify_finds_the_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every tensor of the model beside LiteRT's; then an oracle that is wrong from one layer on"""
    n, path, right = Net(), tmp_path / "layers.tflite", litert.Session.values
    x, a, t, y = (n.tensor(name, (2, 3), F32) for name in ("x", "turned", "curved", "y"))
    n.op("NEG", [x], [a])
    n.op("TANH", [a], [t])
    n.op("ADD", [t, a], [y], {0: byte(0)})
    path.write_bytes(n.file([x], [y]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["verify", str(path), "--per-layer", "--lto", "none"]
    assert run(words) == 0 and "no node exceeds the tolerance" in capfd.readouterr().out

    def wrong(self: litert.Session, feeds: Any, names: Any) -> dict[str, np.ndarray]:
        return {k: v if k == "turned" else v + 1 for k, v in right(self, feeds, names).items()}

    monkeypatch.setattr(litert.Session, "values", wrong)
    run(words)
    assert "the difference arises at TANH 'curved', in value 'curved'" in capfd.readouterr().out
