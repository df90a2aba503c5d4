"""Memory of large requests, given back to the system once they are over."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import platform
from asyncio.events import TimerHandle

QUIET = 2.0
"""Seconds without a large request after which memory is given back: while they come, it is used again."""


class Memory:
    """What is done after each large request.

    Args:
        quiet: seconds, as of `QUIET`.
    """

    def __init__(self, quiet: float = QUIET) -> None:
        self._quiet = quiet
        self._timer: TimerHandle | None = None

    def large_request_ended(self) -> None:
        """Lets go of its arrays now, and of what the allocator keeps of them when nothing follows."""
        # JAX releases arguments that it used in place when Python next collects garbage.
        gc.collect(0)
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._quiet, loop.run_in_executor, None, _give_back)


def _give_back() -> None:
    gc.collect(0)
    # glibc keeps freed blocks of up to 32 MiB, and several of them: 90 MiB after a few requests of 30.
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
