"""All operators that are read, by PyTorch's name: one table, made of those of the families."""

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
    windows,
)
from monobloc.frontend.torch.node import Reader

READERS: dict[str, Reader] = {
    **creation.READERS, **elementwise.READERS, **indexing.READERS, **movement.READERS, **norms.READERS,
    **products.READERS, **recurrent.READERS, **reductions.READERS, **sized.READERS, **windows.READERS,
    **complexes.READERS,
}  # fmt: skip
