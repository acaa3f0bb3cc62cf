"""Whole networks, small: exported, compiled to machine code, and beside eager PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch
import torch.nn.functional as F
from torch import nn
from torch_tools import differs

import monobloc
from monobloc.eager import Session
from monobloc.frontend import Choices, load_model
from monobloc.frontend.torch.program import export
from monobloc.ir.interp import interpret


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


class Residual(nn.Module):
    """A convolution network with squeeze and excitation, and an upsampled skip"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 1))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        low = F.max_pool2d(self.stem(x), 3, 1, 1)
        high = self.deep(low)
        y = low + F.interpolate(high * self.gate(high), size=low.shape[-2:], mode="bilinear", align_corners=False)
        return {"scores": self.head(y.flatten(2).mean(-1)).log_softmax(-1), "map": torch.sigmoid(y[:, :1])}


class Decoder(nn.Module):
    """One token a run: keys and values of those before are buffers"""

    def __init__(self, steps: int = 6) -> None:
        super().__init__()
        self.table = nn.Embedding(13, 8)
        self.mix, self.norm = nn.Linear(8, 24), nn.RMSNorm(8)
        self.register_buffer("keys", torch.zeros(1, 2, steps, 4))
        self.register_buffer("values", torch.zeros(1, 2, steps, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.norm(self.table(token))).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, self.at, k)
        self.values.index_copy_(2, self.at, v)
        seen = torch.arange(self.keys.shape[2]) <= self.at
        self.at += 1
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen[None])
        return F.linear(y.reshape(1, 8), self.table.weight).softmax(-1)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu", norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


torch.manual_seed(5)  # what is drawn here must not depend on which modules were read before
NETWORKS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "residual": (lambda: Residual().eval(), (torch.rand(1, 3, 32, 24),)),
    "encoder": (encoder, (torch.randn(2, 7, 16),)),
    "lstm": (lambda: nn.LSTM(6, 8, 2, bidirectional=True, batch_first=True).eval(), (torch.randn(2, 5, 6),)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_compute_what_eager_pytorch_computes(name: str, cache: Path) -> None:
    torch.manual_seed(1)
    make, args = NETWORKS[name]
    program = export(make(), args)
    m = monobloc.compile(program, lto="none", cache=cache)
    feeds = {s.name: x.numpy() for s, x in zip(m.inputs, args, strict=True)}
    want = Session(program).run(feeds)
    got = m.run(feeds)
    assert list(got) == list(want)
    assert not {k: d for k in got if (d := differs(got[k], want[k], scale=5))}


def test_a_decoder_keeps_its_cache_in_the_image(cache: Path) -> None:
    torch.manual_seed(2)
    module = Decoder().eval()
    program = export(module, (torch.tensor([3]),))
    m = monobloc.compile(program, lto="none", cache=cache)
    session = Session(program)
    for token in (3, 1, 12, 7):
        x = np.array([token])
        assert not differs(m(x), session.run({"token": x})["output"], scale=5)
    m.reset()
    assert not differs(m(np.array([3])), Session(program).run({"token": np.array([3])})["output"], scale=5)


def test_layers_are_called_by_their_submodules() -> None:
    g = load_model(export(Residual().eval(), (torch.rand(1, 3, 32, 24),))).graph
    names = {n.name for n in g.nodes}
    assert any(n.startswith("stem.0/") for n in names)
    assert all(n.locs for n in g.nodes if n.op == "Conv")


def test_one_program_at_several_sizes_is_one_model(cache: Path) -> None:
    dims = {"x": {0: torch.export.Dim("n"), 1: torch.export.Dim("t")}}
    program = export(encoder(), (torch.randn(2, 7, 16),), {}, None)
    assert program.dim_names == {}

    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.cumsum(1) / x.shape[1]).flatten()

    opened = export(Sums(), (torch.randn(2, 3, 2),), dynamic_shapes=dims)
    found = load_model(opened, Choices(dims={"n": (1, 4), "t": (2, 3)}))
    assert [g.inputs[0].shape for g in found.graphs] == [(4, 3, 2), (4, 2, 2), (1, 3, 2), (1, 2, 2)]
    m = monobloc.compile(opened, dim={"n": [1, 4], "t": [2, 3]}, lto="none", cache=cache)
    for shape in ((4, 2, 2), (1, 3, 2)):
        x = torch.randn(shape)
        assert not differs(m(x.numpy()), Sums()(x).numpy())


def test_sizes_of_a_range_stay_open(cache: Path) -> None:
    class Open(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            at = torch.arange(1, x.shape[1] + 1), torch.arange(x.shape[1], dtype=torch.float32)
            return self.layer(x).softmax(1).flatten(1), x.cumsum(1) * x.mean(1, keepdim=True), *at

    module = Open().eval()
    dims = {"x": {1: torch.export.Dim("t", min=2, max=50)}}
    program = export(module, (torch.randn(2, 5, 4),), dynamic_shapes=dims)
    assert len(load_model(program, Choices(dims={"t": range(2, 20)})).graphs) == 1  # one version for all
    m = monobloc.compile(program, dim={"t": range(2, 20)}, lto="none", cache=cache)
    for t in (2, 3, 19):
        x = torch.randn(2, t, 4)
        got = m(x.numpy())
        assert not any(differs(y, w.detach().numpy(), scale=5) for y, w in zip(got, module(x), strict=True))

    class Number(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x.sum(1) / x.shape[1], x.shape[1]

    number = export(Number(), (torch.randn(2, 5),), dynamic_shapes=dims)
    m = monobloc.compile(number, dim={"t": range(2, 5)}, lto="none", cache=cache)  # numbers are of each size
    assert [m(np.ones((2, t), np.float32))[1] for t in (2, 3, 4)] == [2, 3, 4]
    with pytest.raises(monobloc.MonoblocError, match="dimension 't' is 1, and the program was exported for 2 to 50"):
        load_model(program, Choices(dims={"t": range(1, 4)}))


def test_inputs_changed_in_place_are_verified_too() -> None:
    class Appends(nn.Module):
        def forward(self, kept: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
            kept.copy_(torch.cat([kept[1:], new]))
            return kept.sum()

    program = export(Appends(), (torch.randn(3), torch.randn(1)))
    feeds = {"kept": np.array([1, 2, 3], np.float32), "new": np.array([4], np.float32)}
    want = Session(program).run(feeds)
    assert want["kept/next"].tolist() == [2, 3, 4] and feeds["kept"].tolist() == [1, 2, 3]
    got = interpret(load_model(program).graph, feeds)
    assert {k: v.tolist() for k, v in got.items()} == {k: v.tolist() for k, v in want.items()}


class Chooses(nn.Module):
    """Control flow on data: a choice, a loop as long as data say, and one inside of the other"""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, limit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.cond(x.sum() > 0, lambda x: self.layer(x), lambda x: x * 2 - 1, (x,))

        def step(i: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.cond(i > 1, lambda z: z + x, lambda z: z * 0.5, (z,))

        start = (torch.zeros((), dtype=torch.int64), y)
        return y, torch._higher_order_ops.while_loop(lambda i, z: i < limit, step, start)[1]


def test_control_flow_on_data(cache: Path) -> None:
    torch.manual_seed(3)
    module = Chooses().eval()
    program = export(module, (torch.randn(2, 3), torch.tensor(3)))
    m = monobloc.compile(program, lto="none", cache=cache)
    found = load_model(program).graph
    for x, limit in ((torch.ones(2, 3), 0), (torch.ones(2, 3), 4), (-torch.ones(2, 3), 3)):
        feeds = {"x": x.numpy(), "limit": np.array(limit)}
        want = Session(program).run(feeds)
        for got in (m.run(feeds), interpret(found, feeds)):
            assert not {k: d for k in want if (d := differs(got[k], want[k], scale=5))}


def test_a_condition_that_is_known_leaves_one_branch() -> None:
    class Known(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(torch.tensor(True), lambda x: x.exp(), lambda x: torch.special.i0(x), (x,))

    assert [n.op for n in load_model(export(Known(), (torch.randn(3),))).graph.nodes] == ["Exp"]


def test_outputs_whose_size_data_decide_have_their_true_size(cache: Path) -> None:
    class Finds(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            kept = x[x[:, 0] > 0]
            return torch.nonzero(x > 1), torch.masked_select(x, y > 0) * 2 + 1, kept + y

    program = export(Finds(), (torch.randn(5, 3), torch.randn(3)))
    m = monobloc.compile(program, lto="none", cache=cache)
    session = Session(program)
    rng = np.random.default_rng(4)
    for scale in (1, 0, 5):
        feeds = {"x": (scale * rng.standard_normal((5, 3))).astype(np.float32), "y": np.array([1, -1, 2], np.float32)}
        want, got = session.run(feeds), m.run(feeds)
        assert not {k: d for k in want if (d := differs(got[k], want[k]))}


class Places(nn.Module):
    """A cache that a number out of a tensor says the place of"""

    def __init__(self) -> None:
        super().__init__()
        self.kept: torch.Tensor
        self.register_buffer("kept", torch.zeros(2, 6, 3))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k = at.item()
        torch._check(k >= 0)
        torch._check(k < 4)
        self.kept[:, k : k + 2] = x
        self.kept.select(1, k).add_(k * 0.5)
        row = self.kept.select(1, 2 * k - k + 1)
        return self.kept[:, k + 1 : k + 3] * k, self.kept.sum(1), row, torch.full((2,), k)


def test_numbers_out_of_tensors_say_where_a_slice_begins(cache: Path) -> None:
    program = export(Places(), (torch.randn(2, 2, 3), torch.tensor(1)))
    m, session = monobloc.compile(program, lto="none", cache=cache), Session(program)
    for k in (1, 3, 0):
        feeds = {"x": np.random.default_rng(k).standard_normal((2, 2, 3)).astype(np.float32), "at": np.array(k)}
        want, got = session.run(feeds), m.run(feeds)
        assert not {k: d for k in want if (d := differs(got[k], want[k]))}
    with pytest.raises(monobloc.MonoblocError, match="index"):
        m.run({**feeds, "at": np.array(7)})


def test_what_numbers_out_of_tensors_cannot_do_is_told() -> None:
    class Short(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            k = at.item()
            torch._check(k >= 0)
            torch._check(k <= 4)
            return x.roll(k, 0).sum() + torch.rot90(x, 1).sum() * (k**2)

    with pytest.raises(monobloc.MonoblocError, match="`shifts` that data decide is not supported") as e:
        load_model(export(Short(), (torch.randn(5, 3), torch.tensor(2))))
    assert "`pow` of a number that data decide is not supported" in str(e.value)
