"""Which layers share a file: partitions compile in parallel, and anew only when they change.

Layers of one kernel go together, so that each kernel is compiled once. Files end where the layers'
names say so (content-defined borders, as backup programs cut files): an inserted layer moves the
borders next to it and no others. A file is called after its first layer for the same reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

KERNEL_COST = 4  # compiling a kernel, in plain loops
LEAST_COST = 8  # of a file: below it, starting the compiler and reading headers is most of the work
FILES = 16  # about this many for a large program


@dataclass(frozen=True)
class Item:
    """A layer: its name, and the text of the kernel that it uses, if any."""

    name: str
    kernel: str = ""


def divide(items: Sequence[Item]) -> list[list[int]]:
    """Indices of the items of every file; files and what is in them in order of first use."""
    groups: dict[str, list[int]] = {}
    for k, item in enumerate(items):
        groups.setdefault(item.kernel or f"layer {k}", []).append(k)
    costs = [_cost(items, group) for group in groups.values()]
    if sum(costs) <= 2 * LEAST_COST:
        return [list(range(len(items)))]
    least = LEAST_COST
    while 2 * least * FILES <= sum(costs):  # in steps, so that growing moves borders rarely
        least *= 2
    out: list[list[int]] = [[]]
    cost = 0
    for group, added in zip(groups.values(), costs, strict=True):
        if cost >= least and _ends_before(items[group[0]].name):
            out.append([])
            cost = 0
        out[-1] += group
        cost += added
    return out


def _cost(items: Sequence[Item], group: Sequence[int]) -> int:
    return len(group) + (KERNEL_COST - 1 if items[group[0]].kernel else 0)


def _ends_before(name: str) -> bool:
    """Whether a file may end in front of this layer: for every second name."""
    return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] % 2 == 0
