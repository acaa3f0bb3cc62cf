"""A link is done once for the same files; whatever else decides it makes it be done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from monobloc.cache import Cache
from monobloc.object import toolchain
from monobloc.object.toolchain import CompileJob, LinkJob
from monobloc.targets import resolve

TARGET = resolve("x86_64-linux")


class Linker:
    """How often lld ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        run = toolchain.run

        def counted(command, **more):  # type: ignore[no-untyped-def]
            self.runs += "ld.lld" in command
            return run(command, **more)

        monkeypatch.setattr(toolchain, "run", counted)


def compiled(text: str, out: Path) -> None:
    toolchain.compile_all([CompileJob(text.encode(), out, TARGET, extra=("-fvisibility=default",))], 1)


@pytest.fixture
def job(tmp_path: Path) -> LinkJob:
    compiled("int f(void); int _start(void) { return f(); }", tmp_path / "a.o")
    compiled("int f(void) { return 1; } char room[1 << 16] = {1};", tmp_path / "b.o")
    (tmp_path / "in.ld").write_text(f"INPUT({tmp_path}/b.o)\n")
    inputs = (tmp_path / "a.o", tmp_path / "in.ld")
    return LinkJob("exe", inputs, tmp_path / "out", TARGET, entry="_start", map=tmp_path / "map")


def test_the_same_again(job: LinkJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linker, cache = Linker(monkeypatch), Cache(tmp_path / "cache")
    assert job.map is not None
    toolchain.link(job, cache=cache)
    first, text, mode = job.out.read_bytes(), job.map.read_text(), job.out.stat().st_mode
    assert "_start" in text
    job.out.unlink()
    job.map.unlink()
    seen = []
    toolchain.link(job, cache=cache, finish=lambda made, link_map: seen.append((made.read_bytes(), bool(link_map))))
    assert linker.runs == 1 and seen == [(first, True)]
    assert (job.out.read_bytes(), job.map.read_text(), job.out.stat().st_mode) == (first, text, mode)


def test_what_is_not_on_the_line_counts(job: LinkJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`b.o` is named by a linker script only."""
    linker, cache = Linker(monkeypatch), Cache(tmp_path / "cache")
    toolchain.link(job, cache=cache)
    first = job.out.read_bytes()
    compiled("int f(void) { return 2; }", tmp_path / "b.o")
    toolchain.link(job, cache=cache)
    assert linker.runs == 2 and job.out.read_bytes() != first


@pytest.mark.parametrize("change", ["content", "flags", "entry", "map"])
def test_another_link(change: str, job: LinkJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linker, cache = Linker(monkeypatch), Cache(tmp_path / "cache")
    toolchain.link(job, cache=cache)
    if change == "content":
        data = bytearray((tmp_path / "a.o").read_bytes())
        (tmp_path / "a.o").write_bytes(data + b"\0")
    changed = {"flags": replace(job, pie=False), "entry": replace(job, entry="f"), "map": replace(job, map=None)}
    toolchain.link(changed.get(change, job), cache=cache)
    assert linker.runs == 2


def test_links_that_more_decides(job: LinkJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linker, cache = Linker(monkeypatch), Cache(tmp_path / "cache")
    (tmp_path / "thin.a").write_bytes(b"!<thin>\n")
    wanting = replace(job, libs=("b",), libdirs=(tmp_path,))
    toolchain.archive([tmp_path / "b.o"], tmp_path / "libb.a")
    for other in (wanting, replace(job, inputs=(*job.inputs, tmp_path / "thin.a")),
                  replace(job, inputs=(*job.inputs, "--defsym=x=1"))):
        before = linker.runs
        toolchain.link(other, cache=cache)
        toolchain.link(other, cache=cache)
        assert linker.runs == before + 2
    toolchain.link(job)
    toolchain.link(job)
    assert linker.runs == 8
