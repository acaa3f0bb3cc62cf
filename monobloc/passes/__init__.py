"""Graph rewriting: Pass, the PIPELINE, and the runner that verifies, dumps and times every step.

A pass is a class with a name and `run(graph, ctx) -> bool` (True: it changed something). The order is
a decision to review, so it stands here as a list; everything else about a pass is in its own file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from monobloc.errors import InternalError, MonoblocError
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.spool import Spool
from monobloc.ir.text import is_inline, print_graph
from monobloc.ir.verify import verify
from monobloc.kernels.foreign import Row
from monobloc.targets import Region, Target

Dump = Callable[[str, Graph], None]  # (stem of a file, the graph as it is)


@dataclass
class PassContext:
    """What passes may know and where they say why they did what they did."""

    target: Target
    numerics: str = "default"
    threads: int = 1
    optimize: str = "speed"
    stage: str = "image"  # or "object": weights stay logical, at most permuted
    kernels: tuple[Row, ...] = ()  # functions of foreign libraries that may compute operators
    regions: tuple[Region, ...] = ()  # memories beside the main one
    agreed: dict[tuple[str, ...], int] = field(default_factory=dict)  # what versions of one program choose alike
    why: list[tuple[str, str, str]] = field(default_factory=list)  # (node name, pass, reason)
    times: list[tuple[str, float, bool]] = field(default_factory=list)  # (pass, seconds, changed)
    spool: Spool = field(default_factory=Spool, repr=False, compare=False)  # where large constants wait

    def reason(self, node: Node | str, by: str, text: str) -> None:
        self.why.append((node if isinstance(node, str) else node.name, by, text))


class Pass(Protocol):
    name: str

    def run(self, g: Graph, ctx: PassContext) -> bool: ...


def pipeline() -> list[Pass]:
    """The passes in order. Each line is one idea and one file."""
    from monobloc.passes import (
        blocks,
        canonicalize,
        constants,
        control,
        cse,
        dce,
        decompose,
        exact,
        fold,
        foreign,
        fuse,
        integer,
        layout,
        narrow,
        outputs,
        patterns,
        ranges,
        rounded,
        select,
        share,
        widen,
    )

    return [
        control.Control(),  # a branch that constants choose, a loop that never runs; regions take what they read
        exact.Exact(),  # strict: what is quantized is computed in integers and rounded once
        rounded.Rounded(),  # halves are rounded before a Cast; strict: after every operator
        integer.Integer(),  # quantized products are integer products
        constants.Constants(),  # what depends on constants only is computed
        foreign.Foreign(imported=True),  # kernel rows for operators that the next passes take apart
        canonicalize.Canonicalize(),  # one way to write each thing: Gemm is MatMul, bias is Add
        patterns.Patterns(),  # what exporters spelled out becomes the operator again: LayerNorm, Gelu
        blocks.Blocks(),  # weights of few bits, or with a scale a block, stay packed where they are read
        narrow.Narrow(),  # weights of halves or small integers stay that: products and lookups read them so
        cse.Cse(),  # equal nodes are one, before constants make them differ
        ranges.RangesPass(),  # what a value can be removes clips, checks and casts that do nothing
        fold.Fold(),  # constants meet: BatchNorm into weights, scales into scales
        decompose.Decompose(),  # transposed convolutions are convolutions and an interleaving
        cse.Cse(),  # equal nodes are one
        dce.Dce(),  # what nobody reads goes
        control.Control(),  # a branch that constants choose, a loop that never runs; regions take what they read
        outputs.Outputs(),  # every exported tensor is made by a node of its own
        foreign.Foreign(),  # kernel rows: functions of foreign libraries, where one fits
        widen.Widen(),  # products of halves read float: what is left of their inputs is widened
        # -- below this line nodes are groups: one group becomes one loop nest or one kernel call
        fuse.Fuse(),
        layout.LayoutPass(),  # who wants channels last; the fewest conversions
        dce.Dce(),
        select.Select(),  # a kernel, its tiles and packed weights for every contraction
        share.Share(),  # lookups read what products have stored already: tied embeddings
        # -- below this line nothing changes but order and places: see place.py
    ]


def run_passes(
    g: Graph,
    ctx: PassContext,
    passes: Sequence[Pass] | None = None,
    dump: Dump | None = None,
    check: bool = True,
) -> None:
    """Run passes in order; after each one that changed something verify and dump. All are timed."""
    ctx.spool.settle(_all_constants(g))
    if check:
        verify(g)  # what comes from front ends and other passes
    if dump:
        dump("00.import", g)
    for k, p in enumerate(pipeline() if passes is None else passes, 1):
        start = time.perf_counter()
        try:
            changed = False
            for part in g.tree():
                changed |= p.run(part, ctx)
            if changed:
                ctx.spool.settle(_all_constants(g))
            if check and changed:
                verify(g)
        except MonoblocError:
            raise
        except Exception as e:  # a bug of ours: say where
            raise InternalError(f"pass `{p.name}` failed on graph `{g.name}`: {type(e).__name__}: {e}") from e
        ctx.times.append((p.name, time.perf_counter() - start, changed))
        if dump and changed:
            dump(f"{k:02}.{p.name}", g)


def dump_to(folder: Path) -> Dump:
    """A `dump` that writes `NN.pass.mb` files, and what they name constants by into `weights/`."""
    weights = folder / "weights"
    weights.mkdir(parents=True, exist_ok=True)

    def write(stem: str, g: Graph) -> None:
        (folder / f"{stem}.mb").write_text(print_graph(g) + "\n", encoding="utf-8")
        for v in _all_constants(g):
            path = weights / f"{v.const.key}.bin" if v.const is not None and not is_inline(v) else None
            if path is not None and v.const is not None and not path.exists():
                v.const.array.tofile(path)

    return write


def _all_constants(g: Graph) -> Iterator[Value]:
    yield from g.constants()
    for node in g.nodes:
        for inner in (node.body, *node.regions):
            if inner is not None:
                yield from _all_constants(inner)
