"""The objects of `shop.py`'s models are made once for all modules that link them."""

from __future__ import annotations

from pathlib import Path

import pytest
from shop import Shop


@pytest.fixture(scope="session")
def shop_models(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    return Shop(tmp_path_factory.mktemp("models"), cache).folder


@pytest.fixture
def shop(shop_models: Path, tmp_path: Path, cache: Path) -> Shop:
    return Shop(tmp_path, cache, shop_models)
