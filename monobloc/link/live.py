"""Which outputs are alive: those whose accessor the application's code still names after its own link.

The application is linked for a trial, in the same mode and with `--gc-sections`, against stubs of the
models' interface. Stubs are native code in sections of their own, so nothing sees through them: an
accessor is in the result exactly if living code refers to it, whether or not addresses escape. What no
living code names is removed from the graph with every node, weight and buffer that only it needed.
An input that nothing needs any more goes too, if no living code names it; if some does, it keeps a
buffer, for what was written to an input must be there for the next run.

Objects that are not linked here (`--used-by`) count by the symbols they leave undefined. An application
that asks for the table of models (`monobloc_model`) may read everything, so everything stays.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from monobloc.cache import Cache
from monobloc.codegen.sizes import getter, setter
from monobloc.errors import LinkError
from monobloc.ir.graph import Graph
from monobloc.ir.text import copy_graph
from monobloc.link import header
from monobloc.link.devirtualize import words_of_the_line
from monobloc.link.header import input_accessors, output_accessors
from monobloc.link.linkmap import plain_file
from monobloc.link.objects import Module
from monobloc.link.order import canonical_order
from monobloc.link.persist import growing
from monobloc.link.request import Request
from monobloc.link.symbols import Chain, check_linkable, used_by
from monobloc.object import elf, toolchain
from monobloc.object.toolchain import CompileJob, Libc, LinkJob
from monobloc.options import Options

_CHAIN = re.compile(r">>> referenced by: (?P<file>.+?):\((?P<symbol>.*?)\)(?: \((?P<root>[^()]+)\))?$")


@dataclass(frozen=True)
class Liveness:
    """What an application's code decides, by prefix; names are the model's own."""

    removed: dict[str, list[str]] = field(default_factory=dict)  # outputs that nobody reads
    unread: dict[str, list[str]] = field(default_factory=dict)  # inputs that nothing needs and nobody names
    readers: dict[str, dict[str, Chain]] = field(default_factory=dict)  # of each port: who names its accessor
    reentrant: set[str] = field(default_factory=set)  # models that are given memory for a run


# -- the whole question -------------------------------------------------------------------------------
def needed(modules: Sequence[Module], r: Request) -> tuple[list[Module], Liveness]:
    """The modules without what the application does not need, and what that was."""
    names: dict[str, Chain] | None = None
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        if r.o.used_by:
            names = used_by(r.o.used_by, Path(tmp), r.o)
        if r.hosted:
            r.progress("finding live outputs")
            names = (names or {}) | probe(modules, r.user, Path(tmp), r.o, r.libc, r.libs, r.libdirs, r.cache)
    if names is None:
        return list(modules), Liveness()
    kept, told = keep_live(modules, names)
    for m in modules:
        if dead := told.removed.get(m.prefix):
            r.progress(f"{m.title}: nobody reads {', '.join(dead)}")
    return kept, told


# -- the trial link -----------------------------------------------------------------------------------
def probe(
    modules: Sequence[Module], user: Sequence[Path | str], folder: Path, o: Options, libc: Libc,
    libs: Sequence[str] = (), libdirs: Sequence[Path] = (), cache: Cache | None = None,
) -> dict[str, Chain]:
    """Interface symbols that living code of the application names, and by which references."""
    for path in user:
        if isinstance(path, Path):
            check_linkable(path, o)
    stubs = folder / "stubs.o"
    names = dict.fromkeys(s for m in modules for s in (*header.symbols(m), header.TABLE))
    text = "\n".join(f"char {s}(void) {{ return 0; }}" for s in names)
    job = CompileJob(text.encode(), stubs, o.target.baseline(), extra=("-fvisibility=default", "-fno-builtin"),
                     name="stubs.c")
    toolchain.compile_all([job], 1, cache)
    made = folder / "probe"
    why = ("--why-live=*_out_*", "--why-live=*_in_*")
    ran = toolchain.link(LinkJob("exe", (stubs, *user), made, o.target, lto=o.lto, libc=libc, opt=o.opt, icf="none",
                                 libs=tuple(libs), libdirs=tuple(libdirs), extra=(*why, *o.link_args)),
                         cache=None if words_of_the_line(o) else cache)
    chains = parse_chains(ran.stdout)
    alive = {s.name for s in elf.symbols(made.read_bytes()) if s.defined}
    return {s: chains.get(s, ()) for s in names if s in alive}


def parse_chains(text: str) -> dict[str, Chain]:
    """What `--why-live` prints: a symbol, then the references that keep it, nearest first."""
    out: dict[str, Chain] = {}
    symbol = ""
    for line in text.splitlines():
        if line.startswith("live symbol: "):
            symbol = line[line.rfind(":(") + 2 : -1]
            out[symbol] = ()
        elif (found := _CHAIN.match(line)) and symbol in out:
            place = " in ".join(x for x in (found["symbol"], plain_file(found["file"])) if x)
            out[symbol] += (place + (f" ({found['root']})" if found["root"] else ""),)
    return out


# -- what follows ---------------------------------------------------------------------------------------
def keep_live(modules: Sequence[Module], names: Mapping[str, Chain]) -> tuple[list[Module], Liveness]:
    """The modules with their living outputs and inputs only, and what went."""
    kept, told = [], Liveness()
    for m in modules:
        ports = _ports(m)
        told.readers[m.prefix] = {port: next(names[s] for s in accessors if s in names)
                                  for port, accessors in ports.items() if any(s in names for s in accessors)}
        _refuse_state(m, told.readers[m.prefix], names)
        if f"{m.prefix}_run_at" in names:
            told.reentrant.add(m.prefix)
        if any(s in names for s in header.tables(m)):
            kept.append(m)
            continue
        m, dead, unread = _without_dead(m, told.readers[m.prefix])
        kept.append(m)
        told.removed.update({m.prefix: dead} if dead else {})
        told.unread.update({m.prefix: unread} if unread else {})
    return kept, told


def _refuse_state(m: Module, readers: Mapping[str, Chain], names: Mapping[str, Chain]) -> None:
    """What is state has no accessors, and nobody sets how long it is."""
    for d in growing(m.graph):
        for call in (setter(m.prefix, d), f"{setter(m.prefix, d)}_at"):
            if call in names:
                raise LinkError(f"the application uses `{call}`, and `--persist` made `{d.name}` the length of state, "
                                "which is the program's own", notes=[f"named by {' <- '.join(names[call])}"],
                                hints=[f"drop the use, or the flag; `{getter(m.prefix, d)}` tells how long it is"])
    kept = {v.origin or v.name: v.state for v in m.graph.inputs if v.state}
    for name, source in kept.items():
        for port, (accessor, *_) in ((f"in {name}", input_accessors(m, name)),
                                    (f"out {source}", output_accessors(m, source))):
            if port in readers:
                raise LinkError(f"the application uses `{accessor}`, and `--persist` made `{name}` the program's own",
                                notes=[f"named by {' <- '.join(readers[port])}"],
                                hints=["drop the use, or the flag"])


def _ports(m: Module) -> dict[str, tuple[str, ...]]:
    """Each port's key, `in NAME` or `out NAME`, with its accessors."""
    ins: dict[str, tuple[str, ...]] = {f"in {v.origin or v.name}": input_accessors(m, v.origin or v.name)
                                       for v in m.graph.inputs}
    return ins | {f"out {n}": output_accessors(m, n) for n, _ in m.graph.outputs}


def _without_dead(m: Module, readers: Mapping[str, Chain]) -> tuple[Module, list[str], list[str]]:
    """A model without dead outputs, and without inputs that no version of it needs."""
    read = {name for name, _ in m.graph.outputs if f"out {name}" in readers}
    read |= states_of(m.graphs, read)
    dead = [name for name, _ in m.graph.outputs if name not in read]
    m = replace(m, graph=_without_outputs(m.graph, dead), more=tuple(_without_outputs(g, dead) for g in m.more))
    unread = _unread(m.graph, readers)
    unread = [n for n in unread if all(n in _unread(g, readers) for g in m.more)]
    kept = [_without_inputs(g, unread) for g in m.graphs]
    return replace(m, graph=kept[0], more=tuple(kept[1:])), dead, unread


def _without_outputs(g: Graph, dead: Sequence[str]) -> Graph:
    if not dead:
        return g
    g = copy_graph(g)
    g.outputs = [(name, v) for name, v in g.outputs if name not in dead]
    g.inputs = [v for v in g.inputs if v.state not in dead]
    canonical_order(g)  # as if the model never had the others
    return g


def states_of(versions: Sequence[Graph], read: set[str]) -> set[str]:
    """Outputs that become state which these outputs need, in this run or in a later one of any version."""
    needed: set[str] = set()
    while True:
        more = {s for g in versions for s in _read_states(g, read | needed)} - needed
        if not more:
            return needed
        needed |= more


def _read_states(g: Graph, names: set[str]) -> set[str]:
    """The state that these outputs are made of"""
    values = {v for n, v in g.outputs if n in names}
    for n in reversed(g.nodes):
        if any(v in values for v in n.outputs):
            values.update(n.used)
    return {v.state for v in g.inputs if v.state and v in values}


def _unread(g: Graph, readers: Mapping[str, Chain]) -> list[str]:
    """Inputs that no output needs; those that are named keep a place to be written to."""
    leaving = g.output_values
    return [v.origin or v.name for v in g.inputs
            if not v.users and v not in leaving and f"in {v.origin or v.name}" not in readers]


def _without_inputs(g: Graph, unread: Sequence[str]) -> Graph:
    if not unread:
        return g
    g = copy_graph(g)
    g.inputs = [v for v in g.inputs if (v.origin or v.name) not in unread]
    return g
