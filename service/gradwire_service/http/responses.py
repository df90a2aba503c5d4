"""Answers sent as ASGI messages, without joining large buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.types import Send

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[bytes, bytes]]

PIECE = 1 << 20
"""Bytes of a message: small buffers are joined until there are so many, large ones cut."""

LARGE = 1 << 17
"""Bytes from which a buffer is sent by itself: to copy it would cost more than a message."""


async def send_buffers(
    send: Send, status: int, media_type: str, buffers: Sequence[Buffer], headers: Headers = ()
) -> None:
    """Sends one whole answer, with its exact Content-Length.

    Args:
        send: the ASGI channel. An answer to HEAD loses its body in `Access`.
        status: HTTP status.
        media_type: the Content-Type.
        buffers: the body, in order; memoryviews may have any shape and format, in C order.
        headers: further header fields, names in lower case.
    """
    views = [memoryview(buffer) for buffer in buffers]
    left = sum(view.nbytes for view in views)
    content = [(b"content-type", media_type.encode("latin-1")), (b"content-length", b"%d" % left)]
    # An answer that has no content says nothing about it.
    described = [] if status == 204 else content
    await send({"type": "http.response.start", "status": status, "headers": [*described, *headers]})
    for piece in _pieces(views):
        left -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


def _pieces(views: Sequence[memoryview]) -> Iterator[bytes | memoryview]:
    """The bytes in messages of a good size: small buffers joined, large ones cut but not copied.

    An empty body is one empty piece; no other piece is empty.
    """
    small: list[memoryview] = []
    held = 0
    for view in views:
        if view.nbytes < LARGE:
            small.append(view)
            held += view.nbytes
            if held < PIECE:
                continue
        if held:
            yield b"".join(small)
        small, held = [], 0
        if view.nbytes >= LARGE:
            flat = view.cast("B")
            for start in range(0, len(flat), PIECE):
                yield flat[start : start + PIECE]
    if held or not any(view.nbytes for view in views):
        yield b"".join(small)


async def begin_stream(send: Send, media_type: str) -> None:
    """Begins an answer whose length is not known yet."""
    headers = [(b"content-type", media_type.encode("latin-1"))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def continue_stream(send: Send, buffers: Sequence[Buffer]) -> None:
    """Sends the next part of it."""
    for piece in _pieces([memoryview(buffer) for buffer in buffers]):
        await send({"type": "http.response.body", "body": piece, "more_body": True})


async def end_stream(send: Send) -> None:
    """Ends it."""
    await send({"type": "http.response.body", "body": b"", "more_body": False})
