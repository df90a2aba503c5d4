"""Memory for bodies: writable, 64-byte aligned, and no more of it than bytes have come.

The service writes large arrays on multiples of 64 from the start of a body, where JAX and
others take them without a copy: so the body's own memory begins on one too.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress

import numpy as np

TRUSTED = 1 << 26
"""Bytes taken on the word of a sender. Above, as they come: a length costs nothing to claim."""


def aligned(size: int) -> memoryview:
    """``size`` bytes, not set to anything; pages of it become real when they are written."""
    whole = np.empty(size + 63, np.uint8)
    start = -int(whole.__array_interface__["data"][0]) % 64
    return whole[start : start + size].data


class Growing:
    """Bytes that become more. Its memory is mapped, so that growing moves pages rather than copying them.

    Attributes:
        size: how many bytes it holds.
    """

    def __init__(self, capacity: int) -> None:
        self.size = 0
        self._memory = _mapped(capacity)

    def room(self, most: int) -> memoryview:
        """Memory behind what it holds, at least one byte and at most ``most``; release it before the next.

        What was written there counts once ``size`` says so.
        """
        if self.size == len(self._memory):
            self._grow(2 * self.size)
        return memoryview(self._memory)[self.size : self.size + most]

    def content(self) -> memoryview:
        """What it holds."""
        return memoryview(self._memory)[: self.size]

    def _grow(self, capacity: int) -> None:
        try:
            self._memory.resize(capacity)
        except SystemError:  # Not every system can: then it is copied.
            larger = _mapped(capacity)
            larger[: self.size] = self._memory[: self.size]
            self._memory = larger


def _mapped(size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with suppress(OSError):  # Wished for, not needed: large pages are filled in a third of the time.
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped
