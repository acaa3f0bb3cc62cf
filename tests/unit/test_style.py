"""Files and functions stay of a size that can be read, say what they are for, and do not read the environment."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import monobloc

ROOT = Path(monobloc.__file__).parent
FILE_LINES, FUNCTION_LINES = 750, 80
ENVIRONMENT = ("cli", "driver.py")  # the command line, and the user's cache folder for the Python interface


@cache
def trees() -> dict[str, tuple[str, ast.Module]]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found[path.relative_to(ROOT).as_posix()] = (text, ast.parse(text))
    return found


def test_sizes() -> None:
    wrong = []
    for name, (text, tree) in trees().items():
        if (n := text.count("\n")) > FILE_LINES:
            wrong.append(f"{name}: {n} lines, {FILE_LINES} at most")
        for f in ast.walk(tree):
            if isinstance(f, ast.FunctionDef) and (n := (f.end_lineno or 0) - f.lineno + 1) > FUNCTION_LINES:
                wrong.append(f"{name}: {f.name} has {n} lines, {FUNCTION_LINES} at most")
    for path in sorted((ROOT / "csrc").rglob("*.[ch]")):
        if (n := path.read_text(encoding="utf-8").count("\n")) > FILE_LINES:
            wrong.append(f"{path.relative_to(ROOT)}: {n} lines, {FILE_LINES} at most")
    assert not wrong, "\n".join(wrong)


def test_every_file_says_what_it_is_for() -> None:
    assert not [name for name, (text, tree) in trees().items() if text.strip() and not ast.get_docstring(tree)]


def test_only_the_command_line_reads_the_environment() -> None:
    wrong = []
    for name, (_, tree) in trees().items():
        for n in ast.walk(tree):
            reads = isinstance(n, ast.Attribute) and n.attr in ("environ", "getenv", "environb")
            if reads and not name.startswith(ENVIRONMENT):
                wrong.append(f"{name}:{n.lineno}")
    assert not wrong, wrong


def test_methods_are_defined_once() -> None:
    """A second definition of a name in one class silently replaces the first."""
    wrong = []
    for name, (_, tree) in trees().items():
        for c in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
            plain = [f.name for f in c.body if isinstance(f, ast.FunctionDef) and not f.decorator_list]
            wrong += [f"{name}: {c.name}.{f}" for f in set(plain) if plain.count(f) > 1]
    assert not wrong, wrong
