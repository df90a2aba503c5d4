"""Short messages, taken apart by msgpack's own unpacker where nothing in them is unusual.

It takes half the time of `_unpack`'s reader, which most of a short message's cost is. It
copies binaries and knows none of the format's rules, so it has the short ones only, the rules are
checked here, and whatever breaks one, or is merely rare, is left to the reader, which says why.
"""

from __future__ import annotations

from typing import Any, Never

import msgpack  # type: ignore[import-untyped]

SHORT = 1 << 10
"""Bytes of a message up to which its binaries may be copied."""

LONG = 64
"""From this length on a list of equally wide numbers is read as one array (by the reader)."""

_USUAL = frozenset({str, int, float, bool, type(None), dict, list})


class _Unusual(ValueError):
    """Something that is not looked at here."""


def short_fields(view: memoryview, depth: int) -> dict[str, Any] | None:
    """The map that a whole body is, its keys text; None: let the reader see.

    Binaries are memoryviews of copies, writable where ``view`` is.
    """
    rules = _Rules(depth, bytes if view.readonly else bytearray)
    try:
        fields = msgpack.unpackb(
            view, object_pairs_hook=rules.map, list_hook=rules.list, ext_hook=_unusual, strict_map_key=True
        )
    except (ValueError, RecursionError):
        return None
    return fields if type(fields) is dict else None


def _unusual(*anything: object) -> Never:
    raise _Unusual


class _Rules:
    __slots__ = ("binary", "left")

    def __init__(self, depth: int, binary: type[bytes] | type[bytearray]) -> None:
        self.left = depth  # No more containers than that are in no place nested deeper.
        self.binary = binary

    def map(self, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        self.left -= 1
        fields = dict(pairs)
        if len(fields) != len(pairs) or self.left < 0:
            raise _Unusual
        for key, value in pairs:
            if type(key) is not str:
                raise _Unusual
            kind = type(value)
            if kind is bytes:
                fields[key] = memoryview(self.binary(value))
            elif kind not in _USUAL:
                raise _Unusual
        return fields

    def list(self, items: list[Any]) -> list[Any]:
        self.left -= 1
        if len(items) >= LONG or self.left < 0 or not _USUAL.issuperset(map(type, items)):
            raise _Unusual
        return items
