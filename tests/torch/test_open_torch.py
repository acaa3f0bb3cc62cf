"""Dimensions that stay open: one program for more sizes than an image has room for versions, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.export import Dim

import monobloc

SEED = 61
print(f"seed {SEED}")
BATCH, TIME = Dim("b", min=1, max=8), Dim("t", min=4, max=40)
RANGES = {"b": range(1, 5), "t": range(4, 40)}  # 144 pairs, twice as many as there may be versions
SIZES = ((2, 5), (1, 4), (4, 30), (3, 9))

PARTS: dict[str, Callable[[Any], Any]] = {
    "to_the_last": lambda x: x[:, :-1], "from_the_second": lambda x: x[:, 1:], "the_last_three": lambda x: x[:, -3:],
    "every_other": lambda x: x[:, ::2], "beyond_the_end": lambda x: x[:, 2:100], "the_last": lambda x: x[:, -1],
    "narrow": lambda x: x.narrow(1, -3, 2), "a_table_so_far": lambda x: torch.arange(40.0)[: x.shape[1]] + x.mT,
    "into_the_last": lambda x: torch.select_scatter(x, torch.ones(x.shape[0], 3), 1, -1),
    "into_all_but_one": lambda x: torch.slice_scatter(x, x[:, 1:] * 2, 1, 0, -1),
    "windows": lambda x: x.unfold(1, 3, 1), "columns": lambda x: F.unfold(x[:, None], (2, 3)),
    "diagonal": lambda x: (x @ x.mT).diagonal(1, dim1=1, dim2=2),
    "by_two_indices": lambda x: x[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])[None]],
    "a_grid": lambda x: torch.stack(torch.broadcast_tensors(torch.arange(x.shape[1])[:, None], torch.arange(3))),
}  # fmt: skip
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "size_as_a_number": lambda x: x / x.shape[1] + x.shape[0] * x.shape[1],
    "size_beside_integers": lambda x: x.argmax(1) * x.shape[1] % 7,
    "variance": lambda x: (x.var(1), x.std((0, 1)), *torch.var_mean(x, 1, correction=0)),
    "group_norm": lambda x: F.group_norm(x.mT, 3), "instance_norm": lambda x: F.instance_norm(x.mT),
    "norm_of_all": lambda x: F.layer_norm(x.mT, (x.shape[1],)),
    "causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "nearest": lambda x: F.interpolate(x.mT, scale_factor=2, mode="nearest"),
    "linear": lambda x: F.interpolate(x.mT, scale_factor=2, mode="linear"),
    "spectra": lambda x: torch.fft.rfft(x, dim=2).abs(),
}  # fmt: skip


class Of(nn.Module):
    def __init__(self, f: Callable[[Any], Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Any) -> Any:
        return self.f(x)


@pytest.mark.parametrize("name", [*PARTS, *NUMBERS])
def test_sizes_stay_open(name: str, cache: Path) -> None:
    torch.manual_seed(SEED)
    module = Of((PARTS | NUMBERS)[name]).eval()
    xs = [torch.randn(b, t, 3) for b, t in SIZES]
    m = monobloc.compile(module, (xs[0],), dynamic_shapes={"x": {0: BATCH, 1: TIME}}, dim=RANGES, lto="none",
                         cache=cache)
    for x in xs:
        want = module(x)
        got = m.run({"x": x}).values()
        for y, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            torch.testing.assert_close(torch.from_numpy(y), w, rtol=1e-4, atol=1e-5)


def test_a_size_that_no_factor_makes_is_a_version_of_its_own(cache: Path) -> None:
    """Which element is the nearest is PyTorch's answer, size by size."""
    module = Of(lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest")).eval()
    m = monobloc.compile(module, (torch.randn(1, 2, 5),), dynamic_shapes={"x": {2: TIME}}, dim={"t": range(4, 9)},
                         lto="none", cache=cache)
    for t in RANGES["t"][:5]:
        x = torch.randn(1, 2, t)
        torch.testing.assert_close(torch.from_numpy(m(x)), module(x), rtol=0, atol=0)
