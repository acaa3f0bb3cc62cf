"""The toolchain's programs as drivers call them: at once, with the caller's terminal and environment.

`zig clang` looks for its own headers in the wrong place and takes the machine for one with musl; two
options put that right, and clang then finds the system's headers, start files and libraries itself.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from monobloc.errors import ToolchainError


@cache
def _zig() -> Path | None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _system(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise ToolchainError(
            "no compiler found: neither the Python package `ziglang` nor clang-22 and lld-22",
            hints=["pip install ziglang==0.17.1"],
        )
    return found


def clang(cxx: bool, argv: Sequence[str]) -> list[str]:
    """The start of a command, up to the user's own words."""
    mode = [*(["--driver-mode=g++"] if cxx else []), *(["-fcolor-diagnostics"] if sys.stderr.isatty() else [])]
    folder = _zig()
    if folder is None:
        return [_system("clang-22"), *mode]
    named = any(w in ("-target", "-m32", "-mx32") or w.startswith("--target=") for w in argv)
    target = [] if named else [f"--target={platform.machine()}-linux-gnu"]
    return [str(folder / "zig"), "clang", *mode, "-resource-dir", str(folder / "lib"), *target]


def lld() -> list[str]:
    folder = _zig()
    return [str(folder / "zig"), "ld.lld"] if folder else [_system("ld.lld-22")]


def ar() -> list[str]:
    folder = _zig()
    return [str(folder / "zig"), "ar"] if folder else [_system("llvm-ar-22")]


def call(command: Sequence[str], env: Mapping[str, str], name: str = "") -> int:
    """Runs a tool in the caller's place. Its complaints start with `name`, the one the caller used."""
    sys.stdout.flush()
    try:
        p = subprocess.run(command, env=dict(env), stderr=subprocess.PIPE if name else None, check=False)
    except OSError as e:
        raise ToolchainError(f"cannot start `{command[0]}`: {(e.strerror or str(e)).lower()}") from None
    if name and p.stderr:
        sys.stderr.buffer.write(_named(p.stderr, name))
        sys.stderr.flush()
    return p.returncode if p.returncode >= 0 else 128 - p.returncode


def _named(text: bytes, name: str) -> bytes:
    start = b"zig: "
    lines = text.splitlines(keepends=True)
    return b"".join(name.encode() + line[len(start) - 2 :] if line.startswith(start) else line for line in lines)


def link_line(command: Sequence[str], env: Mapping[str, str], name: str) -> list[str] | None:
    """The linker's arguments that clang would use; None, and its complaints told, if it refuses."""
    p = subprocess.run([*command, "-###"], env=dict(env), capture_output=True, text=True, check=False)
    lines = [x for x in p.stderr.splitlines() if x.startswith(' "')]
    said = "".join(x + "\n" for x in p.stderr.splitlines() if " error: " in x or " warning: " in x)
    sys.stderr.write(_named(said.encode(), name).decode())
    if p.returncode or not lines:
        return None
    return words_of(lines[-1])[1:]


def words_of(line: str) -> list[str]:
    """The words of a command as clang prints it: in double quotes, a backslash before `"`, `\\` and `$`."""
    return [re.sub(r"\\(.)", r"\1", quoted) for quoted in re.findall(r'"((?:[^"\\]|\\.)*)"', line)]
