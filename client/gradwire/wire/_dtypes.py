"""The dtypes that may cross the wire, by explicit table: no dtype is made from foreign text."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from gradwire._errors import DTypeError, WireError

NAMES: tuple[str, ...] = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
    "complex64",
    "complex128",
)
"""Dtypes that NumPy has by itself."""

EXTENDED: tuple[str, ...] = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes of the package ml_dtypes; on the wire they go by name in msgpack too."""

_BY_NAME: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in NAMES}

_BY_CODE: dict[str, np.dtype[Any]] = {
    swapped.str: swapped for dtype in _BY_NAME.values() for swapped in (dtype, dtype.newbyteorder("S"))
}
"""``"<f8"``, ``">f8"``, ``"|b1"``, …: both byte orders of every dtype above."""

_CODES: dict[np.dtype[Any], str] = {
    dtype: f"{'|' if dtype.itemsize == 1 else '<'}{dtype.kind}{dtype.itemsize}" for dtype in _BY_CODE.values()
}

_NAMES_BY_DTYPE: dict[np.dtype[Any], str] = {dtype: dtype.name for dtype in _CODES}
"""NumPy makes a dtype's name anew each time, which takes longer than all else here."""


def shown(text: object) -> str:
    """A short, printable form of foreign text, for error messages."""
    if type(text) is not str:
        return f"a {type(text).__name__}"
    return ascii(text if len(text) <= 40 else f"{text[:40]}…")


def _extended(name: str) -> np.dtype[Any]:
    try:
        module = import_module("ml_dtypes")
    except ImportError:
        raise DTypeError(
            f"{name} arrays need the package ml_dtypes: install it (pip install ml_dtypes)",
            got=name,
        ) from None
    extended: np.dtype[Any] = np.dtype(getattr(module, name))
    return extended


def _lookup(table: dict[str, np.dtype[Any]], text: object, expected: str) -> np.dtype[Any]:
    if type(text) is str:
        known = table.get(text)
        if known is not None:
            return known
        if text in EXTENDED:
            return _extended(text)
    raise WireError("this dtype does not cross the wire", expected=expected, got=shown(text))


_NAME_LIST = ", ".join((*NAMES, *EXTENDED))
_CODE_LIST = "a code such as '<f8' (bool, int8-64, uint8-64, float16-64, complex64-128) or " + ", ".join(
    EXTENDED
)


def dtype_of_name(text: object) -> np.dtype[Any]:
    """The dtype of a name (JSON's ``dtype``); WireError if it is none of ours."""
    return _lookup(_BY_NAME, text, _NAME_LIST)


def dtype_of_code(text: object) -> np.dtype[Any]:
    """The dtype of a code (msgpack's ``type``), in the byte order it says; WireError if none of ours."""
    return _lookup(_BY_CODE, text, _CODE_LIST)


def allowed_dtype(name_or_type: str) -> np.dtype[Any]:
    """The dtype that a name (``"float64"``) or a code (``"<f8"``) stands for.

    Raises:
        WireError: it is not one of the dtypes of the wire format.
        DTypeError: it needs the package ml_dtypes, which is not installed.
    """
    if type(name_or_type) is str and name_or_type in _BY_CODE:
        return _BY_CODE[name_or_type]
    return dtype_of_name(name_or_type)


def dtype_code(dtype: np.dtype[Any]) -> str:
    """The msgpack ``type`` of a dtype, always little-endian; DTypeError if it cannot be sent."""
    code = _CODES.get(dtype)
    return dtype_name(dtype) if code is None else code


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype, whatever its byte order; DTypeError if it cannot be sent."""
    known = _NAMES_BY_DTYPE.get(dtype)
    if known is not None:
        return known
    if dtype.name in EXTENDED:
        return dtype.name
    raise DTypeError(
        f"arrays of dtype {dtype} cannot be sent: convert the array first",
        expected=_NAME_LIST,
        got=str(dtype),
    )
