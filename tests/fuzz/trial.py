"""Batches of wild models through every mode of LTO, each step in a child with a time limit.

An oracle may die of a model (onnxruntime does, of INT_MIN / -1), and so may we: a child that dies or hangs costs one
model. Answers must be those of the oracles, or of either where they differ and the operator stands alone (`disputed`),
and must not change by a bit with the mode of LTO.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from builder import Builder, is_float, reads
from compare import Outcome, check, producer
from generators import wild_model

from monobloc.ops import onnx_names
from monobloc.options import Options

MODES = ("none", "thin", "full")
LIMIT_S = 300
Labelled = tuple[str, Builder]


@dataclass(frozen=True)
class Finding:
    """A model that shows something wrong, and what."""

    label: str
    builder: Builder
    why: str
    mode: str = "none"

    @property
    def kind(self) -> tuple[str, ...]:
        """Findings of one kind have one cause, as a rule."""
        return (*sorted({n.op_type for n in self.builder.nodes}), self.why.split(":")[0])


def in_a_child(work: Callable[..., None], *args: Any, limit: int = LIMIT_S) -> Iterator[Any]:
    """What `work(*args, connection)` sends, as far as it comes; ends early where the child dies or hangs."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe()
    child = context.Process(target=work, args=(*args, its))
    child.start()
    its.close()
    try:
        while mine.poll(limit):
            yield mine.recv()
    except (EOFError, OSError):
        return
    finally:
        child.kill()
        child.join()


# -- models -------------------------------------------------------------------------------------------
def _generate(seeds: Sequence[int], family: str, to: Connection) -> None:
    for s in seeds:
        to.send((s, *wild_model(s, family)))


def models(seeds: Sequence[int], family: str = "") -> tuple[list[Labelled], list[int]]:
    """The models of these seeds, and the seeds of which an oracle died."""
    made: list[Labelled] = []
    died: list[int] = []
    left = list(seeds)
    while left:
        for s, label, b in in_a_child(_generate, left, family, limit=60):
            made.append((label, b))
            left = [x for x in left if x > s]
        if left:
            died.append(left.pop(0))
    return [(label, b) for label, b in made if b.nodes], died


# -- answers ------------------------------------------------------------------------------------------
def _check(batch: Sequence[Labelled], folder: Path, o: Options, to: Connection) -> None:
    to.send(check(batch, folder, o))


def outcome(batch: Sequence[Labelled], folder: Path, o: Options) -> list[tuple[Labelled, Outcome | None]]:
    """A batch's outcome; where it kills its child, those of its halves, and None for the model that does."""
    folder.mkdir(parents=True, exist_ok=True)
    got = next(in_a_child(_check, batch, folder, o), None)
    if got is not None or len(batch) == 1:
        return [(batch[0], got)]
    half = len(batch) // 2
    return [*outcome(batch[:half], folder / "a", o), *outcome(batch[half:], folder / "b", o)]


def failures(batch: Sequence[Labelled], folder: Path, o: Options) -> tuple[list[Finding], dict[str, Any], list[str]]:
    """What is wrong in one mode; answers by model; what was refused."""
    known = {f"{label} {b.seed}": (label, b) for label, b in batch}
    found, answers, refused = [], {}, []
    for (label, b), got in outcome(batch, folder, o):
        if got is None:
            found.append(Finding(label, b, "dies or hangs", o.lto))
            continue
        answers |= got.answers
        refused += got.refused
        for text in got.bad:
            name, _, why = text.partition(": ")
            found.append(Finding(*known[name], why, o.lto))
    return found, answers, refused


def trial(
    batch: Sequence[Labelled], folder: Path, o: Options, modes: Sequence[str] = MODES
) -> tuple[list[Finding], list[str]]:
    """Everything wrong with a batch, and what was refused, with the reason."""
    found, seen, refused = [], {}, set[str]()
    for mode in modes:
        bad, answers, no = failures(batch, folder / mode, replace(o, lto=mode))  # type: ignore[arg-type]
        found += bad
        refused |= set(no)
        for name, got in answers.items():
            first = seen.setdefault(name, got)
            for k in got:
                if bits(got[k]) != bits(first[k]):
                    label, b = next((x, y) for x, y in batch if f"{x} {y.seed}" == name)
                    found.append(Finding(label, b, f"bits of {k} change with the mode of LTO", mode))
                    break
    return [*found, *disputes(batch, folder / "disputed", o)], sorted(refused)


def bits(x: np.ndarray) -> bytes:
    """All of them, with one NaN for all: which it is (sign, payload) is left to the CPU and to LLVM"""
    return (np.where(np.isnan(x), np.array(np.nan, x.dtype), x) if is_float(x.dtype) else x).tobytes()


def disputes(batch: Sequence[Labelled], folder: Path, o: Options) -> list[Finding]:
    """Single nodes on which the oracles differ: one of them is right, or the operator says that neither is."""
    asked = [(f"{label}_{k}", b, second) for label, whole in batch for k, (b, second) in enumerate(whole.disputed)]
    if not asked:
        return []
    seconds = {f"{label} {b.seed}": second for label, b, second in asked}
    found, _, _ = failures([(label, b) for label, b, _ in asked], folder, o)
    return [f for f in found if not _second_is_right(f, seconds[f"{f.label} {f.builder.seed}"], folder, o)]


def _second_is_right(f: Finding, second: dict[str, np.ndarray], folder: Path, o: Options) -> bool:
    if declared(f.builder):
        return True
    b = f.builder.part(f.builder.nodes, [*f.builder.inputs, *f.builder.constants], second)
    found, _, _ = failures([(f.label, b)], folder / "second", o)
    return not found


def declared(b: Builder) -> bool:
    """Whether the operator of a single node promises something that both oracles break."""
    op = onnx_names().get(("", b.nodes[0].op_type))
    return op is not None and any(e.but for e in op.edges)


# -- reduction ----------------------------------------------------------------------------------------
def reduced(f: Finding, folder: Path, o: Options) -> Finding:
    """The smallest part of a model that still fails: one output, and fewer nodes, whose values are given instead."""
    best, o = f, replace(o, lto=f.mode)  # type: ignore[arg-type]
    tries = 0
    for part in _parts(f):
        if len(part.nodes) >= len(best.builder.nodes) and len(part.outputs) >= len(best.builder.outputs):
            continue
        tries += 1
        bad, _, _ = failures([(f.label, part)], folder / f"try{tries}", o)
        if bad:
            best = bad[0]
    return best


def _parts(f: Finding) -> Iterator[Builder]:
    """Ever smaller pieces: the nodes before each output, without the first ones of them."""
    b = f.builder
    for out in b.outputs:
        chain = _before(b, out)
        for start in range(len(chain)):
            nodes = chain[start:]
            made = {o for n in nodes for o in n.output}
            used = [i for i in dict.fromkeys(i for n in nodes for i in reads(n)) if i not in made]
            yield b.part(nodes, used, {out: b.values[out]})


def _before(b: Builder, out: str) -> list[Any]:
    """The nodes that an output needs, in order."""
    need, chain = {out}, []
    for n in reversed(b.nodes):
        if need & set(n.output):
            chain.insert(0, n)
            need |= set(reads(n))
    return chain


def keep(f: Finding, folder: Path, o: Options) -> Path:
    """The model, its inputs and wanted outputs, the seed and how it was built, in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{'-'.join(sorted({n.op_type for n in f.builder.nodes}))[:60]}-{f.builder.seed}"
    path = folder / f"{stem}.onnx"
    path.write_bytes(f.builder.model().SerializeToString())
    arrays = {f"in:{k}": v for k, v in f.builder.feeds().items()}
    arrays |= {f"out:{k}": f.builder.values[k] for k in f.builder.outputs}
    np.savez_compressed(path.with_suffix(".npz"), **arrays)
    made = ", ".join(producer(f.builder, o) for o in f.builder.outputs)
    how = f"--lto {f.mode} --cpu {o.target.cpu} --threads {o.threads} --numerics {o.numerics} --optimize {o.optimize}"
    path.with_suffix(".txt").write_text(f"seed {f.builder.seed}, {f.label}, {how}\n{made}: {f.why}\n")
    return path


__all__ = ["Finding", "disputes", "keep", "models", "reduced", "trial"]
