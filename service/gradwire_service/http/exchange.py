"""One request and its answer, as every dialect meets them. Knows no JAX."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from starlette.types import Receive, Scope, Send

from gradwire._errors import WireError
from gradwire_service.engine.service import LARGE, Service
from gradwire_service.http.memory import Memory
from gradwire_service.http.receiver import ClientDisconnected, receive_body
from gradwire_service.http.responses import Buffer, Headers, send_buffers
from gradwire_service.settings import Settings

T = TypeVar("T")

WATCHED_AFTER = 0.2
"""Seconds after which it is looked whether a caller is still there."""

STAGES = ("decode", "queue", "compile", "compute", "encode")


class Exchange:
    """One request and its answer.

    Attributes:
        timing: seconds by stage (`STAGES`), for Server-Timing.
        is_large: whether its arrays were large, so that memory is to be given back.
    """

    def __init__(
        self, service: Service, settings: Settings, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.service = service
        self.settings = settings
        self.scope = scope
        self.receive = receive
        self.send = send
        self.timing: dict[str, float] = {}
        self.is_large = False

    @classmethod
    def endpoint(
        cls,
        service: Service,
        settings: Settings,
        memory: Memory,
        answer: Callable[[Self], Awaitable[None]],
    ) -> Endpoint:
        """``answer`` as an ASGI application: a route's endpoint."""

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            exchange = cls(service, settings, scope, receive, send)
            try:
                await answer(exchange)
            finally:
                if exchange.is_large:
                    memory.large_request_ended()

        return Endpoint(respond)

    @property
    def owner(self) -> str:
        owner: str = self.scope["state"]["owner"]
        return owner

    def parameter(self, name: str) -> str:
        value: str = self.scope["path_params"][name]
        return value

    def header(self, name: bytes) -> str | None:
        values = [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]
        return ", ".join(values) if values else None

    @property
    def deadline(self) -> float | None:
        """Seconds left, as the caller says.

        Raises:
            WireError: a Gradwire-Timeout that is no positive number.
        """
        text = self.header(b"gradwire-timeout")
        if text is None:
            return None
        try:
            seconds = float(text) if len(text) <= 32 else math.nan
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise WireError(
                "Gradwire-Timeout is a number of seconds.",
                argument="Gradwire-Timeout",
                expected="a positive number",
                got=repr(text[:32]),
            )
        return seconds

    async def read_with(self, decode: Callable[[bytearray | memoryview], T]) -> T:
        """What ``decode`` makes of the request's body; of a large one in a thread."""
        body = await receive_body(self.scope, self.receive, self.settings)
        started = time.perf_counter()
        self.is_large = len(body) > LARGE
        decoded = await asyncio.to_thread(decode, body) if self.is_large else decode(body)
        self.timing["decode"] = time.perf_counter() - started
        return decoded

    async def write_with(
        self,
        encode: Callable[[], Sequence[Buffer]],
        media_type: str,
        *,
        status: int = 200,
        size: int = 0,
        headers: Headers = (),
    ) -> None:
        """Send the buffers that ``encode`` makes; ``size`` is how many bytes of arrays are in them."""
        started = time.perf_counter()
        buffers = await asyncio.to_thread(encode) if size > LARGE else encode()
        self.timing["encode"] = time.perf_counter() - started
        timing = ", ".join(
            f"{name};dur={self.timing[name] * 1e3:.3f}" for name in STAGES if name in self.timing
        )
        await send_buffers(
            self.send, status, media_type, buffers, [(b"server-timing", timing.encode()), *headers]
        )

    @contextmanager
    def while_there(self) -> Iterator[None]:
        """Cancel what is awaited in here when the caller has gone: nobody wants it any more.

        Looked at only when it takes long, so that a quick answer costs nothing.
        """
        task = asyncio.current_task()
        assert task is not None
        watching: list[asyncio.Task[None]] = []
        left = False

        def watch() -> None:
            watcher = asyncio.create_task(self._gone())
            watcher.add_done_callback(gone)
            watching.append(watcher)

        def gone(watcher: asyncio.Task[None]) -> None:
            nonlocal left
            if not watcher.cancelled() and watcher.exception() is None:
                left = True
                task.cancel()

        timer = asyncio.get_running_loop().call_later(WATCHED_AFTER, watch)
        try:
            yield
        except asyncio.CancelledError:
            if left:
                raise ClientDisconnected from None
            raise
        finally:
            timer.cancel()
            for watcher in watching:
                watcher.remove_done_callback(gone)
                watcher.cancel()

    async def _gone(self) -> None:
        """Wait until the caller has gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def done(self) -> None:
        await send_buffers(self.send, 204, "", [])


class Endpoint:
    """A plain ASGI application; Starlette would take a function for one of its own kind."""

    def __init__(self, respond: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._respond(scope, receive, send)
