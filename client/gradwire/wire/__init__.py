"""The wire format: trees of arrays as msgpack and JSON (docs/wire.md).

=================  ==========================================================
`Codec`            `MSGPACK` and `JSON`: decode a body, encode fields
`Message`          a decoded body; `Message.tree` reads a field as a pytree
`Tree`             marks a pytree among the fields to encode
`Bare`, `Ref`      leaves: integers of a bare list, a resident array
`ArraySpec`        leaf: shape and dtype without data
`Limits`           what one message may ask for
`codec_for`        by Content-Type; `answer_codec` by Accept
`canonical`        the one message that stands for an array; `sha256` names it
`allowed_dtype`    the dtypes that cross; `dtype_name` their names
=================  ==========================================================

Nothing foreign is trusted: every length is checked before memory is taken,
dtypes come from a table, nothing is ever unpickled.
"""

from __future__ import annotations

from gradwire.wire._codec import Codec, Message
from gradwire.wire._dtypes import allowed_dtype, dtype_name
from gradwire.wire._json import JSON
from gradwire.wire._msgpack import MSGPACK, canonical, sha256
from gradwire.wire._negotiation import answer_codec, codec_for, problem_media_type
from gradwire.wire._stream import message_length
from gradwire.wire._values import ArraySpec, Bare, Limits, Ref, Tree

__all__ = [
    "JSON",
    "MSGPACK",
    "ArraySpec",
    "Bare",
    "Codec",
    "Limits",
    "Message",
    "Ref",
    "Tree",
    "allowed_dtype",
    "answer_codec",
    "canonical",
    "codec_for",
    "dtype_name",
    "message_length",
    "problem_media_type",
    "sha256",
]
