"""A tiny model, and the command line as a function."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import Command, Told, tiny

from monobloc.cli import run


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], cache: Path) -> Command:
    """`mb("build", "m.onnx")` runs in this process, in a folder of its own, with a cache of the tests' own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def call(*words: object) -> Told:
        capfd.readouterr()
        code = run([str(w) for w in words])
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Told(code, out, err)

    return call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny(tmp_path / "m.onnx")
