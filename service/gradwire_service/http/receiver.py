"""The one way a request's body is read: a byte cap, a deadline and a least rate.

It needs nothing but ASGI, so the guard holds under every server. The buffer grows as
bytes come: a Content-Length is a claim, not a reason to allocate. Under `gradwire serve`
a large body comes in one message, in a buffer of its own (`landing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope

from gradwire._errors import DeadlineExceeded, WireError
from gradwire_service.settings import Settings


class ClientDisconnected(Exception):
    """The client went away before its body had come: nobody is left to answer."""


async def receive_body(scope: Scope, receive: Receive, settings: Settings) -> bytearray | memoryview:
    """The body of the request, in a fresh buffer that the caller may keep.

    Raises:
        WireError: ``media-type`` for a Content-Encoding; ``malformed`` for a
            Content-Length or Transfer-Encoding that cannot be trusted, or a body of
            another length; ``too-large`` above ``settings.body_bytes``.
        DeadlineExceeded: ``slow-body`` when the bytes come too slowly.
        ClientDisconnected: the client hung up.
    """
    declared = _declared_length(scope)
    if declared is not None and declared > settings.body_bytes:
        raise _too_large(settings, f"a body of {declared} bytes")
    body: bytearray | memoryview = bytearray()
    progress: dict[str, Any] = (scope.get("extensions") or {}).get("gradwire.body", {})
    received: Callable[[], int] = progress.get("received", lambda: len(body))
    clock = asyncio.get_running_loop().time
    start = clock()
    more = True
    while more:
        due = start + _allowance(settings, received())
        # Where the bytes are always there at once, the timeout would never get its turn.
        if clock() > due:
            raise DeadlineExceeded(
                "The request's body came too slowly. Send it at once, over a faster connection, or in parts.",
                kind="slow-body",
                expected=f"at least {int(settings.body_rate)} bytes a second after "
                f"{settings.body_grace:g} s, and all within {settings.body_deadline:g} s",
                got=f"{received()} bytes in {clock() - start:.1f} s",
            )
        try:
            async with asyncio.timeout_at(due):
                message = await receive()
        except TimeoutError:
            # Too late, unless bytes have come since that no message tells about.
            continue
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part = message.get("body", b"")
        if isinstance(part, memoryview) and not body:
            body = part
        else:
            body += part
        if len(body) > settings.body_bytes:
            raise _too_large(settings, f"{len(body)} bytes, and perhaps more")
        more = message.get("more_body", False)
    if declared is not None and len(body) != declared:
        raise WireError(
            "The body has another length than its Content-Length says.",
            expected=f"{declared} bytes",
            got=f"{len(body)} bytes",
        )
    return body


def _allowance(settings: Settings, received: int) -> float:
    """Seconds after the start by which more than ``received`` bytes must have come."""
    return min(settings.body_deadline, settings.body_grace + received / settings.body_rate)


def _declared_length(scope: Scope) -> int | None:
    """The length that the headers declare, None where the body is chunked or they say nothing."""
    length: bytes | None = None
    chunked = False
    for name, value in scope["headers"]:
        if name == b"content-length":
            if length is not None and length != value:
                raise WireError("Content-Length is given twice, and differently.")
            # int() would also take signs, spaces and underscores.
            if not value.isdigit() or len(value) > 18:
                raise WireError(
                    "The Content-Length is no length.",
                    expected="a non-negative whole number",
                    got=_shown(value),
                )
            length = value
        elif name == b"transfer-encoding":
            if chunked or value.strip().lower() != b"chunked":
                raise WireError("Only one Transfer-Encoding is taken.", expected="chunked", got=_shown(value))
            chunked = True
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise WireError(
                "Compressed bodies are not taken: send the body as it is.",
                kind="media-type",
                expected="no Content-Encoding",
                got=_shown(value),
            )
    if length is None:
        return None
    if chunked:
        raise WireError("A body has either a Content-Length or a Transfer-Encoding, not both.")
    return int(length)


def _too_large(settings: Settings, got: str) -> WireError:
    return WireError(
        "The request's body is larger than this service takes (option body_bytes). "
        "Send fewer values at once, or put large arrays on the server first.",
        kind="too-large",
        expected=f"at most {int(settings.body_bytes)} bytes",
        got=got,
    )


def _shown(value: bytes) -> str:
    """A header's value, short enough to quote."""
    return repr(value[:40].decode("latin-1"))
