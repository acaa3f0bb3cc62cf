"""Modules become images: names, structures, dimensions, shared weights, state, errors."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch
from torch import nn
from torch_tools import differs, eager, imported, interpreted

import monobloc
from monobloc.cli import run
from monobloc.eager import Session
from monobloc.errors import MonoblocError
from monobloc.frontend import Choices, load_model
from monobloc.frontend.torch.tensors import tensor_of

Pair = namedtuple("Pair", "mean peak")


class Tied(nn.Module):
    """An embedding whose table is the last layer's matrix too"""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("seen", torch.full((2,), 3.0))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, *, more: dict[str, torch.Tensor]) -> dict[str, Any]:
        h = self.table(x) + more["bias"]
        self.seen.add_(1)
        self.steps += 1
        return {"logits": self.head(h), "rest": (Pair(h.mean(), h.amax()), None, self.seen * self.steps)}


class Sizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, int, torch.Tensor]:
        return torch.relu(self.layer(x)).mean(1), x.shape[0], y.reshape(-1) / x.shape[1]


class Double(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


BATCH = torch.export.Dim("batch", max=64)
DIMS = {"x": {0: BATCH, 1: torch.export.Dim("seq")}, "y": {0: BATCH}}
torch.manual_seed(4)  # what is drawn here must not depend on which modules were read before
SIZES = (torch.randn(2, 5, 4), torch.randn(2, 3))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_structures_keep_their_names_and_buffers_their_state(cache: Path) -> None:
    module, x, bias = Tied().eval(), torch.tensor([[1, 2, 3]]), torch.randn(8)
    m = monobloc.compile(module, (x,), kwargs={"more": {"bias": bias}}, lto="none", cache=cache)
    assert [s.name for s in m.inputs] == ["x", "more_bias"]
    assert [s.name for s in m.outputs] == ["logits", "rest_0_mean", "rest_0_peak", "rest_2"]
    with torch.no_grad():
        for _ in range(3):
            want = module(x, more={"bias": bias})
            got = m.run({"x": x, "more_bias": bias})
            assert not differs(got["logits"], want["logits"].numpy())
            assert not differs(got["rest_2"], want["rest"][2].numpy())
    m.reset()
    assert m.run({"x": x, "more_bias": bias})["rest_2"].tolist() == [4, 4]


def test_shared_parameters_are_one_constant() -> None:
    g = imported(Tied().eval(), (torch.tensor([[1]]),), kwargs={"more": {"bias": torch.randn(8)}}).graph
    tables = [v for v in g.constants() if v.shape == (11, 8)]
    sources = [v.const.source[0] for v in g.constants() if v.const is not None and v.const.source is not None]
    assert len(tables) == 1 and tables[0].const in sources  # the head's is this one, turned


def test_dimensions_have_the_names_they_were_given(cache: Path) -> None:
    with pytest.raises(MonoblocError, match=r"f32\[batch,seq,4\]\n.*--dim seq=N"):
        monobloc.compile(Sizes(), SIZES, dynamic_shapes=DIMS)
    with pytest.raises(MonoblocError, match="dimension 'batch' is 99, and the program was exported for 0 to 64"):
        monobloc.compile(Sizes(), SIZES, dynamic_shapes=DIMS, dim={"batch": 99, "seq": 2})
    module = Sizes()
    m = monobloc.compile(module, SIZES, dynamic_shapes=DIMS, dim={"batch": 4, "seq": 7}, lto="none", cache=cache)
    x, y = torch.randn(4, 7, 4), torch.randn(4, 3)
    for got, want in zip(m(x, y), eager(module, (x, y)), strict=True):
        assert not differs(got, want)


def test_the_same_from_a_file_its_bytes_and_the_program(tmp_path: Path) -> None:
    program = torch.export.export(Sizes(), SIZES, dynamic_shapes=DIMS)
    torch.export.save(program, tmp_path / "sizes.pt2")
    path = tmp_path / "sizes.pt2"
    shapes = Choices(shapes={"x": (3, 2, 4)})
    texts = []
    for model in (path, path.read_bytes(), program):
        g = load_model(model, shapes).graph
        assert [v.shape for v in g.inputs] == [(3, 2, 4), (3, 3)]
        texts.append([(n.op, [v.type for v in n.outputs]) for n in g.nodes])
    assert texts[0] == texts[1] == texts[2]


def test_a_module_in_training_is_compiled_as_in_evaluation() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    found = imported(module, (torch.randn(2, 3),))
    assert module.training and any("training" in n for n in found.notes)
    x = torch.randn(2, 3)
    assert not differs(next(iter(interpreted(found, (x,)).values())), eager(module.eval(), (x,))[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8])
def test_any_tensor_is_taken_as_it_is(dtype: torch.dtype, cache: Path) -> None:
    """What numpy takes of none: bfloat16, a parameter, the imaginary part of a conjugate"""
    m = monobloc.compile(Double().eval(), (torch.ones(2, 3, dtype=dtype),), dynamic_shapes={"x": {0: BATCH}},
                         dim={"batch": range(1, 5)}, lto="none", cache=cache)
    given = [torch.arange(-4, 5).reshape(3, 3).to(dtype), torch.arange(6).reshape(3, 2).to(dtype).t()]
    if dtype is torch.float32:
        given += [nn.Parameter(given[0]), torch.randn(2, 3, dtype=torch.complex64).conj().imag]
    for x in given:
        torch.testing.assert_close(tensor_of(m(x)), (x * 2).detach(), rtol=0, atol=0)
    with pytest.raises(MonoblocError, match="input `x` is sparse"):
        m(torch.ones(2, 3, dtype=dtype).to_sparse())


def test_inputs_that_change_in_place_are_outputs() -> None:
    class Cache(nn.Module):
        def forward(self, kept: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
            kept[:, 1] = new
            return kept.sum(1)

    args = (torch.randn(2, 3), torch.randn(2))
    found = imported(Cache(), args)
    got = interpreted(found, args)
    assert list(got) == ["output", "kept/next"]
    want = args[0].clone()
    want[:, 1] = args[1]
    assert np.array_equal(got["kept/next"], want.numpy()) and np.allclose(got["output"], want.sum(1).numpy())


def test_all_problems_are_told_at_once_with_the_place_in_the_module() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.i0(torch.special.i0(x))

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Inner()

        def forward(self, x: torch.Tensor) -> Any:
            return self.part(x), torch.rand(3) + x, torch.linalg.svdvals(x), torch.nonzero(x).cumprod(0)

    with pytest.raises(MonoblocError) as e:
        imported(Outer(), (torch.randn(3, 3),))
    text = str(e.value)
    assert "the operator aten.i0.default (2 times) is not supported" in text
    assert "in `part` (Inner), test_torch.py line" in text and "torch.special.i0(torch.special.i0(x))" in text
    assert "aten._linalg_svd.default" in text and "draws random numbers" in text and "depends on data" in text


def test_what_is_computed_of_weights_alone_is_a_weight() -> None:
    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
            self.w, self.a = nn.Parameter(torch.eye(4) + 0.1 * torch.randn(4, 4)), nn.Parameter(torch.rand(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            waves = torch.exp((-self.a.exp() + 1j * self.a)[:, None] * torch.arange(4)).real.sum(0)
            return self.turn(x) @ torch.inverse(self.w) + torch.slogdet(self.w)[1] + waves

    args = (torch.randn(3, 4),)
    module = Weights().eval()
    found = imported(module, args)
    assert not differs(interpreted(found, args)["output"], module(*args).detach().numpy(), scale=5)
    assert {n.op for n in found.graph.nodes} <= {"MatMul", "Add", "Transpose", "Gemm"}


def test_an_export_that_fails_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    class Asks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            k = x[x > 0]
            return k * 2 if k.shape[0] > 3 else k

    with pytest.raises(MonoblocError, match=r"`torch.export.export` fails: Guard.*\n.*\n.*test_torch.py"):
        monobloc.compile(Asks(), (torch.randn(9),))
    assert capfd.readouterr() == ("", "")


def test_what_is_given_wrong_is_told() -> None:
    with pytest.raises(MonoblocError, match=r"Sizes is a PyTorch module.*\n.*monobloc.compile\(module, \(x,\)\)"):
        monobloc.compile(Sizes())
    with pytest.raises(MonoblocError, match=r"the model is no PyTorch module\n.*target="):
        monobloc.compile("m.onnx", "host")
    with pytest.raises(MonoblocError, match=r"`torch.export.export` fails"):
        monobloc.compile(Sizes(), (torch.randn(2, 5, 3), torch.randn(2)))
    with pytest.raises(MonoblocError, match="has no value 'nothing' to keep"):
        load_model(torch.export.export(Sizes(), SIZES), Choices(keep_outputs=["nothing"]))


def test_inner_values_can_be_kept_and_inputs_bound() -> None:
    program = torch.export.export(Sizes(), SIZES)
    found = load_model(program, Choices(keep_outputs=["relu", "output_2"], bind={"y": SIZES[1].numpy()}))
    assert [v.name for v in found.graph.inputs] == ["x"]
    got = interpreted(found, (SIZES[0],))
    assert got["relu"].shape == (2, 5, 3) and np.allclose(got["output_2"], SIZES[1].reshape(-1).numpy() / 5)


def test_verify_finds_the_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every value of the program beside PyTorch's; then an oracle that is wrong from one layer on"""
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
    path, right = tmp_path / "layers.pt2", Session.values
    torch.export.save(torch.export.export(module, (torch.randn(2, 3),)), path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["verify", str(path), "--per-layer", "--lto", "none"]
    assert run(words) == 0 and "no node exceeds the tolerance" in capfd.readouterr().out

    def wrong(self: Session, feeds: Any, names: Any) -> dict[str, np.ndarray]:
        return {k: v if k == "linear" else v + 1 for k, v in right(self, feeds, names).items()}

    monkeypatch.setattr(Session, "values", wrong)
    run(words)
    assert "the difference arises at tanh.default '1/tanh', in value 'tanh'" in capfd.readouterr().out
