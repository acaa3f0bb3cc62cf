"""PyTorch in, the same Graph out.

To import this folder is to import PyTorch, which takes seconds: `formats.py` does it late.
"""

from monobloc.frontend.torch.describe import facts
from monobloc.frontend.torch.importer import load_torch, loader

__all__ = ["facts", "load_torch", "loader"]
