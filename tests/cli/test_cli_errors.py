"""Exit codes, messages, terminals: 1 the user's error, 2 usage, 70 ours; never a traceback."""

from __future__ import annotations

import os
import pty
import re
import shutil
import time
from pathlib import Path

import pytest
from cli_tools import Command, program

from monobloc import driver


@pytest.mark.parametrize("words", [
    (), ("frob",), ("build",), ("build", "m.onnx", "--frob"), ("build", "m.onnx", "--lto", "some"),
    ("build", "m.onnx", "--shape", "x"), ("build", "m.onnx", "--dim", "n=4..1"), ("build", "m.onnx", "--ram", "lots"),
    ("build", "m.onnx", "--threads", "0"), ("build", "m.onnx", "--threads", "1,2"), ("build", "m.onnx", "--jobs", "0"),
    ("build", "m.onnx", "-o", "m.onnx"), ("build", "m.onnx", "-o", "."), ("build", "m.onnx", "m.onnx", "--name", "x"),
    ("build", "m.onnx", "--dim", "n=1", "--dim", "n=2"), ("build", "m.onnx", "--shape", "x=1x2", "--shape", "x=2x2"),
    ("build", "m.onnx", "--max-trips", "3", "--max-trips", "4"),
    ("link",), ("link", "m.o", "--frobnicate"), ("link", "@nothing"), ("compile", "x.txt"), ("check",), ("verify",),
    ("verify", "m.onnx", "--against", "god"), ("bench", "m.onnx", "--seconds", "0"), ("run",), ("opt",),
    ("compile", "m.onnx", "--partitions", "2", "--report", "r.json"),
    ("compile", "m.onnx", "--partitions", "2", "--split-at", "y"), ("link", "m.o", "-o", "x.a", "--wrap", "f"),
])  # fmt: skip
def test_usage_errors(mb: Command, model: Path, words: tuple[str, ...]) -> None:
    told = mb(*words)
    assert told.code == 2, told
    assert told.out == "" and told.err


@pytest.mark.parametrize(("words", "says"), [
    (("build", "no.onnx"), "no such file"), (("check", "no.onnx"), "no such file"), (("run", "no"), "no such file"),
    (("inspect", "no"), "no such file"), (("link", "no.o", "-o", "x"), "no such file"),
    (("opt", "no.mb"), "no such file"), (("compile", "no.c"), "no"), (("link", "m.onnx"), "`link` takes objects"),
    (("build", "m.onnx", "--target", "vax"), "unknown target `vax`"), (("build", "m.onnx", "--cpu", "z80"), "z80"),
    (("build", "m.onnx", "--features", "frob"), "frob"), (("build", "m.onnx", "--bind", "x=none"), "is no number"),
    (("build", "m.onnx", "--shape", "z=1"), "z"), (("build", "m.onnx", "--keep-output", "zz"), "zz"),
    (("build", "m.onnx", "--ram", "16"), "over the budget of 16"), (("build", "m.onnx", "-o", "/proc/x/m"), "/proc/x"),
    (("run", "text"), "neither a model nor an image"), (("inspect", "text"), "neither"),
    (("inspect", "text.json"), "is no report"), (("run", "text.onnx"), "text.onnx"), (("bench", "text"), "neither"),
    (("build", "m.onnx", "--bind", "x=1", "--bind", "x=2"), "two of one: `--bind x=1` and `--bind x=2`"),
    (("inspect", "old.json"), "a report of version 1, version 2 is read"),
])  # fmt: skip
def test_the_users_errors(mb: Command, model: Path, words: tuple[str, ...], says: str) -> None:
    for name in ("text", "text.onnx", "text.json"):
        Path(name).write_text("hello\n")
    Path("old.json").write_text('{"report": 1}')
    told = mb(*words)
    assert told.code == 1, told
    assert told.err.startswith("error: ") and says in told.err and "Traceback" not in told.err


def test_our_errors_save_a_traceback(mb: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(driver, "build", broken)
    told = mb("build", model)
    assert told.code == 70 and "internal error" in told.err
    saved = re.search(r"`(\S*monobloc-bug-\S+)`", told.err)
    assert saved
    text = Path(saved[1]).read_text()
    assert "KeyError: 'oops'" in text and f"command: monobloc build {model}" in text
    Path(saved[1]).unlink()


def test_interrupted(mb: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "build", broken)
    assert mb("build", model).code == 130


def test_help_is_quick_and_complete(tmp_path: Path) -> None:
    best = 9.0
    for _ in range(5):
        before = os.times().children_user
        told = program("--help", cwd=tmp_path)
        best = min(best, os.times().children_user - before)
    for verb in ("try", "check", "build", "compile", "link", "run", "verify", "bench", "inspect", "opt", "targets"):
        assert f"\n  {verb} " in told.stdout
    assert best < 0.3, f"{best} s of CPU time"


def test_every_verb_has_help(mb: Command) -> None:
    for verb in ("try", "check", "build", "compile", "link", "run", "verify", "bench", "inspect", "opt", "targets"):
        told = mb(verb, "--help")
        assert told.code == 0 and f"monobloc {verb}" in told.out
    assert mb("--version").out.startswith("monobloc ")


def on_terminal(words: list[str], cwd: Path, **env: str) -> str:
    """What a terminal would show"""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ.update({"TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[2]), **env})
        if not env:
            os.environ.pop("NO_COLOR", None)
        os.execv(os.sys.executable, [os.sys.executable, "-m", "monobloc", *words])  # type: ignore[attr-defined]
    out, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        try:
            part = os.read(fd, 4096)
        except OSError:
            break
        if not part:
            break
        out += part
    os.waitpid(pid, 0)
    os.close(fd)
    return out.decode(errors="replace")


def test_terminals_get_colour_and_progress(model: Path, tmp_path: Path) -> None:
    assert "\x1b[31;1merror:" in on_terminal(["build", "no.onnx"], tmp_path)
    assert "\x1b[31" not in on_terminal(["build", "no.onnx"], tmp_path, NO_COLOR="1")
    shown = on_terminal(["build", str(model), "--cache", str(tmp_path / "c")], tmp_path)
    assert "reading m.onnx" in shown and "linking" in shown
    piped = program("build", str(model), "--cache", str(tmp_path / "c"), cwd=tmp_path)
    assert piped.stderr == "" and "\x1b" not in piped.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_words_are_completed(
    mb: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], shell: str
) -> None:
    """The script asks us by two words of the environment; that a verb is found shows that we answer."""
    if shell == "bash" and not shutil.which("bash"):
        pytest.skip("bash is not installed")
    told = mb("--completion", shell)
    assert told.code == 0 and f"_MONOBLOC_COMPLETE={shell}_complete" in told.out
    monkeypatch.setenv("COMP_WORDS", "monobloc insp")
    monkeypatch.setenv("COMP_CWORD", "insp" if shell == "fish" else "1")
    monkeypatch.setenv("_MONOBLOC_COMPLETE", f"{shell}_complete")
    with pytest.raises(SystemExit):
        mb()
    assert "inspect" in capfd.readouterr().out
