"""Mutation fuzzing of the model reader: whatever the bytes, an answer or a MonoblocError, soon.

    python tests/unit/frontend_fuzz.py SECONDS MODEL... [--seed N] [--keep DIR]

Half of the mutations change bytes anywhere, half change a field of a message, since byte changes
of a large model mostly hit weights. Memory is limited, every import has ten seconds. Prints its
seed; a model that fails is kept in DIR. Soft failures are errors that came from an unexpected
exception of an operator: they are told as errors of the model, but are worth a better message.
An InternalError is a failure: no file may be answered by a bug of ours.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import Message

INTS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    1 << 31,
    -(1 << 31),
    (1 << 31) - 1,
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
)
MEMORY = 6 << 30
SECONDS_EACH = 10


class Hang(BaseException):
    """An import took too long; not an Exception, so that nobody catches it."""


# -- mutations -------------------------------------------------------------------------------------
def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at, size = rng.randrange(len(out) or 1), rng.choice((1, 2, 8, 64))
        kind = rng.randrange(6)
        if kind == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = out[at : at + size]
        elif kind == 4:
            out[at:at] = rng.randbytes(size)
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def messages(m: Message) -> list[Message]:
    """A message and all messages in it"""
    out = [m]
    for x in out:
        for f, value in x.ListFields():
            if f.message_type is not None:
                out += list(value) if f.is_repeated else [value]
    return out


def mutate_fields(model: onnx.ModelProto, rng: random.Random) -> bytes:
    m = onnx.ModelProto()
    m.CopyFrom(model)
    nodes = messages(m)
    names = [n for x in m.graph.node for n in (*x.input, *x.output)] or ["x"]
    for _ in range(rng.choice((1, 1, 2, 4))):
        target = rng.choice(nodes)
        f = rng.choice(target.DESCRIPTOR.fields)
        try:
            _mutate_field(target, f, names, rng)
        except (ValueError, TypeError, IndexError, AttributeError):
            continue  # a value that the field cannot hold
    return m.SerializeToString()


def _mutate_field(target: Any, f: Any, names: list[str], rng: random.Random) -> None:
    value = getattr(target, f.name)
    if f.message_type is not None:
        if not f.is_repeated:
            target.ClearField(f.name)
        elif len(value) and rng.random() < 0.5:
            del value[rng.randrange(len(value))]
        elif len(value):
            value.append(rng.choice(list(value)))
        return
    new: Any = rng.choice(INTS)
    if f.cpp_type == f.CPPTYPE_STRING:
        new = rng.choice((rng.choice(names), "", "x" * 5000, "\u00fc/.:"))
        if f.type == f.TYPE_BYTES:
            new = new.encode()[: rng.randrange(9)]
    elif f.cpp_type in (f.CPPTYPE_FLOAT, f.CPPTYPE_DOUBLE):
        new = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    elif f.cpp_type == f.CPPTYPE_ENUM:
        new = rng.choice(f.enum_type.values).number
    elif rng.random() < 0.5:
        new = rng.randrange(-3, 30)
    if not f.is_repeated:
        setattr(target, f.name, new)
    elif len(value) and rng.random() < 0.7:
        value[rng.randrange(len(value))] = new
    else:
        value.append(new)


# -- trials ----------------------------------------------------------------------------------------
def trial(data: bytes) -> tuple[str, str]:
    """Outcome of one import: ok, error, soft or FAIL, and what it said"""
    from monobloc.errors import ErrorList, InternalError, MonoblocError
    from monobloc.frontend.importer import load_onnx

    def too_long(*_: Any) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_EACH)
    try:
        load_onnx(data)
        return "ok", ""
    except MonoblocError as e:
        errors = e.errors if isinstance(e, ErrorList) else [e]
        for x in errors:
            if isinstance(x, InternalError):
                return "FAIL", "".join(traceback.format_exception(x.__cause__ or x))
            if x.__cause__ is not None:
                return "soft", "".join(traceback.format_exception(x.__cause__)[-2:])
        str(e)
        return "error", ""
    except (Exception, Hang):
        return "FAIL", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def fuzz(seconds: float, paths: list[Path], seed: int, keep: Path | None) -> int:
    rng = random.Random(seed)
    print(f"seed {seed}", flush=True)
    corpus = [(p.read_bytes(), onnx.load(p)) for p in paths]
    counts: Counter[str] = Counter()
    soft: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data, model = rng.choice(corpus)
        mutated = mutate_bytes(data, rng) if rng.random() < 0.5 else mutate_fields(model, rng)
        if keep is not None:
            (keep / "last.onnx").write_bytes(mutated)  # what a crash of the interpreter leaves
        outcome, said = trial(mutated)
        counts[outcome] += 1
        soft[said] += outcome == "soft"
        if outcome == "FAIL":
            print(f"seed {seed}, trial {counts.total()}:\n{said}")
            if keep is not None:
                (keep / f"fail{counts.total()}.onnx").write_bytes(mutated)
    for said, n in soft.most_common(20):
        print(f"soft, {n} times: {said}" if said else "", end="")
    print(f"{counts.total()} trials: {dict(sorted(counts.items()))}")
    return 1 if counts["FAIL"] else 0


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("seconds", type=float)
    args.add_argument("models", type=Path, nargs="+")
    args.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    args.add_argument("--keep", type=Path)
    a = args.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    return fuzz(a.seconds, a.models, a.seed, a.keep)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
