"""Each program is lowered once per build.

The headers that an application includes are written before it is known which outputs it reads. If it
reads all of them, the link wants the very same program again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from monobloc.codegen.lower import Lowered
from monobloc.codegen.versions import lower_all
from monobloc.ir.graph import Graph
from monobloc.ir.spool import Spool
from monobloc.ir.text import copy_graph
from monobloc.link.objects import Module, context, module_key
from monobloc.options import Options
from monobloc.passes import Dump

SMALL = 1 << 9  # bytes of a weight that is not worth a place in a file


@dataclass
class Lowerings:
    """What was lowered so far in this build."""

    made: dict[str, Lowered] = field(default_factory=dict)
    spool: Spool = field(default_factory=Spool)  # one file for the weights of all

    def of(self, m: Module, o: Options, dump: Dump | None = None) -> Lowered:
        """A module's program; with `dump`, made anew and every step written."""
        ctx = replace(context(o, "image"), spool=self.spool)
        known = f"{module_key(m)} {ctx} {o.profile}"
        if dump is not None or known not in self.made:
            self.made[known] = lower_all(map(copy_graph, m.graphs), ctx, m.prefix, m.title, dump, o.profile)
            self._put_away([*m.graphs, *(x.graph for x in self.made[known].versions)])
        return self.made[known]

    def _put_away(self, graphs: Iterable[Graph]) -> None:
        """Of a program that is done no weights stay in memory, however small: there may be a thousand others."""
        for part in (part for g in graphs for part in g.tree()):
            self.spool.settle(part.constants(), SMALL)
