"""Why a function of a model's header is not there: said in our words, where compilers and linkers say "undefined".

`--bind`, `--from`, `--keep-output`, `--persist` and `--connect` change a model's interface. An application that was
written for the interface before that meets a name that nobody defines, and the tool that fails knows
nothing of flags. The name tells which model and which port was meant, the options tell why it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from monobloc.codegen.names import identifier, mangle
from monobloc.errors import LinkError, ToolchainError
from monobloc.link.connect import is_named, whole_name
from monobloc.link.header import CORE
from monobloc.link.objects import Module
from monobloc.options import Options
from monobloc.wildcards import match

_MISSING = re.compile(r"undefined (?:hidden )?symbol: (\w+)|undeclared (?:function|identifier) '(\w+)'")


def explain(e: ToolchainError, modules: Sequence[Module], asked: Sequence[Options]) -> LinkError | None:
    """The error for the first missing name that is a model's; `asked`: options of the whole, then of single models."""
    names = dict.fromkeys(a or b for a, b in _MISSING.findall(e.output))
    return next((found for n in names if (found := _why(n, modules, asked)) is not None), None)


def check_connected(names: Iterable[str], modules: Sequence[Module], o: Options) -> None:
    """Refuse an application that knows the models that `--connect` joins, and not the program they are now."""
    names = sorted(names)
    if not o.connect or any(n.startswith(f"{identifier(whole_name(o.name))}_") for n in names):
        return
    for name in names:
        if (m := _owner(name, modules)) is not None and (found := _connected(name, m, o)) is not None:
            raise found


def _owner(name: str, modules: Sequence[Module]) -> Module | None:
    """The model of a name, that of the longest prefix: `a_in_x` may be of `a` or of `a_in`."""
    ours = [m for m in modules if name.startswith(f"{m.prefix}_")
            and (name[len(m.prefix) + 1 :] in CORE or name[len(m.prefix) + 1 :].startswith(("in_", "out_")))]
    return max(ours, key=lambda m: len(m.prefix), default=None)


def _why(name: str, modules: Sequence[Module], asked: Sequence[Options]) -> LinkError | None:
    m = _owner(name, modules)
    if m is None:
        return None
    if (found := _connected(name, m, asked[0])) is not None:
        return found
    kind, _, port = name[len(m.prefix) + 1 :].partition("_")
    if kind not in ("in", "out"):
        return None
    ports = (port, port.removesuffix("_at"))
    names = {mangle(n): n for n in ([v.origin or v.name for v in m.graph.inputs] if kind == "in"
                                    else [n for n, _ in m.graph.outputs])}
    gone = _single(kind, m, asked)
    why = next((told for p in ports for own, told in gone.items() if match(own, p)), "") or _many(kind, asked)
    if not why and any(p in names for p in ports):
        return None  # it is there: something else is wrong
    there = [n for p, n in names.items() if p not in ports and p not in gone]
    what = "input" if kind == "in" else "output"
    return LinkError(f"the application calls `{name}`, and `{m.title}` has no such {what}"
                     + (f": {why}" if why else ""),
                     notes=[f"{what}s: {', '.join(there) or 'none'}"],
                     hints=["leave the call out, or the flag"] if why else [])


def _single(kind: str, m: Module, asked: Sequence[Options]) -> dict[str, str]:
    """Ports that a flag names and takes away, by their names in C, and which flag."""
    def own(name: str) -> str:
        return "*".join(text and mangle(text) for text in name.removeprefix(f"{m.title}.").split("*"))

    out: dict[str, str] = {}
    for o in asked:
        for pair in o.persist:
            out[own(pair[kind == "out"])] = f"`--persist {'='.join(filter(None, pair))}` made it the program's own"
        out |= {own(x): f"`--bind {x}` made the input a constant" for x in o.bind if kind == "in"}
    return out


def _many(kind: str, asked: Sequence[Options]) -> str:
    """What takes away every port but those it names."""
    if kind == "in":
        return "`--from` starts behind it" if any(o.start_from for o in asked) else ""
    return "`--keep-output` does not name it" if any(o.keep_outputs for o in asked) else ""


def _connected(name: str, m: Module, o: Options) -> LinkError | None:
    whole = identifier(whole_name(o.name))
    if not is_named(m.title, o.connect) or m.prefix == whole:
        return None
    return LinkError(f"the application calls `{name}`, and `--connect` made `{m.title}` a part of `{whole}`",
                     notes=[f"functions of the whole begin with `{whole}_`, and are in its header"],
                     hints=[f"call those, or pass `--name {m.title}`"])
