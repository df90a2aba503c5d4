"""What a codec is, and what it decodes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gradwire.wire._reading import Grammar, Reading, read, read_static
from gradwire.wire._values import DEFAULT_LIMITS, Limits


@dataclass
class Message:
    """A decoded message whose fields are not interpreted yet.

    Attributes:
        fields: numbers, str, bool, None, lists, dicts; in msgpack also binaries
            (memoryviews of the body), and long lists of numbers as 1-d arrays.
        style: how it was written: ``"str"`` or ``"bin"`` keys, or JSON's ``"lists"``.
    """

    fields: dict[str, Any]
    style: str
    grammar: Grammar
    limits: Limits

    def tree(self, raw: Any, *, specs: bool = False) -> Any:
        """Read one raw value of `fields` by the tree grammar.

        Args:
            raw: the value.
            specs: whether arrays may come without data, as `ArraySpec`.

        Returns:
            Arrays as ``np.ndarray`` (`Bare` from lists of integers), sharing the
            body's memory where they can; bare numbers as Python's bool, int,
            float, complex; str; None; `Ref`; lists, tuples and dicts of these.

        Raises:
            WireError: the value is no tree.
        """
        return read(raw, Reading(self.grammar, self.limits, specs))

    def static(self, raw: Any) -> Any:
        """Read one raw value as a static argument.

        Lists and tuples arrive as tuples; every text stays a text.

        Raises:
            WireError: it holds something that is never static, such as an array.
        """
        return read_static(raw)


class Codec(Protocol):
    """One encoding of messages."""

    @property
    def name(self) -> str:
        """``"msgpack"`` or ``"json"``."""

    @property
    def media_type(self) -> str:
        """The Content-Type to answer with."""

    def decode(self, body: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> Message:
        """Take a message apart.

        Arrays that `Message.tree` makes share the memory of ``body``, and are
        writable where it is: never use that buffer again.

        Raises:
            WireError: the body is no message, or exceeds a limit.
        """

    def encode(self, fields: Mapping[str, Any], style: str) -> list[bytes | memoryview]:
        """Write a message, in pieces to be sent one after the other.

        Args:
            fields: plain values (None, bool, int, float, str, bytes, lists,
                dicts), in which each pytree is marked by `Tree`.
            style: as in `Message.style`, or for JSON also ``"object"``, ``"base64"``.

        Returns:
            Pieces; large arrays are views of their own memory.

        Raises:
            DTypeError: an array's dtype is not one of the wire format.
            ArgumentError: a pytree holds something else than a `Tree` may hold.
            WireError: a number or text that the format has no place for.
        """
