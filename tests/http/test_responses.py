"""Answers go out in messages of a good size, with their exact length, and large buffers uncopied."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from gradwire_service.http.responses import PIECE, send_buffers


def sent(*buffers: Any) -> list[Any]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(send_buffers(send, 200, "text/plain", buffers))
    return messages


BIG = np.arange(PIECE // 4 + 3, dtype=np.float64).reshape(1, -1)


@pytest.mark.parametrize(
    ("buffers", "pieces"),
    [
        ((), 1),
        ((b"", b""), 1),
        ((b"a", b"", bytearray(b"b")), 1),
        ((b"a", BIG.data, b"b"), 5),
        ((BIG.data, b""), 3),
        ((np.zeros((0, 3)).data, b"x"), 1),
        ((b"x" * (PIECE - 1), b"y" * 2, b"z"), 2),
        (tuple(b"x" * 1000 for _ in range(3000)), 3),
    ],
)
def test_bodies_are_whole_in_few_messages(buffers: tuple[Any, ...], pieces: int) -> None:
    start, *bodies = sent(*buffers)
    whole = b"".join(bytes(buffer) for buffer in buffers)
    assert b"".join(bytes(message["body"]) for message in bodies) == whole
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(whole)
    assert [message["more_body"] for message in bodies] == [True] * (pieces - 1) + [False]


def test_a_large_array_is_sent_from_its_own_memory() -> None:
    _, first, *_ = sent(BIG.data)
    assert np.shares_memory(np.asarray(first["body"]), BIG)
