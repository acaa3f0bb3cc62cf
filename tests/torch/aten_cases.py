"""Calls of PyTorch's operators by family: {family: {name: (function, inputs)}}. PyTorch itself says what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Case = tuple[Callable[..., Any], tuple[Any, ...]]
SEED = 7
_rng = np.random.default_rng(SEED)


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    return torch.from_numpy(_rng.uniform(low, high, shape).astype(np.float32))


def i(*shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.from_numpy(_rng.integers(low, high, shape)).to(dtype)


def b(*shape: int) -> torch.Tensor:
    return torch.from_numpy(_rng.random(shape) > 0.5)


ODD = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-8, 100.0])
WHOLE = torch.tensor([-7, -3, -1, 0, 1, 2, 5, 9])
HALF = f(3, 5).half()


def unary(*names: str) -> dict[str, Case]:
    out: dict[str, Case] = {}
    for name in names:
        fn = getattr(torch, name, None) or getattr(F, name)
        out[name] = (fn, (f(3, 5),))
        out[name + "_odd"] = (fn, (ODD,))
    return out


def of_ints(*names: str) -> dict[str, Case]:
    return {name + "_int": (getattr(torch, name), (WHOLE,)) for name in names}


CASES: dict[str, dict[str, Case]] = {
    "unary": {
        **unary(
            "abs",
            "ceil",
            "cos",
            "erf",
            "exp",
            "expm1",
            "floor",
            "isfinite",
            "isinf",
            "isnan",
            "neg",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "sigmoid",
            "sign",
            "signbit",
            "sin",
            "sqrt",
            "tanh",
            "trunc",
            "log",
            "log1p",
            "log2",
            "log10",
            "atan",
            "asinh",
            "square",
            "exp2",
            "frac",
            "logical_not",
            "tan",
        ),
        **of_ints(
            "abs",
            "ceil",
            "exp",
            "neg",
            "sqrt",
            "sigmoid",
            "sign",
            "sin",
            "bitwise_not",
            "round",
            "isnan",
            "logical_not",
            "signbit",
            "square",
            "floor",
        ),
        "acos": (torch.acos, (f(9, low=-1, high=1),)),
        "asin": (torch.asin, (f(9, low=-1, high=1),)),
        "acosh": (torch.acosh, (f(9, low=1, high=5),)),
        "atanh": (torch.atanh, (f(9, low=-0.9, high=0.9),)),
        "cosh": (torch.cosh, (f(9),)),
        "sinh": (torch.sinh, (f(9),)),
        "round_decimals": (lambda x: torch.round(x, decimals=2), (f(9),)),
        "round_tens": (lambda x: torch.round(x, decimals=-1), (f(9, low=-99, high=99),)),
        "log2_powers": (lambda x: torch.floor(torch.log2(x)), (2.0 ** torch.arange(1, 24),)),
        "log10_powers": (lambda x: torch.floor(torch.log10(x)), (10.0 ** torch.arange(0, 9),)),
        "log1p_small": (torch.log1p, (torch.tensor([1e-7, -1e-7, 1e-20, 0.49, 0.51, -0.99, -1.0]),)),
        "expm1_small": (torch.expm1, (torch.tensor([1e-7, -1e-7, 1e-20, 79.0, 81.0, 89.0, -90.0]),)),
        "sign_bool": (lambda x: x.sign(), (b(5),)),
        "not_bool": (torch.bitwise_not, (b(5),)),
        "half": (lambda x: torch.tanh(x) * 2 + x, (HALF,)),
        "positive": (torch.positive, (f(3),)),
        "nan_to_num": (lambda x: torch.nan_to_num(x, nan=1.5), (ODD,)),
        "deg": (torch.deg2rad, (f(4),)),
    },
    "binary": {
        "add": (torch.add, (f(3, 1), f(4))),
        "add_alpha": (lambda x, y: torch.add(x, y, alpha=2.5), (f(3), f(3))),
        "add_int_float": (torch.add, (i(3), f(3))),
        "add_scalar": (lambda x: x + 2, (f(3),)),
        "add_int_scalar": (lambda x: x + 1.5, (i(3),)),
        "add_half_f32_scalar": (lambda x: x + 1.5, (HALF,)),
        "add_dim0": (torch.add, (f(3).half(), torch.tensor(2.5))),
        "add_bool": (torch.add, (b(5), b(5))),
        "add_u8_i8": (torch.add, (i(5, low=0, dtype=torch.uint8), i(5, dtype=torch.int8))),
        "sub": (torch.sub, (f(3), f(3))),
        "rsub": (lambda x: 3 - x, (f(3),)),
        "rsub_int": (lambda x: 3 - x, (i(3, dtype=torch.int32),)),
        "mul": (torch.mul, (f(3, 1), f(4))),
        "mul_bool": (torch.mul, (b(5), f(5))),
        "mul_wraps": (lambda x: x * 100, (i(9, dtype=torch.int8),)),
        "div": (torch.div, (f(5), f(5))),
        "div_int": (torch.div, (WHOLE, WHOLE.flip(0) + 20)),
        "div_zero": (torch.div, (ODD, torch.zeros_like(ODD))),
        "div_floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (f(9), f(9))),
        "div_floor_int": (
            lambda x, y: torch.div(x, y, rounding_mode="floor"),
            (WHOLE, torch.tensor([3, -3, 2, 4, -2, 5, -5, 4])),
        ),
        "div_trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (f(9), f(9))),
        "div_trunc_int": (lambda x: torch.div(x, -3, rounding_mode="trunc"), (WHOLE,)),
        "floor_divide": (lambda x: x // 3, (WHOLE,)),
        "floor_divide_f": (lambda x: x // 0.1, (torch.tensor([1.0, 0.3, -1.0, 0.7]),)),
        "floor_divide_zero": (lambda x: x // 0.0, (torch.tensor([1.0, -1.0, 0.0]),)),
        "floor_divide_u8": (lambda x: x // 3, (i(9, low=0, high=200, dtype=torch.uint8),)),
        "remainder": (torch.remainder, (f(9, low=-9, high=9), f(9))),
        "remainder_int": (lambda x: x % -3, (WHOLE,)),
        "fmod": (torch.fmod, (f(9, low=-9, high=9), f(9))),
        "fmod_int": (lambda x: torch.fmod(x, 3), (WHOLE,)),
        "pow": (torch.pow, (f(9, low=0.1), f(9))),
        "pow2": (lambda x: x**2, (f(5),)),
        "pow_half": (lambda x: x**0.5, (f(5, low=0),)),
        "pow_int": (lambda x: x**3, (WHOLE,)),
        "pow_int_float": (lambda x: x**0.5, (WHOLE.abs(),)),
        "pow_scalar": (lambda x: 2**x, (f(5),)),
        "pow_neg": (lambda x: x**-1, (f(5),)),
        "atan2": (torch.atan2, (f(20), f(20))),
        "atan2_odd": (torch.atan2, (ODD[:, None].expand(12, 12).contiguous(), ODD)),
        "maximum": (torch.maximum, (ODD, f(12))),
        "minimum": (torch.minimum, (f(12), ODD)),
        "fmax": (torch.fmax, (ODD, f(12))),
        "fmin": (torch.fmin, (f(12), ODD)),
        "max_int": (torch.maximum, (WHOLE, torch.tensor(1))),
        "max_bool": (torch.maximum, (b(5), b(5))),
        **{n: (getattr(torch, n), (ODD, ODD.flip(0))) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
        **{n + "_int_float": (getattr(torch, n), (WHOLE, f(8))) for n in ("eq", "lt", "ge")},
        **{n + "_scalar": (lambda x, n=n: getattr(torch, n)(x, 1.5), (WHOLE,)) for n in ("gt", "le", "ne")},
        "lt_bool": (torch.lt, (b(9), b(9))),
        "eq_bool": (torch.eq, (b(9), b(9))),
        **{n: (getattr(torch, n), (i(9, low=0, high=2), f(9))) for n in ("logical_and", "logical_or", "logical_xor")},
        **{n: (getattr(torch, n), (WHOLE, WHOLE.flip(0))) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")},
        "and_bool": (lambda x, y: x & y, (b(9), b(9))),
        "or_scalar": (lambda x: x | 4, (WHOLE,)),
        "shl": (lambda x: x << 2, (WHOLE,)),
        "shr": (lambda x: x >> 1, (WHOLE,)),
        "shr_u8": (lambda x: x >> 1, (i(9, low=0, high=200, dtype=torch.uint8),)),
        "where": (torch.where, (b(3, 1), f(3, 4), f(4))),
        "where_scalar": (lambda c, x: torch.where(c, x, 0.0), (b(4), f(4))),
        "where_types": (torch.where, (b(4), f(4), i(4))),
        "masked_fill": (lambda x, m: x.masked_fill(m, -1e9), (f(3, 4), b(4))),
        "masked_fill_grows": (lambda x, m: x.masked_fill(m, 0.0), (f(4), b(3, 1))),
        "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=0.5), (f(3), f(3), f(3))),
        "addcdiv": (torch.addcdiv, (f(3), f(3), f(3, low=1))),
        "lerp": (lambda x, y: torch.lerp(x, y, 0.3), (f(3), f(3))),
        "lerp_tensor": (torch.lerp, (f(3), f(3), f(3))),
        "copysign": (torch.copysign, (f(12), ODD)),
        "hypot": (torch.hypot, (f(5), f(5))),
        "clamp": (lambda x: x.clamp(-0.5, 0.5), (ODD,)),
        "clamp_min": (lambda x: x.clamp(min=0), (ODD,)),
        "clamp_int": (lambda x: x.clamp(-2, 3), (WHOLE,)),
        "clamp_int_float": (lambda x: x.clamp(-2.5, 3.5), (WHOLE,)),
        "clamp_tensor": (torch.clamp, (f(3, 4), f(4), f(3, 1))),
        "isclose": (torch.isclose, (f(4), f(4))),
        "xlogy": (torch.xlogy, (f(4, low=0), f(4, low=0.1))),
        "float_to_int": (lambda x: x.to(torch.int32), (f(9, low=-9, high=9),)),
        "to_bool": (lambda x: x.bool(), (WHOLE,)),
        "to_half": (lambda x: x.half().float(), (f(9),)),
        "to_bf16": (lambda x: x.bfloat16().float(), (f(9),)),
        "view_bits": (lambda x: x.view(torch.int32), (f(9),)),
        "double": (lambda x: x.double() / 3, (f(4),)),
    },
    "activations": {
        "gelu": (F.gelu, (f(3, 5),)),
        **unary(
            "silu",
            "mish",
            "elu",
            "selu",
            "celu",
            "leaky_relu",
            "softplus",
            "softsign",
            "hardswish",
            "hardtanh",
            "hardsigmoid",
            "hardshrink",
            "softshrink",
            "logsigmoid",
            "relu6",
            "tanhshrink",
        ),
        "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (f(9),)),
        "elu_alpha": (lambda x: F.elu(x, 0.5), (f(9),)),
        "celu_alpha": (lambda x: F.celu(x, 2.0), (f(9),)),
        "leaky": (lambda x: F.leaky_relu(x, 0.2), (f(9),)),
        "softplus_beta": (lambda x: F.softplus(x, 2.0, 3.0), (f(9, low=-5, high=5),)),
        "hardtanh2": (lambda x: F.hardtanh(x, -0.3, 0.7), (f(9),)),
        "prelu": (F.prelu, (f(2, 3, 4), f(3))),
        "prelu_one": (F.prelu, (f(2, 3), f(1))),
        "glu": (lambda x: F.glu(x, 1), (f(2, 6),)),
        "threshold": (lambda x: F.threshold(x, 0.3, 9.0), (f(9),)),
        "softshrink2": (lambda x: F.softshrink(x, 0.9), (f(9),)),
        "softmax": (lambda x: F.softmax(x, 1), (f(2, 5, 3),)),
        "log_softmax": (lambda x: F.log_softmax(x, -1), (f(2, 5),)),
        "softmax_half": (lambda x: F.softmax(x, -1), (HALF,)),
        "softmin": (lambda x: F.softmin(x, -1), (f(2, 5),)),
        "softmax_dtype": (lambda x: F.softmax(x, -1, dtype=torch.float32), (HALF,)),
        "softmax_scalar": (lambda x: F.softmax(x, 0), (f(),)),
        "logit": (lambda x: torch.logit(x, 1e-3), (f(9, low=0, high=1),)),
        "rrelu": (F.rrelu, (f(9),)),
        "dropout": (lambda x: F.dropout(x, 0.5, False), (f(9),)),
    },
    "movement": {
        "view": (lambda x: x.view(4, -1), (f(2, 6),)),
        "reshape": (lambda x: x.reshape(3, 4), (f(2, 6),)),
        "flatten": (lambda x: x.flatten(1), (f(2, 3, 4),)),
        "unflatten": (lambda x: x.unflatten(1, (2, -1)), (f(2, 6),)),
        "squeeze": (lambda x: x.squeeze(), (f(1, 3, 1),)),
        "squeeze_dim": (lambda x: x.squeeze(0), (f(1, 3, 1),)),
        "squeeze_not": (lambda x: x.squeeze(1), (f(1, 3, 1),)),
        "unsqueeze": (lambda x: x.unsqueeze(-1), (f(2, 3),)),
        "permute": (lambda x: x.permute(2, 0, 1), (f(2, 3, 4),)),
        "transpose": (lambda x: x.transpose(0, -1), (f(2, 3, 4),)),
        "t": (lambda x: x.t(), (f(2, 3),)),
        "expand": (lambda x: x.expand(4, -1, 3), (f(2, 1),)),
        "repeat": (lambda x: x.repeat(2, 1, 3), (f(2, 3),)),
        "tile": (lambda x: torch.tile(x, (2,)), (f(2, 3),)),
        "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), (f(2, 3),)),
        "select": (lambda x: x[:, 1], (f(2, 3),)),
        "select_neg": (lambda x: x[..., -1], (f(2, 3),)),
        "slice": (lambda x: x[1:5:2, -2:], (f(6, 4),)),
        "slice_far": (lambda x: x[2:100], (f(6, 4),)),
        "slice_empty": (lambda x: x[5:2], (f(6, 4),)),
        "narrow": (lambda x: x.narrow(1, 1, 2), (f(2, 4),)),
        "split": (lambda x: torch.split(x, 2, 1)[2], (f(2, 5),)),
        "split_sizes": (lambda x: torch.split(x, [1, 4], 1)[1], (f(2, 5),)),
        "chunk": (lambda x: x.chunk(3, 1)[2], (f(2, 7),)),
        "unbind": (lambda x: x.unbind(1)[2], (f(2, 3),)),
        "tensor_split": (lambda x: torch.tensor_split(x, 3)[1], (f(7),)),
        "unfold": (lambda x: x.unfold(1, 3, 2), (f(2, 8, 3),)),
        "diagonal": (lambda x: torch.diagonal(x, 1, 0, 2), (f(3, 2, 4),)),
        "flip": (lambda x: x.flip(0, 2), (f(2, 3, 4),)),
        "roll": (lambda x: x.roll((1, -2), (0, 1)), (f(3, 5),)),
        "roll_all": (lambda x: x.roll(2), (f(3, 5),)),
        "rot90": (lambda x: torch.rot90(x, 1, (0, 1)), (f(3, 5),)),
        "tril": (torch.tril, (f(4, 5),)),
        "triu": (lambda x: torch.triu(x, 1), (f(2, 4, 5),)),
        "cat": (lambda x, y: torch.cat([x, y], 1), (f(2, 3), f(2, 2))),
        "cat_types": (lambda x, y: torch.cat([x, y]), (f(3), i(2))),
        "cat_empty": (lambda x: torch.cat([torch.zeros(0), x], 1), (f(2, 3),)),
        "stack": (lambda x, y: torch.stack([x, y], -1), (f(2, 3), f(2, 3))),
        "hstack": (lambda x, y: torch.hstack([x, y]), (f(2, 3), f(2, 1))),
        "movedim": (lambda x: x.movedim(0, 2), (f(2, 3, 4),)),
        "pad": (lambda x: F.pad(x, (1, 2), value=3.0), (f(2, 3),)),
        "pad_cut": (lambda x: F.pad(x, (-1, 2, 1, -1)), (f(3, 4),)),
        "reflect": (lambda x: F.pad(x, (2, 1), mode="reflect"), (f(1, 2, 5),)),
        "reflect2d": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), (f(1, 2, 5, 6),)),
        "replicate": (lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), (f(1, 2, 3, 4),)),
        "replicate3d": (lambda x: F.pad(x, (2, 1, 0, 3, 1, 1), mode="replicate"), (f(1, 2, 3, 4, 2),)),
        "circular": (lambda x: F.pad(x, (2, 1), mode="circular"), (f(1, 2, 5),)),
        "slice_scatter": (lambda x, y: torch.slice_scatter(x, y, 1, 1, 4), (f(2, 6), f(2, 3))),
        "slice_scatter_step": (lambda x, y: torch.slice_scatter(x, y, 1, 0, 6, 2), (f(2, 6), f(2, 3))),
        "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, -1), (f(2, 3), f(3))),
        "as_strided": (lambda x: torch.as_strided(x, (2, 3), (1, 2), 1), (f(12),)),
        "copy": (lambda x, y: torch.zeros(2, 3).copy_(x) + y, (f(3), f(1))),
        "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (f(1, 8, 2, 3),)),
        "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (f(1, 2, 4, 6),)),
        "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (f(1, 6, 2, 2),)),
        "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="xy")[0], (f(3), f(4))),
        "one_hot": (lambda x: F.one_hot(x, 5), (i(3, low=0, high=5),)),
        "assign_slice": (lambda x, y: _assigned(x, y), (f(3, 4), f(3))),
        "in_place": (lambda x: x.clone().add_(1).mul_(2), (f(3),)),
        "diag_embed": (torch.diag_embed, (f(2, 3),)),
        "broadcast": (lambda x, y: torch.broadcast_tensors(x, y)[0], (f(3, 1), f(4))),
        "ravel": (torch.ravel, (f(2, 3),)),
        "block_diag": (torch.block_diag, (f(2, 2), f(1, 3))),
        "kron": (torch.kron, (f(2, 2), f(1, 3))),
    },
    "creation": {
        "zeros": (lambda x: x + torch.zeros(3), (f(3),)),
        "ones_like": (lambda x: torch.ones_like(x) + x, (f(3),)),
        "full": (lambda x: x * torch.full((2, 3), 2.5), (f(3),)),
        "full_like": (lambda x: torch.full_like(x, 7) + x, (i(3),)),
        "arange": (lambda x: x + torch.arange(3), (f(3),)),
        "arange_step": (lambda x: x + torch.arange(1, 4, 1.25), (f(3),)),
        "linspace": (lambda x: x + torch.linspace(0, 1, 3), (f(3),)),
        "eye": (lambda x: x @ torch.eye(3), (f(2, 3),)),
        "tril_indices": (lambda x: x[:, 0] + torch.tril_indices(2, 2)[0], (f(3, 2),)),
        "new_zeros": (lambda x: x.new_zeros(3) + x, (f(3),)),
        "constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), (f(3),)),
        "scalar": (lambda x: x + torch.tensor(2.0), (f(3),)),
        "empty": (lambda x: torch.empty(3).fill_(2.0) + x, (f(3),)),
        "fill": (lambda x: torch.fill(x, 3) + x, (f(3),)),
        "zeros_mask": (lambda x: torch.zeros(3, 3, dtype=torch.bool) | (x > 0), (f(3),)),
        "vander": (lambda x: torch.vander(x, 3), (f(3),)),
    },
    "reductions": {
        "sum": (torch.sum, (f(2, 3),)),
        "sum_dims": (lambda x: x.sum((0, 2), keepdim=True), (f(2, 3, 4),)),
        "sum_int": (torch.sum, (i(5, dtype=torch.int32),)),
        "sum_bool": (lambda x: x.sum(1), (b(3, 4),)),
        "sum_dtype": (lambda x: x.sum(dtype=torch.float64), (f(5),)),
        "mean": (torch.mean, (f(2, 3),)),
        "mean_dims": (lambda x: x.mean((1, 2)), (f(2, 3, 4),)),
        "prod": (torch.prod, (f(5),)),
        "prod_dim": (lambda x: x.prod(1), (f(2, 3),)),
        "prod_int": (torch.prod, (i(5, low=1),)),
        "amax": (lambda x: x.amax((0, 1)), (f(2, 3, 4),)),
        "amin": (lambda x: x.amin(-1, keepdim=True), (f(2, 3),)),
        "max": (torch.max, (f(2, 3),)),
        "min_int": (torch.min, (i(5),)),
        "max_dim": (lambda x: torch.max(x, 1), (f(2, 5),)),
        "min_dim": (lambda x: torch.min(x, 0, keepdim=True), (f(4, 5),)),
        "max_nan": (lambda x: torch.max(x, 0), (ODD,)),
        "argmax": (torch.argmax, (f(3, 4),)),
        "argmax_dim": (lambda x: x.argmax(1), (f(3, 4),)),
        "argmin": (lambda x: x.argmin(0, keepdim=True), (i(3, 4),)),
        "argmax_keep": (lambda x: x.argmax(keepdim=True), (f(3, 4),)),
        "argmax_all_neg": (lambda x: x.argmax(-1), (f(3, 4) - 9,)),
        "any": (torch.any, (b(3),)),
        "any_dim": (lambda x: x.any(1), (f(2, 3) > 1,)),
        "all": (torch.all, (b(3),)),
        "all_dim": (lambda x: x.all(0), (f(2, 3) > -1,)),
        "any_float": (torch.any, (f(3),)),
        "any_u8": (torch.any, (i(3, low=0, high=2, dtype=torch.uint8),)),
        "all_dims": (lambda x: x.all((0, 1)), (b(2, 2),)),
        "var": (lambda x: x.var(1), (f(3, 5),)),
        "var0": (lambda x: x.var((0, 1), correction=0), (f(3, 5),)),
        "std": (lambda x: x.std(1, keepdim=True), (f(3, 5),)),
        "var_mean": (lambda x: torch.var_mean(x, 1), (f(3, 5),)),
        "std_one": (lambda x: x.std(0), (f(1, 3),)),
        "logsumexp": (lambda x: x.logsumexp(1), (f(3, 5),)),
        "norm": (lambda x: x.norm(dim=1), (f(3, 5),)),
        "norm1": (lambda x: x.norm(1, dim=1), (f(3, 5),)),
        "norm_inf": (lambda x: x.norm(float("inf")), (f(3, 5),)),
        "norm3": (lambda x: x.norm(3, dim=0), (f(3, 5),)),
        "normalize": (lambda x: F.normalize(x, dim=1), (f(3, 5),)),
        "cosine": (lambda x, y: F.cosine_similarity(x, y, dim=1), (f(3, 5), f(3, 5))),
        "cumsum": (lambda x: x.cumsum(1), (f(3, 5),)),
        "cumsum_bool": (lambda x: x.cumsum(0), (b(5),)),
        "cumprod": (lambda x: x.cumprod(1), (f(3, 5),)),
        "topk": (lambda x: x.topk(3, 1), (f(2, 6),)),
        "topk_small": (lambda x: x.topk(2, 0, largest=False), (f(5, 2),)),
        "sort": (lambda x: x.sort(1), (f(2, 6),)),
        "sort_down": (lambda x: x.sort(dim=0, descending=True, stable=True), (i(9, low=0, high=3),)),
        "argsort": (lambda x: x.argsort(1), (f(2, 6),)),
        "sort_nan": (lambda x: x.sort()[0], (ODD,)),
        "median": (torch.median, (f(6),)),
        "median_dim": (lambda x: x.median(1), (f(3, 5),)),
        "median_nan": (torch.median, (ODD,)),
        "histc": (lambda x: torch.histc(x, 7, -1.5, 2), (torch.cat([ODD, f(30)]),)),
        "histc_whole": (lambda x: torch.histc(x.float(), 5, 0, 4), (i(40, low=-1, high=6),)),
        "kthvalue": (lambda x: x.kthvalue(2, 1), (f(2, 5),)),
        "searchsorted": (torch.searchsorted, (torch.tensor([1.0, 2.0, 3.0]), f(2, 4, high=4))),
        "bucketize": (lambda x, y: torch.bucketize(x, y, right=True), (i(9), torch.tensor([-2, 0, 4]))),
        "count": (lambda x: torch.count_nonzero(x, 0), (i(3, 4, low=-1, high=2),)),
        "mse": (F.mse_loss, (f(3), f(3))),
        "l1": (F.l1_loss, (f(3), f(3))),
        "cross_entropy": (F.cross_entropy, (f(3, 5), i(3, low=0, high=5))),
        "aminmax": (lambda x: torch.aminmax(x, dim=1), (f(2, 3),)),
        "nansum": (torch.nansum, (ODD[[0, 3, 5]],)),
        "logcumsumexp": (lambda x: x.cumsum(0).exp(), (f(4),)),
        "diff": (lambda x: torch.diff(x), (f(5),)),
        "trace": (torch.trace, (f(3, 3),)),
        "cummax": (lambda x: x.cumsum(0), (f(3),)),
    },
}


def _assigned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    out[:, 2] = y
    out[0] = 0
    return out

# every pair of kinds of numbers, promoted as PyTorch does it
_TYPES = (torch.bool, torch.uint8, torch.int32, torch.float16, torch.float32, torch.float64)
_PAIRED: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "div": torch.div,
    "lt": torch.lt,
    "where": lambda x, y: torch.where(y.bool(), x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "pow": torch.pow,
    "scalar": lambda x, y: x * 2.5 + y,
}


def _takes(fn: Callable[..., Any], *inputs: torch.Tensor) -> bool:
    try:
        fn(*inputs)
    except (RuntimeError, TypeError):
        return False
    return True


CASES["promotion"] = {
    f"{name}_{x.dtype}_{y.dtype}": (fn, (x, y))
    for x in (torch.tensor([3, 1, 2]).to(t) for t in _TYPES)
    for y in (torch.tensor([2, 1, 1]).to(t) for t in _TYPES)
    for name, fn in _PAIRED.items()
    if _takes(fn, x, y)
}
