"""Strings: bytes with one more axis, the room that each has (`ir/strings.py`).

Operators that only move elements move whole strings: they are run on the strings' numbers while the model is read,
and rows are gathered by what comes out; where the numbers are constants, that is a slice or nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.ir.expr import Expr, Fn, Num, call, cast, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.strings import string_shape, to_chars, to_text
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.elementwise import bcast, broadcast_shapes
from monobloc.ops.indexing import gather_const
from monobloc.ops.movement import clamp
from monobloc.ops.shape import reshape
from monobloc.ops.sized import Ragged

Array = np.ndarray
Attrs = dict[str, Any]
CHAR, U8, I64 = DType.CHAR, DType.U8, DType.I64


# -- what operators of other files do with strings -----------------------------------------------------
def of_strings(b: Any, op: OpDef, n: Any) -> Sequence[Any]:
    """An operator that moves or compares elements, on strings"""
    if op.strings == "compares":
        return [equal(b, n.inputs[0], n.inputs[1])]
    at = [k for k, v in enumerate(n.inputs) if v is not None and v.dtype is CHAR]
    room = max(n.inputs[k].shape[-1] for k in at)
    rows, inputs, first = [], list(n.inputs), 0
    for k in at:
        v = n.inputs[k]
        count = v.type.size // v.shape[-1]
        rows.append(reshape(b, widened(b, v, room), [count, room]))
        inputs[k] = b.const(np.arange(first, first + count).reshape(string_shape(v.type)))
        first += count
    table = rows[0] if len(rows) == 1 else b.emit("Concat", rows, {"axis": 0})[0]
    outs = op.from_onnx(b, replace(n, inputs=inputs))
    if op.name in ("Shape", "Size"):
        return outs
    return [Ragged(picked(b, table, v.value), v.counts) if isinstance(v, Ragged) else v and picked(b, table, v)
            for v in outs]


def picked(b: Any, table: Value, numbers: Value) -> Value:
    """Rows of a table of strings by their numbers"""
    if not numbers.type.size:
        return b.const(np.zeros((*numbers.shape, table.shape[1]), "S1"))
    if numbers.const is not None:
        return gather_const(b, table, numbers.const.array, 0)
    return b.one("Gather", table, numbers, axis=0)


def widened(b: Any, v: Value, room: int) -> Value:
    """The same strings with more room"""
    more = room - v.shape[-1]
    if not more:
        return v
    letters = b.one("BitCast", v, to=U8)
    wide = b.one("Pad", letters, pads=[0] * v.type.rank + [0] * (v.type.rank - 1) + [more], mode="constant")
    return b.one("BitCast", wide, to=CHAR)


def equal(b: Any, x: Value, y: Value) -> Value:
    """Whether all letters are the same, with broadcasting"""
    room = max(x.shape[-1], y.shape[-1])
    wide = [b.one("BitCast", widened(b, v, room), to=U8) for v in (x, y)]
    same = b.one("Equal", *wide)
    return b.one("ReduceMin", same, axes=[same.type.rank - 1], keepdims=0)


# -- operators of strings ------------------------------------------------------------------------------
class StringConcat(OpDef):
    """The second string behind the letters of the first; the result has room for both"""

    name = "StringConcat"
    strings = "own"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, y = (v for v in ins if v is not None)
        return [TensorType(CHAR, (*broadcast_shapes(x.shape[:-1], y.shape[:-1]), x.shape[-1] + y.shape[-1]))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, y = (np.broadcast_arrays(*(to_text(v) for v in xs if v is not None)))
        room = sum(v.shape[-1] for v in xs if v is not None)
        return to_chars(x + y, "the result", room)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        (x, y), shapes, rank = xs, [v.shape for v in n.used], n.outputs[0].type.rank - 1
        assert x is not None and y is not None
        first, second = shapes[0][-1], shapes[1][-1]

        def row(f: Fn, k: int, i: Sequence[Expr]) -> Fn:
            return lambda j: bcast(lambda *at: f(*at, j), shapes[k][:-1], rank)(*i)

        def at(*i: Expr) -> Expr:
            a, c, j = row(x, 0, i[:-1]), row(y, 1, i[:-1]), i[-1]
            length = cast(length_of(a, first), I64)
            behind = c(clamp(j - length, second))
            rest = select((j - length).lt(second), behind, Num(0, CHAR))
            return select(j.lt(length), a(clamp(j, first)), rest)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        words = to_chars(np.array([["", "ab", "xyz"], ["é", "longer", "q"]]), "x")
        yield Case((words, words), {})
        yield Case((words, to_chars(np.array(["-", "", "two"]), "y")), {}, "broadcast")
        yield Case((to_chars(np.array(""), "x"), words), {}, "rank0")
        yield Case((np.zeros((0, 4), "S1"), to_chars(np.array(["a"]), "y")), {}, "none")


def length_of(letter: Fn, room: int) -> Expr:
    """How many letters a string has"""
    one, none = Num(1, DType.I32), Num(0, DType.I32)
    return reduce("sum", [room], lambda j: select(call("bitcast", letter(j), dtype=U8).eq(0), none, one))


class StringNormalizer(OpDef):
    """`action` changes the case of letters: ASCII and the two-byte letters of UTF-8, each for one of its length.

    Stopwords decide how many strings come out; where none does, one empty string.
    """

    name = "StringNormalizer"
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        x, action = n.inputs[0], n.attrs.get("case_change_action", "NONE").upper()
        if action not in ("LOWER", "UPPER", "NONE"):
            n.fail(f"has the unknown case_change_action {action!r}")
        shape = string_shape(x.type)
        if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
            n.fail(f"takes strings [C] or [1,C], not {list(shape)}")
        stopwords = n.attrs.get("stopwords", [])
        if stopwords and (x.const is not None or not x.type.size):
            return [b.const(to_chars(self.without(n, stopwords, action), "the result"))]
        return [self.kept(b, n, stopwords, action) if stopwords else cased(b, x, action)]

    def kept(self, b: Any, n: Any, stopwords: list[str], action: str) -> Ragged:
        """The same of strings that only a run knows"""
        room, sensitive = n.inputs[0].shape[-1], n.attrs.get("is_case_sensitive", 0)
        x = reshape(b, n.inputs[0], [-1, room])
        words = [s if sensitive else changed(s, "LOWER") for s in stopwords]
        seen = reshape(b, x if sensitive else cased(b, x, "LOWER"), [-1, 1, room])
        hits = equal(b, seen, b.const(to_chars(np.array(words, object), "the stopwords")))
        keep = b.one("Not", b.one("ReduceMax", hits, axes=[1], keepdims=0))
        at, count = b.emit("NonZero", [keep], outputs=2)
        rows = b.one("Gather", cased(b, x, action), reshape(b, at, [x.shape[0]]), axis=0)
        there = b.one("Less", b.const(np.arange(x.shape[0])[:, None]), count)  # the rest is empty, the first row too
        filled = b.one("BitCast", b.one("Where", there, b.one("BitCast", rows, to=U8), b.const(0, U8)), to=CHAR)
        axis = n.inputs[0].type.rank - 2
        return Ragged(reshape(b, filled, n.inputs[0].shape), {axis: b.one("Max", count, b.const(1, I64))})

    def without(self, n: Any, stopwords: list[str], action: str) -> Array:
        """The strings that are no stopwords; one empty string if there are none"""
        text = to_text(n.const(0, "strings"))
        seen = (lambda s: s) if n.attrs.get("is_case_sensitive", 0) else (lambda s: changed(s, "LOWER"))
        refused = {seen(s) for s in stopwords}
        kept = [changed(s, action) for s in text.ravel().tolist() if seen(s) not in refused] or [""]
        return np.array(kept, object).reshape((1, -1) if text.ndim == 2 else (-1,))

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        assert ins[0] is not None
        return [ins[0].type]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        assert xs[0] is not None
        text = to_text(xs[0])
        new = np.array([changed(s, attrs["action"]) for s in text.ravel().tolist()], object).reshape(text.shape)
        return to_chars(new, "the result", xs[0].shape[-1])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, table, room = xs[0], xs[1], n.outputs[0].shape[-1]
        assert x is not None and table is not None
        I32 = DType.I32

        def at(*i: Expr) -> Expr:
            *row, j = i
            here, before, behind = (
                cast(call("bitcast", x(*row, clamp(j + d, room)), dtype=U8), I32) for d in (0, -1, 1)
            )
            second = is_lead(before) if room > 1 else Num(False, DType.BOOL)
            second = call("land", second, j.gt(0))
            lead, follow = select(second, before, here), select(second, here, behind)
            two = call("lor", second, is_lead(here))
            upper = call("shl", call("band", lead, Num(31, I32)), Num(6, I32))
            wide = call("bor", upper, call("band", follow, Num(63, I32)))
            code = cast(table(clamp(cast(select(two, wide, here), I64), LETTERS)), I32)
            high, low = call("shr", code, Num(6, I32)), call("band", code, Num(63, I32))
            pair = select(second, call("bor", low, Num(0x80, I32)), call("bor", high, Num(0xC0, I32)))
            known = call("lor", two, here.lt(128))
            return call("bitcast", cast(select(known, select(two, pair, code), here), U8), dtype=CHAR)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        words = to_chars(np.array(["Monday", "", "ÄÖÜ ß ñ Ж", "日本 aZ[`{@", "x"]), "x")
        for action in ("LOWER", "UPPER"):
            yield Case((words, letters(action)), {"action": action}, action)
        yield Case((to_chars(np.array([["q"]]), "x"), letters("UPPER")), {"action": "UPPER"}, "one")


def cased(b: Any, x: Value, action: str) -> Value:
    """With letters of one case"""
    out: Value = x
    return out if action == "NONE" else b.one("StringNormalizer", x, b.const(letters(action)), action=action)


LETTERS = 0x800  # code points of one and two bytes


def is_lead(letter: Expr) -> Expr:
    """Whether it begins a letter of two bytes"""
    return call("land", letter.ge(0xC2), letter.le(0xDF))


def letters(action: str) -> Array:
    """What becomes of each letter of one or two bytes: the letter itself where the other has another length"""
    out = np.arange(LETTERS).astype(np.uint16)
    for k in range(LETTERS):
        other = chr(k).lower() if action == "LOWER" else chr(k).upper()
        if len(other) == 1 and ord(other) < LETTERS and (k < 128) == (ord(other) < 128):
            out[k] = ord(other)
    return out


def changed(text: str, action: str) -> str:
    """The same of a Python string"""
    if action == "NONE":
        return text
    table = letters(action)
    return "".join(chr(table[ord(c)]) if ord(c) < LETTERS else c for c in text)


class StringSplit(OpDef):
    """How many parts there are decides the result's shape: strings must be known while the model is read."""

    name = "StringSplit"
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        text, most = to_text(n.const(0, "strings")), int(n.attrs.get("maxsplit", -1))
        delimiter = n.attrs.get("delimiter") or None
        parts = [s.split(delimiter, most) if s else [] for s in text.ravel().tolist()]
        widest = max(map(len, parts), default=0)
        table = np.array([[*p, *[""] * (widest - len(p))] for p in parts], object).reshape(*text.shape, widest)
        counts = np.array([len(p) for p in parts], np.int64).reshape(text.shape)
        return [b.const(to_chars(table, "the result")), b.const(counts)][: n.n_outputs]
