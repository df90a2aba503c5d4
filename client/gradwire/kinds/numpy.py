"""NumPy arrays and scalars: the kind that everything else passes through."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire._errors import DTypeError
from gradwire.wire import dtype_name


class NumpyKind:
    name = "numpy"

    def owns(self, cls: type) -> bool:
        return issubclass(cls, np.ndarray | np.generic)

    def to_numpy(self, x: Any) -> np.ndarray:
        """``x`` itself; scalars as 0-d arrays, big-endian arrays swapped.

        Subclasses stay what they are, except those that are not plain arrays of numbers.

        Raises:
            DTypeError: np.matrix, a masked array, or a dtype that cannot be sent.
        """
        if isinstance(x, np.matrix | np.ma.MaskedArray):
            raise DTypeError(
                "Only plain arrays can be sent: np.asarray(x) of a matrix, x.filled() of a masked array.",
                expected="numpy.ndarray",
                got=type(x).__name__,
            )
        a: np.ndarray = x if isinstance(x, np.ndarray) else np.asarray(x)
        dtype_name(a.dtype)
        return a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))

    def from_numpy(self, a: np.ndarray, like: Any) -> np.ndarray:
        """``a`` itself where it is writable, else a writable copy."""
        return a if a.flags.writeable else a.copy()


KIND = NumpyKind()
