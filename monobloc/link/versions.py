"""What a link does to a model's graph it does to all versions of it.

A step takes modules and gives them back changed, in their order. It knows nothing of versions: it is taken
once for the first version of every model, and once more for each further version in its model's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from monobloc.link.objects import Module

Step = Callable[[list[Module]], list[Module]]


def each_version(modules: Sequence[Module], step: Step) -> list[Module]:
    """The step on every version of every model."""
    first = [replace(m, more=()) for m in modules]
    out = step(list(first))
    for k, m in enumerate(modules):
        more = [step([*first[:k], replace(m, graph=g, more=()), *first[k + 1 :]])[k].graph for g in m.more]
        out[k] = replace(out[k], more=tuple(more))
    return out
