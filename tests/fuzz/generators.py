"""Random models: families of steps (`steps_*.py`), each step adding one node or a small pattern of a random kind."""

from __future__ import annotations

import numpy as np
from builder import Builder, reads
from open_builder import FIRST, OpenBuilder
from quantizer import quantized_model
from sizes import long_shape, size
from steps import SMALL, Step, chance, number, some
from steps_control import branch, loop, scan
from steps_elementwise import binary, clip, divide, gelu, power, prelu, root, sharp, swish, unary, variadic, where
from steps_halves import HalfBuilder, halves
from steps_halves import start as start_halves
from steps_long import depthwise, grown, looked_up, many, product, spread, turned, wide_conv
from steps_long import start as start_long
from steps_movement import (
    concat,
    depth_space,
    expand,
    gather,
    gather_elements,
    gather_nd,
    pad,
    reshape,
    scatter_nd,
    slice_,
    split,
    squeeze,
    tile,
    transpose,
)
from steps_opdefs import from_opdef
from steps_products import (
    arg,
    attention,
    cumsum,
    einsum,
    gemm,
    layer_norm,
    layer_norm_parts,
    matmul,
    matmul_left,
    recurrent,
    reduce,
    softmax,
    top_k,
)
from steps_quantized import quantized, weights_only
from steps_quantized import start as start_quantized
from steps_types import cast, compare, doubles, integers, logic, quantize
from steps_windows import (
    batch_norm,
    conv,
    conv_run_time_weights,
    conv_transpose,
    instance_norm,
    pool,
    residual,
    resize,
    squeeze_excite,
)

GENERIC: tuple[Step, ...] = (
    unary, unary, binary, binary, divide, variadic, clip, where, power, root, concat, concat, split, slice_, slice_,
    transpose, transpose, reshape, reshape, squeeze, pad, expand, tile, gather, reduce, reduce, softmax, sharp,
)
FAMILIES: dict[str, tuple[Step, ...]] = {
    "convnet": (conv, conv, conv, conv, conv, batch_norm, batch_norm, prelu, swish, clip, unary, binary, residual,
                squeeze_excite, pool, concat, transpose, slice_, split, pad, resize, conv_transpose, depth_space,
                instance_norm, reshape, conv_run_time_weights, softmax, matmul, where, variadic, reduce),
    "transformer": (matmul, matmul, matmul, gemm, matmul_left, attention, softmax, layer_norm, layer_norm_parts, gelu,
                    binary, unary, transpose, reshape, concat, split, slice_, gather, einsum, where, reduce, squeeze),
    "movement": (*GENERIC, gather_elements, gather_nd, scatter_nd, arg, top_k, cumsum, compare, logic, depth_space,
                 concat, transpose, slice_, split, reshape),
    "types": (integers, integers, integers, doubles, doubles, compare, logic, cast, cast, quantize, reduce, concat,
              slice_, transpose, arg, where, binary),
    "recurrent": (recurrent, recurrent, unary, binary, transpose, slice_, concat, matmul, squeeze, reduce),
    "quantizer": (conv, conv, conv, conv, conv_transpose, matmul, matmul, gemm, attention, pool, pool, concat, residual,
                  binary, binary, clip, resize, transpose, reshape, split, slice_, squeeze, pad, gather, softmax, swish,
                  squeeze_excite, unary, unary, batch_norm, layer_norm, layer_norm_parts, gelu, prelu, where, reduce,
                  product, product, product, wide_conv, wide_conv),
    "all": tuple(dict.fromkeys((*GENERIC, conv, pool, batch_norm, matmul, gemm, einsum, integers, compare, cast, prelu,
                                layer_norm, resize, attention, recurrent, swish, residual, squeeze_excite, arg))),
}

COPIES = (spread, spread, turned, turned, grown, grown, looked_up)
FAMILIES["long"] = (*COPIES, *COPIES, *(product,) * 5, *(wide_conv,) * 4, depthwise, depthwise, many, many,
                    *dict.fromkeys(GENERIC), reduce, softmax, arg, top_k, cumsum, gather_elements, scatter_nd,
                    layer_norm, pool, batch_norm, attention, resize, compare, cast)
FAMILIES["control"] = (branch, branch, loop, loop, scan, *GENERIC[:14])
FAMILIES["quantized"] = (quantized,) * 6 + (weights_only,)
FAMILIES["halves"] = (halves,)
FAMILIES["open"] = (*GENERIC, conv, pool, matmul, gemm, layer_norm, softmax, attention, reduce, loop, branch)
FAMILIES["opdefs"] = (*(from_opdef,) * 40, *GENERIC)
OPSETS = {"quantized": (21,), "halves": (23,), "opdefs": (7, 9, 11, 13, 15, 18, 18, 18, 20, 21, 22, 23, 24, 25)}
LONG = 0.3  # of the models of other families start with axes beside thresholds (sizes.py)
TAME = ("open", "quantized", "halves", "quantizer")  # their answers are not two oracles'


def start(b: Builder, family: str) -> None:
    n = int(some(b, 1, 1, 2))
    if family == "convnet":
        rank = int(some(b, 1, 2, 2, 2, 2, 3))
        small = (n, int(some(b, *SMALL, 32)), *(number(b, 1, 14) for _ in range(rank)))
        b.input(b.random(long_shape(b, 2 + rank, 1) if chance(b, LONG) else small))
    elif family == "transformer":
        shapes = ((n, int(some(b, *SMALL)), int(some(b, *SMALL, 24, 32))), (int(some(b, *SMALL)), int(some(b, *SMALL))),
                  (2, 3, 5, 7))
        b.input(b.random(long_shape(b, number(b, 2, 4)) if chance(b, LONG) else some(b, *shapes)))
    elif family == "quantizer":
        start(b, str(some(b, "convnet", "convnet", "transformer")))
    elif family == "quantized":
        start_quantized(b)
    elif family == "halves":
        start_halves(b)
    elif family == "long":
        start_long(b)
    elif family == "open":
        n, s = FIRST["n"], FIRST["s"]
        b.input(b.random(some(b, (n, s), (n, s, 8), (n, 3, s), (n, 3, s, 5), (s, n, 4), (2, s, 6), (n, 16))))
    elif family == "recurrent":
        b.input(b.random((number(b, 1, 6), n, size(b, 12))))
    else:
        rank = number(b, 0, 6) if chance(b, 0.3) else number(b, 2, 4)
        short = tuple(number(b, 1, 7) if chance(b, 0.97) else 0 for _ in range(rank))
        b.input(b.random(long_shape(b, rank) if chance(b, LONG) and rank else short))
        b.input(b.random((2, 3, 4, 5)))
        b.input(b.random((3, 4), some(b, np.int64, np.int32, np.bool_)))


def wild_model(seed: int, family: str = "", steps: int = 8) -> tuple[str, Builder]:
    """A model of one family or any, mostly with special values: what its operands may be is up to two oracles."""
    family = family or (list(FAMILIES)[seed % len(FAMILIES)] if seed % 2 else "opdefs")
    return family, random_model(seed, family, steps, wild=family not in TAME and seed // 2 % 3 > 0)


def random_model(seed: int, family: str, steps: int = 10, wild: bool = False) -> Builder:
    """A model of one family; some of its intermediate values are outputs too."""
    opsets = OPSETS.get(family, (18,))
    kind = HalfBuilder if family == "halves" else Builder
    b = OpenBuilder(seed) if family == "open" else kind(seed, opsets[seed // 2 % len(opsets)], wild)
    start(b, family)
    kinds = FAMILIES[family]
    for _ in range(steps):
        step = kinds[number(b, 0, len(kinds) - 1)]
        try:
            step(b)
        except (KeyError, IndexError, ValueError, ZeroDivisionError):
            continue  # a pattern that does not fit the values there are
    read = {i for n in b.nodes for i in reads(n)}
    made = [o for n in b.nodes for o in n.output]
    b.outputs = [o for o in made if o not in read or chance(b, 0.15)] or [b.inputs[0]]
    if chance(b, 0.1):
        b.outputs.append(b.inputs[0])
    if chance(b, 0.1) and b.constants:
        b.outputs.append(b.constants[0])
    b.outputs = list(dict.fromkeys(b.outputs))
    return quantized_model(b) if family == "quantizer" else b
