"""Patterns of RegexFullMatch against Python's own, over strings that nearly match."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.ir.strings import to_chars
from monobloc.ops.regex import NoPattern, RegexFullMatch, byte_ranges, tables

SEED = 77
print(f"seed {SEED}")
PATTERNS = [
    "", "abc", "a*", "a+b?", "(a|b)*c", "(?:ab|a)(?:bc|c)", "a{2}", "a{2,}b", "a{0,3}", "[a-c]+", "[^a-c]*", "[]a]+",
    "[^]a]", "[a-]+", r"[\d\-x]+", r"\w+@\w+\.(com|org)", r"\d{1,3}(\.\d{1,3}){3}", ".", ".*b.*", "é+", "[à-ÿ]+",
    "[α-ω日]*", "日.本", r"\x41\x{3b1}", r"\.\*\[", "a|", "(a|b|)c", "^a$", "^a|b$", "(?P<x>a)b", "a*?b+?",
    r"\S+\s\S+", r"\W\D", "[^x]", "((a))*", "(a*)*b", "(a|aa)+", "a{,2}", "[[:digit:]]x", "(ab){2,3}",
    "\U0001f600+", "[\U0001f600-\U0001f64f]", "a.c", r"\ba.*\b", r".*\b", r"\Ba|a\B.", "a$b|a$", "(^a|b)+", r"a\b\.b",
    r"(\w\b.?)*", "($|b)*",
]  # fmt: skip
ALPHABET = "abcxy019-]@. \n_éàαω日本\U0001f600A*[{},org"


def near(pattern: str, rng: np.random.Generator) -> list[str]:
    """Random strings, and pieces of the pattern itself"""
    some = ["".join(rng.choice(list(ALPHABET), rng.integers(0, 6))) for _ in range(150)]
    pieces = [pattern[i:j] for i in range(len(pattern)) for j in range(i, len(pattern) + 1)][:80]
    fixed = ["", "a", "ab", "aab", "abc", "aaa", "bc", "1.2.33.444", "me@x.com", "日x本", "日\n本", "Aα", ".*["]
    return [*some, *pieces, *fixed, "me@x.orgs", "a{,2}", "ababab", "\U0001f600\U0001f600", "7x", "ÿà"]


def python(pattern: str) -> re.Pattern[str]:
    """RE2's words that Python has not"""
    p = pattern.replace("[[:digit:]]", "[0-9]").replace(r"\x{3b1}", "α")
    return re.compile(p.replace("a{,2}", r"a\{,2\}"), re.ASCII)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_python(pattern: str) -> None:
    words = near(pattern, np.random.default_rng([SEED, len(pattern)]))
    got = RegexFullMatch().ref({}, to_chars(np.array(words, object), "x"), *tables(pattern))
    known = python(pattern)
    for word, y in zip(words, got, strict=True):
        assert bool(y) == (known.fullmatch(word) is not None), (pattern, word)


def test_every_letter_has_its_bytes() -> None:
    """Ranges of code points, cut where their bytes want it: every letter inside and none outside"""
    rng = np.random.default_rng(SEED)
    for _ in range(60):
        lo, hi = sorted(int(x) for x in rng.integers(0, [0x900, 0x110000][rng.integers(0, 2)], 2))
        chains = list(byte_ranges(lo, hi))
        for code in {lo, hi, max(lo - 1, 0), min(hi + 1, 0x10FFFF), *map(int, rng.integers(0, 0x110000, 40))}:
            if 0xD800 <= code <= 0xDFFF:
                continue
            raw = chr(code).encode()
            fits = [c for c in chains if len(c) == len(raw)]
            hits = sum(all(a <= x <= b for x, (a, b) in zip(raw, c, strict=True)) for c in fits)
            assert hits == (lo <= code <= hi), (lo, hi, code)


def test_compiled_as_onnxruntime() -> None:
    words = ["me@x.com", "you@y.org", "", "äö@x.com", "a b@x.com", "x" * 64]
    m = parser.parse_model(r"""<ir_version: 10, opset_import: ["" : 20]>
      g (string[6] x) => (bool[6] y) { y = RegexFullMatch<pattern = "[\\w.]+@\\w+\\.(com|org)">(x) }""")
    want = ort.InferenceSession(m.SerializeToString()).run(None, {"x": np.array(words, object)})[0]
    assert monobloc.compile(m, lto="none").run({"x": words})["y"].tolist() == want.tolist()


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "*a", "(?i)a", r"\pL", "a{1001}", "[z-a]", "(?=a)",
                                     "[[:letter:]]", r"\xzz", "(.{999}){900}"])  # fmt: skip
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(NoPattern):
        tables(pattern)


def test_the_message() -> None:
    m = parser.parse_model('<ir_version: 10, opset_import: ["" : 20]> g (string[1] x) => (bool[1] y) '
                           '{ y = RegexFullMatch<pattern = "(?i)a">(x) }')
    with pytest.raises(MonoblocError, match=r"RegexFullMatch.*the pattern '\(\?i\)a' is not supported\n.*has flags"):
        load_onnx(m)
