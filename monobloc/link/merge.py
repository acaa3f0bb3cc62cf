"""Weights of all programs of an image, stored once where one form serves several readers.

Equal ones are one by their content. Beyond that: a table that one program looks rows up in, and another
multiplies by, is stored for the product (`passes/share.py` says when that pays); and a weight that lies
within a larger one, byte for byte, is a name for that place: a shorter table of positions, a part of a
gate. Places must keep the alignment that code may rely on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from monobloc.codegen.lower import Lowered, generate
from monobloc.object.fat import Weight
from monobloc.passes.share import products, share

ALIGN = 64  # of every weight, and so of every place within one
MIN_BYTES = 256
MAX_TRIES = 64  # comparisons of one weight with one larger one: constants of repeated values meet everywhere


def share_weights(programs: Sequence[Lowered], profile: bool = False) -> list[Lowered]:
    """Programs whose lookups read what other programs' products have stored; versions settle it among themselves."""
    stored = [[s for x in p.versions for s in products(x.graph)] for p in programs]
    out = []
    for k, p in enumerate(programs):
        others = [s for j, of in enumerate(stored) for s in of if j != k]
        if others and not p.more and share(p.graph, others, p.context):
            p = generate(p.graph, p.context, p.interface.prefix, p.interface.title, profile)
        out.append(p)
    return out


def inside(weights: Mapping[str, Weight]) -> dict[str, tuple[str, int]]:
    """Weights that lie within another: which one, and at which byte."""
    rows = {k: np.frombuffer(w.data, np.uint8) for k, w in weights.items() if memoryview(w.data).nbytes >= MIN_BYTES}
    order = sorted(rows, key=lambda k: (-rows[k].size, k))
    found: dict[str, tuple[str, int]] = {}
    for at, host in enumerate(order):
        smaller = [k for k in order[at + 1 :] if k not in found and rows[k].size < rows[host].size
                   and weights[k].section == weights[host].section]
        if host in found or not smaller:
            continue
        places = _heads(rows[host])
        first = np.array([_heads(rows[k])[0] for k in smaller])
        hits = np.flatnonzero(np.isin(places, first))
        for k, head in zip(smaller, first, strict=True):
            for hit in hits[places[hits] == head][:MAX_TRIES]:
                start = int(hit) * ALIGN
                if np.array_equal(rows[host][start : start + rows[k].size], rows[k]):
                    found[k] = (host, start)
                    break
    return found


def _heads(row: np.ndarray) -> np.ndarray:
    """The first eight bytes at every place where a weight may begin."""
    whole = row[: row.size // ALIGN * ALIGN].view(np.uint64)
    return whole[:: ALIGN // 8]
