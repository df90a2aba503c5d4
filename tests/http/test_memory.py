"""What a request brought is let go of when it is answered."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Array, Float

from gradwire import wire
from gradwire_service import Map, Settings, create_app
from gradwire_service.http.memory import Memory


@Map
def doubled(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 2 * x


async def statuses(memory: list[np.ndarray[Any, Any]], operation: str) -> list[int]:
    """Sends the bodies in ``memory`` one after the other, as `gradwire serve` hands them on."""
    app = create_app([doubled], Settings())
    await app.state.service.start()
    sent: list[int] = []
    while memory:
        messages = [{"type": "http.request", "body": memory.pop().data, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return messages.pop()  # noqa: B023

        async def send(message: Any) -> None:
            sent.append(message.get("status", 0))

        scope = {
            "type": "http",
            "method": "POST",
            "scheme": "http",
            "path": f"/v1/maps/doubled/{operation}",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/msgpack")],
        }
        await app(scope, receive, send)
    await app.state.service.stop()
    return [status for status in sent if status]


@pytest.mark.parametrize(
    ("operation", "fields", "status"),
    [
        ("evaluate", {"args": [wire.Tree(np.ones(100_000))]}, 200),
        ("grad", {"args": [wire.Tree(np.ones(100_000))]}, 422),
        ("vjp", {"args": [wire.Tree(np.ones(100_000))], "cotangent": wire.Tree(np.ones(100_000))}, 200),
        ("evaluate", {"args": [wire.Tree(np.ones((1000, 100)))]}, 422),
    ],
)
def test_a_large_body_is_let_go_of_with_its_answer(operation: str, fields: Any, status: int) -> None:
    # A thread may be a moment late to let go; not every time.
    assert any(is_let_go_of(operation, fields, status) for _ in range(3))


def is_let_go_of(operation: str, fields: Any, status: int) -> bool:
    message = b"".join(wire.MSGPACK.encode(fields, "str"))
    # Aligned as a body is that `gradwire serve` receives, so that JAX uses its arrays in place.
    buffer = np.empty(len(message) + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    body = buffer[start : start + len(message)]
    body[:] = np.frombuffer(message, np.uint8)
    kept = weakref.ref(buffer)
    memory = [body]
    del buffer, body
    gc.disable()
    try:
        assert asyncio.run(statuses(memory, operation)) == [status]
        patience = time.monotonic() + 2
        while kept() is not None and time.monotonic() < patience:
            time.sleep(0.01)
        return kept() is None
    finally:
        gc.enable()


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_that_the_allocator_kept_is_given_back_when_no_large_request_follows() -> None:
    # Too small for mappings of their own, and the last one keeps the others from the heap's end.
    blocks = [bytearray(100_000) for _ in range(1000)]
    del blocks[:-1]
    before = resident()

    async def ended() -> None:
        memory = Memory(quiet=0.01)
        memory.large_request_ended()
        memory.large_request_ended()
        patience = time.monotonic() + 20
        while resident() > before - 40_000_000:
            assert time.monotonic() < patience
            await asyncio.sleep(0.01)

    asyncio.run(ended())
    assert len(blocks) == 1
