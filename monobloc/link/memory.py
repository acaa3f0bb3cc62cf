"""One memory plan for the program: what models share, what goes to which region, and the budgets.

Problem: every model is planned for itself, but the image has one RAM and one flash. Idea: banks (see
`codegen.place`). What lives within a run is one array for all models; what a region of the machine
holds is in a section of its own, by name, since names survive every kind of link-time optimization
and files do not. Budgets are checked twice: on the plan, before anything compiles, with the tensors
that fill it; on the linked image, with the symbols that do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from monobloc.codegen.interface import own_bank, shared_bytes
from monobloc.codegen.lower import Lowered
from monobloc.errors import LinkError
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import upper
from monobloc.link.flash import SHOWN, FlashError, constants_of, largest
from monobloc.object import elf
from monobloc.object.elf import Buffer
from monobloc.options import Options
from monobloc.targets import FLASH_HOLDS, RAM_HOLDS


def share(programs: Sequence[Lowered], o: Options) -> list[Lowered]:
    """Several models use one piece of memory for what lives within a run: one of them runs at a time."""
    return [p.sharing() for p in programs] if len(programs) > 1 and o.arenas == "shared" else list(programs)


def ram_by_region(programs: Sequence[Lowered]) -> dict[str, int]:
    """Static bytes of all models' memory, by region; "" is the main RAM."""
    shared = shared_bytes([p.interface for p in programs if p.interface.shared])
    out: dict[str, int] = {}
    counted: set[str] = set()
    for p in programs:
        for b in p.interface.banks:
            common = p.interface.shared and b.shareable
            if common and b.name in counted:
                continue
            counted |= {b.name} if common else set()
            where = b.region.name if b.region else ""
            out[where] = out.get(where, 0) + (shared[b.name] if common else b.bytes)
    return out


def ram_of(programs: Sequence[Lowered]) -> int:
    """Static bytes of all models' memory."""
    return sum(ram_by_region(programs).values())


# -- budgets on the plan --------------------------------------------------------------------------------
def check_plan(programs: Sequence[Lowered], sections: Mapping[str, str], o: Options) -> None:
    """`--ram`, `--flash` and the regions' sizes against what is known before anything compiles."""
    _check_names(programs, o)
    used = ram_by_region(programs)
    for r in o.memories:
        if r.kind == "ram" and r.size is not None and used.get(r.name, 0) > r.size:
            raise _over(f"region `{r.name}` must hold {used[r.name]} bytes, it has {r.size}", programs, r.name)
    if o.ram is not None and used.get("", 0) > o.ram:
        raise _over(f"the arena takes {used['']} bytes, over the budget of {o.ram}", programs, "")
    weights = {k: v[0] for k, v in constants_of(programs).items() if k not in sections}
    flash = sum(v.type.bytes for v in weights.values())
    if o.flash is not None and flash > o.flash:
        raise LinkError(f"weights take {flash} bytes, over the budget of {o.flash}",
                        notes=largest(list(weights.values())), hints=_flash_hints(o))


def _over(message: str, programs: Sequence[Lowered], region: str) -> LinkError:
    """What fills a memory: inputs and outputs of every model, and what is alive at its fullest step."""
    notes = []
    for p in programs:
        title = p.interface.title
        here = [(v, offset, first, last) for v, offset, first, last in p.placement.buffers
                if _region_at(p, offset) == region]
        kept = [v for v, offset, *_ in here if p.placement.bank_at(offset).kept]
        notes += [f"{title}: {upper(v.type.bytes)} bytes all the time: %{v.name} {v.type}"
                  for v in sorted(kept, key=lambda v: -upper(v.type.bytes))[:SHOWN]]
        notes += [f"{title}: {line}" for line in _fullest(p, [x for x in here if x[0] not in kept], region)]
    return LinkError(message, notes=notes, hints=_ram_hints(programs))


def _region_at(p: Lowered, offset: int) -> str:
    region = p.placement.bank_at(offset).region
    return region.name if region else ""


def _fullest(p: Lowered, buffers: Sequence[tuple[Value, int, int, int]], region: str) -> list[str]:
    """What is alive in the step that needs most, its scratch included."""
    steps = p.placement.order
    scratch = {} if region else p.placement.scratch_bytes  # scratch is in the main RAM

    def alive(t: int) -> list[Value]:
        return [v for v, _, first, last in buffers if first <= t <= last]

    def need(t: int) -> int:
        return sum(upper(v.type.bytes) for v in alive(t)) + scratch.get(steps[t], 0)

    if not steps:
        return []
    t = max(range(len(steps)), key=need)
    where = f"in step {t} (`{steps[t].name}`)"
    out = [f"{upper(v.type.bytes)} bytes {where}: %{v.name} {v.type}"
           for v in sorted(alive(t), key=lambda v: -upper(v.type.bytes))[:SHOWN]]
    return out + ([f"{scratch[steps[t]]} bytes {where}: its scratch"] if scratch.get(steps[t]) else [])


def _ram_hints(programs: Sequence[Lowered]) -> list[str]:
    out = ["smaller inputs (`--shape`, `--dim`) or fewer outputs (`--keep-output`) need less"]
    if any(p.interface.threads > 1 and p.placement.scratch for p in programs):
        out.append("every thread has scratch of its own: `--threads 1` needs less")
    if len(programs) > 1 and not any(p.interface.shared for p in programs):
        out.append("models that never run at the same time may share memory: `--arenas shared`")
    return out


def _flash_hints(o: Options) -> list[str]:
    regions = [r.name for r in o.memories if r.kind == "flash"]
    there = "a `[memory.NAME]` of kind `flash` takes cold weights"
    if regions:
        there = f"region `{regions[0]}` takes no more"
    return ["outputs that nobody reads go with their weights: link the application too, or `--keep-output`", there]


def _check_names(programs: Sequence[Lowered], o: Options) -> None:
    """Every tensor that a region names is somewhere."""
    known = {n for p in programs for x in p.versions for v in x.placement.storage for n in (v.name, v.origin)}
    weights = {n for vs in constants_of(programs).values() for v in vs for n in (v.name, v.origin)}
    for r in o.memories:
        for name in r.hold:
            there = known if r.kind == "ram" else weights
            if name not in (*RAM_HOLDS, *FLASH_HOLDS) and name not in there:
                what = "buffer" if r.kind == "ram" else "weight"
                raise LinkError(f"region `{r.name}` is to hold `{name}`, and no {what} has that name",
                                notes=["tensors inside of a fused layer have no memory of their own"],
                                hints=["`monobloc inspect IMAGE` lists buffers and weights"])


# -- budgets on the image -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Usage:
    """What a linked file takes."""

    ram: int  # writable sections
    flash: int  # what the file holds of what is loaded
    in_ram: tuple[tuple[int, str], ...]  # bytes and symbol, largest first
    in_flash: tuple[tuple[int, str], ...]


def usage(data: Buffer) -> Usage:
    e = elf.Elf(data)
    loaded = [s for s in e.sections if s.flags & elf.SHF_ALLOC]
    ram = {s.index for s in loaded if s.flags & elf.SHF_WRITE}
    flash = {s.index for s in loaded if s.type != elf.SHT_NOBITS}
    symbols = sorted(((s.size, s.name) for s in e.symbols if s.size and s.section in ram), key=lambda x: (-x[0], x[1]))
    others = sorted(((s.size, s.name) for s in e.symbols if s.size and s.section in flash),
                    key=lambda x: (-x[0], x[1]))
    return Usage(sum(s.size for s in loaded if s.index in ram), sum(s.size for s in loaded if s.index in flash),
                 tuple(symbols[:SHOWN]), tuple(others[:SHOWN]))


@dataclass(frozen=True)
class Known:
    """What the plan knows of an image: bytes that are elsewhere, and what symbols are to a user."""

    elsewhere_ram: int = 0
    elsewhere_flash: int = 0
    titles: Mapping[str, str] = field(default_factory=dict)


def known(programs: Sequence[Lowered], sections: Mapping[str, str]) -> Known:
    weights = constants_of(programs)
    ram = sum(size for name, size in ram_by_region(programs).items() if name)
    titles = {s: f"weight %{v.name} {v.type}" for p in programs for s, v in p.weights.items()}
    for i in (p.interface for p in programs):
        titles |= {own_bank(i, b): f"inputs and outputs of {i.title}" if b.kept else "intermediates" for b in i.banks}
    return Known(ram, sum(weights[k][0].type.bytes for k in sections), titles)


def check_image(u: Usage, stack: int | None, k: Known, o: Options) -> None:
    """`--ram` and `--flash` against the linked image, everything in it counted but what regions hold.

    `stack` is the bound of a run; None: unknown, as where somebody else's code is called.
    """
    ram, flash, titles = u.ram - k.elsewhere_ram + (stack or 0), u.flash - k.elsewhere_flash, k.titles
    told = "the stack of a run has no known bound and is not counted" if stack is None else (
        f"{stack} bytes: stack of a run, at most")
    if o.ram is not None and ram > o.ram:
        raise LinkError(f"the image takes {ram} bytes of RAM, over the budget of {o.ram}",
                        notes=[told, *_symbols(u.in_ram, titles)],
                        hints=["`--report R.html` shows all of it"])
    if o.flash is not None and flash > o.flash:
        error = FlashError(f"the image takes {flash} bytes of flash, over the budget of {o.flash}",
                           notes=_symbols(u.in_flash, titles),
                           hints=["`--optimize size` makes code smaller", *_flash_hints(o)])
        error.over = flash - o.flash
        raise error


def _symbols(found: Sequence[tuple[int, str]], titles: Mapping[str, str]) -> list[str]:
    return [f"{size} bytes: {titles.get(name, name)}" for size, name in found]
