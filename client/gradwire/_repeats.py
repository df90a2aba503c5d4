"""Large arguments that repeat are sent once, and named from then on. Does no I/O.

An array is recognised by comparing it, byte for byte, with the private copy of what was
put on the service: an array that the caller has changed in place is another array. Comparing
costs less than sending does, even on one machine; the hash is taken only when an array is put.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

import numpy as np

from gradwire import wire
from gradwire._resident import Kept

SMALLEST = 1 << 20
"""Bytes from which an argument is worth a request of its own (measured: docs/performance.md)."""

LARGEST = 64 << 20
"""Bytes up to which the client keeps a copy of an argument."""

MOST = 128 << 20
"""Bytes of all copies together."""

CREDIT = 3
"""Arrays put in vain, one after the other, before new ones are only noted."""

_NOTED = 16
_PIECE = 1 << 16


class Repeats:
    """What one client has put on one service because it may come again. Safe among threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._noted: deque[tuple[tuple[int, ...], str, int]] = deque(maxlen=_NOTED)
        self._bytes = 0
        self._largest = LARGEST
        self._credit = CREDIT
        self._lock = threading.Lock()

    def find(self, array: np.ndarray) -> Kept | None:
        """What ``array`` (in C order) was put as, if it is there unchanged."""
        with self._lock:
            candidates = [k for k in self._kept.values() if _alike(k.array, array)]
        for kept in candidates:
            if _same_bytes(kept.array, array):
                with self._lock:
                    self._credit = CREDIT
                    if kept.sha256 in self._kept:
                        self._kept.move_to_end(kept.sha256)
                return kept
        return None

    def worth_putting(self, array: np.ndarray) -> bool:
        """Whether ``array``, which is new, should be put: it may come again, or has been seen before.

        When what was put never came again, a new array is only noted (by a cheap sum), and put
        when it comes a second time.
        """
        if not SMALLEST <= array.nbytes <= self._largest:
            return False
        with self._lock:
            if self._credit > 0:
                self._credit -= 1
                return True
        note = (array.shape, array.dtype.str, _sum(array))
        with self._lock:
            if note in self._noted:
                return True
            self._noted.append(note)
            return False

    def keep(self, array: np.ndarray) -> Kept:
        """A private copy of ``array``, to be put; the least recently used make room."""
        copied = np.array(array, order="C")
        kept = Kept(copied, wire.sha256(copied))
        with self._lock:
            self._kept[kept.sha256] = kept
            self._bytes = sum(k.array.nbytes for k in self._kept.values())
            while self._bytes > MOST:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.array.nbytes
        return kept

    def refused(self, kept: Kept) -> None:
        """The service keeps nothing so large: it is forgotten, and its size not tried again."""
        with self._lock:
            self._largest = min(self._largest, kept.array.nbytes - 1)
            if self._kept.pop(kept.sha256, None) is not None:
                self._bytes -= kept.array.nbytes


def _alike(kept: np.ndarray, array: np.ndarray) -> bool:
    return kept.shape == array.shape and kept.dtype == array.dtype


def _same_bytes(kept: np.ndarray, array: np.ndarray) -> bool:
    a, b = _words(kept), _words(array)
    return all(
        np.array_equal(a[start : start + _PIECE], b[start : start + _PIECE])
        for start in range(0, a.size, _PIECE)
    )


def _words(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


def _sum(array: np.ndarray) -> int:
    return int(_words(np.ascontiguousarray(array)).sum(dtype=np.uint64))
