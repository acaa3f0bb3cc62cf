"""Random models linked in every way: parts, halves, regions, shared arenas, threads, LTO, what the link line fixes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from generators import random_model  # noqa: E402
from linked import WAYS, interleaved  # noqa: E402

from monobloc.options import Options  # noqa: E402

SEED = 1
print(f"seed {SEED}")


@pytest.mark.parametrize(("way", "family"), [("elsewhere", "all"), ("connected", "transformer"),
                                             ("connected", "convnet"),
                                             ("fixed", "recurrent"), ("fixed", "movement")])
def test_one_model_in_every_way(way: str, family: str, tmp_path: Path) -> None:
    bad = WAYS[way](random_model(SEED, family, 6), tmp_path, Options(lto="none", cache=tmp_path / "cache"))
    assert not bad, "\n".join(bad)


def test_models_in_turns(tmp_path: Path) -> None:
    builders = [random_model(SEED + k, family, 5) for k, family in enumerate(("convnet", "types"))]
    bad = interleaved(builders, tmp_path, Options(lto="none", cache=tmp_path / "cache"))
    assert not bad, "\n".join(bad)
