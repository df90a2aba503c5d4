"""The JSON codec: the same tree, with arrays as nested lists or as objects."""

from __future__ import annotations

import json
import math
from binascii import Error, a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from gradwire._errors import ArgumentError, WireError
from gradwire.wire._arrays import SPEC_ELEMENTS, array_from, bytes_of, extent, sendable
from gradwire.wire._codec import Message
from gradwire.wire._dtypes import dtype_name, dtype_of_name, shown
from gradwire.wire._numbers import from_json_numbers, to_json_numbers
from gradwire.wire._pack import cannot_be_sent, text_key
from gradwire.wire._reading import COMMON_FORMS, RESERVED, Grammar, Raw, Reading, bare_integer, exactly
from gradwire.wire._values import DEFAULT_LIMITS, ArraySpec, Bare, Limits, Ref, Tree

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FLAT = frozenset({"dtype", "shape", "data"})
_BASE64 = frozenset({"dtype", "shape", "base64"})
_SPEC = frozenset({"dtype", "shape"})
_COMPLEX = frozenset({"re", "im"})

_EMPTY_LISTS = 10_000
"""Empty lists that an array without elements may be written as."""


# Reading ------------------------------------------------------------------------


def _array(raw: Raw, reading: Reading) -> np.ndarray[Any, Any] | ArraySpec:
    limits = reading.limits
    if "base64" in raw:
        exactly(raw, _BASE64, "an array as base64")
        return array_from(dtype_of_name(raw["dtype"]), raw["shape"], _binary(raw["base64"]), limits)
    if reading.specs and raw.keys() == _SPEC:
        shape, _ = extent(raw["shape"], limits.rank, SPEC_ELEMENTS)
        return ArraySpec(shape, dtype_of_name(raw["dtype"]))
    exactly(raw, _FLAT, "an array as an object")
    dtype = dtype_of_name(raw["dtype"])
    shape, size = extent(raw["shape"], limits.rank, limits.elements)
    numbers = raw["data"]
    if type(numbers) is not list:
        raise WireError("the data of an array object is a flat list", got=f"a {type(numbers).__name__}")
    if len(numbers) != size:
        raise WireError(
            "the data of an array object does not fit its shape",
            expected=f"{size} elements",
            got=f"{len(numbers)} elements",
        )
    return from_json_numbers(numbers, dtype, _WORDS).reshape(shape)


def _binary(text: Any) -> memoryview:
    try:
        if type(text) is str:
            return memoryview(a2b_base64(text, strict_mode=True))
    except (Error, ValueError):
        pass
    raise WireError(
        "the field base64 of an array is not base64", expected="base64 with padding, no line ends"
    )


def _complex(raw: Raw, reading: Reading) -> complex:
    exactly(raw, _COMPLEX, "a complex number")
    parts = [_WORDS.get(part, part) if type(part) is str else part for part in (raw["re"], raw["im"])]
    if not all(type(part) in (int, float) for part in parts):
        raise WireError("a complex number has the numbers re and im")
    return complex(*parts)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise WireError("an object has the same key twice", got=shown(twice))
    return result


def _constant(name: str) -> NoReturn:
    raise WireError(f'{name} is no JSON number: write it as the text "{name}"', got=name)


def _check(value: Any, depth: int, limits: Limits) -> None:
    """Refuse what Python's parser lets pass: depth, long integers, 1e999, lone surrogates."""
    kind = type(value)
    if kind is list or kind is dict:
        if depth <= 0:
            raise _too_deep(limits)
        if kind is dict:
            for key in value:
                _check(key, depth, limits)
            value = list(value.values())
        kinds = set(map(type, value))
        if kinds == {float}:
            if math.inf in value or -math.inf in value:
                raise _too_large()
        elif kinds == {int}:
            _check(min(value), depth, limits)
            _check(max(value), depth, limits)
        else:
            for item in value:
                _check(item, depth - 1, limits)
    elif kind is int:
        if not -(1 << 63) <= value < 1 << 64:
            raise WireError("an integer does not fit 64 bits", expected="int64")
    elif kind is float:
        if math.isinf(value):
            raise _too_large()
    elif kind is str and not value.isascii():
        value.encode()  # raises UnicodeEncodeError on a lone surrogate


def _too_deep(limits: Limits) -> WireError:
    return WireError("the message is nested too deep", expected=f"at most {limits.depth} levels")


def _too_large() -> WireError:
    return WireError('a number does not fit float64: infinity is written as the text "Infinity"')


# Writing ------------------------------------------------------------------------


def _plain(value: Any, style: str) -> Any:
    if type(value) is Tree:
        return _tree(value.value, style)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {text_key(key): _plain(item, style) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, style) for item in value]
    raise ArgumentError(f"a {type(value).__name__} stands outside a Tree", got=type(value).__name__)


def _tree(value: Any, style: str) -> Any:
    kind = type(value)
    if isinstance(value, np.ndarray):
        if kind is Bare and value.dtype == np.int64 and value.size and value.ndim:
            return value.tolist()
        return _written(value, style)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return bare_integer(value)
    if kind is float:
        return _number(value)
    if isinstance(value, np.generic):
        return _written(np.asarray(value), style)
    if kind is list:
        return [_tree(item, style) for item in value]
    if kind is tuple:
        return {"tuple": [_tree(item, style) for item in value]}
    if kind is dict:
        content = {text_key(key): _tree(item, style) for key, item in value.items()}
        return content if RESERVED.isdisjoint(content) else {"dict": content}
    if kind is complex:
        return {"re": _number(value.real), "im": _number(value.imag)}
    if kind is Ref:
        return {"ref": value.sha256}
    if kind is ArraySpec:
        return {"dtype": dtype_name(value.dtype), "shape": list(value.shape)}
    raise cannot_be_sent(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _written(array: np.ndarray[Any, Any], style: str) -> Any:
    name = dtype_name(array.dtype)
    if style == "base64":
        text = b2a_base64(bytes_of(sendable(array)), newline=False).decode("ascii")
        return {"dtype": name, "shape": list(array.shape), "base64": text}
    numbers = to_json_numbers(array.reshape(-1))
    if style == "object":
        return {"dtype": name, "shape": list(array.shape), "data": numbers}
    return _nested(numbers, array.shape)


def _nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    if 0 in shape:
        if math.prod(shape[: shape.index(0)]) > _EMPTY_LISTS:
            raise WireError(
                "an empty array has too many rows to be written as lists; ask for arrays=object or base64",
                kind="too-large",
                expected=f"at most {_EMPTY_LISTS} empty lists",
            )
        return np.empty(shape).tolist()
    for length in reversed(shape[1:]):
        flat = [flat[start : start + length] for start in range(0, len(flat), length)]
    return flat


class _Json:
    name = "json"
    media_type = "application/json"
    _grammar = Grammar({"dtype": _array, "re": _complex, **COMMON_FORMS}, _WORDS)

    def decode(self, body: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> Message:
        if len(body) > limits.body_bytes:
            raise WireError(
                "the message is too large", kind="too-large", expected=f"at most {limits.body_bytes} bytes"
            )
        try:
            text = str(body, "utf-8")
            # Counted in the text, strings and all, before any object is made of it.
            if text.count("[") + text.count("{") + text.count(":") > limits.objects:
                raise WireError(
                    "the message holds too many objects: send arrays as base64, or as msgpack",
                    kind="too-large",
                    expected=f"at most {limits.objects} objects",
                )
            fields = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
            _check(fields, limits.depth, limits)
        except RecursionError:
            raise _too_deep(limits) from None
        except UnicodeDecodeError:
            raise WireError("the message is not UTF-8") from None
        except UnicodeEncodeError:
            raise WireError("a text of the message has a lone surrogate") from None
        except json.JSONDecodeError as error:
            raise WireError(f"the message is not JSON: {error.msg} at character {error.pos}") from None
        except WireError:
            raise
        except ValueError:  # Python's own bound on the digits of an integer
            raise WireError("an integer does not fit 64 bits", expected="int64") from None
        if type(fields) is not dict:
            raise WireError("a message is an object of fields", got=f"a {type(fields).__name__}")
        return Message(fields, "lists", self._grammar, limits)

    def encode(self, fields: Mapping[str, Any], style: str) -> list[bytes | memoryview]:
        if style not in ("lists", "object", "base64"):
            raise ValueError(f"JSON writes arrays as 'lists', 'object' or 'base64', not {style!r}")
        try:
            content = _plain(fields, style)
            return [json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()]
        except UnicodeEncodeError:
            raise WireError("a text with a lone surrogate cannot be sent") from None


JSON = _Json()
"""The JSON codec."""
