"""Random models of every family, against onnxruntime. `python tools/fuzz.py` looks longer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from compare import check  # noqa: E402
from generators import FAMILIES, random_model  # noqa: E402
from hard_models import built  # noqa: E402

from monobloc.options import Options  # noqa: E402
from monobloc.targets import resolve  # noqa: E402

SEED, COUNT = 7000, 4
print(f"seed {SEED}")


@pytest.mark.parametrize("family", FAMILIES)
def test_random_models(family: str, tmp_path: Path) -> None:
    models = [(family, random_model(SEED + k, family)) for k in range(COUNT)]
    found = check(models, tmp_path, Options(target=resolve("host"), lto="none", threads=2, cache=tmp_path / "cache"))
    assert not found.bad, "\n".join(found.bad)
    assert found.compared > 0, "\n".join(found.refused)


@pytest.mark.parametrize("threads", [1, 2])
def test_hard_models(threads: int, tmp_path: Path) -> None:
    found = check(built(), tmp_path, Options(target=resolve("host"), lto="none", threads=threads, cache=tmp_path / "c"))
    assert not found.bad + found.refused, "\n".join(found.bad + found.refused)
