"""Where in the user's module a call comes from, and the calls that nobody reads, told together."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from monobloc.errors import UnsupportedError

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)')


def module_path(n: Any) -> str:
    """`encoder.layers.0.attn`: the submodule that makes a call; empty at the top"""
    stack = n.meta.get("nn_module_stack") or {}
    found = [str(v[0]) for v in stack.values()] if hasattr(stack, "values") else []
    path = found[-1] if found else ""
    return re.sub(r"^L\['self'\]\.?|^L__self__\.?", "", path).split("@")[0]


def label(n: Any) -> str:
    """What a node is called: by its submodule and its name in the program"""
    path = module_path(n)
    return f"{path}/{n.name}" if path else str(n.name)


def place(n: Any) -> str:
    """In words: the submodule, its class, and the user's line"""
    path, stack = module_path(n), n.meta.get("nn_module_stack") or {}
    kind = str(getattr(list(stack.values())[-1][1], "__name__", list(stack.values())[-1][1])) if stack else ""
    words = [f"`{path}` ({kind.rpartition('.')[2]})" if path else ""]
    frames = _FRAME.findall(n.meta.get("stack_trace") or "")
    own = [f for f in frames if "/torch/" not in f[0]] or frames
    if own:
        file, line, code = own[-1]
        words.append(f"{PurePath(file).name} line {line}: `{code.strip()[:100]}`")
    return ", ".join(w for w in words if w)


@dataclass
class Missing:
    """Operators that no table names, and the calls of each"""

    found: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, name: str, n: Any) -> None:
        self.found.setdefault(name, []).append(n)

    def errors(self) -> list[UnsupportedError]:
        out = []
        for name, nodes in sorted(self.found.items(), key=lambda x: -len(x[1])):
            times = f" ({len(nodes)} times)" if len(nodes) > 1 else ""
            places = list(dict.fromkeys(p for p in map(place, nodes) if p))
            more = [f"and in {len(places) - 3} other places"] if len(places) > 3 else []
            out.append(UnsupportedError(f"the operator {full_name(name)}{times} is not supported",
                                        notes=[*(f"in {p}" for p in places[:3]), *more]))
        return out


def full_name(name: str) -> str:
    return f"aten.{name}" if name.count(".") == 1 else name
