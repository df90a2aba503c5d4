"""Arrays as bytes: checked on the way in, never copied without need on the way out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gradwire._errors import WireError
from gradwire.wire._dtypes import dtype_name
from gradwire.wire._values import Limits

SPEC_ELEMENTS = 1 << 48
"""Elements that an array without data may claim."""

_AS_SENT = "<|=" if sys.byteorder == "little" else "<|"
"""Byte orders, as NumPy writes them, in which arrays are sent as they are."""


EMPTY = 1 << 20
"""How large the other dimensions of an array without elements may be together: loops go over them."""


def extent(shape: object, rank: int, elements: int) -> tuple[tuple[int, ...], int]:
    """A foreign shape and its number of elements.

    Zero dimensions count as one against ``elements``, so that no shape can
    overflow inside NumPy.
    """
    if type(shape) is not list:
        raise WireError("an array's shape is a list of whole numbers", got=f"a {type(shape).__name__}")
    if len(shape) > rank:
        raise WireError("an array has too many dimensions", expected=f"at most {rank}", got=str(len(shape)))
    size = bound = 1
    for length in shape:
        if type(length) is not int or length < 0:
            raise WireError("an array's shape holds something else than whole numbers from 0 on")
        size *= length
        bound *= length or 1
        if bound > elements:
            raise WireError(
                "an array has too many elements", kind="too-large", expected=f"at most {elements} elements"
            )
    if not size and elements < SPEC_ELEMENTS and bound > EMPTY:
        raise WireError(
            "an array without elements has a dimension that is huge",
            kind="too-large",
            expected=f"at most {EMPTY} in its other dimensions",
            got=str(bound),
        )
    return tuple(shape), size


def array_from(dtype: np.dtype[Any], shape: object, data: object, limits: Limits) -> np.ndarray[Any, Any]:
    """The array of a foreign header and its data.

    Args:
        dtype: from the tables of `_dtypes`, in the byte order of the data.
        shape: not yet checked.
        data: a memoryview of bytes in C order (shared, not copied), or a list of such.

    Returns:
        An array in native byte order, writable where its memory is.
    """
    dims, size = extent(shape, limits.rank, limits.elements)
    memory = data if type(data) is memoryview else _joined(data)
    if len(memory) != size * dtype.itemsize:
        raise WireError(
            "an array's data does not fit its shape and type",
            expected=f"{size * dtype.itemsize} bytes",
            got=f"{len(memory)} bytes",
        )
    array: np.ndarray[Any, Any] = np.ndarray(dims, dtype, buffer=memory)
    if dtype.kind == "b" and size and array.view(np.uint8).max() > 1:
        raise WireError("a bool array holds bytes other than 0 and 1")
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _joined(pieces: object) -> memoryview:
    """The data of an array that came in several binaries: never more than the message holds."""
    if type(pieces) is not list or not all(type(piece) is memoryview for piece in pieces):
        raise WireError("an array's data is binary (or a list of binaries)", expected="bin")
    memory, start = np.empty(sum(map(len, pieces)), np.uint8).data, 0
    for piece in pieces:
        memory[start : start + len(piece)] = piece
        start += len(piece)
    return memory


def sendable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself where it is little-endian and in C order, else such a copy."""
    dtype_name(array.dtype)  # refuses what the wire has no name for
    if type(array) is np.ndarray and array.flags.c_contiguous and array.dtype.byteorder in _AS_SENT:
        return array
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """The memory of a C-ordered array as bytes, not copied."""
    return array.reshape(-1).view(np.uint8).data
