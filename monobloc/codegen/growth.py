"""State that grows: the keys and values of the words so far, of which each run adds some.

An input that is state may have a dimension of the program, `past`, where the output that becomes it has
another size there, `past + seq`. The dimension is then the program's own: nobody sets it, it is 0 at the
beginning and behind a reset, and a run leaves it at what the output has. A run whose state would have no
room does nothing but return an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from monobloc.errors import Diagnostics, UnsupportedError
from monobloc.ir.dims import Dim, is_dim, named, symbols_of
from monobloc.ir.symbolic import is_open

if TYPE_CHECKING:
    from monobloc.codegen.interface import Interface, Port
    from monobloc.codegen.sizes import Sizes

Pair = tuple["Port", "Port"]  # the input, and the output that it is in the next run


@dataclass(frozen=True)
class Growth:
    """Behind a run of one version, in C: the sizes of dimensions that grow, and the bytes of each state"""

    sizes: Mapping[int, str] = field(default_factory=dict)
    bytes: tuple[str, ...] = ()


def growth_of(title: str, states: Sequence[Sequence[Pair]], at: Sequence[Mapping[str, int]],
              dims: Sequence[Dim]) -> list[Growth]:
    """For each version, from its state and the dimensions that have one size in it; what is wrong is told at once."""
    problems = Diagnostics()
    found: list[dict[int, tuple[str, str]]] = [{} for _ in states]  # dimension: C of its next size, whose it is
    for k in range(len(states[0])):
        for axis in range(states[0][k][0].type.rank):
            try:
                _take_axis(title, [s[k] for s in states], axis, at, dims, found)
            except UnsupportedError as e:
                problems.report(e)
    problems.checkpoint()
    if not any(found):
        return [Growth() for _ in states]
    return [Growth({n: c for n, (c, _) in own.items()}, tuple(_bytes(y) for _, y in pairs))
            for pairs, own in zip(states, found, strict=True)]


def _take_axis(title: str, pairs: Sequence[Pair], axis: int, at: Sequence[Mapping[str, int]], dims: Sequence[Dim],
               found: Sequence[dict[int, tuple[str, str]]]) -> None:
    """One axis of one state in all versions: of one size, or a dimension that grows."""
    now, then = ([p[k].shape[axis] for p in pairs] for k in (0, 1))
    name = pairs[0][0].name
    if all(not is_open(a) and not is_open(b) and a == b == now[0] for a, b in zip(now, then, strict=True)):
        return
    met = [n for n, s in enumerate(symbols_of(dims)) if all(is_dim(v, a, s) for v, a in zip(at, now, strict=True))]
    if not met or all(is_dim(v, b, symbols_of(dims)[met[0]]) for v, b in zip(at, then, strict=True)):
        raise UnsupportedError(f"the state `{name}` of `{title}` has another size from run to run, and does not grow "
                               f"by it: axis {axis} is {_told(now, dims)} before a run, {_told(then, dims)} after it",
                               hints=["state lasts from run to run: give its dimensions one size"])
    d = dims[met[0]]
    if d.sizes[0] != 0:
        raise UnsupportedError(f"state of `{title}` grows, and `{d.name}` begins at {d.sizes[0]}",
                               hints=[f"it is empty at the beginning: `--dim {d.name}=0..{d.most}`"])
    for own, b in zip(found, then, strict=True):
        c, first = own.setdefault(met[0], (str(b), name))
        if c != str(b):
            raise UnsupportedError(f"the state `{first}` of `{title}` grows to {named(c, dims)} in a run, and `{name}` "
                                   f"to {named(str(b), dims)}; both are `{d.name}` long before it",
                                   hints=["what shares a dimension grows alike: persist one of them, or give the other "
                                          "a dimension of its own with `--shape`"])


def _told(sizes: Sequence[int], dims: Sequence[Dim]) -> str:
    return " or ".join(dict.fromkeys(named(str(n), dims) for n in sizes))


def _bytes(port: Port) -> str:
    return "*".join([f"(int64_t){port.type.dtype.size}", *map(str, port.shape)])


# -- C ------------------------------------------------------------------------------------------------
def definitions(s: Sizes) -> list[str]:
    """What tells how long state will be: sizes that grow, then bytes of each state."""
    if not s.grown:
        return []
    out = ["static int grow(const int64_t *d, int v, int64_t *next) {",
            *(f"  const int64_t {x} = d[{k}]; (void){x};" for k, x in enumerate(symbols_of(s.dims)))]
    for k, v in enumerate(s.versions):
        values = [*(v.growth.sizes[n] for n in s.grown), *v.growth.bytes]
        out.append(f"  if (v == {k}) {{ {' '.join(f'next[{n}] = {c};' for n, c in enumerate(values))} }}")
    room = " && ".join(f"({s.dims[n].condition_of(f'next[{k}]')})" for k, n in enumerate(s.grown))
    return [*out, f"  return {room} ? MB_OK : MB_E_SHAPE;", "}"]


def check(s: Sizes) -> list[str]:
    """C at the beginning of a run: how long state will be, if there is room for it."""
    if not s.grown:
        return []
    return [f"  int64_t next[{len(s.grown) + len(s.versions[0].growth.bytes)}];",
            "  if (grow(d, v, next)) return MB_E_SHAPE;"]


def keep(i: Interface, places: Sequence[tuple[str, str]]) -> list[str]:
    """C behind a run without error: outputs that are state become inputs; `places` says where both are."""
    grown = i.sizes.grown
    sizes = [f"(size_t)next[{len(grown) + k}]" if grown else f"{x.bytes}u" for k, (x, _) in enumerate(i.states)]
    return [*(f"  if (!e) __builtin_memcpy({x}, {y}, {n});" for (x, y), n in zip(places, sizes, strict=True)),
            *(f"  if (!e) d[{dim}] = next[{k}];" for k, dim in enumerate(grown))]
