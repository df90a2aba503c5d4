"""msgpack, taken apart in one pass over the body.

Not the msgpack package's Unpacker, because binaries must stay views of the
body, and because duplicate keys, ext types and lying lengths must be refused
before memory is taken for them.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any

import numpy as np

from gradwire._errors import WireError
from gradwire.wire._dtypes import shown
from gradwire.wire._short import LONG, SHORT, short_fields
from gradwire.wire._values import Limits

_NUMBER = {
    0xCA: Struct(">f"),
    0xCB: Struct(">d"),
    0xCC: Struct(">B"),
    0xCD: Struct(">H"),
    0xCE: Struct(">I"),
    0xCF: Struct(">Q"),
    0xD0: Struct(">b"),
    0xD1: Struct(">h"),
    0xD2: Struct(">i"),
    0xD3: Struct(">q"),
}
_LENGTH = {
    0xC4: Struct(">B"),
    0xC5: Struct(">H"),
    0xC6: Struct(">I"),
    0xD9: Struct(">B"),
    0xDA: Struct(">H"),
    0xDB: Struct(">I"),
    0xDC: Struct(">H"),
    0xDD: Struct(">I"),
    0xDE: Struct(">H"),
    0xDF: Struct(">I"),
}
_SINGLE = {0xC0: None, 0xC2: False, 0xC3: True}
_ROW = {
    tag: np.dtype([("tag", "u1"), ("number", code)])
    for tag, code in {
        0xCA: ">f4",
        0xCB: ">f8",
        0xCD: ">u2",
        0xCE: ">u4",
        0xD1: ">i2",
        0xD2: ">i4",
        0xD3: ">i8",
    }.items()
}


def unpack(body: bytes | bytearray | memoryview, limits: Limits) -> tuple[dict[str, Any], str]:
    """The map that a whole body is, and the style of its keys, ``"str"`` or ``"bin"``.

    Binaries are memoryviews of the body (of copies, where it is short). Lists of at least 64 numbers of one
    width are 1-d arrays, float64 or int64.

    Raises:
        WireError: the body is anything else than one such map, or exceeds a limit.
    """
    view = memoryview(body).cast("B")
    if len(view) > limits.body_bytes:
        raise WireError(
            "the message is too large", kind="too-large", expected=f"at most {limits.body_bytes} bytes"
        )
    if len(view) <= min(SHORT, limits.objects):
        short = short_fields(view, limits.depth)
        if short is not None:
            return short, "str"
    reader = _Reader(body if type(body) in (bytes, bytearray) else view, view, limits)
    try:
        fields = reader.value(limits.depth)
    except (IndexError, error):
        raise _truncated() from None
    except UnicodeDecodeError:
        raise WireError("a text of the message is not UTF-8") from None
    if reader.position != len(view):
        raise WireError("bytes follow the message", got=f"{len(view) - reader.position} bytes too many")
    if type(fields) is not dict:
        raise WireError("a message is a map of fields", got=f"a {type(fields).__name__}")
    return fields, reader.style or "str"


def _truncated() -> WireError:
    return WireError("the message ends before it is complete: a length in it is wrong, or it was cut off")


class _Reader:
    """Reads values one after the other, each length checked against what is left."""

    __slots__ = ("body", "budget", "end", "limits", "position", "style", "view")

    def __init__(self, body: bytes | bytearray | memoryview, view: memoryview, limits: Limits) -> None:
        self.body = body  # the same bytes, cheaper to take small things from
        self.view = view
        self.position = 0
        self.end = len(view)
        self.budget = limits.objects
        self.limits = limits
        self.style: str | None = None

    def value(self, depth: int) -> Any:
        position = self.position
        tag = self.body[position]
        self.position = position + 1
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 256
        if tag < 0x90:
            return self.map(tag & 15, depth)
        if tag < 0xA0:
            return self.array(tag & 15, depth)
        if tag < 0xC0:
            return self.text(tag & 31)
        number = _NUMBER.get(tag)
        if number is not None:
            self.position += number.size
            return number.unpack_from(self.view, position + 1)[0]
        if tag in _SINGLE:
            return _SINGLE[tag]
        if tag in _LENGTH:
            length = self.length(tag)
            if tag <= 0xC6:
                return self.take(length)
            if tag <= 0xDB:
                return self.text(length)
            return self.array(length, depth) if tag <= 0xDD else self.map(length, depth)
        if tag == 0xC1:
            raise WireError("the byte 0xc1 means nothing in msgpack")
        raise WireError("msgpack's ext types (timestamps among them) are not part of this format")

    def length(self, tag: int) -> int:
        form = _LENGTH[tag]
        length: int = form.unpack_from(self.view, self.position)[0]
        self.position += form.size
        return length

    def text(self, length: int) -> str:
        start = self.position
        stop = self.position = start + length
        if stop > self.end:
            raise _truncated()
        return str(self.body[start:stop], "utf-8")

    def take(self, length: int) -> memoryview:
        start = self.position
        stop = self.position = start + length
        if stop > self.end:
            raise _truncated()
        return self.view[start:stop]

    def enter(self, items: int, depth: int) -> None:
        """Refuse a container before memory is taken for it."""
        if depth <= 0:
            raise WireError("the message is nested too deep", expected=f"at most {self.limits.depth} levels")
        if items > self.end - self.position:
            raise _truncated()
        self.budget -= items
        if self.budget < 0:
            raise WireError(
                "the message holds too many objects: send numbers as arrays",
                kind="too-large",
                expected=f"at most {self.limits.objects} objects",
            )

    def array(self, length: int, depth: int) -> Any:
        if length >= LONG:
            numbers = self.numbers(length)
            if numbers is not None:
                return numbers
        self.enter(length, depth)
        depth -= 1
        return [self.value(depth) for _ in range(length)]

    def numbers(self, length: int) -> np.ndarray[Any, Any] | None:
        """A long list of numbers of one width as an array, at no cost per number; None if it is none."""
        start = self.position
        first = self.view[start]
        row = _ROW.get(first)
        if row is None:
            if first >= 0x80 or length > self.end - start:
                return None
            small = np.ndarray(length, np.uint8, buffer=self.view, offset=start)
            if small.max() >= 0x80:
                return None
            self.position = start + length
            return small.astype(np.int64)
        if length * row.itemsize > self.end - start:
            return None
        rows = np.ndarray(length, row, buffer=self.view, offset=start)
        if (rows["tag"] != first).any():
            return None
        self.position = start + length * row.itemsize
        return rows["number"].astype(np.float64 if first <= 0xCB else np.int64)

    def map(self, length: int, depth: int) -> dict[str, Any]:
        self.enter(2 * length, depth)
        depth -= 1
        result: dict[str, Any] = {}
        body = self.body
        for _ in range(length):
            tag = body[self.position]
            if 0xA0 <= tag < 0xC0 and self.style == "str":
                self.position += 1
                key = self.text(tag & 31)
            else:
                key = self.key()
            if key in result:
                raise WireError("a map has the same key twice", got=shown(key))
            tag = body[self.position]
            if 0xA0 <= tag < 0xC0:  # what most values are, without another call
                self.position += 1
                result[key] = self.text(tag & 31)
            else:
                result[key] = self.value(depth)
        return result

    def key(self) -> str:
        tag = self.body[self.position]
        self.position += 1
        if 0xA0 <= tag < 0xC0:
            style, length = "str", tag & 31
        elif 0xD9 <= tag <= 0xDB:
            style, length = "str", self.length(tag)
        elif 0xC4 <= tag <= 0xC6:
            style, length = "bin", self.length(tag)
        else:
            raise WireError("the keys of a map are text", expected="str (or bin) keys")
        if style != self.style:
            if self.style is not None:
                raise WireError(
                    "keys of both kinds: write all keys of a message as str, or all as bin "
                    "(with msgpack-numpy, give your own keys as bytes too)",
                    expected=f"{self.style} keys",
                    got=f"a {style} key",
                )
            self.style = style
        return self.text(length)
