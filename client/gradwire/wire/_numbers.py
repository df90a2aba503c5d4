"""Array elements as JSON numbers: exact where the dtype is, the shortest that round-trips where not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradwire._errors import WireError


def to_json_numbers(flat: np.ndarray[Any, Any]) -> list[Any]:
    """The elements of a 1-d array: bools, integers, floats or words, ``{"re", "im"}``."""
    flat = flat.astype(flat.dtype.newbyteorder("="))
    if flat.dtype.kind == "c":
        parts = zip(_floats(flat.real), _floats(flat.imag), strict=True)
        return [{"re": re, "im": im} for re, im in parts]
    if flat.dtype.kind in "biu":
        exact: list[Any] = flat.tolist()
        return exact
    return _floats(flat)


def _floats(flat: np.ndarray[Any, Any]) -> list[float | str]:
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        wide = _shortest(flat)
    numbers: list[float | str] = wide.tolist()
    for index in np.flatnonzero(~np.isfinite(wide)).tolist():
        value = wide[index]
        numbers[index] = "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return numbers


def _shortest(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Float64 numbers whose decimal form is the shortest that gives ``flat`` back in its own dtype."""
    if flat.dtype.itemsize == 8:
        return flat.astype(np.float64)
    if flat.dtype in (np.float16, np.float32):
        # NumPy writes each float with the fewest digits that tell it from its neighbours.
        return flat.astype(np.dtype("U32")).astype(np.float64)
    # The dtypes of ml_dtypes have few values: find the digits of each that occurs.
    values, where = np.unique(flat.astype(np.float64), return_inverse=True)
    return np.array([_decimal(value, flat.dtype) for value in values.tolist()], np.float64)[where]


def _decimal(value: float, dtype: np.dtype[Any]) -> float:
    for digits in range(1, 9):
        short = float(f"{value:.{digits}g}")
        if float(np.float64(short).astype(dtype)) == value:
            return short
    return value


_KINDS: dict[str, frozenset[type]] = {
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float}),
    "c": frozenset({int, float}),
}


def from_json_numbers(
    numbers: list[Any], dtype: np.dtype[Any], words: Mapping[str, float]
) -> np.ndarray[Any, Any]:
    """The 1-d array of a flat list of JSON numbers, each of which must fit ``dtype``."""
    kind = dtype.kind if dtype.kind in _KINDS else "f"
    if kind == "c":
        return _complexes(numbers, dtype, words)
    if kind == "f":
        numbers = [words.get(number, number) if type(number) is str else number for number in numbers]
    found = set(map(type, numbers))
    if not found <= _KINDS[kind]:
        raise _does_not_fit(dtype)
    if kind in "iu" and numbers:
        bounds = np.iinfo(dtype)
        if min(numbers) < bounds.min or max(numbers) > bounds.max:
            raise _does_not_fit(dtype)
    if kind != "f":
        return np.array(numbers, dtype)
    wide = np.array(numbers, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(dtype)
        if not np.array_equal(np.isfinite(wide), np.isfinite(narrow.astype(np.float64))):
            raise _does_not_fit(dtype)
        if not np.array_equal(np.isnan(wide), np.isnan(narrow.astype(np.float64))):
            raise _does_not_fit(dtype)
    return narrow


def _complexes(numbers: list[Any], dtype: np.dtype[Any], words: Mapping[str, float]) -> np.ndarray[Any, Any]:
    part = np.dtype(f"f{dtype.itemsize // 2}")
    array = np.empty(len(numbers), dtype)
    pairs = [number if type(number) is dict else {"re": number, "im": 0} for number in numbers]
    if not all(pair.keys() == {"re", "im"} for pair in pairs):
        raise _does_not_fit(dtype)
    array.real = from_json_numbers([pair["re"] for pair in pairs], part, words)
    array.imag = from_json_numbers([pair["im"] for pair in pairs], part, words)
    return array


def _does_not_fit(dtype: np.dtype[Any]) -> WireError:
    return WireError(f"an element of an array object is no {dtype.name}", expected=f"{dtype.name} elements")
