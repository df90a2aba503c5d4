"""A Jacobian that comes in blocks: received into its place, never whole in memory twice. Does no I/O."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradwire import wire
from gradwire._errors import ArgumentError, DTypeError, GradwireError, ShapeError, WireError, from_problem

_HEAD = 512
"""Bytes read at a time until the next message's length is known."""

_LARGEST = 1 << 28
"""Bytes of one message: what a service may make us hold besides the Jacobian."""

Progress = Callable[[int, int], None]
"""Told how many rows (or columns) are there, of how many."""


class Filling:
    """A Jacobian being filled by blocks.

    Args:
        out: a C-contiguous array of its shape to fill, or None to make one.
        progress: whether to show a bar on stderr.
        map: the map's name, for errors.
    """

    def __init__(self, out: np.ndarray | None, progress: bool, map: str) -> None:
        self.out = out
        self.meta: Mapping[str, Any] = {}
        self._map = map
        self._matrix: np.ndarray | None = None
        self._there: np.ndarray | None = None
        self._bar = Bar(map) if progress else None

    def begin(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """The first message: what the whole will be.

        Raises:
            ShapeError, DTypeError: ``out`` cannot hold it.
        """
        if self.out is None:
            self.out = np.empty(shape, dtype)
        self._check(self.out, dtype, shape)
        self._matrix, self._there = self.out.reshape(-1), None

    def put(self, axis: str, start: int, block: np.ndarray) -> None:
        """One block: rows ``start …`` of shape (k, columns), or columns ``start …`` of shape (rows, k).

        Raises:
            WireError: a block that has no place.
        """
        if self._matrix is None:
            raise WireError("A block came before the Jacobian's shape.", map=self._map)
        if block.ndim != 2 or axis not in ("rows", "columns"):
            raise WireError("A block is two-dimensional, of rows or columns.", map=self._map)
        across = block.shape[1 if axis == "rows" else 0]
        along = block.shape[0 if axis == "rows" else 1]
        total = self._matrix.size // across if across else 0
        if across * total != self._matrix.size or not 0 <= start <= total - along:
            raise WireError("A block has no place in the Jacobian.", map=self._map, got=f"{axis} at {start}")
        if self._there is None or len(self._there) != total:
            self._there = np.zeros(total, bool)
        self._there[start : start + along] = True
        matrix = self._matrix.reshape((total, across) if axis == "rows" else (across, total))
        if axis == "rows":
            matrix[start : start + along] = block
        else:
            matrix[:, start : start + along] = block
        if self._bar is not None:
            self._bar.show(min(start + along, total), total)

    def end(self, meta: Mapping[str, Any]) -> None:
        """The last message.

        Raises:
            WireError: not every block came.
        """
        if self.out is None or (self.out.size and (self._there is None or not self._there.all())):
            raise WireError("The Jacobian ended before every block of it had come.", map=self._map)
        self.meta = meta
        if self._bar is not None:
            self._bar.close()

    def _check(self, out: np.ndarray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if out.shape != shape or not out.flags.c_contiguous or not out.flags.writeable:
            raise ShapeError(
                "out= takes the Jacobian as it is: a writable, C-contiguous array of its shape.",
                map=self._map,
                argument="out",
                expected=f"{dtype.name}{list(shape)}, C-contiguous",
                got=f"{out.dtype.name}{list(out.shape)}",
            )
        if not np.can_cast(dtype, out.dtype, "safe"):
            raise DTypeError(
                "out= cannot hold the Jacobian's numbers.",
                map=self._map,
                argument="out",
                expected=dtype.name,
                got=out.dtype.name,
            )


class Stream:
    """Where the bytes of a block stream go: one message at a time, each into memory of its own length.

    As `gradwire._memory.Growing`: ``room`` gives memory for what comes next, and adding to
    ``size`` says how much came.
    """

    def __init__(self, filling: Filling) -> None:
        self.filling = filling
        self.restart()

    def restart(self) -> None:
        """Begin: or begin again, where the connection was lost and the answer comes once more."""
        self.problem: GradwireError | None = None
        self.finished = False
        self._memory = memoryview(bytearray(_HEAD))
        self._have = 0
        self._length: int | None = None
        self._size = 0

    def room(self, most: int) -> memoryview:
        """Memory for up to ``most`` bytes more of the message at hand."""
        if self._have == len(self._memory):
            self._enlarge(2 * len(self._memory))
        end = len(self._memory) if self._length is None else self._length
        return self._memory[self._have : min(end, self._have + most)]

    def feed(self, piece: bytes) -> None:
        """Take bytes that were received elsewhere."""
        done = 0
        while done < len(piece):
            room = self.room(len(piece) - done)
            room[:] = piece[done : done + len(room)]
            done += len(room)
            self.size += len(room)

    @property
    def size(self) -> int:
        """Bytes received."""
        return self._size

    @size.setter
    def size(self, size: int) -> None:
        self._have += size - self._size
        self._size = size
        while self._have:
            if self._length is None:
                self._length = wire.message_length(self._memory[: self._have])
                if self._length is None:
                    return
                if self._length > _LARGEST:
                    raise WireError(
                        "A block of the answer is larger than this client takes.",
                        kind="too-large",
                        expected=f"at most {_LARGEST} bytes",
                        got=f"{self._length} bytes",
                    )
                if self._length > len(self._memory):
                    self._enlarge(self._length)
            if self._have < self._length:
                return
            self._take(self._memory[: self._length])
            rest = bytes(self._memory[self._length : self._have])
            # The blocks' own memory is used again for the next block: nothing refers to it any more.
            self._memory[: len(rest)] = rest
            self._have, self._length = len(rest), None

    def _enlarge(self, size: int) -> None:
        larger = np.empty(size, np.uint8).data
        larger[: self._have] = self._memory[: self._have]
        self._memory = larger

    def _take(self, body: memoryview) -> None:
        message = wire.MSGPACK.decode(body)
        fields = message.fields
        if self.finished:
            raise WireError("Something follows the end of the block stream.")
        if "jacobian" in fields:
            head = fields["jacobian"]
            self.filling.begin(wire.allowed_dtype(str(head["type"])), tuple(int(n) for n in head["shape"]))
        elif "block" in fields:
            self.filling.put(
                str(fields["axis"]), int(fields["start"]), np.asarray(message.tree(fields["block"]))
            )
        elif "meta" in fields:
            self.filling.end(fields["meta"])
            self.finished = True
        elif "problem" in fields:
            problem = fields["problem"]
            self.problem = from_problem(problem, status=int(problem.get("status", 500)))
            self.finished = True
        else:
            raise WireError(
                "A message of the block stream is none of its kinds.", got=", ".join(fields)[:100]
            )

    def result(self) -> np.ndarray:
        """The Jacobian, now that the stream has ended.

        Raises:
            GradwireError: the service's own error, or the stream ended too early.
        """
        if self.problem is not None:
            raise self.problem
        if not self.finished or self.filling.out is None:
            raise WireError("The block stream ended before the Jacobian was complete.")
        return self.filling.out


class Bar:
    """A progress bar on stderr, redrawn at most ten times a second."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._drawn = -math.inf

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < 0.1 and done < total:
            return
        self._drawn = now
        filled = 40 * done // max(total, 1)
        bar = "█" * filled + "·" * (40 - filled)
        print(f"\r{self._label} {bar} {done}/{total}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        print(file=sys.stderr)


def check_out(out: Any, map: str) -> np.ndarray | None:
    """``out=`` as a caller gave it: a NumPy array (a memmap too), or None."""
    if out is None or isinstance(out, np.ndarray):
        return out
    raise ArgumentError(
        "out= is filled in place: give a NumPy array (numpy.memmap for one larger than memory).",
        map=map,
        argument="out",
        expected="numpy.ndarray",
        got=type(out).__name__,
    )
