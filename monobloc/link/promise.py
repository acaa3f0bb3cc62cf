"""What a header promises holds for the image.

An application may have sized the memory of `X_run_at` by `X_RAM_MAX` of the header, which was written when the model
was compiled. A link may choose another machine or more threads, whose kernels need more scratch memory. Then the
application would give too little, and a run would write behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.codegen.lower import Lowered
from monobloc.errors import Diagnostics, LinkError, tell
from monobloc.link.live import Liveness
from monobloc.link.objects import Module


def check_ram(modules: Sequence[Module], programs: Sequence[Lowered], told: Liveness) -> None:
    """An error where the application hands memory over, a note where it is not known whether one will."""
    problems = Diagnostics()
    for m, p in zip(modules, programs, strict=True):
        need, macro = p.interface.arena, f"{m.prefix.upper()}_RAM_MAX"
        if not m.ram_max or need <= m.ram_max:
            continue
        what = f"{m.title}: a run needs {need} bytes, and the header that was written with its object says {m.ram_max}"
        hint = "compile the model again for the machine, the threads and the numerics of this link"
        if m.prefix not in told.readers:
            tell([f"{what}; memory for `{m.prefix}_run_at` must be of `{m.prefix}_ram_size` bytes"])
        elif m.prefix in told.reentrant:
            problems.report(LinkError(f"{what} (`{macro}`), by which the application may size the memory it gives to "
                                      f"`{m.prefix}_run_at`", hints=[hint]))
    problems.checkpoint()
