"""What an array kind is."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Kind(Protocol):
    """The arrays of one library: how they become NumPy arrays, and how answers become theirs."""

    @property
    def name(self) -> str:
        """The library's name, as in ``import name``."""

    def owns(self, cls: type) -> bool:
        """Whether instances of ``cls`` are arrays of this kind. Imports nothing."""

    def to_numpy(self, x: Any) -> np.ndarray:
        """``x`` as an array in host memory and native byte order, without a copy where that is possible.

        The result may share memory with ``x`` and may be read-only or strided.

        Raises:
            DTypeError: a dtype that the service does not take.
            ArgumentError: an array that has no values to send (traced, deferred, or
                part of another library's differentiation).
        """

    def from_numpy(self, a: np.ndarray, like: Any) -> Any:
        """An array of this kind with the dtype, shape and values of ``a``, on the device of ``like``.

        ``a`` is memory that nobody else uses: it is taken over where the library can
        do so, and copied where it cannot.
        """


def comes_from(cls: type, *roots: str) -> bool:
    """Whether ``cls`` or one of its bases is defined in a package named in ``roots``."""
    return any(base.__module__.partition(".")[0] in roots for base in cls.__mro__)
