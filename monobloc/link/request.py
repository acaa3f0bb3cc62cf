"""What one link is asked for, as one value: the steps of stage 2 hand it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from monobloc.cache import Cache
from monobloc.link.lowerings import Lowerings
from monobloc.object import sysroot
from monobloc.object.fat import Object
from monobloc.object.toolchain import Libc
from monobloc.options import Emit, Options

Progress = Callable[[str], None]


def quiet(_: str) -> None:
    """No progress."""


@dataclass(frozen=True)
class Request:
    """The output, the options, and what is linked beside the models."""

    out: Path
    emit: Emit
    o: Options
    cache: Cache | None = None
    user: tuple[Path | str, ...] = ()  # the application, in the order of the line, options between files included
    libs: tuple[str, ...] = ()
    libdirs: tuple[Path, ...] = ()
    objects: tuple[Object, ...] = ()  # whose own code is linked, with `--graph-lto off`
    progress: Progress = quiet
    lowerings: Lowerings = field(default_factory=Lowerings)  # what this build has lowered before

    @property
    def libc(self) -> Libc:
        """What the application's own code is linked against."""
        return sysroot.libc_for(self.o.target, self.cache, self.progress)

    @property
    def closed(self) -> bool:
        """One relocatable, or an archive of it, for somebody else's linker"""
        return self.emit in ("archive", "object")

    @property
    def hosted(self) -> bool:
        """an executable of the user's own code"""
        return self.emit == "exe" and bool(self.user)
