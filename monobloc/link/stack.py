"""How much stack a run takes at most, from the linked code itself.

Problem: promise 5 wants the number before anything runs, and LTO decides late which functions there
are and what their frames hold. Idea: the compiler writes every function's frame size beside its
code (`.stack_sizes`), and the linker keeps the relocations (`--emit-relocs`): from where which
function is named is the call graph, with all inlining done. A function that is named counts as
called, so does one in a table that is named, and one whose address is given to the pool is called by the
pool. The deepest path is the bound;
it is written into the image's model info, and what the analysis needed is taken off the file again.

There is nothing to guess: a function of ours without a frame size moves its stack pointer at run
time, and a cycle is a recursion; both are errors. What signal handlers take comes on top.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from monobloc.errors import InternalError, LinkError
from monobloc.object import elf
from monobloc.object.elf import Buffer, Elf, Symbol
from monobloc.object.strip import stripped_end

LINK_FLAGS = ("--emit-relocs",)
LTO_FLAGS = ("-mllvm", "-stack-size-section")

POINTER = 8
RETURN = 8  # the return address, where a call pushes one
RED_ZONE = 128  # what a function that calls nothing may use below its stack pointer
VECTOR = 64  # a frame that holds vectors is aligned to one: up to this much is lost
WORKER_STACK, GUARD = 256 * 1024, 4096  # of an executable's workers
FOREIGN = 512  # small functions of somebody else's libc, whose frames nobody states
_FOREIGN = ("memcpy", "memmove", "memset", "memcmp", "getauxval")
_ELSEWHERE = ("pthread_", "mb_")  # the threads of who loads a library; runtime and weights of a trial link
_DISPATCH = ("mb_parallel_upto", "run_parts", "work", "worker")  # call what they were handed
_INFO = struct.Struct("<II48xQ")  # mb_model_info up to stack_bound
_PLACE = struct.Struct("<Q")
_ABSOLUTE = {elf.EM_X86_64: 1, elf.EM_AARCH64: 257}  # the relocation of a pointer in data


@dataclass(frozen=True)
class CallGraph:
    """Frame sizes and which function names which; a function is known by its address."""

    names: Mapping[int, str]  # one of its names
    address: Mapping[str, int]
    frames: Mapping[int, int]
    calls: Mapping[int, tuple[int | str, ...]]  # a str: not in this file
    layers: tuple[int, ...]

    @cached_property
    def handed_out(self) -> tuple[int, ...]:
        """Layers that the pool may call: not those that run others, whose regions are run by who runs them"""
        own = {*self.layers, *(f for f, name in self.names.items() if name in _DISPATCH)}
        return tuple(f for f in self.layers if own.isdisjoint(self.calls.get(f, ())))


def plain(name: str) -> str:
    """A symbol's name without what ThinLTO adds to local ones that other units call."""
    return name.partition(".llvm.")[0]


def read_calls(data: Buffer) -> CallGraph:
    """The call graph of a file linked with LINK_FLAGS and not stripped."""
    e = Elf(data)
    functions = sorted(
        (s for s in e.symbols if s.defined and s.type == elf.STT_FUNC and s.size),
        key=lambda s: (s.value, s.name),
    )
    starts = [s.value for s in functions]
    address = {plain(s.name): s.value for s in functions}
    calls: dict[int, dict[int | str, None]] = {}
    tables = _Tables(e, frozenset(starts))
    for at, target in _references(e):
        caller = _containing(functions, starts, at)
        callee = target if isinstance(target, str) else _containing(functions, starts, target)
        callees = tables.functions(target) if callee is None and isinstance(target, int) else [callee]
        for c in callees if caller is not None else ():
            if c is not None and caller != c:
                calls.setdefault(caller, {})[c] = None  # type: ignore[arg-type]
    return CallGraph(
        {s.value: plain(s.name) for s in reversed(functions)},
        address,
        _frames(e),
        {k: tuple(v) for k, v in calls.items()},
        tuple(dict.fromkeys(s.value for s in functions if s.name.startswith("layer_"))),
    )


def _containing(functions: Sequence[Symbol], starts: Sequence[int], at: int) -> int | None:
    k = bisect_right(starts, at) - 1
    if k < 0 or at >= functions[k].value + functions[k].size:
        return None
    return functions[k].value


def _references(e: Elf) -> Iterable[tuple[int, int | str]]:
    """(address of the code, address of what it names or the name of what is not here)."""
    code = {s.index for s in e.sections if s.flags & elf.SHF_EXECINSTR}
    bias = elf.OPERAND_BIAS.get(e.machine, {})
    for s in e.sections:
        if s.type != elf.SHT_RELA or s.info not in code or s.flags & elf.SHF_ALLOC:
            continue
        for at, number, kind, addend in e.relocations(s):
            symbol = e.symbols[number]
            if symbol.type == elf.STT_FUNC or not symbol.defined:
                yield at, symbol.value if symbol.defined else symbol.name
                continue
            target = symbol.value + addend + bias.get(kind, 0)
            # loops that count up to zero begin behind the end of their data, where anything may lie
            low, size = _extent(e, symbol)
            yield at, target if low <= target < low + size else low


def _extent(e: Elf, s: Symbol) -> tuple[int, int]:
    """Where the data of a symbol are; a section's own symbol stands for all of it."""
    if (s.type == elf.STT_OBJECT and s.size) or s.section >= len(e.sections):
        return s.value, s.size
    section = e.sections[s.section]
    return section.addr, section.size


class _Tables:
    """Data that hold pointers to functions, directly or through other data."""

    def __init__(self, e: Elf, starts: frozenset[int]) -> None:
        self.starts = starts
        data = [s for s in e.sections if s.flags & elf.SHF_ALLOC and not s.flags & elf.SHF_EXECINSTR and s.size]
        edges = {s.addr for s in data} | {s.addr + s.size for s in data}
        for x in e.symbols:
            if x.type == elf.STT_OBJECT and x.defined and x.size:
                edges |= {x.value, x.value + x.size}
        self.edges = sorted(edges)  # what no symbol covers is one thing up to the next symbol
        self.pointers: dict[int, list[int]] = {}
        indices = {s.index for s in data}
        for s in e.sections:
            if s.type == elf.SHT_RELA and s.info in indices and not s.flags & elf.SHF_ALLOC:
                self._read(e, s)

    def _read(self, e: Elf, s: elf.Section) -> None:
        for at, number, kind, addend in e.relocations(s):
            symbol = e.symbols[number]
            if kind == _ABSOLUTE.get(e.machine) and symbol.defined:
                self.pointers.setdefault(self._thing(at), []).append(symbol.value + addend)

    def _thing(self, address: int) -> int:
        return bisect_right(self.edges, address)

    def functions(self, address: int) -> list[int]:
        """Functions that code which knows this address of data may call.

        Pointers lie at aligned addresses. One that is not may be that of the data before it: x86 counts
        distances from an instruction's end, and an operand that an immediate follows seems to lie earlier.
        """
        if address % POINTER:
            return []
        seen: set[int] = set()
        todo, out = [self._thing(address)], []
        while todo:
            thing = todo.pop()
            found = () if thing in seen else self.pointers.get(thing, ())
            seen.add(thing)
            out += [t for t in found if t in self.starts]
            todo += [self._thing(t) for t in found if t not in self.starts]
        return out


def _frames(e: Elf) -> dict[int, int]:
    out: dict[int, int] = {}
    for s in e.sections:
        if s.name != ".stack_sizes":
            continue
        data, at = bytes(e.content(s)), 0
        while at < len(data):
            (address,) = struct.unpack_from("<Q", data, at)
            size, at = _uleb(data, at + 8)
            out[address] = max(size, out.get(address, 0))
    return out


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


# -- the bound ---------------------------------------------------------------------------------------
@dataclass
class _Walk:
    graph: CallGraph
    known: dict[int, int] = field(default_factory=dict)
    path: list[int] = field(default_factory=list)

    def depth(self, f: int | str) -> int:
        """Deepest stack from the call of `f` on, its return address included."""
        if isinstance(f, str):
            if f not in _FOREIGN and not f.startswith(_ELSEWHERE):
                raise InternalError(f"the stack has no bound: `{f}` is not in this file")
            return FOREIGN
        if f in self.path:
            names = [self.graph.names[k] for k in [*self.path[self.path.index(f) :], f]]
            raise InternalError(f"the stack has no bound: {' calls '.join(names)}")
        if f not in self.known:
            self.path.append(f)
            self.known[f] = self.frame(f) + max(map(self.depth, self.callees(f)), default=0)
            self.path.pop()
        return self.known[f]

    def frame(self, f: int) -> int:
        name, size = self.graph.names[f], self.graph.frames.get(f)
        if size is None:
            if name in _FOREIGN:
                return FOREIGN
            raise InternalError(f"the stack has no bound: the frame of `{name}` is not constant")
        return size + RETURN + min(size, VECTOR)

    def callees(self, f: int) -> tuple[int | str, ...]:
        direct = self.graph.calls.get(f, ())
        handed_out = self.graph.handed_out if self.graph.names[f] in _DISPATCH else ()
        return (*direct, *handed_out)


def bound(graph: CallGraph, root: str) -> int | None:
    """Bytes of stack from a call of `root` on; None if the file has no such function."""
    at = graph.address.get(root)
    return None if at is None else _Walk(graph).depth(at) + RED_ZONE


def run_bounds(graph: CallGraph, prefixes: Sequence[str]) -> dict[str, int]:
    """The bound of each model's run, as far as it was not inlined into the user's own code."""
    out = {}
    for p in prefixes:
        found = [b for b in (bound(graph, f"{p}_run"), bound(graph, f"{p}_run_at")) if b is not None]
        if found:
            out[p] = max(found)
    return out


def check_workers(graph: CallGraph, room: int) -> None:
    """Workers of an executable have stacks of a fixed size."""
    need = bound(graph, "worker")
    if need is not None and need > room:
        raise LinkError(f"a worker needs {need} bytes of stack, it has {room}",
                        hints=["build for one thread: `--threads 1`"])


# -- into the file ------------------------------------------------------------------------------------
def info_place(e: Elf, prefix: str) -> int | None:
    """File offset of a model info's `stack_bound`."""
    name = f"mb_info_{prefix}"
    s = next((s for s in e.symbols if s.name == name and s.defined), None)
    if s is None:
        return None
    section = e.sections[s.section]
    at = section.offset + s.value - (0 if e.type == elf.ET_REL else section.addr)
    abi, size, before = _INFO.unpack_from(e.take(at, _INFO.size, name))
    if abi != 1 or size < _INFO.size or before != 0:
        raise InternalError(f"`{name}` is not laid out as expected: abi {abi}, size {size}")
    return at + _INFO.size - 8


def finish(
    path: Path, prefixes: Sequence[str], strip: bool, own: bool, measure: bool = True
) -> dict[str, int]:
    """Measure a fresh image, write the bounds into it, strip it. In place.

    `own`: all code is ours; beside the user's code a bound that cannot be told stays unknown.
    `measure`: not where finished objects were linked, whose infos say it already.
    """
    with path.open("r+b") as f:
        data = memoryview(mmap.mmap(f.fileno(), 0))  # a gigabyte of weights is never copied
        e = Elf(data)
        bounds = _bounds(data, prefixes, own) if measure else {}
        end, tail, head = stripped_end(e)
        for p, b in bounds.items():
            if (at := info_place(e, p)) is not None:
                _PLACE.pack_into(data, at, b)
        if strip:
            data[: len(head)] = head
            f.truncate(end)
            f.seek(end)
            f.write(tail)
    return bounds


def _bounds(data: Buffer, prefixes: Sequence[str], own: bool) -> dict[str, int]:
    try:
        graph = read_calls(data)
        bounds = run_bounds(graph, prefixes)
        if own:
            check_workers(graph, WORKER_STACK - GUARD)
        return bounds
    except InternalError:
        if own:
            raise
        return {}


def with_bounds(
    relocatable: bytes, prefixes: Sequence[str], trial: Callable[[bytes], bytes]
) -> tuple[bytes, dict[str, int]]:
    """A relocatable with the bounds in its model infos, as a trial link of it tells them."""
    bounds = _bounds(trial(relocatable), prefixes, own=False)
    out, e = bytearray(relocatable), Elf(relocatable)
    for p, b in bounds.items():
        at = info_place(e, p)
        if at is not None:
            _PLACE.pack_into(out, at, b)
    sizes = {s.index for s in e.sections if s.name == ".stack_sizes"}
    for s in e.sections:  # whoever links this has no use for them: unused from now on
        if s.index in sizes or (s.type == elf.SHT_RELA and s.info in sizes):
            row = [e.raw_sections[s.index][0], 0, 0, 0, s.offset, 0, 0, 0, 1, 0]
            at = e.header[6] + s.index * e.cls.section.size
            e.cls.section.pack_into(out, at, *row)
    return bytes(out), bounds
