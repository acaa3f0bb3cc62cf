"""What an image holds beside the models' code: weights, runtime, the table of models, shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from monobloc.cache import write_atomic
from monobloc.codegen.interface import model_table, shared_memory
from monobloc.codegen.lower import Lowered
from monobloc.link import merge, room
from monobloc.link.objects import INCLUDE, compile_runtime, stored_weight
from monobloc.link.request import Request
from monobloc.object import fat, toolchain
from monobloc.object.fat import Weight
from monobloc.object.toolchain import CompileJob


# -- weights ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WeightsFile:
    """One native object of all weights; large ones may wait for the link to make room for them."""

    path: Path
    weights: Mapping[str, Weight]
    names: Mapping[str, Sequence[str]]  # what the programs' code calls each, by content
    inside: Mapping[str, tuple[str, int]]
    r: Request

    def write(self, wait: bool) -> dict[str, str]:
        """The symbols of those that wait, by content."""
        waiting = room.waiting(self.weights, self.inside) if wait else frozenset()
        write_atomic(self.path, fat.weights_object(self.weights, self.r.o.target.elf_machine, self.r.o.large_over,
                                                   self.names, self.inside, waiting))
        return {k: self.names[k][0] for k in waiting}


def weights_file(programs: Sequence[Lowered], sections: Mapping[str, str], folder: Path, r: Request) -> WeightsFile:
    weights = weights_of(programs, sections)
    return WeightsFile(folder / "weights.o", weights, weight_names(programs), merge.inside(weights), r)


def are_large(programs: Sequence[Lowered], r: Request) -> bool:
    """Whether weights may lie further away than 32-bit distances reach."""
    return sum(w.size for w in weights_of(programs, {}).values()) > r.o.large_over


def weights_of(programs: Sequence[Lowered], sections: Mapping[str, str]) -> dict[str, Weight]:
    """All constants of all programs, equal ones once, in the sections of their memory regions."""
    return {v.const.key: stored_weight(v, sections.get(v.const.key, ""))
            for p in programs for v in p.weights.values() if v.const is not None}


def weight_names(programs: Sequence[Lowered]) -> dict[str, list[str]]:
    """What the programs' code calls each constant, by its content."""
    out: dict[str, list[str]] = {}
    for p in programs:
        for symbol, v in p.weights.items():
            assert v.const is not None
            out.setdefault(v.const.key, []).append(symbol)
    return out


# -- runtime ------------------------------------------------------------------------------------------
def runtime_files(prefixes: Sequence[str], folder: Path, r: Request) -> Sequence[Path | str]:
    """Runtime, table of models and `main`, as far as this kind of image needs them."""
    out = compile_runtime(r.o, folder, _runtime_sources(r), r.cache, weak=r.closed)
    if r.closed:
        return out
    job = CompileJob(model_table(tuple(prefixes)).encode(), folder / "models.o", r.o.target.baseline(),
                     includes=(INCLUDE,), name="models.c")
    table = [c.out for c in toolchain.compile_all([job], 1, r.cache)]
    # beside the user's code only if that asks for it: the table leads to everything
    return [*out, "--start-lib", *table, "--end-lib"] if r.hosted else [*out, *table]


def _runtime_sources(r: Request) -> list[str]:
    alone = r.emit == "exe" and not r.user
    pool = "pool_clone.c" if alone else "pool_pthread.c"
    own = [s for s in r.o.target.runtime if s.startswith("cpu_")] + ([pool] if r.o.threads > 1 else [])
    if alone:
        own += [s for s in r.o.target.runtime if s.startswith("start_")]
        own += ["main.c", "measure.c", "npy.c", "sizes.c", "tensor.c", "text.c", "mem.c"]
    if r.emit == "shared":
        own.append("mem.c")
    return own


def memory_files(programs: Sequence[Lowered], folder: Path, r: Request) -> list[Path]:
    """The object that defines what the models' runs share, if they do."""
    sharing = [p.interface for p in programs if p.interface.shared]
    if not sharing:
        return []
    job = CompileJob(shared_memory(sharing).encode(), folder / "memory.o", r.o.target.baseline(),
                     includes=(INCLUDE,), name="memory.c")
    return [c.out for c in toolchain.compile_all([job], 1, r.cache)]
