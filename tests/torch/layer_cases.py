"""Layers and calls with weights, windows or indices, by family: {family: {name: (function or module, inputs)}}."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from aten_cases import Case, b, f, i
from torch import nn

torch.manual_seed(7)
AT = torch.tensor([[0, -1, 2], [1, 1, -3]])


def put(x: torch.Tensor, at: Any, value: Any) -> torch.Tensor:
    out = x.clone()
    out[at] = value
    return out


class Cell(nn.Module):
    """A recurrent layer without its tuple of states"""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *x: Any) -> Any:
        return self.inner(*x)


class Self(nn.Module):
    """Attention of a sequence to itself"""

    def __init__(self, inner: nn.MultiheadAttention) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x, x, x)


cplx, real = torch.view_as_complex, torch.view_as_real


def written(x: Any) -> Any:
    """Into zeros that are complex from the start"""
    y = torch.zeros(3, 4, dtype=torch.cfloat)
    y[:, :2] = cplx(x)
    y[1] = 5.0
    return real(y)


CASES: dict[str, dict[str, Case]] = {
    "products": {
        "mm": (torch.mm, (f(2, 3), f(3, 4))),
        "bmm": (torch.bmm, (f(2, 2, 3), f(2, 3, 4))),
        "matmul": (torch.matmul, (f(2, 1, 2, 3), f(5, 3, 4))),
        "matvec": (torch.matmul, (f(2, 3), f(3))),
        "dot": (torch.dot, (f(3), f(3))),
        "mv": (torch.mv, (f(2, 3), f(3))),
        "mm_int": (torch.mm, (i(2, 3), i(3, 4))),
        "addmm": (lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2.0), (f(4), f(2, 3), f(3, 4))),
        "baddbmm": (lambda c, x, y: torch.baddbmm(c, x, y, beta=0.5, alpha=2.0), (f(2, 4), f(2, 2, 3), f(2, 3, 4))),
        "addmv": (torch.addmv, (f(2), f(2, 3), f(3))),
        "outer": (torch.outer, (f(2), f(3))),
        "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), (f(2, 3, 4), f(2, 4, 5))),
        "einsum2": (lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y), (f(2, 2, 3, 4), f(2, 2, 5, 4))),
        "tensordot": (lambda x, y: torch.tensordot(x, y, ([1], [0])), (f(2, 3), f(3, 4))),
        "linear": (nn.Linear(3, 4), (f(2, 3),)),
        "linear3": (nn.Linear(3, 4), (f(2, 5, 3),)),
        "linear1": (nn.Linear(3, 4, bias=False), (f(3),)),
        "bilinear": (nn.Bilinear(3, 4, 2), (f(2, 3), f(2, 4))),
        "cdist": (torch.cdist, (f(2, 3, 4), f(2, 5, 4))),
        "cdist1": (lambda x, y: torch.cdist(x, y, p=1.0), (f(3, 4), f(5, 4))),
        "cdist3": (lambda x, y: torch.cdist(x, y, p=3.0), (f(3, 4), f(5, 4))),
        "sdpa": (F.scaled_dot_product_attention, (f(1, 2, 3, 4), f(1, 2, 5, 4), f(1, 2, 5, 4))),
        "sdpa_mask": (F.scaled_dot_product_attention, (f(1, 2, 3, 4), f(1, 2, 5, 4), f(1, 2, 5, 4), f(3, 5))),
        "sdpa_bool": (
            F.scaled_dot_product_attention,
            (f(1, 2, 2, 4), f(1, 2, 3, 4), f(1, 2, 3, 4), torch.tensor([[True, False, True], [False] * 3])),
        ),
        "sdpa_causal": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
            (f(1, 2, 4, 4), f(1, 2, 4, 4), f(1, 2, 4, 4)),
        ),
        "sdpa_gqa": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            (f(1, 4, 3, 4), f(1, 2, 5, 4), f(1, 2, 5, 4)),
        ),
        "mha": (Self(nn.MultiheadAttention(8, 2, batch_first=True)), (f(2, 3, 8),)),
    },
    "convolutions": {
        "conv1d": (nn.Conv1d(3, 4, 3, padding=1), (f(2, 3, 9),)),
        "conv2d": (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=False), (f(1, 4, 8, 7),)),
        "conv2d_dilated": (nn.Conv2d(2, 3, (3, 2), dilation=(2, 1)), (f(1, 2, 9, 7),)),
        "conv2d_same": (nn.Conv2d(2, 3, (4, 3), padding="same"), (f(1, 2, 6, 5),)),
        "conv2d_one": (nn.Conv2d(2, 3, 3), (f(2, 6, 5),)),
        "conv2d_reflect": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (f(1, 2, 6, 5),)),
        "conv3d": (nn.Conv3d(2, 3, 2), (f(1, 2, 4, 5, 3),)),
        "depthwise": (nn.Conv2d(4, 4, 3, groups=4, padding=1), (f(1, 4, 6, 6),)),
        "transposed1d": (nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1), (f(1, 3, 5),)),
        "transposed2d": (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2), (f(1, 4, 5, 4),)),
        "unfold": (lambda x: F.unfold(x, (2, 3), dilation=1, padding=1, stride=2), (f(1, 2, 6, 7),)),
        "fold": (lambda x: F.fold(x, (4, 5), (2, 2), padding=1, stride=2), (f(1, 8, 9),)),
        "max_pool2d": (nn.MaxPool2d(3, 2, 1), (f(1, 2, 8, 7),)),
        "max_pool2d_ceil": (nn.MaxPool2d(3, 2, ceil_mode=True), (f(1, 2, 8, 8),)),
        "max_pool2d_ceil_odd": (nn.MaxPool2d(2, 2, 1, ceil_mode=True), (f(1, 2, 5, 6),)),
        "max_pool2d_dilated": (nn.MaxPool2d(2, 1, dilation=2), (f(2, 6, 7),)),
        "max_pool2d_places": (lambda x: F.max_pool2d(x, 2, return_indices=True), (f(2, 3, 4, 6),)),
        "max_pool1d": (nn.MaxPool1d(3, 2), (f(2, 3, 9),)),
        "max_pool3d": (nn.MaxPool3d(2), (f(1, 2, 4, 4, 6),)),
        "avg_pool1d": (nn.AvgPool1d(3, 2, 1), (f(2, 3, 9),)),
        "avg_pool2d": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (f(1, 2, 8, 7),)),
        "avg_pool2d_ceil": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (f(1, 2, 8, 8),)),
        "avg_pool2d_divisor": (nn.AvgPool2d(2, divisor_override=3), (f(1, 2, 4, 6),)),
        "avg_pool3d": (nn.AvgPool3d(2, 1), (f(1, 2, 3, 4, 3),)),
        "adaptive": (nn.AdaptiveAvgPool2d(1), (f(2, 3, 5, 4),)),
        "adaptive_even": (nn.AdaptiveAvgPool2d((2, 3)), (f(2, 3, 4, 6),)),
        "adaptive_uneven": (nn.AdaptiveAvgPool2d((3, 5)), (f(2, 3, 7, 8),)),
        "adaptive_none": (nn.AdaptiveAvgPool2d((None, 2)), (f(2, 3, 7, 8),)),
        "adaptive1d": (nn.AdaptiveAvgPool1d(3), (f(2, 3, 7),)),
        "adaptive_max": (nn.AdaptiveMaxPool2d((2, 3)), (f(2, 3, 5, 7),)),
        "lp_pool": (nn.LPPool2d(2, 2), (f(1, 2, 4, 4),)),
        "nearest": (lambda x: F.interpolate(x, scale_factor=2), (f(1, 2, 3, 4),)),
        "nearest_size": (lambda x: F.interpolate(x, size=(5, 7)), (f(1, 2, 3, 4),)),
        "nearest_third": (lambda x: F.interpolate(x, size=(3, 9)), (f(1, 2, 9, 27),)),
        "nearest_scale": (lambda x: F.interpolate(x, scale_factor=1.7), (f(1, 2, 5, 6),)),
        "nearest_exact": (lambda x: F.interpolate(x, size=(5, 7), mode="nearest-exact"), (f(1, 2, 3, 4),)),
        "nearest1d": (lambda x: F.interpolate(x, scale_factor=3), (f(1, 2, 3),)),
        "bilinear_up": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (f(1, 2, 3, 4),)),
        "bilinear_down": (lambda x: F.interpolate(x, size=(3, 2), mode="bilinear"), (f(1, 2, 7, 5),)),
        "bilinear_corners": (lambda x: F.interpolate(x, (7, 5), mode="bilinear", align_corners=True), (f(1, 2, 3, 4),)),
        "bilinear_scale": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (f(1, 2, 5, 6),)),
        "bilinear_antialias": (lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), (f(1, 2, 9, 8),)),
        "bicubic_antialias": (lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True), (f(1, 2, 9, 8),)),
        "linear1d": (lambda x: F.interpolate(x, size=7, mode="linear"), (f(1, 2, 3),)),
        "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (f(1, 1, 2, 3, 2),)),
        "bicubic": (lambda x: F.interpolate(x, size=(7, 9), mode="bicubic"), (f(1, 2, 4, 5),)),
        "bicubic_corners": (lambda x: F.interpolate(x, (7, 9), mode="bicubic", align_corners=True), (f(1, 2, 4, 5),)),
        "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), (f(1, 2, 4, 5), f(1, 3, 3, 2))),
        "grid_border": (
            lambda x, g: F.grid_sample(x, g, "nearest", "border", align_corners=True),
            (f(1, 2, 4, 5), f(1, 3, 3, 2)),
        ),
        "grid_reflect": (
            lambda x, g: F.grid_sample(x, g, "bicubic", "reflection", align_corners=False),
            (f(1, 2, 4, 5), f(1, 3, 3, 2)),
        ),
        "affine_grid": (lambda t: F.affine_grid(t, (1, 2, 3, 4), align_corners=False), (f(1, 2, 3),)),
    },
    "norms": {
        "batch_norm": (nn.BatchNorm2d(3).eval(), (f(2, 3, 4, 4),)),
        "batch_norm1d": (nn.BatchNorm1d(3, affine=False).eval(), (f(2, 3),)),
        "batch_norm_own": (nn.BatchNorm1d(3, track_running_stats=False).eval(), (f(4, 3, 5),)),
        "layer_norm": (nn.LayerNorm(5), (f(2, 3, 5),)),
        "layer_norm2": (nn.LayerNorm((3, 5), elementwise_affine=False, eps=1e-3), (f(2, 3, 5),)),
        "layer_norm_no_bias": (nn.LayerNorm(5, bias=False), (f(2, 5),)),
        "group_norm": (nn.GroupNorm(2, 4), (f(2, 4, 3, 3),)),
        "group_norm_plain": (nn.GroupNorm(4, 4, affine=False), (f(2, 4, 3),)),
        "instance_norm": (nn.InstanceNorm2d(3, affine=True), (f(2, 3, 4, 5),)),
        "instance_norm_plain": (nn.InstanceNorm1d(3), (f(2, 3, 5),)),
        "rms_norm": (nn.RMSNorm(5), (f(2, 3, 5),)),
        "rms_norm_eps": (nn.RMSNorm((3, 5), eps=1e-3, elementwise_affine=False), (f(2, 3, 5),)),
        "lrn": (nn.LocalResponseNorm(3), (f(1, 5, 3, 3),)),
        "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), (f(2, 3),)),
    },
    "indexing": {
        "embedding": (nn.Embedding(7, 3, padding_idx=0), (i(2, 4, low=0, high=7),)),
        "embedding_bag": (nn.EmbeddingBag(7, 3, mode="mean"), (i(2, 4, low=0, high=7),)),
        "index_select": (lambda x, at: x.index_select(1, at), (f(2, 5), i(3, low=0, high=5))),
        "gather": (lambda x, at: x.gather(1, at), (f(2, 5), i(2, 3, low=0, high=5))),
        "take": (torch.take, (f(2, 5), i(3, low=0, high=10))),
        "take_along": (lambda x, at: torch.take_along_dim(x, at, 0), (f(4, 3), i(2, 3, low=0, high=4))),
        "index1": (lambda x, at: x[at], (f(4, 3), AT)),
        "index_axis": (lambda x, at: x[:, at], (f(2, 4, 3), AT)),
        "index2": (lambda x, a, c: x[a, c], (f(4, 5, 3), AT, AT.flip(0))),
        "index_apart": (lambda x, a, c: x[a, :, c], (f(4, 2, 5), AT, AT.flip(0))),
        "index_middle": (lambda x, a, c: x[:, a, c], (f(2, 4, 5, 3), AT, AT.flip(0))),
        "index_spread": (lambda x, a, c: x[a[:, None], c], (f(4, 5), i(3, low=0, high=4), i(2, low=0, high=5))),
        "index_list": (lambda x: x[[2, 0], :, [1, 1]], (f(4, 2, 5),)),
        "index_mask_const": (lambda x: x[:, torch.tensor([True, False, True])], (f(2, 3),)),
        "put": (lambda x, at, v: put(x, (at,), v), (f(4, 3), i(2, low=0, high=4), f(2, 3))),
        "put_axis": (lambda x, at, v: put(x, (slice(None), at), v), (f(3, 4), torch.tensor([3, 0]), f(3, 2))),
        "put_scalar": (lambda x, at: put(x, (at, at), 7.0), (f(4, 4), torch.tensor([1, 3]))),
        "put_middle": (
            lambda x, a, c, v: put(x, (slice(None), a, c), v),
            (f(2, 4, 5, 3), torch.tensor([0, 3]), torch.tensor([2, 1]), f(2, 2, 3)),
        ),
        "put_apart": (
            lambda x, a, c, v: put(x, (a, slice(None), c), v),
            (f(4, 2, 5), torch.tensor([0, 3]), torch.tensor([2, 1]), f(2, 2)),
        ),
        "put_mask": (lambda x, m: put(x, m, -1.0), (f(3, 4), b(3, 4))),
        "put_mask_rows": (lambda x, m: put(x, m, 2.0), (f(3, 4), b(3))),
        "accumulate": (
            lambda x, at, v: x.index_put((at,), v, accumulate=True),
            (f(4, 3), torch.tensor([1, 1, 2]), f(3, 3)),
        ),
        "scatter": (lambda x, at, v: x.scatter(1, at, v), (f(2, 5), torch.tensor([[0, 4], [2, 1]]), f(2, 3))),
        "scatter_value": (lambda x, at: x.scatter(0, at, 9.0), (f(4, 3), torch.tensor([[0, 3, 1]]))),
        "scatter_add": (lambda x, at, v: x.scatter_add(1, at, v), (f(2, 5), i(2, 7, low=0, high=5), f(2, 7))),
        "scatter_reduce": (
            lambda x, at, v: x.scatter_reduce(1, at, v, reduce="amax"),
            (f(2, 5), i(2, 7, low=0, high=5), f(2, 7)),
        ),
        "masked_scatter": (lambda x, m, v: x.masked_scatter(m, v), (f(3, 4), b(3, 4), f(12))),
        **{f"scatter_{k}_{own}": (
            lambda x, a, v, k=k, own=own: x.scatter_reduce(0, a, v, k, include_self=own),
            (f(4, 3), torch.tensor([[0, 1, 1], [2, 2, 0]]), f(2, 3)),
        ) for k in ("sum", "prod", "amax", "amin", "mean") for own in (True, False)},
        **{f"bags_{m}_{p}_{last}": (
            lambda w, i, o, m=m, p=p, last=last: F.embedding_bag(i, w, o, mode=m, padding_idx=p,
                                                                 include_last_offset=last),
            (f(9, 4), i(10, low=0, high=9), torch.tensor([0, 3, 3, 7, *[10] * last])),
        ) for m in ("sum", "mean", "max") for p in (None, 2) for last in (False, True)},
        "bags_weighted": (lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
                          (f(9, 4), i(10, low=0, high=9), torch.tensor([0, 3, 3, 7]), f(10))),
        **{f"search_rows_{right}": (lambda r, x, right=right: torch.searchsorted(r, x, right=right),
                                    (f(2, 3, 6).sort(-1)[0], f(2, 3, 4))) for right in (False, True)},
        "index_add": (lambda x, at, v: x.index_add(1, at, v, alpha=2), (f(3, 4), torch.tensor([0, 3, 0]), f(3, 3))),
        "index_copy": (lambda x, at, v: x.index_copy(0, at, v), (f(3, 4), torch.tensor([2, 0]), f(2, 4))),
        "index_fill": (lambda x, at: x.index_fill(1, at, 5.0), (f(3, 4), torch.tensor([2, 0]))),
    },
    "complex": {
        "rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), (f(3, 9),)),
        "rfft2": (lambda x: torch.fft.rfft2(x, norm="ortho").abs(), (f(2, 6, 5),)),
        "fft": (lambda x: torch.view_as_real(torch.fft.fft(x, dim=0)), (f(5, 2),)),
        "ifft": (lambda x: torch.fft.ifft(torch.fft.fft(x) * 2).real, (f(3, 8),)),
        "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * (1 + 2j), n=9), (f(3, 9),)),
        "irfft_even": (lambda x: torch.fft.irfft(torch.fft.rfft(x)), (f(3, 8),)),
        "fftn": (lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real, (f(3, 4),)),
        "rfft_long": (lambda x: torch.view_as_real(torch.fft.rfft(x, norm="ortho")), (f(2, 70),)),
        "ifft_forward": (lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), norm="forward")), (
            f(2, 6, 2),)),
        "irfft_long": (lambda x: torch.fft.irfft(torch.view_as_complex(x), n=81, norm="ortho"), (f(2, 41, 2),)),
        "irfft2": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:], norm="ortho"), (f(2, 6, 67),)),
        "fft_of_reals": (lambda x: torch.view_as_real(torch.fft.fft(x)), (f(2, 66),)),
        "stft": (lambda x: torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).abs(), (f(2, 32),)),
        "stft_power": (lambda x: torch.view_as_real(torch.stft(x, 8, return_complex=True)).pow(2).sum(-1), (f(40),)),
        "rope": (
            lambda x, a: torch.view_as_real(torch.view_as_complex(x) * torch.polar(torch.ones_like(a), a)).flatten(-2),
            (f(2, 3, 4, 2), f(3, 4)),
        ),
        "angle": (lambda x: torch.angle(torch.fft.rfft(x))[:, 1:-1], (f(3, 8),)),
        "angle_real": (torch.angle, (f(5),)),
        "conj": (lambda x: (torch.fft.fft(x) * torch.fft.fft(x).conj()).real, (f(6),)),
        "complex": (lambda x, y: torch.view_as_real((torch.complex(x, y) + 1 - x) / 2), (f(4), f(4))),
        "divided": (lambda x, y: real(cplx(x) / cplx(y) + 1 / cplx(x)), (f(5, 2), f(5, 2))),
        "exp": (lambda x: real(cplx(x).exp() + cplx(x) ** 3), (f(5, 2),)),
        "products": (lambda x, y: real(torch.einsum("bixy,ioxy->boxy", cplx(x), cplx(y))), (
            f(2, 3, 4, 5, 2), f(3, 2, 4, 5, 2))),
        "linear": (lambda x, w: real(F.linear(cplx(x), cplx(w)).mean(0)), (f(3, 2, 2), f(4, 2, 2))),
        "where": (lambda x, y: real(torch.where(y > 0, cplx(x), y)), (f(3, 2), f(3))),
        "written": (written, (f(3, 2, 2),)),
        "pdist": (F.pdist, (f(4, 3),)),
    },
    "recurrent": {
        "lstm": (Cell(nn.LSTM(3, 4)), (f(5, 2, 3),)),
        "lstm_two": (Cell(nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)), (f(2, 5, 3),)),
        "lstm_state": (Cell(nn.LSTM(3, 4, bias=False)), (f(5, 2, 3), (f(1, 2, 4), f(1, 2, 4)))),
        "lstm_projected": (Cell(nn.LSTM(3, 4, proj_size=2)), (f(5, 2, 3), (f(1, 2, 2), f(1, 2, 4)))),
        "lstm_projected_two": (Cell(nn.LSTM(3, 4, 2, bias=False, bidirectional=True, batch_first=True, proj_size=3)),
                               (f(2, 5, 3),)),
        "gru": (Cell(nn.GRU(3, 4, 2)), (f(5, 2, 3),)),
        "gru_both": (Cell(nn.GRU(3, 4, bidirectional=True, batch_first=True)), (f(2, 5, 3),)),
        "rnn": (Cell(nn.RNN(3, 4)), (f(5, 2, 3),)),
        "rnn_relu": (Cell(nn.RNN(3, 4, nonlinearity="relu")), (f(5, 2, 3),)),
        "lstm_cell": (nn.LSTMCell(3, 4), (f(2, 3),)),
        "gru_cell": (nn.GRUCell(3, 4), (f(2, 3), f(2, 4))),
        "lstm_one": (Cell(nn.LSTM(3, 4)), (f(5, 3),)),
    },
}
