"""The bytes in front of things: msgpack's length headers, and an array's map up to its data."""

from __future__ import annotations

from functools import lru_cache
from struct import pack


def list_head(length: int) -> bytes:
    """The header of a list."""
    return pack(">B", 0x90 | length) if length < 16 else pack(">BI", 0xDD, length)


def map_head(length: int) -> bytes:
    """The header of a map."""
    return pack(">B", 0x80 | length) if length < 16 else pack(">BI", 0xDF, length)


def binary_head(length: int) -> bytes:
    """The shortest header of a binary."""
    if length < 1 << 8:
        return pack(">BB", 0xC4, length)
    return pack(">BH", 0xC5, length) if length < 1 << 16 else pack(">BI", 0xC6, length)


@lru_cache(maxsize=256)
def array_head(code: str, shape: tuple[int, ...], style: str) -> bytes:
    """An array's map from its header to the key of its data, in the shortest forms."""
    if style == "bin":
        opening, kind, data = (
            b"\x85\xc4\x02nd\xc3\xc4\x04type",
            b"\xc4\x04kind\xc4\x00\xc4\x05shape",
            b"\xc4\x04data",
        )
    else:
        opening, kind, data = b"\x85\xa2nd\xc3\xa4type", b"\xa4kind\xa0\xa5shape", b"\xa4data"
    return b"".join((opening, _text(code, 0), kind, _dims(shape, 0), data))


def padded_head(code: str, shape: tuple[int, ...], pad: int) -> bytes | None:
    """`array_head` with str keys, made ``pad`` bytes longer by wide forms; None where they do not add up."""
    texts = ("nd", "type", code, "kind", "", "shape", "data")
    choices = [(4, 0), (4, 0) if len(shape) < 16 else (0,), *[(4, 2, 1, 0)] * len(texts)]
    wider = []
    for widths in choices:
        wider.append(next(width for width in widths if width <= pad))
        pad -= wider[-1]
    if pad:
        return None
    nd, type_, code_, kind, empty, shape_, data = map(_text, texts, wider[2:])
    opening = b"\xdf\x00\x00\x00\x05" if wider[0] else b"\x85"
    return b"".join((opening, nd, b"\xc3", type_, code_, kind, empty, shape_, _dims(shape, wider[1]), data))


def _text(text: str, wider: int) -> bytes:
    """A text of less than 32 bytes, in the form that is ``wider`` bytes longer than the shortest."""
    content = text.encode()
    form = {0: ">B", 1: ">BB", 2: ">BH", 4: ">BI"}[wider]
    head = (0xA0 | len(content),) if wider == 0 else ({1: 0xD9, 2: 0xDA, 4: 0xDB}[wider], len(content))
    return pack(form, *head) + content


def _dims(shape: tuple[int, ...], wider: int) -> bytes:
    rank = len(shape)
    if wider:
        head = pack(">BI", 0xDD, rank)
    else:
        head = pack(">B", 0x90 | rank) if rank < 16 else pack(">BH", 0xDC, rank)
    return head + b"".join(map(_dim, shape))


def _dim(length: int) -> bytes:
    if length < 1 << 7:
        return pack(">B", length)
    if length < 1 << 8:
        return pack(">BB", 0xCC, length)
    if length < 1 << 16:
        return pack(">BH", 0xCD, length)
    return pack(">BI", 0xCE, length) if length < 1 << 32 else pack(">BQ", 0xCF, length)
