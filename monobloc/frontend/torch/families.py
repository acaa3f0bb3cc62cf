"""All operators that are read, by PyTorch's name: one table, made of those of the families; and one of those that read
tensors whose size data decide, or make them of numbers."""

from __future__ import annotations

from monobloc.frontend.torch import (
    complexes,
    creation,
    elementwise,
    indexing,
    movement,
    norms,
    products,
    recurrent,
    reductions,
    sized,
    sized_layers,
    vision,
    windows,
)
from monobloc.frontend.torch.node import Reader

READERS: dict[str, Reader] = {
    **creation.READERS, **elementwise.READERS, **indexing.READERS, **movement.READERS, **norms.READERS,
    **products.READERS, **recurrent.READERS, **reductions.READERS, **sized.READERS, **windows.READERS,
    **complexes.READERS, **vision.READERS,
}  # fmt: skip
SIZED: dict[str, Reader] = {**sized.SIZED, **sized_layers.SIZED, **vision.READERS}
