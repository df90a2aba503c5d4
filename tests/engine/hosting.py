"""A service in this process, asked directly or over a real socket, so that a test can see what it does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from gradwire._operator import Call
from gradwire_service import Map, Settings, create_app
from gradwire_service.engine.service import Outcome, Request, Service
from gradwire_service.serve import listening, server

PATIENCE = 60.0
"""Seconds after which what should have happened is taken never to happen."""


class Gate:
    """A map that waits on its device (or while it is traced) until the gate is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.reached = threading.Semaphore(0)
        self.seen: list[float] = []

    def pass_through(self, x: Any) -> np.ndarray:
        """What the map does on the host: notes what came, tells that it is here, waits."""
        self.seen.append(float(np.ravel(x)[0]))
        self.reached.release()
        assert self.opened.wait(PATIENCE)
        return np.asarray(x)

    def map(self, name: str = "gate") -> Map:
        """Waits while it runs."""

        def gate(x: Float[Array, "n"]) -> Any:
            return jax.pure_callback(self.pass_through, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

        return Map(gate, name=name)

    def traced_map(self, name: str = "sluggish") -> Map:
        """Waits while it is traced with arguments of more than 64 elements (which no sample has)."""

        def sluggish(x: Float[Array, "n"]) -> Any:
            if x.size > 64:
                self.reached.release()
                assert self.opened.wait(PATIENCE)
            return x + 1

        return Map(sluggish, name=name)

    async def is_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.acquire, timeout=PATIENCE)


class Counted:
    """A function that counts how often it is traced, and with which shapes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.traces: list[tuple[int, ...]] = []

    def __call__(self, x: Any) -> Any:
        self.traces.append(tuple(x.shape))
        return self.function(x)

    def map(self, name: str = "counted", **options: Any) -> Map:
        def counted(x: Float[Array, "n"]) -> Any:
            return self(x)

        return Map(counted, name=name, **options)


@asynccontextmanager
async def hosting(*maps: Map, **settings: Any) -> AsyncIterator[Service]:
    """A service, warmed up."""
    service = Service(maps, Settings(**settings))
    await service.start()
    try:
        await until(lambda: service.ready)
        yield service
    finally:
        await service.stop()


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that happens by itself."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)


async def ask(
    service: Service,
    map: str,
    *args: Any,
    operation: str = "evaluate",
    deadline: float | None = None,
    owner: str = "me",
    device: str | None = None,
    **fields: Any,
) -> Outcome:
    """The answer to a call; arrays as they are."""
    call = Call(operation, args, {}, **fields)
    return await service.answer(Request(map, call, owner, device=device), deadline)


async def value(service: Service, map: str, *args: Any, **options: Any) -> Any:
    return (await ask(service, map, *args, **options)).fields["value"]


class Live(NamedTuple):
    """A service in this process behind a real socket."""

    url: str
    service: Service

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def live(*maps: Map, at: int = 0, **options: Any) -> Iterator[Live]:
    """A service over HTTP, in a thread of this process, at a free port or that one."""
    settings = Settings(port=at, shutdown_deadline=1, **options)
    with listening(settings) as (listener, url):
        app = create_app(maps, settings)
        running = server(app, settings, url)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            service: Service = app.state.service
            deadline = time.monotonic() + PATIENCE
            while not service.ready:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield Live(url, service)
        finally:
            running.should_exit = True
            thread.join()


def resident_memory(pid: int, field: str = "VmRSS") -> int:
    """Bytes of memory of a process: now (VmRSS), or at most so far (VmHWM)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    """Begin VmHWM anew from what is held now."""
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as refs:
        refs.write("5")
