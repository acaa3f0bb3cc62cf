"""Every kind of bad model gives its one clear message: the text in `expected/`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import CASES, EXPECTED, message


@pytest.mark.parametrize("name", CASES)
def test_message(name: str, tmp_path: Path) -> None:
    got = message(name, tmp_path)
    assert got, "nothing was found wrong"
    assert got == (EXPECTED / f"{name}.txt").read_text(), (
        "the message changed; if that is right: python tests/errors/cases.py --update"
    )


def test_expected_texts_all_belong_to_a_case() -> None:
    assert {p.stem for p in EXPECTED.iterdir()} == set(CASES)
    assert len(CASES) >= 25
