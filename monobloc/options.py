"""What a build is asked for: one record for all verbs, the Python API and `monobloc.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.dims import NamedShape, Sizes, parse_sizes
from monobloc.kernels.foreign import Row
from monobloc.targets import Region, Target, resolve

Lto = Literal["none", "thin", "full"]
Emit = Literal["exe", "shared", "object", "archive", "c"]
EMIT_OF_SUFFIX: dict[str, Emit] = {".so": "shared", ".o": "object", ".a": "archive"}


STRING_ROOM = 64


@dataclass(frozen=True)
class Options:
    """Every option that changes output. Defaults are the command line's."""

    target: Target = field(default_factory=resolve)
    name: str | None = None
    lto: Lto = "thin"
    graph_lto: bool = True
    optimize: Literal["speed", "size"] = "speed"
    numerics: Literal["default", "fast", "strict", "tflm"] = "default"
    threads: int = 1
    shapes: Mapping[str, NamedShape] = field(default_factory=dict)
    dims: Mapping[str, Sizes] = field(default_factory=dict)
    bind: Mapping[str, np.ndarray] = field(default_factory=dict)
    keep_outputs: tuple[str, ...] = ()
    ignore_shapes: bool = False  # that the model's file declares of inner values and outputs
    strings: int = STRING_ROOM  # bytes of room for each string of an input
    max_trips: Mapping[str, int] = field(default_factory=dict)  # iterations of loops at most; "": of all
    max_values: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of integers by name: of all, or of each
    start_from: tuple[str, ...] = ()  # tensors that become inputs: what made them is gone
    persist: tuple[tuple[str, str], ...] = ()  # (input that is state, output of its next value)
    connect: tuple[tuple[str, str], ...] = ()  # (model.input, model.output that feeds it)
    used_by: tuple[Path, ...] = ()  # objects that are not linked here, whose references keep outputs alive
    split_at: tuple[str, ...] = ()  # stage 1: tensors to cut a model at
    partitions: int = 1  # stage 1: or a number of parts
    debug: bool = False
    profile: bool = False  # a clock round every layer
    jobs: int = 0
    cache: Path | None = None
    dump: Path | None = None
    remarks: bool = False  # LLVM's word on inlining and vector loops, for the report; costs a fresh link
    map: Path | None = None  # the linker's map of an executable or shared library
    link_args: tuple[str, ...] = ()  # further words for the linker
    arenas: Literal["shared", "own"] = "shared"  # whether models use each other's memory between their runs
    regions: tuple[Region, ...] = ()  # memories beside the main ones; none: the target's
    large_over: int = 1 << 30  # bytes of weights beyond which code reaches them at any distance
    kernels: tuple[Row, ...] = ()  # functions of foreign libraries that may compute operators
    ram: int | None = None
    flash: int | None = None

    @property
    def memories(self) -> tuple[Region, ...]:
        """The memory regions of this build: those given, else the target's."""
        return self.regions or self.target.regions

    @property
    def opt(self) -> Literal["speed", "size"]:
        return self.optimize


def parse_size(text: str) -> int:
    """`256K`, `1M`, `1.5G` or plain bytes."""
    m = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if not m:
        raise ModelError(f"`{text}` is no size", hints=["examples: 4096, 256K, 1M"])
    return int(float(m[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[m[2].upper()])


def _refuse_twice(flag: str, texts: Sequence[str]) -> None:
    """Of two words for one name the last would win, and nobody would know."""
    said: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        name = text.rpartition("=")[0]
        if name in said:
            raise ModelError(f"two of one: `--{flag} {said[name]}` and `--{flag} {text}`", hints=["leave one out"])
        said[name] = text


def parse_shapes(texts: Sequence[str]) -> dict[str, NamedShape]:
    """`x=1x3x224x224`; `x=` is a scalar; `x=[3x4,5x4]` a sequence, `x=none` an optional without a value;
    `x=n,3,224,224` calls a size by a name that `--dim n=...` gives."""
    _refuse_twice("shape", texts)
    out: dict[str, NamedShape] = {}
    for text in texts:
        name, eq, dims = text.rpartition("=")
        if m := re.fullmatch(r"\[((\d+(x\d+)*)?(,(\d+(x\d+)*)?)*)\]|none", dims):
            items = None if m[1] is None else [[int(d) for d in i.split("x") if d] for i in m[1].split(",")]
            out |= shapes_of_items(name, items if m[1] != "" else [])
            continue
        words = dims.split("," if "," in dims else "x") if dims else []
        if not eq or not all(re.fullmatch(r"\d+|[A-Za-z_]\w*", w) for w in words):
            raise ModelError(f"`--shape {text}` is no shape",
                             hints=["write `--shape NAME=1x3x224x224`, or `--shape NAME=n,3,224,224 --dim n=1..8`"])
        out[name] = tuple(int(w) if w.isdigit() else w for w in words)
    return out


def shapes_of_items(name: str, items: Sequence[Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """A sequence's shapes by the names of its items, `x[0]`, `x[1]`, ..., and `x` if it has none; `x[none]` is an
    optional without a value."""
    if items is None:
        return {f"{name}[none]": ()}
    return {f"{name}[{k}]": tuple(d) for k, d in enumerate(items)} or {name: ()}


def parse_dims(texts: Sequence[str]) -> dict[str, Sizes]:
    """`batch=4`; a set `1,4,8` or a range `1..8` or `32..640:32` stays open; `past+seq` follows from others."""
    _refuse_twice("dim", texts)
    out: dict[str, Sizes] = {}
    for text in texts:
        name, eq, value = text.rpartition("=")
        sizes = parse_sizes(value)
        if not eq or sizes is None:
            raise ModelError(f"`--dim {text}` is no size",
                             hints=["write `--dim NAME=4`, `--dim NAME=1,4,8`, `--dim NAME=1..8` or "
                                    "`--dim NAME=32..640:32`"])
        out[name] = sizes
    return out


def parse_trips(texts: Sequence[str]) -> dict[str, int]:
    """`100`, or `LOOP=100` for one loop"""
    _refuse_twice("max-trips", texts)
    out: dict[str, int] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if not re.fullmatch(r"[1-9]\d{0,8}", value):
            raise ModelError(f"`--max-trips {text}` is no number of iterations",
                             hints=["write `--max-trips 100` or `--max-trips LOOP=100`"])
        out[name] = int(value)
    return out


def parse_max_values(texts: Sequence[str]) -> dict[str, Sequence[int]]:
    """`n=100`, or `shape=1,20,64` for each element"""
    _refuse_twice("max-value", texts)
    out: dict[str, Sequence[int]] = {}
    for text in texts:
        name, eq, values = text.rpartition("=")
        if not eq or not re.fullmatch(r"\d{1,12}(,\d{1,12})*", values):
            raise ModelError(f"`--max-value {text}` is no most of a value",
                             hints=["write `--max-value NAME=100`, or `--max-value NAME=1,20,64` for each element"])
        out[name] = tuple(map(int, values.split(",")))
    return out


def parse_bind(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """`x=3`, `x=1,2,3` or `x=file.npy`"""
    _refuse_twice("bind", texts)
    out = {}
    for text in texts:
        name, eq, value = text.rpartition("=")
        if not eq:
            raise ModelError(f"`--bind {text}` binds nothing", hints=["write `--bind NAME=3` or `NAME=file.npy`"])
        out[name] = _bound(text, value)
    return out


def _bound(text: str, value: str) -> np.ndarray:
    if value.endswith(".npy"):
        try:
            return np.asarray(np.load(value, allow_pickle=False))
        except (OSError, ValueError) as e:
            raise ModelError(f"`--bind {text}`: cannot read `{value}`: {e}") from None
    try:
        numbers = [float(v) if re.search(r"[.eEn]", v) else int(v) for v in value.split(",")]
    except ValueError:
        raise ModelError(f"`--bind {text}`: `{value}` is no number") from None
    return np.array(numbers[0] if len(numbers) == 1 else numbers)
