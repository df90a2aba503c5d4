"""The msgpack codec, and the canonical form of an array."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256 as _sha256
from typing import Any

import numpy as np

from gradwire._errors import WireError
from gradwire.wire._arrays import SPEC_ELEMENTS, array_from, extent
from gradwire.wire._codec import Message
from gradwire.wire._dtypes import dtype_of_code
from gradwire.wire._pack import ONE_BIN, PIECE, Packer
from gradwire.wire._reading import COMMON_FORMS, Grammar, Raw, Reading, exactly
from gradwire.wire._unpack import unpack
from gradwire.wire._values import DEFAULT_LIMITS, ArraySpec, Limits

_ARRAY = frozenset({"nd", "type", "kind", "shape", "data"})
_SPEC = _ARRAY - {"data"}
_SCALAR = frozenset({"nd", "type", "data"})
_COMPLEX = frozenset({"complex", "data"})


def _array(raw: Raw, reading: Reading) -> np.ndarray[Any, Any] | ArraySpec:
    if raw["nd"] is False:
        exactly(raw, _SCALAR, "a NumPy scalar (nd false)")
        return array_from(dtype_of_code(raw["type"]), [], raw["data"], reading.limits)
    if raw["nd"] is not True:
        raise WireError("the field nd of an array is true or false")
    without_data = reading.specs and raw.keys() == _SPEC
    if not without_data:
        exactly(raw, _ARRAY, "an array (nd true)")
    kind = raw["kind"]
    if type(kind) not in (str, memoryview) or len(kind):
        raise WireError("the field kind of an array is empty: objects and structured types are never taken")
    dtype = dtype_of_code(raw["type"])
    if without_data:
        shape, _ = extent(raw["shape"], reading.limits.rank, SPEC_ELEMENTS)
        return ArraySpec(shape, dtype.newbyteorder("="))
    return array_from(dtype, raw["shape"], raw["data"], reading.limits)


def _complex(raw: Raw, reading: Reading) -> complex:
    exactly(raw, _COMPLEX, "a complex number")
    text = raw["data"]
    # The repr of a complex number has at most 52 characters.
    if raw["complex"] is True and type(text) is str and len(text) <= 64 and "_" not in text:
        try:
            return complex(text)
        except ValueError:
            pass
    raise WireError('a complex number is {complex: true, data: "(1+2j)"}')


class _MsgPack:
    name = "msgpack"
    media_type = "application/msgpack"
    _grammar = Grammar({"nd": _array, "complex": _complex, **COMMON_FORMS}, {})

    def decode(self, body: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> Message:
        fields, style = unpack(body, limits)
        return Message(fields, style, self._grammar, limits)

    def encode(self, fields: Mapping[str, Any], style: str) -> list[bytes | memoryview]:
        packer = Packer(style, align=True)
        try:
            packer.plain(fields)
        except OverflowError:
            raise WireError("an integer does not fit 64 bits", expected="int64") from None
        except UnicodeEncodeError:
            raise WireError("a text with a lone surrogate cannot be sent") from None
        return packer.pieces()


MSGPACK = _MsgPack()
"""The msgpack codec."""


def canonical(
    array: np.ndarray[Any, Any], *, one_bin: int = ONE_BIN, piece: int = PIECE
) -> list[bytes | memoryview]:
    """The one message that stands for an array, in pieces; its hash names the array.

    Text keys in the order nd, type, kind, shape, data, shortest forms,
    little-endian, C order; data above ``one_bin`` bytes as binaries of ``piece``.

    Raises:
        DTypeError: the array's dtype is not one of the wire format.
    """
    packer = Packer("str", align=False, one_bin=one_bin, piece=piece)
    packer.tree(np.asarray(array))
    return packer.pieces()


def sha256(array: np.ndarray[Any, Any]) -> str:
    """The SHA-256 of the canonical form of an array, as 64 hex digits."""
    digest = _sha256()
    for piece in canonical(array):
        digest.update(piece)
    return digest.hexdigest()
