"""Which dtypes can be sent, as every kind checks them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire._errors import DTypeError

NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2"),
)
"""The dtypes of the wire format; the last three are NumPy dtypes only where ml_dtypes is installed."""

_KNOWN = frozenset(NAMES)


def check_dtype(name: str) -> None:
    """Let the dtypes of `NAMES` pass.

    Raises:
        DTypeError: any other (object, text, dates, records, longdouble, int4, …).
    """
    if name not in _KNOWN:
        raise DTypeError(
            "Arrays of this dtype cannot be sent; convert it first.",
            expected="bool, an integer, floating or complex dtype of at most 64 bits per real number",
            got=name,
        )


def extension_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype named bfloat16, float8_e4m3fn or float8_e5m2.

    Raises:
        DTypeError: ml_dtypes, which defines it, is not installed.
    """
    try:
        import ml_dtypes
    except ImportError:
        raise DTypeError(
            f"NumPy has no {name} of its own: install ml_dtypes, or convert to float32 first.",
            expected="ml_dtypes installed",
            got=name,
        ) from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype
