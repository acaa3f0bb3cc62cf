"""Names in C: no two names of a model, and no name and no part of the interface, may meet."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from monobloc.codegen.interface import macro_names
from monobloc.codegen.names import FILE_LIMIT, comment, file_name, identifier, mangle

PIECES = ("", "a", "A", "_", "_at", "_x", "_x5f", "_x5f_", "é", ".", "5f", "at")
NAMES = sorted({"".join(p) for p in product(PIECES, repeat=3)} | {"x" * 5000, "x" * 4999 + "y", "*/", '"', "\n"})


def test_no_two_names_meet() -> None:
    made = [mangle(n) for n in NAMES]
    assert len(set(made)) == len(NAMES)
    assert max(map(len, made)) <= 130
    assert all(m.isascii() and m.replace("_", "a").isalnum() for m in made if m)


def test_no_name_meets_the_re_entrant_form_of_another() -> None:
    made = {mangle(n) for n in NAMES}
    assert not [m for m in made if m + "_at" in made]


def test_files_have_names_that_a_file_system_takes() -> None:
    """A long name of a model beside a long name of a node was too long for one."""
    names = [file_name(identifier(m), mangle(n), "c") for m in ("m", "models_" * 40) for n in NAMES]
    assert len(set(names)) == len(names) and max(map(len, names)) <= FILE_LIMIT
    assert all(n.endswith(".c") for n in names)


@pytest.mark.parametrize("name", ["mb", "mb_set", "mb_info_x", "1st", "é", "mb_"])
def test_a_prefix_is_no_name_of_the_runtime(name: str) -> None:
    prefix = identifier(name)
    assert prefix.isidentifier() and prefix != "mb" and not prefix.startswith("mb_")


def test_macros_of_names_that_differ_in_case_only() -> None:
    names = ["a", "A", "b", "aB", "AB", "ab", "ABC"]
    made = macro_names(names)
    assert len(set(made)) == len(names)
    assert made[2] == "B" and made[6] == "ABC"


def test_comments_end_where_they_should() -> None:
    for a, b in combinations(["*/", "/*", "*", "/", "é", "\n", "//"], 2):
        text = comment(a + b + a)
        assert "*/" not in text and "/*" not in text and text.isprintable()
