"""The cache under damage, races and pressure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monobloc.cache import Cache, default_root, key, tree_digest, write_atomic


def test_a_key_is_its_parts() -> None:
    assert key(a=1, b=("x", b"y")) == key(b=["x", b"y"], a=1)
    different = [key(a=1), key(a="1"), key(a=b"1"), key(a=[1]), key(b=1), key(a=True), key(a=None)]
    assert len(set(different)) == len(different)
    with pytest.raises(TypeError):
        key(a=object())


def test_what_was_put_is_got(tmp_path: Path) -> None:
    c = Cache(tmp_path)
    assert c.get(key(a=1)) is None
    c.put(key(a=1), b"content")
    assert c.get(key(a=1)) == b"content"
    assert c.get_file(key(a=1), tmp_path / "out/file") and not c.get_file(key(a=2), tmp_path / "no")
    assert (tmp_path / "out/file").read_bytes() == b"content" and not (tmp_path / "no").exists()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_a_damaged_entry_is_a_miss_and_goes(tmp_path: Path, damage: str) -> None:
    c, k = Cache(tmp_path), key(a=1)
    c.put(k, b"content" * 100)
    path = c.path(k)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    new = {"flip": data, "cut": data[:-9], "empty": b"", "other": b"\xff" * 700}[damage]
    path.write_bytes(new)
    assert not c.get_file(k, tmp_path / "out") and not (tmp_path / "out").exists() and not path.exists()
    path.write_bytes(new)
    assert c.get(k) is None and not path.exists()
    c.put(k, b"new")
    assert c.get(k) == b"new"


def test_files_go_in_and_out_as_they_are(tmp_path: Path) -> None:
    c, data = Cache(tmp_path / "cache"), bytes(range(256)) * 10_000  # several pieces
    (tmp_path / "in").write_bytes(data)
    c.put_file(key(a=1), tmp_path / "in")
    assert c.get(key(a=1)) == data
    assert c.get_file(key(a=1), tmp_path / "out") and (tmp_path / "out").read_bytes() == data
    assert not c.get_file(key(a=2), tmp_path / "out2")


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    c = Cache(tmp_path, max_bytes=3000)
    for i in range(5):
        c.put(key(a=i), bytes(1000))
        os.utime(c.path(key(a=i)), (i, i))
    assert c.get(key(a=0)) is not None  # using it makes it the newest
    assert c.collect() > 0
    kept = [i for i in range(5) if c.get(key(a=i)) is not None]
    assert kept == [0, 4]


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    c = Cache(tmp_path / "file")
    c.put(key(a=1), b"x")
    assert c.get(key(a=1)) is None


def test_processes_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from monobloc.cache import Cache, key\n"
        "c = Cache(Path(sys.argv[1]))\n"
        "for i in range(60):\n"
        "    k = key(a=i % 3); c.put(k, bytes([i % 3]) * 5000); d = c.get(k)\n"
        "    assert d is None or d == bytes([i % 3]) * 5000\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [p.wait() for p in running] == [0, 0, 0]
    assert not [p for p in tmp_path.rglob(".*")]  # nothing half-written stays


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomic(path, [b"a", memoryview(b"b")])
    with pytest.raises(TypeError):
        write_atomic(path, [b"c", "no bytes"])
    assert path.read_bytes() == b"ab" and list(tmp_path.iterdir()) == [path]


def test_tree_digest_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = tree_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = tree_digest(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({first, second, tree_digest(tmp_path)}) == 3


def test_default_root() -> None:
    assert default_root({"HOME": "/h"}) == Path("/h/.cache/monobloc")
    assert default_root({"HOME": "/h", "XDG_CACHE_HOME": "/c"}) == Path("/c/monobloc")
    assert default_root({"HOME": "/h", "XDG_CACHE_HOME": "rel"}) == Path("/h/.cache/monobloc")
    assert default_root({"HOME": "/h"}, "darwin") == Path("/h/Library/Caches/monobloc")
