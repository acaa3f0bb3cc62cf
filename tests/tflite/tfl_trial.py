"""Random operators, tried: one image of all that LiteRT answers and we take, every bit of every integer compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tfl_random
import tfl_random_more
from tfl_ask import asked
from tfl_single import Case, graph_of

from monobloc.errors import ErrorList, MonoblocError
from monobloc.ir.interp import interpret
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options

KINDS = (*tfl_random.KINDS, *tfl_random_more.KINDS)


@dataclass
class Found:
    """What came of a trial, by the names of cases"""

    wrong: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # by us
    unknown: dict[str, str] = field(default_factory=dict)  # to LiteRT
    compared: int = 0


def some(seed: int, count: int) -> list[Case]:
    """One case per seed, whose results are not empty"""
    cases = []
    for k in range(seed, seed + count):
        kind = KINDS[k % len(KINDS)]
        case = kind(np.random.default_rng(k), f"seed {k} {kind.__name__}")
        cases += [case] if all(all(q.shape) for q in case.outs) else []
    return cases


def trial(cases: Sequence[Case], folder: Path, options: Options) -> Found:
    found, answers = Found(), dict[str, list[np.ndarray]]()
    models = [c.model() for c in cases]
    told = asked([(data, feeds[0]) for data, feeds in models], [c.optimized for c in cases])
    for c, answer in zip(cases, told, strict=True):
        if isinstance(answer, str):
            found.unknown[c.name] = answer
        elif (why := _refused(c)) is not None:
            found.refused[c.name] = why
        else:
            answers[c.name] = answer
    known = [c for c in cases if c.name in answers]
    found.compared = len(known)
    g, feeds = graph_of(known)
    out = folder / "random.so"
    link_modules([Module(g, "random", "random")], Request(out, "shared", options))
    for how, got in (("image", CompiledModel(out).run(feeds[0])), ("reference", interpret(g, feeds[0]))):
        for k, c in enumerate(known):
            found.wrong += [f"{c.name} ({how}): {w}" for j, want in enumerate(answers[c.name])
                            if (w := _wrong(c, got[f"c{k}.y{j}"], want))]
    return found


def _refused(case: Case) -> str | None:
    try:
        graph_of([case])
    except (ErrorList, MonoblocError) as e:
        return str(e)
    return None


def _wrong(case: Case, got: np.ndarray, want: np.ndarray) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{case.op} is {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    same = got == want
    if got.dtype.kind == "f":
        same = np.isclose(got, want, case.rtol, case.atol, equal_nan=True)
    if same.all():
        return ""
    kinds = ", ".join(str(q.dtype.__name__) for q in case.ins if hasattr(q, "dtype") and hasattr(q, "state"))
    return f"{case.op} of {kinds}: {got[~same][:5]} instead of {want[~same][:5]} ({(~same).sum()} of {same.size})"
