"""Messages one after the other: how long the next one is, before all of it is here."""

from __future__ import annotations

from gradwire._errors import WireError

# After these tags: how many bytes tell the length, and what it counts.
_LENGTHS = {
    0xC4: (1, "bytes"), 0xC5: (2, "bytes"), 0xC6: (4, "bytes"),
    0xD9: (1, "bytes"), 0xDA: (2, "bytes"), 0xDB: (4, "bytes"),
    0xDC: (2, "items"), 0xDD: (4, "items"), 0xDE: (2, "pairs"), 0xDF: (4, "pairs"),
}  # fmt: skip
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
}  # fmt: skip


def message_length(begun: memoryview) -> int | None:
    """The length in bytes of the msgpack value that ``begun`` is the beginning of.

    Known as soon as all its heads are here: a binary that ends it need not be. None until then.

    Raises:
        WireError: bytes that begin no value of the format.
    """
    position, end, open_values = 0, len(begun), 1
    while open_values:
        if position >= end:
            return None
        tag = begun[position]
        position += 1
        open_values -= 1
        if tag < 0x80 or tag >= 0xE0:
            continue
        if tag < 0x90:
            open_values += 2 * (tag & 15)
        elif tag < 0xA0:
            open_values += tag & 15
        elif tag < 0xC0:
            position += tag & 31
        elif tag in _FIXED:
            position += _FIXED[tag]
        elif tag in _LENGTHS:
            width, counts = _LENGTHS[tag]
            if position + width > end:
                return None
            length = int.from_bytes(begun[position : position + width], "big")
            position += width
            if counts == "bytes":
                position += length
            else:
                open_values += length * (2 if counts == "pairs" else 1)
        else:
            raise WireError("the stream holds something that is no message", got=f"byte 0x{tag:02x}")
    return position
