"""Damaged objects: each is a clear error or harmless, never a traceback and never another model's answer."""

from __future__ import annotations

import dataclasses
import random
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from generators import random_model  # noqa: E402

from monobloc.driver import import_model  # noqa: E402
from monobloc.errors import LinkError, MonoblocError  # noqa: E402
from monobloc.link.objects import Module, compile_module, read_module  # noqa: E402
from monobloc.object import elf, fat, toolchain  # noqa: E402
from monobloc.options import Options  # noqa: E402

SEED, COUNT = 90, 400
print(f"seed {SEED}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("object") / "m.o"
    o = Options(lto="none")
    models = (random_model(SEED + k, "convnet") for k in range(100))
    large = next(b for b in models if max(b.values[c].nbytes for c in b.constants) > 4096)  # others are in the text
    graph = import_model(large.model(), o).graph
    obj, _ = compile_module(Module(graph, "m", "m"), o)
    obj.write(path, llvm=toolchain.find_tools().llvm)
    return path


def damaged(data: bytes, r: random.Random) -> bytes:
    b = bytearray(data)
    headers = struct.unpack_from("<Q", b, 40)[0]
    how = r.randrange(4)
    if how == 0:
        return bytes(b[: r.randrange(len(b))])
    low, high = [(0, 64), (headers, len(b)), (0, len(b))][how - 1]
    for _ in range(r.randrange(1, 12)):
        b[r.randrange(low, high)] = r.choice([0, 255, r.randrange(256)])
    return bytes(b)


def read(path: Path) -> None:
    for m in map(read_module, fat.read(path)):
        for v in m.graph.constants():
            assert v.const is not None
            _ = v.const.array


def test_damaged_files(made: Path, tmp_path: Path) -> None:
    r, data, refused = random.Random(SEED), made.read_bytes(), 0
    read(made)
    for k in range(COUNT):
        path = tmp_path / f"{k}.o"
        path.write_bytes(damaged(data, r))
        try:
            read(path)
        except MonoblocError:
            refused += 1
        path.unlink()
    assert refused > COUNT // 5


def test_damaged_weight(made: Path, tmp_path: Path) -> None:
    """One bit of a weight: its name is its content, and caches believe the name."""
    data = bytearray(made.read_bytes())
    parsed = elf.Elf(memoryview(bytes(data)))
    section = max((s for s in parsed.sections if s.name.startswith(".rodata.mb.")), key=lambda s: s.size)
    data[section.offset] ^= 1
    path = tmp_path / "w.o"
    path.write_bytes(data)
    with pytest.raises(LinkError, match="is damaged"):
        read(path)


@pytest.mark.parametrize("field", ["prefix", "title"])
@pytest.mark.parametrize("value", [None, 3, [], "../x", "a b"])
def test_damaged_summary(made: Path, field: str, value: object) -> None:
    if field == "title" and isinstance(value, str):
        pytest.skip("any text is a title")
    (obj,) = fat.read(made)
    for summary in ({**obj.summary, field: value}, {k: v for k, v in obj.summary.items() if k != field}):
        with pytest.raises(LinkError, match="damaged summary"):
            read_module(dataclasses.replace(obj, summary=summary))


def test_damaged_text(made: Path) -> None:
    """Pieces of the graph's text replaced by others."""
    r, (obj,) = random.Random(SEED), fat.read(made)
    words, refused = obj.ir.split(" "), 0
    odd = ["", "1.2.3", '"\\q"', "%", "[[", "-1", "9" * 30, "none"]
    for _ in range(COUNT):
        changed = list(words)
        for _ in range(r.randrange(1, 4)):
            changed[r.randrange(len(words))] = r.choice([r.choice(words), *odd])
        try:
            read_module(dataclasses.replace(obj, ir=" ".join(changed)))
        except MonoblocError:
            refused += 1
    assert refused > COUNT // 2
