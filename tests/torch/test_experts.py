"""Mixtures of experts as `transformers` writes them: tokens sorted by expert, products grouped, and put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch
import torch.nn.functional as F
from torch import nn
from torch_tools import differs, eager, interpreted

import monobloc
from monobloc.errors import UnsupportedError
from monobloc.frontend.torch import archive
from monobloc.frontend.torch.importer import load_torch

SEED = 5
RNG = np.random.default_rng(SEED)
SCHEMA = "(Tensor input, Tensor weight, Tensor offs) -> Tensor"


def _grouped(x: Any, w: Any, ends: Any) -> Any:
    y, start = x.new_zeros(x.shape[0], w.shape[2]), 0
    for matrix, end in zip(w, ends.tolist(), strict=True):
        y[start:end] = x[start:end] @ matrix
        start = end
    return y


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The operator of the library `transformers`, which need not be installed"""
    monkeypatch.setattr(archive, "LIBRARIES", {})
    lib = torch.library.Library("transformers", "FRAGMENT")
    lib.define(f"grouped_mm_fallback{SCHEMA}")
    lib.impl("grouped_mm_fallback", _grouped, "CPU")
    torch.library.register_fake("transformers::grouped_mm_fallback",
                                lambda x, w, _: x.new_empty(x.shape[0], w.shape[2]), lib=lib)
    yield torch.ops.transformers
    lib._destroy()


class Experts(nn.Module):
    """Two of five experts for every token"""

    def __init__(self, product: Any) -> None:
        super().__init__()
        self.product, self.router = product, nn.Linear(16, 5)
        self.up, self.down = (nn.Parameter(torch.randn(5, *s) / 4) for s in ((16, 48), (24, 16)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, at = self.router(x).softmax(-1).topk(2, -1)
        group = at.reshape(-1)
        order = torch.argsort(group)
        ends = torch.histc(group.float(), bins=5, min=0, max=4).cumsum(0).to(torch.int32)
        gate, value = self.product(x[order // 2], self.up, ends).chunk(2, -1)
        y = self.product(F.silu(gate) * value, self.down, ends) * best.reshape(-1)[order][:, None]
        return torch.zeros_like(x).index_add_(0, order // 2, y)


def check(module: nn.Module, cache: Path, path: Path, scale: float = 1) -> None:
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), (torch.zeros(7, 16),)), path)
    for lto in ("none", "full"):
        m = monobloc.compile(path, lto=lto, cache=cache)
        for _ in range(3):
            x = RNG.standard_normal((7, 16)).astype(np.float32)
            want = module(torch.from_numpy(x)).detach().numpy()
            assert not differs(m(x), want, scale), f"seed {SEED}"


def test_the_operator_of_transformers(transformers: Any, cache: Path, tmp_path: Path) -> None:
    check(Experts(transformers.grouped_mm_fallback), cache, tmp_path / "experts.pt2")


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this PyTorch has no grouped_mm")
def test_pytorchs_own(cache: Path, tmp_path: Path) -> None:
    def product(x: Any, w: Any, ends: Any) -> Any:  # of bfloat16 alone where it is exported
        return F.grouped_mm(x.bfloat16(), w.bfloat16(), offs=ends).float()

    check(Experts(product), cache, tmp_path / "experts.pt2", scale=1e3)


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this PyTorch has no grouped_mm")
def test_other_forms() -> None:
    class Wide(nn.Module):
        def forward(self, x: Any, w: Any, ends: Any) -> Any:
            return F.grouped_mm(x, w, offs=ends)

    half, ends = torch.bfloat16, torch.tensor([2, 2, 8], dtype=torch.int32)
    given = (torch.randn(3, 6, 16, dtype=half), torch.randn(3, 16, 8, dtype=half), None)
    found = load_torch(torch.export.export(Wide(), given))
    got = interpreted(found, given)
    assert not differs(next(iter(got.values())), eager(Wide(), given)[0])
    columns = (torch.randn(16, 8, dtype=half), torch.randn(8, 16, dtype=half), ends)
    with pytest.raises(UnsupportedError, match=r"grouped products of bf16\[16,8\]"):
        load_torch(torch.export.export(Wide(), columns))
