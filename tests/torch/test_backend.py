"""`torch.compile(..., backend="monobloc")`: the same results, new images when they are due, a word where it cannot."""

from __future__ import annotations

import importlib
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch
from torch import nn

from monobloc.torch_backend import _Compiled, monobloc

OPTIONS = {"lto": "none"}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def compiled(module: Any) -> tuple[Any, list[_Compiled]]:
    """A module under the backend, and what the backend made of it"""
    made: list[_Compiled] = []

    def backend(graph: Any, examples: Any) -> Any:
        made.append(monobloc(graph, examples, options=OPTIONS))
        return made[-1]

    return torch.compile(module, backend=backend), made


def test_the_backend_is_registered() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    where = project["entry-points"]["torch_dynamo_backends"]["monobloc"]
    home, _, name = where.partition(":")
    assert getattr(importlib.import_module(home), name) is monobloc


def test_images_are_made_by_shape_and_again_when_parameters_change() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5)).eval()
    fast, made = compiled(module)
    x = torch.randn(3, 6)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(2):
            torch.testing.assert_close(fast(x), module(x))
        first = list(made[0].images.values())
        module[0].weight.mul_(3)
        torch.testing.assert_close(fast(x), module(x))
        assert len(made) == len(made[0].images) == 1 and list(made[0].images.values()) != first
        with torch.inference_mode():
            torch.testing.assert_close(fast(torch.ones(3, 6)), module(torch.ones(3, 6)))


def test_what_cannot_be_compiled_runs_eagerly_and_says_why() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1)
            return x * self.seen

    module = Counts()
    fast, _ = compiled(module)
    with torch.no_grad(), pytest.warns(UserWarning, match="in place"):
        assert fast(torch.ones(2)).tolist() == [1, 1] and fast(torch.ones(2)).tolist() == [2, 2]
    assert module.seen.tolist() == [2, 2]
    layer = nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="gradients are asked for"):
        compiled(layer)[0](torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad(), pytest.warns(UserWarning, match="aten._linalg_svd.default is not supported"):
        assert compiled(torch.linalg.svdvals)[0](torch.eye(2)).tolist() == [1, 1]
