"""Whose every piece of an image is: a model's layer, the application's file, a library, the runtime.

Problem: the linker knows files and symbols, people ask for models and layers; and Full LTO joins all
files into one. Idea: what names tell is taken from names (our files and symbols are called after
models and layers, the user's symbols stand in their objects), and what nothing names belongs to those
that refer to it: a kernel only one layer calls is that layer's, a string two files print is shared.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from monobloc.codegen.interface import own_bank
from monobloc.codegen.lower import Lowered
from monobloc.codegen.names import mangle, scoped
from monobloc.link.trace import Piece, Trace

_GENERATED = re.compile(r"([^.]+)\.(layer_.+|run|interface)\.c\.(?:native|bitcode|fat)\.o")
_C_LIBRARY = re.compile(
    r"(?:[SMgr]*crt[\w-]*\.o)|(?:lib(?:c|m|dl|rt|pthread|c_nonshared|gcc|gcc_eh|gcc_s|compiler_rt|clang_rt[\w.-]*"
    r"|stdc\+\+|supc\+\+|c\+\+|c\+\+abi|unwind|util|resolv|g|nosys|rdimon)(?:-[\d.]+)?\.(?:a|so)\b.*)")
_COPY = re.compile(r"\.\d+$|\.(?:part|cold|constprop|isra|specialized|resume)(?:\.\d+)*$")

APPLICATION, C_LIBRARY, RUNTIME, SHARED, FILE, UNKNOWN = (
    "application", "C library", "runtime", "shared by several", "the file itself", "not told apart")
ROUNDS = 8  # of asking readers; each settles what is one reference further away
_TABLES = {  # what the linker makes, by section
    ".interp": "dynamic linking", ".dynsym": "dynamic linking", ".dynstr": "dynamic linking",
    ".gnu.hash": "dynamic linking", ".hash": "dynamic linking", ".gnu.version": "dynamic linking",
    ".gnu.version_r": "dynamic linking", ".gnu.version_d": "dynamic linking", ".dynamic": "dynamic linking",
    ".rela.dyn": "dynamic linking", ".rela.plt": "dynamic linking", ".relr.dyn": "dynamic linking",
    ".rel.dyn": "dynamic linking", ".plt": "dynamic linking", ".got": "dynamic linking", ".iplt": "dynamic linking",
    ".got.plt": "dynamic linking", ".eh_frame_hdr": "unwinding", ".eh_frame": "unwinding",
    ".note.gnu.build-id": "notes", ".comment": "notes",
}  # fmt: skip


@dataclass(frozen=True)
class Owner:
    """From the outermost box inwards; a layer only under a model."""

    group: str
    model: bool = False
    part: str = ""  # layer of a model, file or member of others
    users: tuple[str, ...] = ()


@dataclass
class Names:
    """What models are called in the code."""

    programs: Sequence[Lowered]
    layers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # mangled -> (prefix, layer)
    weights: dict[str, list[tuple[str, str, tuple[str, ...]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for low in self.programs:
            for version in low.versions:
                p = version.unit.prefix
                for n in version.placement.steps():
                    self.layers.setdefault(scoped(p, mangle(n.name)), []).append((p, n.name))
        same: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}  # equal weights are stored once
        for low in self.programs:
            for symbol, v in low.weights.items():
                assert v.const is not None
                self.weights[symbol] = same.setdefault(v.const.key, [])
                self.weights[symbol].append((low.interface.prefix, v.name, tuple(n.name for n in v.users)))

    @functools.cached_property
    def memory(self) -> dict[str, str]:
        """The models' own banks of memory"""
        return {own_bank(i, b): i.title for i in (low.interface for low in self.programs) for b in i.banks
                if not (i.shared and b.shareable)}

    @functools.cached_property
    def titles(self) -> dict[str, str]:
        return {p: low.interface.title for low in self.programs
                for p in (low.interface.prefix, *(v.unit.prefix for v in low.versions))}


def owners(trace: Trace, names: Names) -> list[Owner | None]:
    """One for each piece; None where nothing tells."""
    first = [_layer_of(p, _by_name(p, trace, names), names) for p in trace.pieces]
    out = list(first)
    loose = [k for k, o in enumerate(out) if o is None or (o.model and not o.part)]
    for _ in range(ROUNDS):
        changed = False
        for k in loose:
            met = _layer_of(trace.pieces[k], _by_readers(trace.pieces[k], first[k], out, trace), names)
            out[k], changed = met, changed or met != out[k]
        if not changed:
            break
    return out


# -- by name ------------------------------------------------------------------------------------------
def _by_name(p: Piece, trace: Trace, names: Names) -> Owner | None:
    if p.name in names.weights:
        return _weight(names.weights[p.name], names)
    if p.name in names.memory:
        return Owner(names.memory[p.name], True, "interface")
    made = _GENERATED.fullmatch(p.file)
    if made and made[1] in names.titles:
        return Owner(names.titles[made[1]], True, "interface" if made[2] == "interface" else "")
    if p.file.startswith("rt.") or p.file == "models.o":
        return Owner(RUNTIME, part=p.file.removeprefix("rt.").removesuffix(".o"))
    if p.file == "memory.o" or p.name.startswith("mb_shared_"):
        return Owner(SHARED, part="memory of all models")
    if p.file and p.file != "weights.o":
        return _of_file(p.file)
    model = _model_of(p.name, names)
    if model is not None:
        return model
    known = trace.defined.get(p.name) or trace.defined.get(_COPY.sub("", p.name))
    return _of_file(known) if known and p.symbol and not p.name.startswith(".L") else None


def _weight(users: Sequence[tuple[str, str, tuple[str, ...]]], names: Names) -> Owner:
    told = tuple(dict.fromkeys(f"{names.titles[p]}: {n}" for p, _, layers in users for n in layers))
    if len({p for p, *_ in users}) > 1:
        return Owner(SHARED, part="weights", users=told)
    layers = {n for *_, found in users for n in found}
    part = layers.pop() if len(layers) == 1 else "weights of several layers"
    return Owner(names.titles[users[0][0]], True, part, told)


def _of_file(file: str) -> Owner:
    archive, bracket, member = file.partition("(")
    if _C_LIBRARY.fullmatch(file):
        return Owner(C_LIBRARY, part=file)
    if bracket:
        return Owner(f"library {archive}", part=member.removesuffix(")"))
    return Owner(APPLICATION, part=file)


def _model_of(name: str, names: Names) -> Owner | None:
    """By the prefixes of the interface's symbols: the longest that fits. There may be a thousand models."""
    titles = names.titles
    if (p := name.removeprefix("mb_info_")) != name and p in titles:
        return Owner(titles[p], True)
    for end in [k for k, c in enumerate(name) if c == "_"][::-1]:
        if name[:end] in titles:
            return Owner(titles[name[:end]], True, "interface")
        if name.startswith("mb_") and name[3:end] in titles:
            return Owner(titles[name[3:end]], True)
    return None


def _layer_of(p: Piece, now: Owner | None, names: Names) -> Owner | None:
    if not p.name.startswith("layer_"):
        return now
    mangled = p.name.removeprefix("layer_")
    found = names.layers.get(mangled) or names.layers.get(_COPY.sub("", mangled)) or []
    if now is not None and not now.model:
        return now
    here = [(prefix, n) for prefix, n in found if now is None or names.titles[prefix] == now.group]
    titles = {prefix for prefix, _ in here}
    return Owner(names.titles[here[0][0]], True, here[0][1]) if len(titles) == 1 else now


# -- by readers ---------------------------------------------------------------------------------------
def _by_readers(p: Piece, now: Owner | None, known: Sequence[Owner | None], trace: Trace) -> Owner | None:
    """What all readers agree on; a model's own piece never leaves the model."""
    met = [o for k in p.readers if (o := known[k]) is not None]
    if now is not None:
        met = [o for o in met if o.group == now.group and o.part]
        if p.name.startswith(("mb_", "layer_")) or not met:
            return now
        parts = {o.part for o in met}
        return replace(now, part=parts.pop() if len(parts) == 1 else "used by several layers")
    if not met:
        return None
    groups = dict.fromkeys(o.group for o in met)
    models = {o.group for o in met if o.model}
    if len(groups) > 1 and len(models) == 1 and p.symbol:  # the application reads a model's data
        return Owner(models.pop(), True, "interface")
    if len(groups) > 1:
        return Owner(SHARED, part="code and data", users=tuple(groups))
    parts = {o.part for o in met}
    if met[0].model:
        part = parts.pop() if len(parts) == 1 else "used by several layers"
        return Owner(met[0].group, True, part)
    return Owner(met[0].group, part=parts.pop() if len(parts) == 1 else "used by several files")


# -- where nothing tells ------------------------------------------------------------------------------
def table_of(section: str) -> str | None:
    """Sections that the linker makes for the loader."""
    return _TABLES.get(section) or ("notes" if section.startswith(".note") else None)
