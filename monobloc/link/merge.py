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
    """Weights that lie within another: which one, and at which byte.

    Each is read once, and again where two may match.
    """
    order = sorted((k for k, w in weights.items() if w.size >= MIN_BYTES), key=lambda k: (-weights[k].size, k))
    heads: dict[str, np.uint64] = {}
    places: dict[str, dict[str, list[int]]] = {}  # of what begins alike, by the larger one
    for host in reversed(order):
        row = _row(weights[host])
        places[host] = _alike(row, {k: h for k, h in heads.items() if weights[k].size < row.size
                                    and weights[k].section == weights[host].section})
        heads[host] = _heads(row)[0]
    found: dict[str, tuple[str, int]] = {}
    for host in order:
        open_places = {k: at for k, at in places[host].items() if k not in found}
        if host in found or not open_places:
            continue
        row = _row(weights[host])
        for k, starts in open_places.items():
            part = _row(weights[k])
            at = next((s for s in starts if np.array_equal(row[s : s + part.size], part)), None)
            if at is not None:
                found[k] = (host, at)
    return found


def _alike(row: np.ndarray, heads: Mapping[str, np.uint64]) -> dict[str, list[int]]:
    """Where in a row a weight may begin, for those whose first bytes stand there."""
    if not heads:
        return {}
    known = np.sort(np.fromiter(heads.values(), np.uint64, len(heads)))
    there = _heads(row)
    hits = np.flatnonzero(known[np.minimum(np.searchsorted(known, there), known.size - 1)] == there)
    found = {k: hits[there[hits] == head][:MAX_TRIES] * ALIGN for k, head in heads.items()} if hits.size else {}
    return {k: at.tolist() for k, at in found.items() if at.size}


def _row(w: Weight) -> np.ndarray:
    return np.frombuffer(w.read(), np.uint8)


def _heads(row: np.ndarray) -> np.ndarray:
    """The first eight bytes at every place where a weight may begin."""
    whole = row[: row.size // ALIGN * ALIGN].view(np.uint64)
    return whole[:: ALIGN // 8]
