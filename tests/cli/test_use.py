"""run, verify, bench, try, check, inspect, opt, targets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_tools import Command, tiny
from onnx import numpy_helper

from monobloc import verify_run
from monobloc.errors import UnsupportedError
from monobloc.verify_run import compare


def expected(model: Path, x: np.ndarray) -> np.ndarray:
    w, b = (numpy_helper.to_array(t) for t in onnx.load(str(model)).graph.initializer)
    return np.maximum(x @ w + b, 0)


# -- run ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("out", ["m.onnx", "built", "built.so", "built.o"])
def test_run_everything_that_holds_a_model(mb: Command, model: Path, out: str) -> None:
    if out != "m.onnx":
        assert mb("build", model, "-o", out).code == 0
    x = np.random.default_rng(3).standard_normal((1, 8)).astype(np.float32)
    np.save("x.npy", x)
    told = mb("run", out, "--input", "x.npy", "-o", "y.npz")
    assert told.code == 0, told.err
    y = np.load("y.npz")
    np.testing.assert_allclose(y["y"], expected(model, x), rtol=1e-5, atol=1e-6)
    assert y["best"] == np.argmax(y["y"])


def test_run_reads_every_format(mb: Command, model: Path) -> None:
    x = np.ones((1, 8), np.float32)
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    np.savez("both.npz", in_x=x, out_y=x)
    Path("x.pb").write_bytes(numpy_helper.from_array(x, "whatever").SerializeToString())
    told = {w: mb("run", model, "--input", w).out for w in ("x.npy", "x=x.npy", "x.npz", "both.npz", "x.pb")}
    assert len(set(told.values())) == 1 and "y float32[1, 4]: [[" in told["x.npy"]


def test_random_data_follow_the_seed(mb: Command, model: Path) -> None:
    first, again, other = mb("run", model), mb("run", model), mb("run", model, "--seed", 1)
    assert "random data, seed 0" in first.err and first.out == again.out != other.out


@pytest.mark.parametrize(("words", "says"), [
    (("--input", "no.npy"), "cannot read `no.npy`"),
    (("--input", "z=m.onnx"), "the model has no input `z`"),
    (("--input", "wrong.npy"), "holds float64[2], input `x` is float32[1, 8]"),
    (("--input", "m.npz"), "cannot read `m.npz`"),
    (("-o", "y.npy"), "the model has 2 outputs"),
])  # fmt: skip
def test_run_with_wrong_data(mb: Command, model: Path, words: tuple[str, ...], says: str) -> None:
    np.save("wrong.npy", np.zeros(2))
    told = mb("run", model, *words)
    assert told.code == 1 and says in told.err


@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="qemu-aarch64 is not installed")
def test_run_in_the_emulator(mb: Command, model: Path) -> None:
    here, there = mb("run", model, "-o", "a.npz"), mb("run", model, "-o", "b.npz", "--target", "aarch64-linux")
    assert (here.code, there.code) == (0, 0), there.err
    np.testing.assert_allclose(np.load("a.npz")["y"], np.load("b.npz")["y"], rtol=1e-5, atol=1e-6)


# -- verify -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
def test_verify(mb: Command, model: Path, against: str) -> None:
    if against == "onnxruntime":
        pytest.importorskip("onnxruntime")
    told = mb("verify", model, "--against", against, "--per-layer")
    assert told.code == 0, told.err
    assert "ulp" in told.out and "no node exceeds" in told.out


def test_verify_finds_the_node(mb: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that is wrong from the sum on."""
    right = verify_run.reference

    def wrong(g: object, feeds: object) -> dict[str, np.ndarray]:
        return {k: v if k == "xw" else v + v.dtype.type(1) for k, v in right(g, feeds).items()}  # type: ignore

    monkeypatch.setattr(verify_run, "reference", wrong)
    told = mb("verify", model, "--against", "reference", "--per-layer")
    assert told.code == 1
    assert "arises at Add 'bias', in value 'sum'" in told.out and "output `y` differs most at" in told.err


QUANTIZED = """<ir_version: 9, opset_import: ["" : 17]>
g (float[1,2] x) => (float[1,2] y) <float s = {0.0740443}, uint8 z = {128}, float t = {0.00392157}, uint8 o = {0}>
{ a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)  c = Softmax(b)
  d = QuantizeLinear(c, t, o)  y = DequantizeLinear(d, t, o) }"""


def test_verify_of_a_quantized_model_asks_for_its_own_nodes(mb: Command) -> None:
    """onnxruntime fuses such a Softmax, and cuts off what it should round: 59 of 255 instead of 59.7."""
    onnx.save(onnx.parser.parse_model(QUANTIZED), "q.onnx")
    x = np.float32([[-0.5923546, 0.5923546]])
    np.savez("x.npz", x=x)
    sessions = [verify_run.ort_session(Path("q.onnx"), fused=f) for f in (True, False)]
    fused, own = (verify_run.ort_run(s, {"x": x})["y"] for s in sessions)
    assert np.abs(fused - own).max() > 0.003
    assert mb("verify", "q.onnx", "--input", "x.npz").code == 0


def test_verify_with_data(mb: Command, model: Path) -> None:
    x = np.full((1, 8), 0.5, np.float32)
    y = expected(model, x)
    np.savez("io.npz", in_x=x, out_y=y, out_best=np.argmax(y, 1))
    assert mb("verify", model, "--data", "io.npz").code == 0
    np.savez("io.npz", in_x=x, out_y=y + 1, out_best=np.argmax(y, 1))
    told = mb("verify", model, "--data", "io.npz", "--json")
    found = {d["name"]: d["ok"] for d in json.loads(told.out)["outputs"]}
    assert told.code == 1 and found == {"y": False, "best": True}
    assert mb("verify", model, "--data", "io.npz", "--atol", 2).code == 0


def test_differences_are_counted_right() -> None:
    one = np.float32(1)
    a = np.array([1, np.nextafter(one, np.float32(2)), -0.0, np.nan, np.inf], np.float32)
    d = compare("a", a, np.array([1, 1, 0.0, np.nan, np.inf], np.float32))
    assert d.ok and d.ulp == 1 and d.abs == np.spacing(one)
    assert not compare("a", np.float32([np.nan]), np.float32([1])).ok
    assert not compare("a", np.float32([np.inf]), np.float32([-np.inf])).ok
    assert not compare("a", np.float32([1]), np.float32([np.inf])).ok
    assert not compare("a", np.float32([1, 2]), np.float32([[1, 2]])).ok
    assert not compare("a", np.int32([1]), np.int64([1])).ok
    big = np.int64([2**62 + 1])
    assert not compare("a", big, big - 1).ok and compare("a", big, big).ok
    assert compare("a", np.float32([-np.spacing(np.float32(0))]), np.float32([np.spacing(np.float32(0))])).ulp == 2


# -- bench and try ------------------------------------------------------------------------------------
def test_bench(mb: Command, model: Path) -> None:
    mb("build", tiny(Path("wide.onnx"), batch=64), "-o", "built")
    told = mb("bench", model, "--seconds", 0.02, "--threads", "1,2", "--vs", "none", "--per-layer", "--latency")
    assert told.code == 0, told.err
    assert told.out.count("\n monobloc") == 2 and "p99" in told.out and "product" in told.out
    assert "process start to end" in told.out
    told = mb("bench", "built", "--seconds", 0.02, "--json")
    (timing,) = json.loads(told.out)["times"]
    assert 0 < timing["least"] <= timing["median"] <= timing["p99"]  # of 64 rows: more than a step of the CPU's counter
    assert mb("bench", model, "--vs", "tvm").code == 2


def test_bench_beside_onnxruntime(mb: Command, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    told = mb("bench", model, "--seconds", 0.02, "--json")
    assert [t["name"] for t in json.loads(told.out)["times"]] == ["monobloc", "onnxruntime"]


def test_try(mb: Command, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    told = mb("try", model)
    assert told.code == 0, told.err
    for word in ("inputs", "executable", "arena", "ok: abs", "latency", "ratio", "monobloc build"):
        assert word in told.out


def test_try_without_onnxruntime(mb: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_run, "has_onnxruntime", lambda: False)
    told = mb("try", model)
    assert told.code == 0 and "pip install 'monobloc[verify]'" in told.err
    assert "against reference" in told.out and "latency" in told.out and "ratio" not in told.out


def test_try_repeats_the_flags(mb: Command, tmp_path: Path) -> None:
    tiny(tmp_path / "n.onnx", batch="n")
    told = mb("try", "n.onnx", "--dim", "n=2")
    assert told.code == 0 and "monobloc build n.onnx --dim n=2 -o n" in told.out
    told = mb("try", "n.onnx", "--dim", "n=2", "--from", "sum", "-g", "--lto", "none")
    assert told.code == 0 and "monobloc build n.onnx --dim n=2 --from sum --debug --lto none -o n" in told.out


def test_a_peer_that_refuses_is_told(mb: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from monobloc import bench_run

    def refuse(*_: object) -> None:
        raise UnsupportedError("onnxruntime refuses the model: no")

    monkeypatch.setattr(bench_run, "onnxruntime", refuse)
    told = mb("bench", model, "--seconds", 0.02)
    assert told.code == 0 and "warning: onnxruntime refuses" in told.err and "monobloc" in told.out


def test_stale_output_shapes_are_timed_beside_onnxruntime_too(mb: Command, tmp_path: Path) -> None:
    m = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[2,3] x) => (float[n] y) { y = Abs(x) }""")
    onnx.save(m, str(tmp_path / "stale.onnx"))
    assert "--ignore-declared-shapes" in mb("bench", "stale.onnx").err
    told = mb("bench", "stale.onnx", "--ignore-declared-shapes", "--seconds", 0.02)
    assert told.code == 0 and "onnxruntime" in told.out, told.err


# -- look ---------------------------------------------------------------------------------------------
def test_check(mb: Command, model: Path) -> None:
    told = mb("check", model)
    assert told.code == 0 and "x f32[1,8]" in told.out and "arena" in told.out and not Path("m").exists()
    facts = json.loads(mb("check", model, "--json").out)
    assert facts["ok"] and facts["weights"] == 144 and facts["arena"] >= facts["arena_bound"]
    mb("build", model, "-o", "m", "--report", "r.json")
    (built,) = json.loads(Path("r.json").read_text())["models"]
    assert (facts["arena"], facts["weights_packed"]) == (built["arena"], built["weights"])


def test_check_tells_every_unsupported_node(mb: Command, tmp_path: Path) -> None:
    m = onnx.load(str(tiny(tmp_path / "u.onnx")))
    m.graph.node[1].op_type, m.graph.node[2].op_type = "Frob", "Nicate"
    m.graph.node[1].domain = m.graph.node[2].domain = "odd"
    m.opset_import.append(onnx.helper.make_opsetid("odd", 1))
    onnx.save(m, "u.onnx")
    told = mb("check", "u.onnx")
    assert told.code == 1 and "odd::Frob 'bias'" in told.err and "odd::Nicate 'last'" in told.err
    assert mb("try", "u.onnx").code == 1


def test_inspect_every_kind_of_file(mb: Command, model: Path) -> None:
    for out in ("m", "m.so", "m.a"):
        mb("build", model, "-o", out, "--report", "r.json")
    mb("compile", model, "-o", "m.o")
    for file in (model, "m", "m.so", "m.o", "r.json"):
        told = mb("inspect", file)
        assert told.code == 0, (file, told.err)
        assert "memory plan" in told.out and "product" in told.out and "lower bound" in told.out, file
    assert "largest symbols" in mb("inspect", "m").out
    assert "graph_hash" not in mb("inspect", "m.o").out and "prefix" in mb("inspect", "m.o").out
    assert mb("inspect", "m.o", "--graph").out.startswith('graph "m" {')
    assert mb("inspect", "m.so", "--json").out.startswith("{")


def test_why(mb: Command, model: Path) -> None:
    mb("build", model, "-o", "m", "--report", "r.json")
    mb("compile", model, "-o", "m.o")
    for file in (model, "m", "m.o", "r.json"):
        told = mb("inspect", file, "--why", "last")
        assert told.code == 0 and "product" in told.out and "fuse" in told.out, (file, told)
    assert "read by" in mb("inspect", model, "--why", "b").out
    told = mb("inspect", model, "--why", "produkt")
    assert told.code == 1 and "did you mean 'product'" in told.err


def test_opt(mb: Command, model: Path) -> None:
    mb("build", model, "-o", "m", "--dump", "d")
    told = mb("opt", "d/m/00.import.mb", "-p", "canonicalize,fuse")
    assert told.code == 0 and "Fused" in told.out + mb("opt", "d/m/00.import.mb").out
    assert told.out != Path("d/m/00.import.mb").read_text()
    wrong = {"frob": "no pass is called `frob`", "fuse{zz=1}": "no option `zz`", "fu-se": "cannot read"}
    for words, says in wrong.items():
        told = mb("opt", "d/m/00.import.mb", "-p", words)
        assert told.code == 2 and says in told.err
    Path("bad.mb").write_text("graph {")
    assert mb("opt", "bad.mb").code == 1


def test_targets(mb: Command) -> None:
    told = mb("targets")
    assert "x86_64-linux" in told.out and "aarch64-linux" in told.out and "host is" in told.out
    assert json.loads(mb("targets", "--json").out)["targets"]


# -- the zoo ------------------------------------------------------------------------------------------
def test_check_answers_on_every_zoo_model(mb: Command, shared: Path) -> None:
    for path in sorted((shared / "models").glob("*.onnx")):
        told = mb("check", path)
        assert told.code in (0, 1) and "nodes" in told.out, path
        assert (told.code == 0) == ("everything is supported" in told.out)
        assert told.code == 0 or "error: " in told.err


def test_from_a_tensor_inside(mb: Command, model: Path) -> None:
    told = mb("verify", model, "--from", "sum", "--against", "reference")
    assert told.code == 0 and "random data" in told.err, told
    told = mb("verify", model, "--from", "sum")
    assert told.code == 1 and "--against reference" in told.err
    told = mb("bench", model, "--from", "sum", "--seconds", 0.02)
    assert told.code == 0 and "timed alone" in told.err
