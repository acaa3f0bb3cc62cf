"""Images of the hand-written model, built once per session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from build import build

Builder = Callable[..., Path]


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """`image("exe", THREADS=1)`: the path of that image."""
    made: dict[tuple[object, ...], Path] = {}

    def get(kind: str, arch: str = "x86_64", link: tuple[str, ...] = (), **more: object) -> Path:
        key = (kind, arch, link, *sorted(more.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(f"{kind}-{arch}")
            made[key] = build(folder, kind, arch, link, **more)
        return made[key]

    return get
