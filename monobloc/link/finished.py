"""Which files of a program a link takes as finished code, and which it optimizes with everything else.

Problem: whatever is changed, LLVM's link-time optimization generates the code of all that it was given anew (Full
LTO), or of all that saw the change (ThinLTO), and nearly all of it is kernels. Idea: a file of layers is closed. Its
kernels are inlined into its layers already, layers are never inlined into their caller, and it calls nothing but its
own functions, other layers and the runtime, which is native too. So there is nothing in it that the rest of the
program could change, but for arguments of layers that are constants; it is compiled by itself, once, and kept by its
content. What calls it, the interface, the application and libraries are optimized as one.

Files that call functions of other kernel libraries are not closed: those are inlined. Nor is it done where the link
costs little anyway, for programs of few files, and for size: constant arguments make layers some percent smaller.
"""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.codegen.lower import Lowered
from monobloc.link.foreign import used_rows
from monobloc.options import Options

FEW = 8  # files of layers: optimizing fewer of them at the link takes less than half a second
_RUN = ".run.c"  # calls the layers


def finished(programs: Sequence[Lowered], o: Options) -> frozenset[str]:
    """Names of the files that are native whatever the link does with the others."""
    if o.lto == "none" or o.opt != "speed":
        return frozenset()
    calls = {r.function for r in used_rows(programs, o)}
    out: list[str] = []
    for p in programs:
        layers = {name: text for name, text in p.files.items() if not name.endswith(_RUN)}
        if len(layers) >= FEW:
            out += [name for name, text in layers.items() if not any(c in text for c in calls)]
    return frozenset(out)
