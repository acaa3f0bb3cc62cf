"""What is written from the code: of docs/ operators.md, tables of numerics.md, passes.md, cli.md; and `ops/files.py`.

    python tools/gen_docs.py            write them
    python tools/gen_docs.py --check    fail if one is out of date

Output depends on the code only: equal code gives equal pages.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from doc_operators import cell, numerics_page, operators_page, sentence  # noqa: E402

from monobloc.ops import registry  # noqa: E402

DOCS = ROOT / "docs"
NOTE = "<!-- Written by tools/gen_docs.py. -->\n"


# -- passes -------------------------------------------------------------------------------------------
def passes_page() -> str:
    from monobloc import passes

    comments = dict(pipeline_comments(inspect.getsource(passes.pipeline)))
    out = [f"# Passes\n\n{NOTE}\n{PASSES_INTRO}\n", "| | pass | in a word |\n|---:|---|---|"]
    steps = passes.pipeline()
    for k, p in enumerate(steps, 1):
        text = sys.modules[type(p).__module__].__doc__ or ""
        out.append(f"| {k} | `{p.name}` | {cell(comments.get(type(p).__name__) or sentence(text))} |")
    for p in dict((type(p), p) for p in steps).values():
        text = sys.modules[type(p).__module__].__doc__ or ""
        out.append(f"\n## {p.name}\n\n{markdown(text)}")
    return "\n".join(out) + "\n"


PASSES_INTRO = """The order in which a graph is rewritten, from `pipeline()` in `monobloc/passes/__init__.py`.
After every pass that changed it the graph is verified, and written where `--dump DIR` asks for it."""


def pipeline_comments(source: str) -> Iterator[tuple[str, str]]:
    for m in re.finditer(r"(\w+)\(\),(?:\s*#\s*(.*))?", source):
        yield m[1], (m[2] or "").strip()


def markdown(docstring: str) -> str:
    """Indented blocks become code blocks."""
    blocks = []
    for block in inspect.cleandoc(docstring).split("\n\n"):
        if all(line.startswith("    ") for line in block.splitlines()):
            block = f"```\n{textwrap.dedent(block)}\n```"
        elif re.search(r"^\S.*   +\S", block, re.M):  # a table in columns
            block = f"```\n{block}\n```"
        blocks.append(block)
    return "\n\n".join(blocks)


# -- command line -------------------------------------------------------------------------------------
def cli_page() -> str:
    from monobloc.cli.app import app

    out = [f"# Command line\n\n{NOTE}\n{CLI_INTRO}"]
    for name, command in app.commands.items():
        if getattr(command, "hidden", False):
            continue
        out.append(f"\n## monobloc {name}\n\n{inspect.cleandoc(command.help or '').strip()}\n")
        out.append(f"```\n{usage(name, command)}\n```\n")
        rows = [(flag_text(p), p.help or "", getattr(p, "group", "")) for p in command.params if flag_text(p)]
        own = [r for r in rows if not r[2]]
        shared = sorted({str(r[2]) for r in rows if r[2]})
        out += ["| option | |\n|---|---|"] * bool(own) + [f"| `{cell(a)}` | {cell(h)} |" for a, h, _ in own]
        if shared:
            out.append(f"\nand the options of {', '.join(f'*{s}*' for s in shared)}, below.")
    out.append("\n# Options\n\nThe same for all verbs that take them; also keys of `monobloc.toml`.")
    out += list(shared_options())
    return "\n".join(out) + "\n"


CLI_INTRO = """`monobloc VERB --help` says the same. Results go to stdout, messages to stderr. Exit codes: 0 done,
1 the user's error, 2 wrong usage, 70 a bug of ours. Colours only on terminals; `NO_COLOR` is honoured.
`monobloc --completion bash`, `zsh` or `fish` prints the script that completes words in that shell."""


def usage(name: str, command: Any) -> str:
    arguments = [p.metavar or p.name.upper() for p in command.params if not is_option(p)]
    return " ".join(["monobloc", name, "[OPTIONS]", *arguments])


def is_option(p: Any) -> bool:
    return bool(p.opts[0].startswith("-"))


def flag_text(p: Any) -> str:
    if not is_option(p) or p.hidden or p.name == "help":
        return ""
    return ", ".join(p.opts) + ("" if p.is_flag else f" {p.metavar or p.name.upper()}")


def shared_options() -> Iterator[str]:
    from monobloc.cli.app import app

    panels: dict[str, dict[str, str]] = {}
    for command in app.commands.values():
        for p in command.params:
            panel = getattr(p, "group", "")
            if panel and flag_text(p):
                panels.setdefault(str(panel), {})[flag_text(p)] = p.help or ""
    for panel, rows in panels.items():
        yield f"\n## {panel}\n\n| option | |\n|---|---|"
        yield from (f"| `{cell(a)}` | {cell(h)} |" for a, h in rows.items())


# -- files of operators -------------------------------------------------------------------------------
def files_of_operators() -> str:
    """In which file of monobloc/ops an operator is, by the names that models and graphs have for it."""
    found: dict[str, set[str]] = {}
    for op in registry().values():
        names = (op.name, *(() if op.internal else op.aliases))
        found.setdefault(type(op).__module__.rpartition(".")[2], set()).update(n.rpartition("::")[2] for n in names)
    out = [FILES_INTRO, "NAMES = {"]
    for file, short in sorted(found.items()):
        lines = textwrap.wrap(" ".join(sorted(short)), 105, break_long_words=False)
        if len(file) + len(lines[0]) < 109 and len(lines) == 1:
            out.append(f'    "{file}": "{lines[0]}",')
        else:
            out += [f'    "{file}": (', *(f'        "{line} "' for line in lines), "    ),"]
    return "\n".join([*out, "}"]) + "\n"


FILES_INTRO = '''"""Which file of this folder defines an operator, by its names without their domains.

Written by tools/gen_docs.py. Of a name that is missing or elsewhere all files are looked through.
"""
'''

# -- all ----------------------------------------------------------------------------------------------
WRITTEN = {DOCS / "operators.md": lambda: operators_page(NOTE), DOCS / "numerics.md": numerics_page,
           DOCS / "passes.md": passes_page, DOCS / "cli.md": cli_page,
           ROOT / "monobloc/ops/files.py": files_of_operators}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--check", action="store_true")
    stale = []
    check = p.parse_args().check
    for path, make in WRITTEN.items():
        text = make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{'out of date' if check else 'written'}: {', '.join(stale) or 'nothing'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
