"""Memory regions of a machine as data: what is there beside its main RAM and flash, and what goes there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
RAM_HOLDS, FLASH_HOLDS = ("hot", "io"), ("cold", "weights")


@dataclass(frozen=True)
class Region:
    """A memory with a name, a size and a section that a linker script places.

    `hold` says what goes there: "hot", the intermediate buffers with the most accesses per byte, as many
    as fit; "io", inputs, outputs and state; "cold", the weights with the fewest accesses per byte, as
    many as the main flash has no room for, or as fit; "weights", all of them; or names of tensors.
    """

    name: str
    kind: Literal["ram", "flash"] = "ram"
    size: int | None = None  # bytes; None: no limit
    section: str = ""  # prefix of the sections' names
    hold: tuple[str, ...] = ("hot",)

    @property
    def prefix(self) -> str:
        """RAM sections begin with `.bss`, so that they take no room in the file."""
        return self.section or f"{'.bss' if self.kind == 'ram' else '.rodata'}.mb.{self.name}"
