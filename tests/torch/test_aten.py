"""Single operators against eager PyTorch, the calls of one family in one module."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import aten_cases
import layer_cases
from aten_cases import SEED
from torch_tools import Calls, differs, eager, imported, interpreted, leaves

CASES = {**aten_cases.CASES, **layer_cases.CASES}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", CASES)
def test_operators_mean_what_pytorch_computes(family: str) -> None:
    cases = CASES[family]
    module = Calls({name: fn for name, (fn, _) in cases.items()}).eval()
    args = ({name: inputs for name, (_, inputs) in cases.items()},)
    found = imported(module, args)
    got = interpreted(found, args)
    wrong = []
    at = iter(got.values())
    for name, (fn, inputs) in cases.items():
        for want in eager(fn, inputs):
            problem = differs(next(at), want)
            if problem:
                wrong.append(f"{name} {problem}")
    assert not wrong, f"seed {SEED}\n" + "\n".join(wrong)
    assert len(got) == sum(len(leaves(fn(*inputs))) for fn, inputs in cases.values())
