"""Weights in the order in which the kernels read them: permutations plus padding, no arithmetic.

A panel is `nv` vectors of columns; whole panels come first, then one narrower panel of whole
vectors. The last, partial vector is shifted so that it ends with the last column (it repeats a few
columns of its neighbour); when there are fewer columns than lanes it is padded with zeros instead.
Elements keep their type: halves and bytes are widened where a kernel reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Weights: TypeAlias = "NDArray[Any]"  # of any element type that `mb/narrow.h` reads


def column_order(n: int, vl: int) -> NDArray[np.int64]:
    """Source column of each packed column; -1 is a zero."""
    whole = n // vl * vl
    columns = np.arange(whole, dtype=np.int64)
    if n == whole:
        return columns
    if n < vl:
        last = np.arange(vl, dtype=np.int64)
        return np.where(last < n, last, -1)
    return np.concatenate([columns, np.arange(n - vl, n, dtype=np.int64)])


def pack_gemm_b(b: Weights, nv: int, vl: int) -> Weights:
    """[..., K, N] -> per matrix: panels [N/NR][K][NR], then [K][rest]; flat in the last axis."""
    order = column_order(b.shape[-1], vl)
    cols = np.where(order >= 0, b[..., order], b.dtype.type(0))
    nr = nv * vl
    parts = [cols[..., at : at + nr].reshape(*b.shape[:-2], -1) for at in range(0, cols.shape[-1], nr)]
    empty = np.zeros((*b.shape[:-2], 0), b.dtype)
    return np.ascontiguousarray(np.concatenate([empty, *parts], axis=-1), dtype=b.dtype)


def unpack_gemm_b(packed: Weights, k: int, n: int, nv: int, vl: int) -> Weights:
    """The matrix [K, N] again."""
    at = [packed_index(0, j, k, n, nv, vl) for j in range(n)]
    first, step = (np.array(x, np.int64) for x in zip(*at, strict=True)) if at else (np.zeros(0, np.int64),) * 2
    return np.asarray(packed[first + np.arange(k)[:, None] * step])


def packed_index(i: int, j: int, k: int, n: int, nv: int, vl: int) -> tuple[int, int]:
    """Where element (i, j) of a packed [K, N] lies, and how far it is to the next row."""
    whole, nr = n // vl * vl, nv * vl
    column = j if j < whole or n < vl else j + whole + vl - n
    width = min(nr, -(-n // vl) * vl - column // nr * nr)
    return column // nr * nr * k + i * width + column % nr, width


def pack_conv_w(w: Weights, groups: int, nv: int, vl: int) -> Weights:
    """ONNX [OC][IC/g][KH][KW] -> [g][OC/g panels][KH][KW][IC/g][NR]."""
    oc, ic, kh, kw = w.shape
    taps = w.reshape(groups, oc // groups, ic, kh, kw).transpose(0, 3, 4, 2, 1)
    return pack_gemm_b(taps.reshape(groups, kh * kw * ic, oc // groups), nv, vl)


def hwio(w: Weights) -> Weights:
    """ONNX [OC][IC/g][KH][KW] -> [KH][KW][IC/g][OC]: the plain layout of `mb_conv`."""
    return np.ascontiguousarray(w.transpose(2, 3, 1, 0))


def pack_dwconv_w(w: Weights) -> Weights:
    """ONNX [C*multiplier][1][KH][KW] -> [KH][KW][C*multiplier]."""
    return np.ascontiguousarray(w[:, 0].transpose(1, 2, 0))
