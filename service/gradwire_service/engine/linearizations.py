"""Linearizations kept for their owners: bounded by time and by memory."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections import OrderedDict
from dataclasses import dataclass

from gradwire._errors import LinearizationLost
from gradwire_service.engine.devices import Device
from gradwire_service.engine.execution import Linearization


@dataclass
class _Kept:
    linearization: Linearization
    owner: str
    used: float


class Linearizations:
    """What is kept, least recently used first. One unused for ``ttl`` seconds goes; so does the
    oldest when all together exceed ``most_bytes``."""

    def __init__(self, *, ttl: float, most_bytes: int) -> None:
        self._ttl = ttl
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._expiring = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes on all devices."""
        return self._bytes

    def keep(self, linearization: Linearization, owner: str) -> tuple[str, float]:
        """Keep it; returns its id and how many seconds it is kept unused."""
        id = secrets.token_urlsafe(18)
        with self._lock:
            self._kept[id] = _Kept(linearization, owner, time.monotonic())
            self._bytes += linearization.nbytes
            self._sweep()
            self._expire_later()
        return id, self._ttl

    def find(self, id: str, owner: str) -> Linearization:
        """The one with that id.

        Raises:
            LinearizationLost: unknown, expired or somebody else's: one and the same answer.
        """
        with self._lock:
            self._sweep()
            found = self._kept.get(id)
            if found is None or found.owner != owner:
                raise LinearizationLost(
                    "There is no such linearization (any more): linearize again.",
                    got="an id that is not known",
                )
            found.used = time.monotonic()
            self._kept.move_to_end(id)
            return found.linearization

    def drop(self, id: str, owner: str) -> None:
        """Forget it. Raises as `find` does."""
        self.find(id, owner)
        with self._lock:
            gone = self._kept.pop(id, None)
            if gone is not None:
                self._bytes -= gone.linearization.nbytes

    def make_room(self, device: Device, needed: int) -> None:
        """Let the oldest on ``device`` go until ``needed`` bytes of its memory are free of linearizations."""
        if self._bytes + needed <= device.memory:
            return
        with self._lock:
            here = [id for id, kept in self._kept.items() if kept.linearization.device is device]
            held = sum(self._kept[id].linearization.nbytes for id in here)
            for id in here:
                if held + needed <= device.memory:
                    return
                size = self._kept.pop(id).linearization.nbytes
                held -= size
                self._bytes -= size

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._ttl
        while self._kept:
            id, first = next(iter(self._kept.items()))
            # The newest stays even if it alone exceeds the budget: it was just answered.
            if first.used >= oldest and (self._bytes <= self._most_bytes or len(self._kept) == 1):
                return
            del self._kept[id]
            self._bytes -= first.linearization.nbytes

    def _expire_later(self) -> None:
        """Give the memory of what expires back also where nobody asks any more."""
        if self._kept and not self._expiring:
            self._expiring = True
            oldest = next(iter(self._kept.values())).used
            left = max(0.0, oldest + self._ttl - time.monotonic()) + 0.01
            timer = threading.Timer(left, _expire, args=(weakref.ref(self),))
            timer.daemon = True
            timer.start()


def _expire(reference: weakref.ref[Linearizations]) -> None:
    kept = reference()
    if kept is not None:
        with kept._lock:
            kept._expiring = False
            kept._sweep()
            kept._expire_later()
