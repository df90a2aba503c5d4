"""A body is read under a byte cap, a deadline and a least rate, whatever server brings it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import repeat
from typing import Any

import pytest

from gradwire._errors import DeadlineExceeded, WireError
from gradwire_service.http.receiver import ClientDisconnected, receive_body
from gradwire_service.settings import Settings


def received(
    chunks: Iterable[bytes], *headers: tuple[bytes, bytes], pause: float = 0.0, **options: Any
) -> bytes:
    """The body read from these messages, ``pause`` seconds apart; then the client leaves."""
    messages = enumerate(chunks)

    async def receive() -> dict[str, Any]:
        number, chunk = next(messages, (0, None))
        await asyncio.sleep(pause if number else 0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": chunk != b""}

    settings = Settings.load(options, environ={})
    return bytes(asyncio.run(receive_body({"type": "http", "headers": headers}, receive, settings)))


def test_a_body_is_its_chunks() -> None:
    assert received([b"ab", b"c", b""]) == b"abc"


def test_a_large_body_at_a_good_rate_may_take_longer_than_the_grace() -> None:
    chunks = [b"x" * 10_000] * 6 + [b""]
    assert len(received(chunks, pause=0.05, body_grace=0.1, body_rate=1000)) == 60_000


def test_a_body_below_the_least_rate_is_refused_long_before_its_deadline() -> None:
    with pytest.raises(DeadlineExceeded) as refusal:
        received(repeat(b"x", 500), pause=0.02, body_grace=0.1, body_rate=1000)
    assert refusal.value.kind == "slow-body"


def test_a_body_at_a_good_rate_has_a_deadline_all_the_same() -> None:
    with pytest.raises(DeadlineExceeded, match=r"within 0\.2 s"):
        received(repeat(b"x" * 1000, 500), pause=0.01, body_deadline=0.2)


def test_a_body_whose_bytes_are_always_there_has_a_deadline_too() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x", "more_body": True}

    settings = Settings.load({"body_deadline": 0.1}, environ={})
    with pytest.raises(DeadlineExceeded):
        asyncio.run(receive_body({"type": "http", "headers": []}, receive, settings))


def test_the_cap_counts_what_came_and_not_what_was_said() -> None:
    with pytest.raises(WireError, match="at most 10 bytes") as refusal:
        received(repeat(b"xxx", 500), (b"content-length", b"5"), body_bytes=10)
    assert refusal.value.kind == "too-large"


@pytest.mark.parametrize("said", [b"2", b"4"])
def test_a_body_of_another_length_than_said_is_malformed(said: bytes) -> None:
    with pytest.raises(WireError, match="another length"):
        received([b"abc", b""], (b"content-length", said))


def test_a_client_that_leaves_ends_the_reading() -> None:
    with pytest.raises(ClientDisconnected):
        received([b"abc"], (b"content-length", b"5"))
