"""Names of two models that would meet in one program: an error of ours, not the linker's or the C compiler's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from border import model, module
from onnx import helper

from monobloc.errors import LinkError
from monobloc.link.image import link_modules
from monobloc.link.request import Request
from monobloc.options import Options

O = Options(lto="none")  # noqa: E741


def _named(prefix: str, reads: str):  # type: ignore[no-untyped-def]
    made = model([helper.make_node("Add", [reads, "one"], ["y"])], [(reads, "f32", [2])], [("y", "f32", [2])],
                 one=np.float32(1))
    return module(made, prefix, O)


@pytest.mark.parametrize(("one", "other", "why"), [
    (("a", "run"), ("a_in", "x"), "`a_in_run` would be a function of two models, `a` and `a_in`"),
    (("a", "in_u"), ("a_in", "u"), "`a_in_in_u` would be a function of two models"),
    (("Kws", "x"), ("kws", "x"), "`Kws` and `kws` differ in nothing but case"),
])
def test_interfaces_that_meet(one: tuple[str, str], other: tuple[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=why):
        link_modules([_named(*one), _named(*other)], Request(tmp_path / "m.so", "shared", O))
    assert not (tmp_path / "m.so").exists()
