"""Large bodies, received straight into the memory that becomes the arrays.

The parser hands a body on in pieces that are copied again and again on their way. A body
whose length is known needs no parser: once its head is read, the socket is read into the
body's own buffer, and what follows the body is the parser's again.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import numpy as np

DIRECT = 1 << 17
"""Bytes above which a body goes past the parser."""

ALIGNMENT = 64
"""Of the buffer, in bytes: JAX uses memory in place only where it is so aligned, and senders count on it."""

STEP = 1 << 20
"""Most bytes taken from the socket at a time, so that others get their turn."""


class Connection(Protocol):
    """What a body's arrival changes."""

    def landed(self) -> None:
        """The body is whole."""

    def discard(self, size: int) -> None:
        """So many bytes came that nobody wants."""

    def pause_reading(self) -> None:
        """Read no more until the body is asked for."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class Landing(asyncio.BufferedProtocol):
    """One large body, and the transport's protocol while it comes.

    Args:
        connection: goes on when the body has come.
        length: bytes of the body. Their buffer is address space until they come, so that a
            length that lies costs nothing.

    Raises:
        MemoryError: there is not so much address space.
    """

    def __init__(self, connection: Connection, length: int) -> None:
        memory = np.empty(length + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        self._buffer: memoryview | None = memory[start : start + length].data
        self._connection = connection
        self._length = length
        self.received = 0
        self.wanted = False
        """Whether somebody waits for the body."""

    @property
    def complete(self) -> bool:
        return self.received == self._length

    def add(self, data: bytes) -> None:
        """Bytes that came together with the head."""
        if self._buffer is not None:
            self._buffer[self.received : self.received + len(data)] = data
        self._came(len(data))

    def take(self) -> memoryview:
        """The body, once it is complete: from now on the taker's alone."""
        assert self._buffer is not None
        body, self._buffer = self._buffer, None
        return body

    def abandon(self) -> None:
        """Nobody wants the body any more: what still comes is thrown away."""
        self._buffer = None

    # As the transport's protocol

    def get_buffer(self, sizehint: int) -> memoryview:
        size = min(STEP, self._length - self.received)
        if self._buffer is None:
            return memoryview(bytearray(min(size, DIRECT)))
        return self._buffer[self.received : self.received + size]

    def buffer_updated(self, nbytes: int) -> None:
        self._came(nbytes)
        if self.complete:
            self._connection.landed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._buffer = None
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def _came(self, size: int) -> None:
        self.received += size
        if self._buffer is None:
            self._connection.discard(size)
        elif not self.wanted:
            self._connection.pause_reading()
