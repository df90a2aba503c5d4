"""CuPy arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gradwire.kinds._kind import comes_from
from gradwire.wire import dtype_name


class CupyKind:
    name = "cupy"

    def owns(self, cls: type) -> bool:
        cupy: Any = sys.modules.get("cupy")
        return cupy is not None and comes_from(cls, "cupy") and issubclass(cls, cupy.ndarray)

    def to_numpy(self, x: Any) -> np.ndarray:
        """A copy in host memory, taken in the order of CuPy's current stream.

        Raises:
            DTypeError: a dtype that cannot be sent.
        """
        dtype_name(x.dtype)
        host: np.ndarray = x.get()
        return host

    def from_numpy(self, a: np.ndarray, like: Any) -> Any:
        """A copy on the GPU of ``like``."""
        import cupy

        with like.device:
            return cupy.asarray(a)


KIND = CupyKind()
