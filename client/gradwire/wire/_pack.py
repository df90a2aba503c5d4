"""msgpack, put together: small things in one buffer, large arrays as views of their own memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from gradwire._errors import ArgumentError
from gradwire.wire._arrays import bytes_of, sendable
from gradwire.wire._dtypes import dtype_code
from gradwire.wire._heads import array_head, binary_head, list_head, map_head, padded_head
from gradwire.wire._reading import RESERVED, bare_integer
from gradwire.wire._values import ArraySpec, Bare, Ref, Tree

ONE_BIN = (1 << 32) - 1
"""Bytes that fit one binary; larger arrays are written as several."""

PIECE = 1 << 30
"""Bytes of each binary of an array that does not fit one."""

_INLINE = 1 << 14
"""Bytes up to which an array's data is copied into the message rather than sent as its own piece."""

_ALIGNED = 1 << 16
"""Bytes from which an array's data is put on a multiple of 64, so that receivers can use it in place."""

# Made once: a union of types written in place is made anew at every look.
_SCALARS = (bool, int, float, str, bytes)
_LISTS = (list, tuple)


class Packer:
    """Writes values one after the other; `pieces` gives the message.

    Args:
        style: of keys, ``"str"`` or ``"bin"``.
        align: whether large arrays may be padded to stand on a multiple of 64.
        one_bin: bytes above which an array's data is written as several binaries.
        piece: bytes of each of these.
    """

    def __init__(self, style: str, *, align: bool, one_bin: int = ONE_BIN, piece: int = PIECE) -> None:
        if style not in ("str", "bin"):
            raise ValueError(f"msgpack keys are 'str' or 'bin', not {style!r}")
        self._style = style
        self._align = align and style == "str"
        self._one_bin = one_bin
        self._piece = piece
        self._scalar = msgpack.Packer(buf_size=1024).pack
        self._done: list[bytes | memoryview] = []
        self._sent = 0
        self._small = bytearray()

    def pieces(self) -> list[bytes | memoryview]:
        """What was written, to be sent one after the other."""
        self._flush()
        return self._done

    def plain(self, value: Any) -> None:
        """Write a value of a field: plain, but for the pytrees marked in it."""
        if type(value) is Tree:
            self.tree(value.value)
        elif value is None or isinstance(value, _SCALARS):
            self._small += self._scalar(value)
        elif isinstance(value, _LISTS):
            self._small += list_head(len(value))
            for item in value:
                self.plain(item)
        elif isinstance(value, Mapping):
            self._small += map_head(len(value))
            for key, item in value.items():
                self._key(key)
                self.plain(item)
        else:
            raise ArgumentError(f"a {type(value).__name__} stands outside a Tree", got=type(value).__name__)

    def tree(self, value: Any) -> None:
        """Write a pytree."""
        kind = type(value)
        if isinstance(value, np.ndarray):
            if kind is Bare and value.dtype == np.int64 and value.size and value.ndim:
                self._small += self._scalar(value.tolist())
            else:
                self._array(value)
        elif value is None or kind in (bool, float, str):
            self._small += self._scalar(value)
        elif kind is int:
            self._small += self._scalar(bare_integer(value))
        elif isinstance(value, np.generic):
            self._array(np.asarray(value))
        elif kind is list:
            self._items(value)
        elif kind is tuple:
            self._wrap("tuple")
            self._items(value)
        elif kind is dict:
            self._dict(value)
        elif kind is complex:
            self._fields({"complex": True, "data": repr(value)})
        elif kind is Ref:
            self._fields({"ref": value.sha256})
        elif kind is ArraySpec:
            empty = "" if self._style == "str" else b""
            code = dtype_code(value.dtype)
            self._fields({"nd": True, "type": code, "kind": empty, "shape": list(value.shape)})
        else:
            raise cannot_be_sent(value)

    def _items(self, values: list[Any] | tuple[Any, ...]) -> None:
        self._small += list_head(len(values))
        for item in values:
            self.tree(item)

    def _dict(self, value: dict[str, Any]) -> None:
        if not RESERVED.isdisjoint(value):
            self._wrap("dict")
        self._small += map_head(len(value))
        for key, item in value.items():
            self._key(key)
            self.tree(item)

    def _wrap(self, key: str) -> None:
        self._small += map_head(1)
        self._key(key)

    def _fields(self, fields: dict[str, Any]) -> None:
        self._small += map_head(len(fields))
        for key, item in fields.items():
            self._key(key)
            self._small += self._scalar(item)

    def _key(self, key: Any) -> None:
        text = text_key(key)
        self._small += self._scalar(text if self._style == "str" else text.encode())

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        array = sendable(array)
        code, shape, memory = dtype_code(array.dtype), array.shape, bytes_of(array)
        head = array_head(code, shape, self._style)
        if len(memory) > self._one_bin:
            starts = range(0, len(memory), self._piece)
            self._small += head + list_head(len(starts))
            for start in starts:
                self._binary(memory[start : start + self._piece])
            return
        if self._align and len(memory) >= _ALIGNED:
            offset = self._sent + len(self._small) + len(head) + len(binary_head(len(memory)))
            head = padded_head(code, shape, -offset % 64) or head
        self._small += head
        self._binary(memory)

    def _binary(self, memory: memoryview) -> None:
        self._small += binary_head(len(memory))
        if len(memory) <= _INLINE:
            self._small += memory
        else:
            self._flush()
            self._done.append(memory)
            self._sent += len(memory)

    def _flush(self) -> None:
        if self._small:
            self._done.append(bytes(self._small))
            self._sent += len(self._small)
            self._small.clear()


def text_key(key: Any) -> str:
    """A dict's key, which must be text."""
    if isinstance(key, str):
        return key
    raise ArgumentError("the keys of a dict are text", expected="str keys", got=type(key).__name__)


def cannot_be_sent(value: Any) -> ArgumentError:
    """The error for something that no tree holds."""
    kind = type(value).__name__
    return ArgumentError(
        f"a {kind} cannot be sent",
        expected="arrays, numbers, text, None, and lists, tuples and dicts of these",
        got=kind,
    )
