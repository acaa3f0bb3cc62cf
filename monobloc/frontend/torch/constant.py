"""Calls whose operands are all known: PyTorch computes them, while the program is read.

So a parametrization (an orthogonal or a spectral norm, a matrix exponential, an inverse) is just its weights, whether
or not an image could compute it.
"""

from __future__ import annotations

from typing import Any

import torch

from monobloc.frontend.torch.complexes import Complex
from monobloc.frontend.torch.tensors import array_of, tensor_of
from monobloc.ir.graph import Value
from monobloc.ops.build import Builder

MOST_BYTES = 1 << 28  # of a result
DRAWS = torch.Tag.nondeterministic_seeded


def known(target: Any, args: Any, kwargs: Any) -> bool:
    """Whether PyTorch could compute a call now: of constants, with nothing that it draws or changes"""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    if DRAWS in target.tags or target._schema.is_mutable:
        return False
    return _constant(args) and _constant(kwargs)


def _constant(a: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return all(map(_constant, a))
    if isinstance(a, dict):
        return all(map(_constant, a.values()))
    if isinstance(a, Complex):
        return _constant(a.re) and _constant(a.im)
    if isinstance(a, Value):
        return a.const is not None
    plain = type(a) in (int, float, bool, complex, str)
    return plain or a is None or isinstance(a, (torch.dtype, torch.device, torch.layout, torch.memory_format))


def computed(b: Builder, target: Any, args: Any, kwargs: Any, made: Any) -> Any:
    """What the call makes, as constants; None where that is too much"""
    leaves = [t for t in torch.utils._pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
    sizes = [t.numel() * t.element_size() for t in leaves]
    if not leaves or not all(isinstance(k, int) for k in sizes) or sum(sizes) > MOST_BYTES:
        return None
    with torch.no_grad():
        found = target(*_tensors(args), **_tensors(kwargs))
    return torch.utils._pytree.tree_map(lambda t: _value(b, t), found if not isinstance(found, tuple) else list(found))


def _tensors(a: Any) -> Any:
    if isinstance(a, (list, tuple)):
        return [_tensors(x) for x in a]
    if isinstance(a, dict):
        return {k: _tensors(v) for k, v in a.items()}
    if isinstance(a, Complex):
        return torch.complex(_tensors(a.re), _tensors(a.im))
    return tensor_of(a.const.array) if isinstance(a, Value) and a.const is not None else a


def _value(b: Builder, t: Any) -> Any:
    if not isinstance(t, torch.Tensor):
        return t
    if t.is_complex():
        return Complex(_value(b, t.real), _value(b, t.imag))
    return b.const(array_of(t, "a constant"))
