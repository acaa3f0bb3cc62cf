"""How large integers can be that a run computes: what is kept free for a size that data decide.

Two answers, both by interval analysis: what is *sure*, and what follows from what the user says of values by name
(`--max-value n=100`). Room is made by the second; a size is checked against its room where the first does not hold it
already, so a run whose data break the user's word is an error, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from monobloc.errors import ModelError
from monobloc.frontend.importing import unknown_name
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import lower
from monobloc.passes.intervals import Range, Ranges

FEW = 8  # elements of a tensor of factors
Most = Mapping[str, Sequence[int]]  # the most of all elements of a value, or of each, by its name


class Numbers(Ranges):
    """Ranges as they are where no element is NaN"""

    def _find(self, v: Value) -> Range:
        return replace(super()._find(v), nan=False)


@dataclass
class Limits:
    """What is known of the numbers of one model."""

    told: Most = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    uneven: dict[str, int] = field(default_factory=dict)  # elements of values of which something else is told
    sure: Ranges = field(default_factory=Ranges)
    likely: Ranges = field(default_factory=Numbers)
    names: dict[Value, str] = field(default_factory=dict)  # of integers and factors
    each: dict[Value, Sequence[int]] = field(default_factory=dict)  # by element

    def name(self, name: str, v: Value) -> None:
        """A value has a name in the model."""
        if v.dtype.is_int or v.dtype.is_float and lower(v.type.size) <= FEW:
            self.names.setdefault(v, name)
        most = self.told.get(name)
        if most is None:
            return
        if len(most) in (1, v.type.size):
            self.used.add(name)
            self.each[v] = most
            self.likely.known[v] = Range(min(0, *most), max(most))
        else:
            self.uneven[name] = v.type.size

    def problems(self, names: Sequence[str], whole: bool) -> list[ModelError]:
        """What is told of no value of the model, or of another number of elements. Of a model that was not read as a
        whole nobody knows all names."""
        unknown = set(self.told) - self.used - set(self.uneven) - set(names) if whole else set()
        return [*(unknown_name(f"has no value '{k}' that has a most", k, names) for k in sorted(unknown)),
                *(self._uneven(k) for k in sorted(set(self.uneven) - self.used))]

    def _uneven(self, name: str) -> ModelError:
        size, given = self.uneven[name], len(self.told[name])
        return ModelError(f"'{name}' has {size} element{'s' * (size != 1)}, but {given} numbers as their most",
                          hints=[f"give one for all, or one for each: `--max-value {name}=N`"])

    def behind(self, v: Value) -> list[str]:
        """Names of the numbers that decide a size: inputs of the model, or the nearest computed from what is none"""
        inputs: list[str] = []
        near: list[str] = []
        factors: list[str] = []
        queue = [v]
        for x in queue:
            if x in self.names:
                found = factors if x.dtype.is_float else inputs if x.producer is None else near
                found += [self.names[x]] if x.producer is None or not x.dtype.is_float else []
            queue += [y for y in (x.producer.used if x.producer else ()) if y not in queue and (
                y.dtype.is_int or y.dtype.is_float and lower(y.type.size) <= FEW)]
        return inputs or near[:1] or factors

    def element(self, v: Value, k: int, x: Value) -> None:
        """`x` is element k of `v`."""
        most = self.each.get(v)
        if most is not None:
            self.likely.known[x] = Range(min(0, most[k % len(most)]), most[k % len(most)])

    def size(self, v: Value, most: int, least: int = 0) -> Value:
        """`v` was checked to be a size from `least` to `most`."""
        if v.const is None:
            self.sure.known[v] = self.likely.known[v] = Range(least, most)
        return v

    def fits(self, v: Value, least: int, most: int) -> bool:
        """Whether `v` surely is from `least` to `most`"""
        return self.sure.of(v).within(least, most)
