"""Static archives of every spelling."""

import shutil
import subprocess
from pathlib import Path

import pytest

from monobloc.errors import LinkError
from monobloc.object import ar
from monobloc.object.toolchain import archive

LONG = "a_member_with_a_name_longer_than_sixteen_characters.o"


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Members of odd and even size; contents the archiver does not take for objects."""
    out = [tmp_path / "a.o", tmp_path / LONG, tmp_path / "with space.o"]
    for i, p in enumerate(out):
        p.write_bytes(b"member %d" % i * (i + 1))
    return out


def check(path: Path, parts: list[Path]) -> None:
    found = {m.name.rpartition("/")[2]: bytes(m.data) for m in ar.members(ar.map_file(path), path)}
    assert found == {p.name: p.read_bytes() for p in parts}


def test_our_archiver(parts: list[Path], tmp_path: Path) -> None:
    path = archive(parts, tmp_path / "lib.a")
    check(path, parts)
    first = path.read_bytes()
    for p in parts:
        p.touch()
    assert archive(parts, tmp_path / "again.a").read_bytes() == first


@pytest.mark.parametrize("flags", ["rcs", "rcsT"])
def test_gnu_archiver(parts: list[Path], tmp_path: Path, flags: str) -> None:
    gnu = shutil.which("ar")
    if not gnu:
        pytest.skip("no GNU ar here")
    subprocess.run([gnu, flags, "lib.a", *[p.name for p in parts]], cwd=tmp_path, check=True)
    assert ar.is_archive((tmp_path / "lib.a").read_bytes())
    check(tmp_path / "lib.a", parts)


def test_bsd_names() -> None:
    body = b"name.o\0\0" + b"content."
    head = b"#1/8".ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"644".ljust(8)
    data = ar.ARCHIVE + head + str(len(body)).encode().ljust(10) + b"`\n" + body
    assert [(m.name, bytes(m.data)) for m in ar.members(data)] == [("name.o", b"content.")]


def test_damage_is_told(parts: list[Path], tmp_path: Path) -> None:
    good = archive(parts, tmp_path / "lib.a").read_bytes()
    with pytest.raises(LinkError, match="not an archive"):
        list(ar.members(b"hello"))
    wrong = 0
    for cut in range(9, len(good)):
        try:
            list(ar.members(good[:cut]))
        except LinkError:
            wrong += 1
    assert wrong > len(good) - 12 - len(parts)  # only cuts between members can go unseen
    damaged = good[:8] + good[8:].replace(b"`\n", b"?\n", 1)
    with pytest.raises(LinkError, match="no member header"):
        list(ar.members(damaged))


def test_a_missing_file_of_a_thin_archive(tmp_path: Path) -> None:
    head = b"gone.o/".ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"644".ljust(8)
    (tmp_path / "t.a").write_bytes(ar.THIN + head + b"5".ljust(10) + b"`\n")
    with pytest.raises(LinkError, match="cannot read .*gone.o"):
        list(ar.members(ar.map_file(tmp_path / "t.a"), tmp_path / "t.a"))
