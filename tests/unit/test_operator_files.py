"""An operator is found in its own file and no other is loaded for it; nor is one lost whose place is not known."""

from __future__ import annotations

import subprocess
import sys

import pytest

from monobloc import ops
from monobloc.ops import OpDef, onnx_names, onnx_reader, opdef, registry

LOOK = """
import sys
from monobloc.ops import onnx_reader, opdef
found = opdef({name!r}) if {domain!r} is None else onnx_reader({domain!r}, {name!r})
print(type(found).__module__, "monobloc.ops.tfl_lstm" in sys.modules, "monobloc.ops.regex" in sys.modules)
"""


@pytest.mark.parametrize(("domain", "name", "file"), [(None, "Conv", "conv"), ("", "HardSigmoid", "activations"),
                                                      ("com.microsoft", "FusedConv", "fused")])  # fmt: skip
def test_one_operator_loads_its_own_file(domain: str | None, name: str, file: str) -> None:
    text = LOOK.format(domain=domain, name=name)
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert told.split() == [f"monobloc.ops.{file}", "False", "False"]


def test_looked_up_operators_are_those_of_the_registry() -> None:
    assert all(opdef(name) is op for name, op in registry().items())
    assert all(onnx_reader(*key) is op for key, op in onnx_names().items())
    assert onnx_reader("", "NoSuchOperator") is None
    with pytest.raises(KeyError):
        opdef("NoSuchOperator")


@pytest.mark.parametrize("files", [{}, {"Conv": ["softmax"], "HardSigmoid": ["gone_since"]}])
def test_operators_are_found_that_the_list_of_files_does_not_know(
    files: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "_files", lambda: files)
    for cached in (ops._named, onnx_reader):
        cached.cache_clear()
    found: list[OpDef | None] = [opdef("Conv"), onnx_reader("", "HardSigmoid")]
    assert found == [registry()["Conv"], registry()["HardSigmoid"]]
