"""`monobloc ld`: ld's command line, for builds that call the linker themselves.

`-r` joins objects and leaves models open for a later link; every other link compiles the models among
the inputs and optimizes all code as one program. `--lto=none|thin|full` chooses the mode, default thin.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from monobloc.drivers import args, cc
from monobloc.drivers.args import Item
from monobloc.errors import LinkError

MODES = ("none", "thin", "full")


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    found = args.items(args.expand(argv), args.LD_VALUED)
    mode = _mode(found)
    found = [i for i in found if not _says_mode(i)]
    if args.flags(found) & {"-r", "--relocatable", "-i"} or not any(i.input for i in found):
        return cc.run_lld(args.words(found), env)
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        from monobloc.drivers import models

        if models.among(found):
            found = models.closed(found, mode, Path(tmp), env)
        return cc.run_lld([*cc.lto_flags(mode, args.level(found), env), *args.words(found)], env)


def _says_mode(item: Item) -> bool:
    return item.flag.startswith("--lto=") or args.is_lto(item)


def _mode(found: Sequence[Item]) -> str:
    mode = args.lto_mode(found)
    for item in found:
        if item.flag.startswith("--lto="):
            mode = item.flag.partition("=")[2]
    if mode not in MODES:
        raise LinkError(f"unknown mode `--lto={mode}`", hints=[f"modes: {', '.join(MODES)}"])
    return mode
