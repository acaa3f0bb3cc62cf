"""RegexFullMatch: a pattern becomes a table while the model is read, and a run follows it byte by byte.

The pattern is parsed (RE2's syntax, as onnxruntime's), made an automaton of bytes (Thompson's construction; letters of
several bytes are chains of ranges), and that a deterministic one. Full matches need no preferences: greedy and lazy
repeats are the same. Bytes that no edge tells apart are one column. What a place must be (`^`, `\\b`) is known from the
byte before it, which is part of a state, and from the byte that comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monobloc.ir.graph import Node, Value
from monobloc.ir.strings import string_shape, to_chars
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef

Array = np.ndarray
Ranges = tuple[tuple[int, int], ...]  # of code points, first and last
# ("set", ranges), ("cat", parts), ("or", parts), ("rep", part, least, most or None), ("at", place)
Tree = tuple[Any, ...]
EDGE, OTHER, LETTER = range(3)  # what stands before or behind a place: the end of the string, a byte, a byte of a word
PLACES = {"^": "^", "$": "$", r"\A": "^", r"\z": "$", r"\b": "b", r"\B": "B"}
TOP = 0x10FFFF
MAX_PARTS, MAX_STATES = 20_000, 4096
DIGIT, SPACE = ((48, 57),), ((9, 10), (12, 13), (32, 32))
LOWER, UPPER = ((97, 122),), ((65, 90),)
WORD = (*DIGIT, *UPPER, (95, 95), *LOWER)
CLASSES: dict[str, Ranges] = {
    "alnum": (*DIGIT, *UPPER, *LOWER), "alpha": (*UPPER, *LOWER), "ascii": ((0, 127),), "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)), "digit": DIGIT, "graph": ((33, 126),), "lower": LOWER, "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)), "space": ((9, 13), (32, 32)), "upper": UPPER, "word": WORD,
    "xdigit": (*DIGIT, (65, 70), (97, 102)),
}  # fmt: skip
LETTERS = {"d": DIGIT, "s": SPACE, "w": WORD}
CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


class NoPattern(ValueError):
    """What is wrong with a pattern, or not done"""


def without(ranges: Ranges) -> Ranges:
    """All other code points"""
    out, at = [], 0
    for lo, hi in sorted(ranges):
        if lo > at:
            out.append((at, lo - 1))
        at = max(at, hi + 1)
    return (*out, (at, TOP)) if at <= TOP else tuple(out)


# -- parsing ------------------------------------------------------------------------------------------
class Parser:
    """One pass over the pattern, left to right"""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0

    def parse(self) -> Tree:
        tree = self.choice()
        if self.at < len(self.text):
            raise NoPattern("has a `)` too many")
        return tree

    def next(self) -> str:
        if self.at >= len(self.text):
            raise NoPattern("ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def maybe(self, word: str) -> bool:
        found = self.text.startswith(word, self.at)
        self.at += len(word) if found else 0
        return found

    def choice(self) -> Tree:
        parts = [self.sequence()]
        while self.maybe("|"):
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else ("or", parts)

    def sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self.repeated())
        return ("cat", parts)

    def repeated(self) -> Tree:
        part = self.atom()
        while True:
            if self.maybe("*"):
                part = ("rep", part, 0, None)
            elif self.maybe("+"):
                part = ("rep", part, 1, None)
            elif self.maybe("?"):
                part = ("rep", part, 0, 1)
            elif counts := self.counts():
                part = ("rep", part, *counts)
            else:
                return part
            self.maybe("?")  # lazy: the same for a full match

    def counts(self) -> tuple[int, int | None] | None:
        """`{m}`, `{m,}` or `{m,n}`; anything else in braces stands for itself"""
        end = self.text.find("}", self.at)
        if not self.text.startswith("{", self.at) or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None
        least, most = int(low), int(high) if high else None if comma else int(low)
        if least > 1000 or (most is not None and (most > 1000 or most < least)):
            raise NoPattern(f"repeats {self.text[self.at : end + 1]}, which RE2 refuses")
        self.at = end + 1
        return least, most

    def atom(self) -> Tree:
        for word, place in PLACES.items():
            if self.maybe(word):
                return ("at", place)
        c = self.next()
        if c == "(":
            return self.group()
        if c == "[":
            return ("set", self.bracket())
        if c == ".":
            return ("set", without(((10, 10),)))
        if c in "*+?":
            raise NoPattern(f"has a `{c}` with nothing to repeat")
        return ("set", self.escape() if c == "\\" else ((ord(c), ord(c)),))

    def group(self) -> Tree:
        self.depth += 1
        if self.depth > 100:
            raise NoPattern("has groups more than 100 deep")
        if self.maybe("?"):
            if self.maybe("P<") or self.maybe("<"):
                while self.next() != ">":
                    pass
            elif not self.maybe(":"):
                raise NoPattern("has flags or an assertion, `(?`, which is not supported")
        tree = self.choice()
        if not self.maybe(")"):
            raise NoPattern("lacks a `)`")
        self.depth -= 1
        return tree

    def escape(self) -> Ranges:
        c = self.next()
        if c.lower() in LETTERS:
            return LETTERS[c] if c.islower() else without(LETTERS[c.lower()])
        if c in CONTROLS:
            return ((CONTROLS[c], CONTROLS[c]),)
        if c == "x":
            digits = "".join(iter(self.next, "}")) if self.maybe("{") else self.next() + self.next()
            try:
                code = int(digits, 16)
            except ValueError:
                raise NoPattern(f"has the escape `\\x{digits}`, which is no number") from None
            return ((code, code),)
        if c.isalnum():
            raise NoPattern(f"has `\\{c}`, which is not supported")
        return ((ord(c), ord(c)),)

    def bracket(self) -> Ranges:
        negative, out = self.maybe("^"), list[tuple[int, int]]()
        while not out or not self.maybe("]"):  # the first one stands for itself
            if self.maybe("[:"):
                name = "".join(iter(self.next, ":"))
                known = CLASSES.get(name.removeprefix("^"))
                if known is None or self.next() != "]":
                    raise NoPattern(f"has the class `[:{name}:]`, which is none")
                out += without(known) if name.startswith("^") else known
                continue
            first = self.member()
            single = len(first) == 1 and first[0][0] == first[0][1]
            if single and not self.text.startswith("-]", self.at) and self.maybe("-"):
                last = self.member()
                if len(last) != 1 or last[0][0] != last[0][1] or last[0][0] < first[0][0]:
                    raise NoPattern("has a range that ends before it begins")
                first = ((first[0][0], last[0][0]),)
            out += first
        return without(tuple(out)) if negative else tuple(out)

    def member(self) -> Ranges:
        c = self.next()
        return self.escape() if c == "\\" else ((ord(c), ord(c)),)


# -- an automaton of bytes ----------------------------------------------------------------------------
def byte_ranges(lo: int, hi: int) -> Iterator[list[tuple[int, int]]]:
    """UTF-8 of the code points from lo to hi as sequences of ranges of bytes"""
    for end in (0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF):
        if lo <= end < hi:
            yield from byte_ranges(lo, end)
            yield from byte_ranges(end + 1, hi)
            return
    if 0xD800 <= lo <= 0xDFFF:  # halves of pairs are no letters
        return
    for k in (1, 2, 3):  # all continuation bytes that vary must vary over all of their values
        low = (1 << 6 * k) - 1
        if hi > 0x7F and lo & ~low != hi & ~low:
            if lo & low:
                yield from byte_ranges(lo, lo | low)
                yield from byte_ranges((lo | low) + 1, hi)
                return
            if hi & low != low:
                yield from byte_ranges(lo, (hi & ~low) - 1)
                yield from byte_ranges(hi & ~low, hi)
                return
    yield list(zip(chr(lo).encode(), chr(hi).encode(), strict=True))


@dataclass
class Automaton:
    """Edges that take a byte, and edges that take none, which may want a place; the last state accepts"""

    edges: list[list[tuple[int, int, int]]] = field(default_factory=list)
    free: list[list[tuple[int, str]]] = field(default_factory=list)
    places: bool = False  # whether any is wanted

    def state(self) -> int:
        if len(self.edges) >= MAX_PARTS:
            raise NoPattern(f"has more than {MAX_PARTS} parts, which is not supported")
        self.edges.append([])
        self.free.append([])
        return len(self.edges) - 1

    def add(self, tree: Tree, start: int) -> int:
        """States that match the tree from `start` on; the state behind it"""
        kind, *rest = tree
        if kind == "cat":
            for part in rest[0]:
                start = self.add(part, start)
            return start
        end = self.state()
        if kind == "at":
            self.places = True
            self.free[start].append((end, rest[0]))
        elif kind == "set":
            for lo, hi in rest[0]:
                for chain in byte_ranges(lo, min(hi, TOP)):
                    self.chain(start, chain, end)
        elif kind == "or":
            for part in rest[0]:
                self.skip(self.add(part, start), end)
        else:
            part, least, most = rest
            self.repeat(part, least, most, start, end)
        return end

    def skip(self, start: int, end: int) -> None:
        self.free[start].append((end, ""))

    def chain(self, start: int, bytes_: list[tuple[int, int]], end: int) -> None:
        for lo, hi in bytes_[:-1]:
            middle = self.state()
            self.edges[start].append((lo, hi, middle))
            start = middle
        self.edges[start].append((*bytes_[-1], end))

    def repeat(self, part: Tree, least: int, most: int | None, start: int, end: int) -> None:
        for _ in range(least):
            start = self.add(part, start)
        if most is None:
            loop = self.state()
            self.skip(start, loop)
            self.skip(self.add(part, loop), loop)
            self.skip(loop, end)
            return
        for _ in range(most - least):
            self.skip(start, end)
            start = self.add(part, start)
        self.skip(start, end)

    def closure(self, states: frozenset[int], before: int, behind: int) -> set[int]:
        """All states that are reached without a byte at a place between two"""
        border = (before == LETTER) != (behind == LETTER)
        holds = {"": True, "^": before == EDGE, "$": behind == EDGE, "b": border, "B": not border}
        out, stack = set(states), list(states)
        while stack:
            for s, place in self.free[stack.pop()]:
                if holds[place] and s not in out:
                    out.add(s)
                    stack.append(s)
        return out


def tables(pattern: str) -> tuple[Array, Array, Array]:
    """Of each byte its column; of each state its row of next states; of each state whether it accepts. State 0 is lost,
    state 1 the first."""
    a = Automaton()
    start = a.state()
    end = a.add(Parser(pattern).parse(), start)
    words = [c for lo, hi in WORD for c in (lo, hi + 1)] if a.places else []
    cuts = sorted({0, 256, *words} | {c for es in a.edges for lo, hi, _ in es for c in (lo, hi + 1)})
    column = np.searchsorted(np.array(cuts[1:]), np.arange(256), side="right").astype(np.uint8)
    first = (frozenset({start}), EDGE if a.places else OTHER)
    number = {first: 1}  # states with what stands before them
    rows: list[list[int]] = [[0] * (len(cuts) - 1)]
    queue = [first]
    for states, before in queue:
        row = []
        for byte in cuts[:-1]:
            kind = LETTER if a.places and any(lo <= byte <= hi for lo, hi in WORD) else OTHER
            now = a.closure(states, before, kind)
            to = (frozenset(t for s in now for lo, hi, t in a.edges[s] if lo <= byte <= hi), kind)
            if to[0] and to not in number:
                if len(number) >= MAX_STATES:
                    raise NoPattern(f"needs more than {MAX_STATES} states, which is not supported")
                number[to] = len(number) + 1
                queue.append(to)
            row.append(number.get(to, 0))
        rows.append(row)
    accepts = np.array([False, *(end in a.closure(*s, EDGE) for s in number)])
    return column, np.array(rows, np.uint16), accepts


class RegexFullMatch(OpDef):
    """Whether a string is matched from its first to its last letter; x, and the tables of the pattern"""

    name = "RegexFullMatch"
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        try:
            found = tables(n.attrs.get("pattern", ""))
        except NoPattern as e:
            n.unsupported(f"the pattern {n.attrs.get('pattern', '')!r}", note=f"it {e}")
        return b.emit(self.name, [n.inputs[0], *(b.const(t) for t in found)], {})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        assert ins[0] is not None
        return [TensorType(DType.BOOL, string_shape(ins[0].type))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, column, rows, accepts = xs
        assert x is not None and column is not None and rows is not None and accepts is not None
        letters = x.view(np.uint8).reshape(x.shape)
        state, live = np.ones(x.shape[:-1], np.int64), np.ones(x.shape[:-1], bool)
        for k in range(x.shape[-1]):
            live = live & (letters[..., k] != 0)
            state = np.where(live, rows[state, column[letters[..., k]]], state)
        return np.asarray(accepts[state])

    def routine(self, n: Node, c: Any) -> str:
        x, column, rows, accepts = n.used
        room = x.shape[-1]
        return f"""\
const uint8_t *x = {c.ptr(x)}, *column = {c.ptr(column)}, *accepts = {c.ptr(accepts)};
const uint16_t *rows = {c.ptr(rows)};
uint8_t *y = {c.ptr(n.outputs[0])};
for (long i = 0; i < {n.outputs[0].type.size}; i++) {{
  unsigned state = 1;
  for (long k = 0; k < {room} && x[i * {room} + k]; k++)
    state = rows[state * {rows.shape[1]}u + column[x[i * {room} + k]]];
  y[i] = accepts[state];
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        words = to_chars(np.array([["ab", "", "aab12"], ["é日b", "abc", "xyz"]]), "x")
        for pattern in ("a*b[0-9]{0,2}", "", ".{2,3}", "(ab|xy)[^a-b]?"):
            yield Case((words, *tables(pattern)), {}, pattern)
