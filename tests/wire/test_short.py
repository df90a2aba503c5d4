"""Short messages are read the short way, to the same end."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwire import wire
from gradwire._errors import WireError
from gradwire.wire import _unpack
from gradwire.wire._short import SHORT, short_fields
from gradwire.wire._values import DEFAULT_LIMITS, Limits

# Whether they are read the same, not how soon on a busy machine.
unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def carefully(body: bytes | bytearray, limits: Limits = DEFAULT_LIMITS) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_unpack, "short_fields", lambda view, depth: None)
        return _unpack.unpack(body, limits)


def outcome(read: Any, body: bytes | bytearray, limits: Limits = DEFAULT_LIMITS) -> Any:
    try:
        fields, style = read(body, limits)
    except WireError as error:
        return str(error)
    return plain(fields), style


def plain(value: Any) -> Any:
    """A value that compares: types beside contents, NaN equal to itself."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, repr(value.tolist())
    if isinstance(value, memoryview):
        return "binary", bytes(value), value.readonly, value.format
    return type(value), repr(value)


NUMBERS = st.integers(-200, 200) | st.floats(width=32)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(width=32)
    | st.text()
    | st.binary()
    | st.builds(lambda number, length: [number] * length, NUMBERS, st.integers(60, 70)),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.binary(max_size=4) | st.integers(0, 3), inner)
    ),
    max_leaves=6,
)


# float32's numbers, so that both widths can hold them.
@unhurried
@given(st.dictionaries(st.text(), VALUES, max_size=3), st.booleans())
def test_a_message_reads_the_same_both_ways(fields: dict[str, Any], single: bool) -> None:
    for body in (msgpack.packb(fields, use_single_float=single), bytearray(msgpack.packb(fields))):
        assert outcome(_unpack.unpack, body) == outcome(carefully, body)


@unhurried
@given(st.dictionaries(st.text(), VALUES, max_size=3), st.data())
def test_a_broken_message_is_refused_the_same_both_ways(fields: dict[str, Any], data: Any) -> None:
    body = bytearray(msgpack.packb(fields))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body += data.draw(st.binary(max_size=2))
    assert outcome(_unpack.unpack, body) == outcome(carefully, body)


@unhurried
@given(st.binary(max_size=60))
def test_noise_is_refused_the_same_both_ways(body: bytes) -> None:
    assert outcome(_unpack.unpack, body) == outcome(carefully, body)


@pytest.mark.parametrize(
    "body",
    [
        b"\x81\xa1a\xd6\xff\0\0\0\0",
        b"\x81\xa1a\xc7\x0c\xff" + bytes(12),
        b"\x81\xa1a\xd4\x05\0",
        b"\x82\xa1a\x01\xa1a\x02",
        b"\x81\xc4\x01a\x01",
        b"\x82\xa1a\x01\xc4\x01b\x01",
        b"\x81\x01\x01",
        b"\x81\xa1a" + b"\x91" * 70 + b"\xc0",
        b"\x81\xa1a" + b"\x91" * 1000 + b"\xc0",
        b"\x81\xa1a" + b"\x81\xa1a" * 70 + b"\xc0",
        b"\x81\xa1a\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xc1",
        b"\x81\xa1a\xa1\xff",
        b"\x90",
        b"\x05",
        b"",
    ],
)
def test_each_rule_holds_in_short_messages_too(body: bytes) -> None:
    assert outcome(_unpack.unpack, body) == outcome(carefully, body)


@pytest.mark.parametrize(
    "limits", [Limits(objects=3), Limits(depth=2), Limits(depth=3), Limits(body_bytes=9)]
)
def test_limits_hold_in_short_messages_too(limits: Limits) -> None:
    for body in (
        msgpack.packb({"a": [1, 2, 3]}),
        msgpack.packb({"a": [{"b": []}]}),
        msgpack.packb({"a": [1]}),
    ):
        assert outcome(_unpack.unpack, body, limits) == outcome(carefully, body, limits)


def test_a_usual_message_goes_the_short_way() -> None:
    tree = {"x": np.arange(3.0), "y": (1, None, [True, "text", 2.5])}
    body = b"".join(wire.MSGPACK.encode({"args": [wire.Tree(tree)], "meta": {"id": "a"}}, "str"))
    assert len(body) <= SHORT
    assert short_fields(memoryview(body), 64) is not None
