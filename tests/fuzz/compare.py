"""Many models in one image, each compared with the answers of its oracles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from builder import Builder

from monobloc.driver import import_model
from monobloc.errors import ErrorList, InternalError, MonoblocError, UnsupportedError
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options

MOST_TRIPS = 8


@dataclass
class Outcome:
    """What a batch showed: wrong answers and crashes, and what was refused with a clear error."""

    bad: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    compared: int = 0
    answers: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # of models that were right


def module(b: Builder, label: str, o: Options) -> Module:
    prefix = f"m_{label}_{b.seed}"
    imported = import_model(b.model(), replace(o, dims=b.dims, max_trips={"": MOST_TRIPS}))
    return Module(imported.graph, prefix, prefix, prefix, more=imported.more)


def check(builders: Sequence[tuple[str, Builder]], folder: Path, o: Options) -> Outcome:
    """Compile all into one library, run each, compare every output."""
    found, kept = Outcome(), []
    for label, b in builders:
        try:
            kept.append((label, b, module(b, label, o)))
            found.bad += [f"{label} {b.seed}: {w}" for w in (b.faults(o) if o.lto == "none" else ())]
        except MonoblocError as e:
            own = any(isinstance(x, InternalError) for x in (e.errors if isinstance(e, ErrorList) else [e]))
            (found.bad if own else found.refused).append(f"{label} {b.seed}: {e}")
        except Exception as e:  # noqa: BLE001 - a bug of ours, whatever it is
            found.bad.append(f"{label} {b.seed}: import: {type(e).__name__}: {e}")
    _link(kept, folder, o, found)
    return found


def _link(kept: Sequence[tuple[str, Builder, Module]], folder: Path, o: Options, found: Outcome) -> None:
    """Link and compare; a batch that does not link is halved until the culprits are alone."""
    if not kept:
        return
    out = folder / f"{kept[0][0]}_{kept[0][1].seed}_{len(kept)}.so"
    try:
        link_modules([m for _, _, m in kept], Request(out, "shared", o))
    except UnsupportedError as e:
        if len(kept) == 1:
            found.refused.append(f"{kept[0][0]} {kept[0][1].seed}: {e}")
            return
    except Exception as e:  # noqa: BLE001
        if len(kept) == 1:
            found.bad.append(f"{kept[0][0]} {kept[0][1].seed}: link: {type(e).__name__}: {str(e)[:600]}")
            return
    if not out.is_file():
        _link(kept[: len(kept) // 2], folder, o, found)
        _link(kept[len(kept) // 2 :], folder, o, found)
        return
    made = {m.name: m for m in (CompiledModel(out, k) for k in range(len(kept)))}  # an image has an order of its own
    for label, b, m in kept:
        bad, got = wrong(made[m.title], b)
        found.bad += [f"{label} {b.seed}: {w}" for w in bad]
        if not bad:
            found.answers[f"{label} {b.seed}"] = got
        found.compared += len(b.outputs)


def wrong(model: CompiledModel, b: Builder) -> tuple[list[str], dict[str, np.ndarray]]:
    """Outputs that differ, first in topological order first; run twice, as buffers must not go stale."""
    answers: dict[str, np.ndarray] = {}
    runs = b.runs()
    for turn, (feeds, want) in enumerate([*runs, runs[0]]):
        try:
            got = model.run(feeds)
        except MonoblocError as e:
            return [f"run {turn}: {e}"], {}
        bad = [f"{o} (run {turn}, {producer(b, o)}): {d}" for o in b.outputs if (d := b.differs(got[o], want[o]))]
        if bad:
            return bad, {}
        answers |= {f"{o} of run {turn}": y for o, y in got.items()}
    return [], answers


def producer(b: Builder, name: str) -> str:
    return next((n.op_type for n in b.nodes if name in n.output), "leaf")
