"""C++ names: what is read is right, and what is not stays as it is."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from monobloc.report.demangle import readable

NAMES = {
    "main": "main",
    "_Z3foov": "foo",
    "_ZL5helpeiPKc": "helpe",
    "_ZN3img6Filter5applyERNS_5FrameE": "img::Filter::apply",
    "_ZNK12_GLOBAL__N_16Shrink5applyER5Frame": "(unnamed)::Shrink::apply",
    "_ZN7SamplerC2Ei": "Sampler::Sampler",
    "_ZN7SamplerD0Ev": "Sampler::~Sampler",
    "_ZTVN12_GLOBAL__N_16ShrinkE": "vtable of (unnamed)::Shrink",
    "_ZTI5Stage": "type info of Stage",
    "_ZNSt6vectorIiSaIiEE9push_backERKi": "_ZNSt6vectorIiSaIiEE9push_backERKi",
    "_ZplRK1AS1_": "_ZplRK1AS1_",
    "_ZN3foo": "_ZN3foo",
    "_Z99x": "_Z99x",
    "_ZN": "_ZN",
}


@pytest.mark.parametrize("symbol", NAMES)
def test_names(symbol: str) -> None:
    assert readable(symbol) == NAMES[symbol]


def test_agrees_with_binutils() -> None:
    tool = shutil.which("c++filt")
    if tool is None:
        pytest.skip("no c++filt here")
    for symbol in NAMES:
        ours = readable(symbol)
        if ours != symbol and not symbol.startswith("_ZT"):
            theirs = subprocess.run([tool, symbol], capture_output=True, text=True, check=True).stdout
            theirs = theirs.strip().replace("(anonymous namespace)", "(unnamed)")
            assert theirs.startswith(ours + "("), theirs
