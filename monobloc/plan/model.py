"""The words of memory planning: values, steps, views, in-place pairs, and the finished plan.

The planner knows nothing of tensors or ops. It sees values with a size, and steps that read and
write them; whoever calls it translates. Ids are only names: every decision depends on positions in
the given tuples, never on how ids compare or hash, so equal input gives an equal plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Id = int | str

DEFAULT_ALIGN = 64
SMALL_ALIGN = 16
SMALL_BYTES = 256  # below this a cache line of padding costs more than a split load


def align_up(number: int, align: int) -> int:
    return -(-number // align) * align


def natural_align(size: int) -> int:
    """alignment for a tensor of `size` bytes: a cache line, less for the small ones"""
    return SMALL_ALIGN if size < SMALL_BYTES else DEFAULT_ALIGN


@dataclass(frozen=True, slots=True)
class Value:
    """One thing that needs memory while it is alive.

    `pinned` is alive for all time (inputs and outputs of an entry point, state). `output` is alive
    from its definition to the end. A value that no step defines is alive from the start. Values of
    different `region`s never share bytes; in-place pairs and views stay within one.
    """

    id: Id
    bytes: int
    align: int = DEFAULT_ALIGN
    pinned: bool = False
    output: bool = False
    region: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One call: reads `uses`, writes `defines`, owns `scratch_bytes` while it runs.

    `after` names steps that must come earlier for other reasons than data.
    """

    id: Id
    defines: tuple[Id, ...]
    uses: tuple[Id, ...]
    scratch_bytes: int = 0
    after: tuple[Id, ...] = ()


@dataclass(frozen=True, slots=True)
class InPlace:
    """`step` is still right if `output` starts at the address of `input` and `input` dies there."""

    step: Id
    input: Id
    output: Id


@dataclass(frozen=True, slots=True)
class View:
    """`value` is the bytes of `base` from `offset` on; they are never stored apart.

    Serves both directions: a reshape or slice is a view of its input, an input of a concat may be
    a view of the concat's output (then it is written in place and the concat copies nothing).
    """

    value: Id
    base: Id
    offset: int = 0


@dataclass(frozen=True)
class Program:
    """What is to be planned. `steps` is a valid order to begin with."""

    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    in_place: tuple[InPlace, ...] = ()
    views: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """A rectangle in the time x address plane: `bytes` during steps `first` to `last`."""

    id: Id
    bytes: int
    first: int
    last: int
    align: int = DEFAULT_ALIGN
    pinned: bool = False


@dataclass(frozen=True)
class Offsets:
    """Where each buffer lies. `bound` is the largest sum of bytes alive at once."""

    offset: Mapping[Id, int]
    arena: int
    bound: int
    optimal: bool


@dataclass(frozen=True)
class Budget:
    """How hard to search, in counted steps: a plan must not depend on the speed of the machine."""

    order_evaluations: int = 250_000
    pack_nodes: int = 20_000
    pack_visits: int = 3_000_000


USUAL = Budget()


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part [start, end) of the arena that is one region; what is pinned lies below `floor`."""

    region: int
    start: int
    floor: int
    end: int


@dataclass(frozen=True)
class Plan:
    """The order of steps and an offset for every value and every scratch."""

    order: tuple[Id, ...]
    offset: Mapping[Id, int]
    scratch: Mapping[Id, int]  # step id -> offset; only steps with scratch
    arena: int
    bound: int  # largest sum of bytes alive at once in this order, with these in-place choices
    order_optimal: bool  # no order has a lower `peak`
    pack_optimal: bool  # no offsets give a lower `arena` for this order and these choices
    in_place: tuple[InPlace, ...] = field(default=())
    stretches: tuple[Stretch, ...] = ()
