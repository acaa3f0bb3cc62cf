"""Products of rows with one of several matrices each, as mixtures of experts have them.

Rows lie sorted by group, and every group multiplies those that are its own: work is that of the rows, and a matrix that
no row asks for is not even read. How many rows a group has is data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import guess
from monobloc.ir.types import DType, TensorType
from monobloc.kernels import tiles
from monobloc.ops import Case, OpDef, Tol

Array = np.ndarray
Attrs = dict[str, Any]
WEIGHTS = {DType.F32: 0, DType.F16: 1, DType.BF16: 2}  # as `mb/narrow.h` numbers them
ROWS_AHEAD = 16  # of a matrix, which is asked for from memory: its rows lie too far apart for a CPU to guess the next
MOST_VECTORS = 4  # of a tile: leaves rows for groups that have many


@dataclass(frozen=True)
class Groups:
    """How rows are sorted by group: where each sorted row came from, whose it is, where groups end, and the way back"""

    order: Value  # [S]
    group: Value  # [S], sorted
    ends: Value  # [groups]
    back: Value  # [S]


def sort_by_group(b: Any, group: Value, groups: int) -> Groups:
    """`group` [S] int64 says whose each row is, from 0; rows of one group stay in order."""
    def ascending(v: Value) -> Sequence[Any]:
        return b.emit("TopK", [v], {"axis": 0, "k": v.shape[0], "largest": 0}, outputs=2)

    sorted_, order = ascending(group)
    before = b.one("LessOrEqual", b.one("Reshape", group, shape=[group.shape[0], 1]), b.const(np.arange(groups)))
    ends = b.one("ReduceSum", b.one("Cast", before, to=DType.I64), axes=[0], keepdims=0)
    return Groups(order, sorted_, ends, ascending(order)[1])


class GroupedProduct(OpDef):
    """x [S, K] float32, sorted by group; w [groups, K, N]; ends [groups] int64: where a group's rows end in x.

    Ends are limited to the rows that are left; rows behind the last end are 0. Gives [S, N], summed in float32.
    """

    name = "GroupedProduct"
    internal = True
    splits = True
    tol = Tol(1e-4, 1e-4)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, w, ends = ins
        assert x is not None and w is not None and ends is not None
        fits = x.type.rank == 2 and w.type.rank == 3 and x.shape[1] == w.shape[1] and ends.shape == w.shape[:1]
        if not fits or x.dtype is not DType.F32 or w.dtype not in WEIGHTS or ends.dtype is not DType.I64:
            raise ModelError(f"{self.name} of {x.type} by {w.type}, in groups that end at {ends.type}")
        return [TensorType(DType.F32, (x.shape[0], w.shape[2]))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, w, ends = xs
        assert x is not None and w is not None and ends is not None
        y, start = np.zeros((len(x), w.shape[2]), np.float32), 0
        for matrix, end in zip(w, ends.tolist(), strict=True):
            stop = min(max(end, start), len(x))
            y[start:stop] = x[start:stop].astype(np.float64) @ matrix.astype(np.float64)
            start = stop
        return y

    def routine(self, n: Node, c: Any) -> str:
        x, w, ends = n.inputs
        assert x is not None and w is not None and ends is not None
        rows, (groups, depth, columns) = x.shape[0], w.shape
        if not n.outputs[0].type.size:
            return ""
        kernel = c.kernel("grouped", self.kernel(c.target, guess(rows), groups, depth, columns, WEIGHTS[w.dtype]))
        return f"{kernel}({c.ptr(x)}, {c.ptr(w)}, {c.ptr(ends)}, {c.ptr(n.outputs[0])}, {rows}, tid, nt);"

    def kernel(self, t: Any, rows: int, groups: int, depth: int, columns: int, w_type: int) -> str:
        """A leaf for every height of a tile, of which a group takes two, and for the last columns"""
        vl, registers = t.f32_lanes, t.vector_registers
        chosen = tiles.gemm_tiles(max(MOST_VECTORS, rows // max(groups, 1)), columns, depth, vl, registers,
                                  packed=False, b_type=w_type)
        nv = chosen["nv"]
        chosen["pf_dist"] = ROWS_AHEAD * columns
        most = tiles.max_mr(nv, vl, registers)
        desc = tiles.gemm_desc(0, columns, depth, vl, registers, b=(columns, 1), types=(w_type, 0), chosen=chosen)
        fixed = {k: v for k, v in desc.items() if k not in ("m", "mr1", "n1", "mr2", "n2", "ku", "pf")}
        kinds = ("full", "tail") if columns % (nv * vl) else ("full",)
        lines = [f"MB_INLINE mb_gemm KERNEL_d(const void *m) {{ mb_gemm d = {tiles.c_initializer(fixed)}; "
                 "d.m = *(const long *)m; return d; }"]
        for tail, kind in enumerate(kinds):
            lines += [f"MB_GEMM_OPEN_LEAF(KERNEL_{kind}{mr}, KERNEL_d, mb_grouped_epi, {mr}, {tiles.chains(mr, nv)}, "
                      f"{tail}, 0, MB_PF_STREAM)" for mr in range(1, most + 1)]
            table = ", ".join(["0", *(f"KERNEL_{kind}{mr}" for mr in range(1, most + 1))])
            lines.append(f"static mb_gemm_leaf *const KERNEL_{kind}[] = {{{table}}};")
        lines += [f"MB_GEMM_OPEN(KERNEL_one, KERNEL_d, {most}, KERNEL_full, KERNEL_{kinds[-1]}, )",
                  f"MB_GROUPED(KERNEL, KERNEL_one, KERNEL_d, {groups})"]
        return "\n".join(lines)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def make(ends: list[int], rows: int, depth: int, columns: int, dtype: Any = np.float32) -> Case:
            x = rng.standard_normal((rows, depth)).astype(np.float32)
            w = rng.standard_normal((len(ends), depth, columns)).astype(dtype)
            return Case((x, w, np.array(ends, np.int64)), {}, f"{rows}x{depth}x{columns}_{len(ends)}_{np.dtype(dtype)}")

        yield make([2, 2, 5], 5, 8, 16)
        yield make([0, 7, 7, 40], 40, 19, 67)
        yield make([1, 2, 3, 4], 4, 33, 64)
        yield make([3, 4], 9, 5, 3)  # rows behind the last
        yield make([5, 2, -1, 90], 6, 4, 130)  # no order, more than there are
        yield make([11, 30], 30, 48, 100, np.float16)
        yield make([0, 0], 3, 4, 5)
        yield make([0], 0, 4, 5)
        yield make([2], 3, 4, 0)
