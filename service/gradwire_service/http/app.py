"""The application: routes, errors and access around a service that computes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gradwire._errors import Overloaded
from gradwire_service.http import dialects, openapi, pages
from gradwire_service.http.access import Access
from gradwire_service.http.problems import Problems, unhandled
from gradwire_service.http.responses import Headers, send_buffers
from gradwire_service.settings import Settings

if TYPE_CHECKING:
    from gradwire_service.map import Map


class Hosted(Protocol):
    """What this module asks of the service behind the routes."""

    @property
    def ready(self) -> bool:
        """Whether it is warmed up and takes requests."""

    async def describe(self) -> list[dict[str, Any]]:
        """Every hosted map, as in the answer to ``GET /v1/maps``."""

    async def start(self) -> None:
        """Begins to work; returns at once, `ready` follows."""

    async def stop(self) -> None:
        """Stops taking requests and ends what runs."""


def create_app(maps: Iterable[Map], settings: Settings | None = None) -> FastAPI:
    """The service that hosts ``maps``, for any ASGI server.

    Raises:
        ArgumentError: two maps of one name and version, or an option that cannot be used.
    """
    # The engine brings JAX: not for those who only want the application around another service.
    from gradwire_service.engine.service import Service

    settings = settings or Settings()
    spoken = dialects.named(settings.dialects)
    service = Service(maps, settings)
    routes = [route for dialect in spoken for route in dialect.routes(service, settings)]
    return assemble(service, settings, routes)


def assemble(service: Hosted, settings: Settings, routes: Sequence[BaseRoute]) -> FastAPI:
    """The application around ``routes``: health, documentation, errors and access."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    async def documented(url: str) -> str:
        return pages.docs(openapi.document())

    async def welcome(url: str) -> str:
        return pages.home(await service.describe(), url)

    app = FastAPI(
        title="Gradwire",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={HTTPException: unhandled},
        routes=[
            # First, because they are asked most.
            *routes,
            Route("/health/live", _Live(), methods=["GET"]),
            Route("/health/ready", _Ready(service), methods=["GET"]),
            Route("/openapi.json", _Document(openapi.document), methods=["GET"]),
            Route("/docs", _Page(documented), methods=["GET"]),
            Route("/", _Page(welcome), methods=["GET"]),
        ],
    )
    # FastAPI would describe its own routes only, and there are none.
    app.openapi = openapi.document  # type: ignore[method-assign]
    app.state.service = service
    app.state.dialects = settings.dialects
    app.add_middleware(Problems)
    app.add_middleware(Access, settings=settings)
    return app


class _Live:
    """The event loop answers: that is all it says."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _send_json(send, {"status": "live"})


class _Ready:
    """Whether a load balancer should send requests here."""

    def __init__(self, service: Hosted) -> None:
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.service.ready:
            raise Overloaded("The service is warming up or draining; try again in a moment.", kind="draining")
        await _send_json(send, {"status": "ready"})


class _Document:
    """A JSON document made on request."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self.make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _send_json(send, self.make())


class _Page:
    """A page for people."""

    def __init__(self, make: Callable[[str], Awaitable[str]]) -> None:
        self.make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = [(b"content-security-policy", pages.CONTENT_POLICY.encode("ascii"))]
        host = next(value.decode("latin-1") for name, value in scope["headers"] if name == b"host")
        html = await self.make(f"{scope['scheme']}://{host}")
        await send_buffers(send, 200, "text/html; charset=utf-8", [html.encode()], headers)


async def _send_json(send: Send, value: dict[str, Any]) -> None:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    await send_buffers(send, 200, "application/json", [body])
