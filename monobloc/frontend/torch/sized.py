"""Results whose size data decide: room for the most, and how much of it is there (`ops.sized.Ragged`).

They leave as outputs with their true size, and elementwise operators may stand between; everything else is refused,
for it would read what is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.frontend.torch.elementwise import READERS as ELEMENTWISE
from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.sized import Ragged

HINT = "give it a fixed size: `torch.where`, `topk`"


def nonzero(n: AtenNode) -> Results:
    """One row of indices per element that is not zero"""
    x = n.x()
    if x.const is not None:
        return n.b.const(np.stack(np.nonzero(x.const.array), 1), DType.I64)
    found: Any = n.onnx("NonZero", x)[0]
    return Ragged(n.transpose(found.value, [1, 0]), {0: found.counts[1]})


def rows_of(n: AtenNode, x: Value, mask: Value) -> Any:
    """What a mask marks of the first axes"""
    rest = list(x.shape[mask.type.rank :])
    flat = n.reshape(x, [mask.type.size, *rest])
    found: Any = n.onnx("NonZero", n.reshape(n.cast(mask, DType.BOOL), [mask.type.size]))[0]
    at = n.reshape(found.value, [mask.type.size])
    return Ragged(n.one("Gather", flat, at, axis=0), {0: found.counts[1]})


def masked_select(n: AtenNode) -> Results:
    x, mask = n.x(), n.x("mask")
    shape = list(np.broadcast_shapes(x.shape, mask.shape))
    return rows_of(n, n.expand(x, shape), n.expand(mask, shape))


def read(n: AtenNode, readers: Mapping[str, Reader]) -> Results:
    """A call on tensors whose size data decide: elementwise, beside tensors that are the same for all entries"""
    given = [a for a in n.args.values() if isinstance(a, Ragged)]
    others = [a for a in n.args.values() if isinstance(a, Value)]
    first = given[0] if given else None
    if first is None or n.op not in ELEMENTWISE or any(
            r.counts != first.counts or r.value.shape != first.value.shape for r in given) or any(
            v.type.rank > first.value.type.rank - max(first.counts) - 1 and v.type.size != 1 for v in others):
        n.unsupported("an operator on a tensor whose size depends on data", hints=[HINT])
    y = readers[n.op](replace(n, args={k: a.value if isinstance(a, Ragged) else a for k, a in n.args.items()}))
    return Ragged(y, first.counts)


READERS: dict[str, Reader] = {"nonzero.default": nonzero, "masked_select.default": masked_select}
