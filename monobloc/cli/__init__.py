"""The command line: words in, one driver call, tables out.

The only place that knows exit codes, the environment and terminals. `app` names the verbs and their
flags and imports nothing heavy, so `--help` is quick; what a verb does is in the file of its family.

    0 done   1 the user's error   2 wrong usage   70 a bug of ours (a traceback is saved)   130 interrupted
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from monobloc.cli import console

GARBAGE = 250_000  # objects between two looks for cycles: a command makes many that live to its end, and few cycles


class Usage(Exception):
    """The command makes no sense as written."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script."""
    gc.set_threshold(GARBAGE)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts them all, and a build multiplies nothing large
    code = run(list(sys.argv[1:] if argv is None else argv))
    gc.freeze()  # what is left goes with the process: nobody looks for cycles in it first
    sys.exit(code)


def run(argv: list[str]) -> int:
    """The exit code of one command; every error is told on stderr."""
    try:
        code = _command(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        console.message("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output went away, which is its good right
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as e:
        return _told(e, argv)


def _command(argv: list[str]) -> int:
    from monobloc import drivers

    if argv and argv[0] in drivers.VERBS:  # once per file of a build: no parser, nothing of ours
        return drivers.main(argv[0], argv[1:], os.environ)
    from monobloc.cli.app import app
    from monobloc.cli.words import expand

    result = app(args=expand(argv), prog_name="monobloc", standalone_mode=False)
    return result if isinstance(result, int) else 0


def _told(e: Exception, argv: list[str]) -> int:
    from monobloc.errors import ErrorList, InternalError, MonoblocError

    if isinstance(e, Usage):
        console.error(str(e))
        return 2
    if type(e).__name__ == "NoArgsIsHelpError":
        console.message(getattr(e, "format_message")())  # noqa: B009
        return 2
    if hasattr(e, "exit_code") and hasattr(e, "format_message"):  # the argument parser's own
        _usage(e)
        return int(e.exit_code)
    if type(e).__name__ == "Abort":
        console.message("aborted")
        return 130
    if isinstance(e, ErrorList) and not any(isinstance(x, InternalError) for x in e.errors):
        for one in e.errors:
            console.error(str(one))
        return 1
    if isinstance(e, MonoblocError) and not isinstance(e, (InternalError, ErrorList)):
        console.error(str(e))
        return 1
    if isinstance(e, OSError) and (e.filename or e.strerror):
        name = f"`{e.filename}`: " if e.filename else ""
        console.error(f"{name}{(e.strerror or str(e)).lower()}")
        return 1
    if isinstance(e, MemoryError):
        console.error("not enough memory for this model")
        return 1
    return _our_bug(e, argv)


def _usage(e: Exception) -> None:
    context = getattr(e, "ctx", None)
    console.error(getattr(e, "format_message")().rstrip(".").strip() or "no command given")  # noqa: B009
    verb = context.command_path if context is not None else "monobloc"
    console.message(f"  hint: `{verb} --help` shows the usage")


def _our_bug(e: Exception, argv: list[str]) -> int:
    """Saves what a report needs, and says where."""
    import platform
    import shlex
    import tempfile
    import traceback

    from monobloc import __version__

    text = [f"command: monobloc {shlex.join(argv)}", f"monobloc {__version__}, Python {platform.python_version()}",
            platform.platform(), "", *traceback.format_exception(e)]
    console.error(f"internal error: {str(e).strip() or type(e).__name__}")
    try:
        with tempfile.NamedTemporaryFile("w", prefix="monobloc-bug-", suffix=".txt", delete=False) as f:
            f.write("\n".join(text))
        console.message(f"  note: this is a bug of Monobloc; `{f.name}` holds what a report needs")
    except OSError:
        console.message("\n".join(text))
    return 70


__all__ = ["Usage", "main", "run"]
