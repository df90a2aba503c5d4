"""The tree grammar, read: from the plain values of a message to pytrees of arrays.

The grammar is one for all encodings. What differs (how an array looks, which
texts are numbers) is a `Grammar`, one per codec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradwire._errors import WireError
from gradwire.wire._dtypes import shown
from gradwire.wire._values import Bare, Limits, Ref

RESERVED = frozenset({"nd", "complex", "dtype", "base64", "re", "tuple", "ref", "dict", "csr"})
"""Keys that a dict may only have inside ``{"dict": {…}}``."""

Raw: TypeAlias = dict[str, Any]
Form: TypeAlias = "Callable[[Raw, Reading], Any]"


class Grammar(NamedTuple):
    """What is particular to one encoding.

    Attributes:
        forms: by their identifying key, the maps that stand for something else.
        words: texts that stand for numbers.
    """

    forms: Mapping[str, Form]
    words: Mapping[str, float]


class Reading(NamedTuple):
    """How to read: by which grammar, under which limits, arrays without data or not."""

    grammar: Grammar
    limits: Limits
    specs: bool


def read(raw: Any, reading: Reading) -> Any:
    """The pytree that a raw value stands for; WireError where it stands for none."""
    kind = type(raw)
    if kind is dict:
        return _read_map(raw, reading)
    if kind is list:
        return _read_list(raw, reading)
    if kind is str:
        return reading.grammar.words.get(raw, raw)
    if kind is int:
        return bare_integer(raw)
    if kind is np.ndarray:
        return _numbers(raw)
    if kind is memoryview:
        raise WireError("binary outside an array: only an array's data is binary")
    return raw


def bare_integer(value: int) -> int:
    """The integer itself; WireError where it does not fit int64."""
    if -(1 << 63) <= value < 1 << 63:
        return value
    raise _beyond_int64()


def exactly(raw: Raw, keys: frozenset[str], what: str) -> None:
    """Refuse a map whose keys are not these."""
    if raw.keys() == keys:
        return
    missing = sorted(keys - raw.keys())
    extra = sorted(shown(key) for key in islice(raw.keys() - keys, 3))
    got = [f"{name} {', '.join(found)}" for name, found in (("missing", missing), ("extra", extra)) if found]
    raise WireError(
        f'{what} has exactly these fields; a dict with a reserved key is written {{"dict": {{…}}}}',
        expected=", ".join(sorted(keys)),
        got="; ".join(got),
    )


def _read_map(raw: Raw, reading: Reading) -> Any:
    if RESERVED.isdisjoint(raw):
        return {key: read(value, reading) for key, value in raw.items()}
    for key, form in reading.grammar.forms.items():
        if key in raw:
            return form(raw, reading)
    found = ", ".join(sorted(RESERVED & raw.keys()))
    raise WireError(
        f"a dict has the reserved key {found}, which means nothing here: write "
        f'such a dict as {{"dict": {{…}}}}'
    )


# Lists ------------------------------------------------------------------------

_PLAIN: frozenset[type] = frozenset({bool, int, float})
_NUMBER: frozenset[type] = frozenset({bool, int, float, complex})


def _read_list(raw: list[Any], reading: Reading) -> Any:
    array = _regular(raw, reading.limits.rank)
    if array is not None:
        return array
    items = [read(item, reading) for item in raw]
    if all(type(item) in _NUMBER for item in items):
        return _vector(items, set(map(type, items)))
    # A raw list that reads as an array is a list of numbers; an array's map is not.
    rows = [
        type(part) in (list, np.ndarray) and isinstance(item, np.ndarray)
        for part, item in zip(raw, items, strict=True)
    ]
    if all(rows):
        return _stacked(items, reading.limits.rank)
    if any(rows) and all(row or type(item) in _NUMBER for row, item in zip(rows, items, strict=True)):
        raise _ragged()
    return items


def _regular(raw: list[Any], rank: int) -> np.ndarray[Any, Any] | None:
    """The array of regularly nested lists of bool, int and float, quickly; None for all else."""
    flat, shape = raw, [len(raw)]
    kinds = set(map(type, flat))
    while kinds == {list} and len(shape) < rank:
        lengths = set(map(len, flat))
        if len(lengths) > 1:
            return None
        shape.append(lengths.pop())
        flat = list(chain.from_iterable(flat))
        kinds = set(map(type, flat))
    if not kinds <= _PLAIN:
        return None
    array = _vector(flat, kinds)
    return array if len(shape) == 1 else array.reshape(shape)


def _vector(numbers: list[Any], kinds: set[type]) -> np.ndarray[Any, Any]:
    if bool in kinds:
        if len(kinds) > 1:
            raise _mixed()
        return np.array(numbers, np.bool_)
    if complex in kinds:
        return np.array(numbers, np.complex128)
    if float in kinds or not kinds:
        return np.array(numbers, np.float64)
    try:
        return np.array(numbers, np.int64).view(Bare)
    except OverflowError:
        raise _beyond_int64() from None


def _stacked(rows: list[np.ndarray[Any, Any]], rank: int) -> np.ndarray[Any, Any]:
    if len({row.shape for row in rows}) > 1:
        raise _ragged()
    if rows[0].ndim >= rank:
        raise WireError("lists nested too deep for an array", expected=f"at most {rank} dimensions")
    kinds = {row.dtype.kind for row in rows}
    if "b" in kinds and len(kinds) > 1:
        raise _mixed()
    return _numbers(np.stack(rows))


def _numbers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.view(Bare if array.dtype.kind == "i" else np.ndarray)


def _ragged() -> WireError:
    return WireError("a ragged list: nested lists of numbers have the same length at each level")


def _mixed() -> WireError:
    return WireError("a list mixes bools with numbers: write true and false as 1 and 0, or use a tuple")


def _beyond_int64() -> WireError:
    return WireError("a bare integer does not fit int64: send it as a uint64 array", expected="int64")


# Forms that every encoding has -------------------------------------------------


def _tuple(raw: Raw, reading: Reading) -> tuple[Any, ...]:
    exactly(raw, frozenset({"tuple"}), "a tuple")
    return tuple(read(item, reading) for item in items_of(raw["tuple"], "a tuple"))


def _dict(raw: Raw, reading: Reading) -> dict[str, Any]:
    exactly(raw, frozenset({"dict"}), "a literal dict")
    content = raw["dict"]
    if type(content) is not dict:
        raise WireError("a literal dict holds a map", got=f"a {type(content).__name__}")
    return {key: read(value, reading) for key, value in content.items()}


def _ref(raw: Raw, reading: Reading) -> Ref:
    exactly(raw, frozenset({"ref"}), "a resident array")
    digest = raw["ref"]
    if type(digest) is not str or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise WireError("a resident array is named by its SHA-256", expected="64 hex digits, lower case")
    return Ref(digest)


def _csr(raw: Raw, reading: Reading) -> Any:
    raise WireError("sparse matrices are not taken as arguments: send a dense array")


def items_of(raw: Any, what: str) -> list[Any]:
    """The items of a raw list; a long list of numbers may have come as an array."""
    if type(raw) is list:
        return raw
    if type(raw) is np.ndarray:
        numbers: list[Any] = raw.tolist()
        return numbers
    raise WireError(f"{what} holds a list", got=f"a {type(raw).__name__}")


COMMON_FORMS: dict[str, Form] = {"tuple": _tuple, "dict": _dict, "ref": _ref, "csr": _csr}


def read_static(raw: Any) -> Any:
    """A static argument: null, bool, int, float or str as it is, a list or ``{"tuple": […]}`` as a tuple."""
    kind = type(raw)
    if raw is None or kind in (bool, int, float, str):
        return raw
    if kind is dict:
        exactly(raw, frozenset({"tuple"}), "a static argument that is a tuple")
        raw = raw["tuple"]
    return tuple(read_static(item) for item in items_of(raw, "a static argument (no array is static)"))
