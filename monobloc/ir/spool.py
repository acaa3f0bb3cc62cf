"""Large constants that passes make, in a temporary file: memory holds those in use, not all of a model.

Weights of a model are in its file and can be read again. Folded and packed ones are nowhere, and a build of a
large model would hold each form of each weight until the link has written it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any

import numpy as np

from monobloc.errors import InternalError
from monobloc.ir.graph import KEPT, Value


class Spool:
    """Arrays behind one another in a file without a name, which is gone when the last reader is."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0

    def settle(self, constants: Iterable[Value], most: int = KEPT) -> None:
        """What is larger than that and only in memory goes to the file."""
        for v in constants:
            if v.const is not None:
                v.const.spool(self.keep, most)

    def keep(self, array: np.ndarray) -> Callable[[], np.ndarray] | None:
        """How to read the array again; None where there is no room for it."""
        dtype, shape = array.dtype, array.shape  # the array itself must not stay
        at, data = self._end, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        with suppress(OSError):
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="monobloc-", buffering=0)  # noqa: SIM115
            while len(data):
                written = os.pwrite(self._file.fileno(), data, self._end)
                self._end, data = self._end + written, data[written:]
            return lambda: self._read(at, dtype, shape)
        self._end = at
        return None

    def _read(self, at: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        assert self._file is not None
        out = np.empty(shape, dtype)
        data = out.reshape(-1).view(np.uint8).data
        while len(data):
            count = os.preadv(self._file.fileno(), [data], at)
            if not count:
                raise InternalError("a temporary file lost what was written to it")
            at, data = at + count, data[count:]
        return out
