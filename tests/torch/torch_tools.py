"""Modules made for tests, and what PyTorch and we make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from monobloc.frontend.importing import Choices, Imported
from monobloc.frontend.torch import load_torch
from monobloc.frontend.torch.program import export
from monobloc.frontend.torch.tensors import array_of
from monobloc.ir.interp import interpret

# (rtol, atol) by bytes of an element
TOLERANCE = {1: (0, 0), 2: (2e-3, 2e-3), 4: (2e-5, 2e-5), 8: (1e-6, 1e-7)}


class Calls(torch.nn.Module):
    """Several functions at once, each on inputs of its own: one export instead of many"""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = dict(functions)
        self.owned = torch.nn.ModuleList(f for f in functions.values() if isinstance(f, torch.nn.Module))

    def forward(self, inputs: dict[str, tuple[torch.Tensor, ...]]) -> dict[str, Any]:
        return {name: fn(*inputs[name]) for name, fn in self.functions.items()}


def imported(module: torch.nn.Module, args: tuple[Any, ...], choices: Choices | None = None, **more: Any) -> Imported:
    return load_torch(export(module, args, **more), choices)


def leaves(x: Any) -> list[Any]:
    return [t for t in torch.utils._pytree.tree_leaves(x) if t is not None]


def eager(module: Any, args: tuple[Any, ...]) -> list[np.ndarray]:
    own = torch.utils._pytree.tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, args)
    with torch.no_grad():
        return [array_of(t, "y") if isinstance(t, torch.Tensor) else np.asarray(t) for t in leaves(module(*own))]


def interpreted(found: Imported, args: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """What the graph means"""
    given = [array_of(t, "x") for t in leaves(args) if isinstance(t, torch.Tensor)]
    starts = {v.name: np.zeros(v.shape, v.dtype.numpy) for v in found.graph.inputs if v.state}
    users = [v for v in found.graph.inputs if not v.state]
    feeds = {v.name: x for v, x in zip(users, given, strict=True)}
    return interpret(found.graph, {**starts, **feeds})


def differs(got: np.ndarray, want: np.ndarray, scale: float = 1.0) -> str:
    """What is wrong, empty when nothing is"""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    rtol, atol = TOLERANCE[got.dtype.itemsize] if got.dtype.kind not in "iub" else (0, 0)
    g, w = got.astype(np.float64), want.astype(np.float64)
    if np.allclose(g, w, rtol=scale * rtol, atol=scale * atol, equal_nan=True):
        return ""
    return f"{g.ravel()[:8]}, not {w.ravel()[:8]}"
