"""Resident arrays: kept for their owners under the hash of their contents."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from gradwire import wire
from gradwire._errors import ArgumentError, LinearizationLost, WireError
from gradwire._trees import Tree, tree_map


class Residents:
    """Arrays by owner and hash, least recently used first, within ``most_bytes`` together."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, str], np.ndarray] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return self._bytes

    def put(self, array: np.ndarray, sha256: str, owner: str) -> bool:
        """Keep ``array``; returns whether it is new.

        Raises:
            ArgumentError: ``sha256`` is not that of its canonical form.
            WireError: ``too-large``: it alone exceeds the budget.
        """
        if wire.sha256(array) != sha256:
            raise ArgumentError(
                "The body is not the array that the path names.",
                argument="sha256",
                expected="the SHA-256 of the canonical array",
                got="another hash",
            )
        if array.nbytes > self._most_bytes:
            raise WireError(
                "The array exceeds what this service keeps (option resident_bytes): send it with requests.",
                kind="too-large",
                expected=f"at most {self._most_bytes} bytes",
                got=f"{array.nbytes} bytes",
            )
        # Its own memory: a view would keep the whole message alive.
        held = array.copy()
        held.flags.writeable = False
        with self._lock:
            if (owner, sha256) in self._kept:
                self._kept.move_to_end((owner, sha256))
                return False
            self._kept[owner, sha256] = held
            self._bytes += held.nbytes
            while self._bytes > self._most_bytes:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.nbytes
        return True

    def find(self, sha256: str, owner: str) -> np.ndarray:
        """The array of that hash.

        Raises:
            LinearizationLost: not kept (any more), or somebody else's; ``extra["missing"]`` names it.
        """
        found = self._find(sha256, owner)
        if found is None:
            raise _missing([sha256])
        return found

    def drop(self, sha256: str, owner: str) -> None:
        """Forget it. Raises as `find` does."""
        with self._lock:
            gone = self._kept.pop((owner, sha256), None)
            if gone is None:
                raise _missing([sha256])
            self._bytes -= gone.nbytes

    def resolve(self, tree: Tree, owner: str, missing: list[str]) -> Tree:
        """``tree`` with arrays for references; the hashes of those not kept are added to ``missing``."""

        def resolved(leaf: Any) -> Any:
            if not isinstance(leaf, wire.Ref):
                return leaf
            found = self._find(leaf.sha256, owner)
            if found is None and leaf.sha256 not in missing:
                missing.append(leaf.sha256)
            return found

        return tree_map(resolved, tree)

    def check(self, missing: list[str]) -> None:
        """Raise for what `resolve` did not find."""
        if missing:
            raise _missing(missing)

    def _find(self, sha256: str, owner: str) -> np.ndarray | None:
        with self._lock:
            found = self._kept.get((owner, sha256))
            if found is not None:
                self._kept.move_to_end((owner, sha256))
            return found


def _missing(hashes: list[str]) -> LinearizationLost:
    return LinearizationLost(
        "The service does not hold these arrays (any more): put them again.",
        got=f"{len(hashes)} unknown",
        extra={"missing": hashes},
    )
