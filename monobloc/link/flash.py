"""Which weights go to which flash region of the target, and what happens when code takes their room.

The coldest weights leave the main flash until the rest fits its budget. How much code there will be is
known only once it is linked: if it took the room, the link is done once more with more weights moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from monobloc.codegen.lower import Lowered
from monobloc.codegen.regions import accesses
from monobloc.errors import LinkError
from monobloc.ir.graph import Value
from monobloc.options import Options
from monobloc.targets import Region

T = TypeVar("T")
SHOWN = 8  # lines of an error that lists what fills a memory


class FlashError(LinkError):
    """The image is `over` bytes larger than its flash."""

    over = 0


def within_flash(programs: Sequence[Lowered], o: Options, attempt: Callable[[Mapping[str, str]], T]) -> T:
    """Link with weights in their regions; once more with more of them there, if code took the room."""
    sections = weight_sections(programs, o)
    try:
        return attempt(sections)
    except FlashError as e:
        assert o.flash is not None
        weights = sum(_bytes(v) for k, v in constants_of(programs).items() if k not in sections)
        more = weight_sections(programs, replace(o, flash=max(0, weights - e.over)))
        if more == sections:
            raise
    return attempt(more)


def weight_sections(programs: Sequence[Lowered], o: Options) -> dict[str, str]:
    """Section prefix of every weight that goes to a flash region, by its content's key."""
    weights = constants_of(programs)
    heat = _heat(programs)
    out: dict[str, str] = {}
    for r in (r for r in o.memories if r.kind == "flash"):
        left = {k: v for k, v in weights.items() if k not in out}
        chosen = [k for k, vs in left.items() if "weights" in r.hold or any(_called(v, r) for v in vs)]
        if "cold" in r.hold:
            chosen += _coldest({k: v for k, v in left.items() if k not in chosen}, heat, chosen, left, r, o)
        taken = sum(_bytes(left[k]) for k in chosen)
        if r.size is not None and taken > r.size:
            raise LinkError(f"region `{r.name}` has {r.size} bytes, the weights for it take {taken}",
                            notes=largest([v[0] for k, v in left.items() if k in chosen]),
                            hints=["hold less of it there, or give its real size"])
        out |= dict.fromkeys(chosen, r.prefix)
    return out


def _called(v: Value, r: Region) -> bool:
    return bool({v.name, v.origin} & set(r.hold))


def _bytes(values: Sequence[Value]) -> int:
    return values[0].type.bytes


def constants_of(programs: Sequence[Lowered]) -> dict[str, list[Value]]:
    """The values that are each constant, by its content."""
    out: dict[str, list[Value]] = {}
    for p in programs:
        for v in p.weights.values():
            if v.const is not None:
                out.setdefault(v.const.key, []).append(v)
    return out


def _heat(programs: Sequence[Lowered]) -> dict[str, float]:
    """Accesses per byte in one run of every model."""
    heat: dict[str, float] = {}
    for p in programs:
        for n in (n for x in p.versions for part in x.graph.tree() for n in part.nodes):
            for v in n.used:
                if v.const is not None:
                    heat[v.const.key] = heat.get(v.const.key, 0.0) + accesses(n, v) / v.type.dtype.size
    return heat


def _coldest(
    weights: Mapping[str, list[Value]], heat: Mapping[str, float], already: Sequence[str],
    every: Mapping[str, list[Value]], r: Region, o: Options,
) -> Iterator[str]:
    """Coldest first, until the rest fits the flash budget (without one: as many as fit the region)."""
    room = float("inf") if r.size is None else r.size - sum(_bytes(every[k]) for k in already)
    rest = sum(map(_bytes, weights.values()))
    for k in sorted(weights, key=lambda k: (heat.get(k, 0.0), -_bytes(weights[k]), k)):
        if o.flash is not None and rest <= o.flash:
            return
        if _bytes(weights[k]) <= room:
            room -= _bytes(weights[k])
            rest -= _bytes(weights[k])
            yield k


def largest(values: Sequence[Value]) -> list[str]:
    ordered = sorted(values, key=lambda v: -v.type.bytes)
    more = [f"and {len(ordered) - SHOWN} smaller ones"] if len(ordered) > SHOWN else []
    return [f"{v.type.bytes} bytes: %{v.name} {v.type}" for v in ordered[:SHOWN]] + more
