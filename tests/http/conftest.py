"""A service that computes nothing, served as `gradwire serve` serves one, and raw sockets to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
import uvicorn
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gradwire._errors import KINDS, GradwireError
from gradwire_service.http.app import assemble
from gradwire_service.http.receiver import receive_body
from gradwire_service.http.responses import begin_stream, continue_stream, end_stream, send_buffers
from gradwire_service.serve import listening, server
from gradwire_service.settings import Settings

MAPS = [
    {
        "name": "valley",
        "version": "1",
        "doc": "Least at <b>1</b> & nowhere else.",
        "operations": ["evaluate", "grad"],
        "policies": ["input"],
        "parameters": [{"name": "x", "kind": "positional_or_keyword", "shape": "n", "dtype": "Float"}],
        "returns": {"shape": "", "dtype": "Float"},
    }
]


class Idle:
    """A service that hosts descriptions only."""

    def __init__(self) -> None:
        self.ready = False

    async def describe(self) -> list[dict[str, Any]]:
        return MAPS

    async def start(self) -> None:
        self.ready = True

    async def stop(self) -> None:
        self.ready = False


class Echo:
    """Answers a request with its body; ``?raise=<kind>`` with that error before it is read, ``?late`` after.

    ``?stream`` answers in chunks, ``?memory`` with what is to be said of the body's memory.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.memory: weakref.ref[Any] | None = None
        """Of the latest large body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["query_string"].decode().partition("raise=")[2]
        if kind == "surprise":
            raise RuntimeError("the secret is swordfish")
        if kind:
            raise KINDS[kind].exception(
                "It went wrong.", kind=kind, argument="x", expected="this", got="\ud800"
            )
        body = await receive_body(scope, receive, self.settings)
        if isinstance(body, memoryview):
            self.memory = weakref.ref(body.obj)
        if scope["query_string"] == b"late":
            raise GradwireError("Too late.")
        if scope["query_string"] == b"stream":
            await begin_stream(send, "application/octet-stream")
            await continue_stream(send, [b"", memoryview(body), b"end"])
            await end_stream(send)
            return
        if scope["query_string"] == b"memory":
            array = np.frombuffer(body, np.uint8)
            body = json.dumps([array.ctypes.data % 64, array.flags.writeable]).encode()
        await send_buffers(send, 200, "application/octet-stream", [memoryview(body)])


class Answer(NamedTuple):
    """What came back on a socket."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def kind(self) -> str:
        """The kind of error that a JSON problem tells."""
        assert self.headers["content-type"] == "application/problem+json"
        problem = json.loads(self.body)
        assert problem["status"] == self.status
        return str(problem["type"]).removeprefix("urn:gradwire:")


class Served:
    """A running service."""

    def __init__(self, running: uvicorn.Server, address: tuple[str, int], echo: Echo) -> None:
        self._running = running
        self.echo = echo
        self.address = address
        self.host = f"{address[0]}:{address[1]}"
        self.url = f"http://{self.host}"

    def wait_for_connections(self, count: int) -> None:
        """Returns once the service holds this many connections."""
        patience = time.monotonic() + 20
        while len(self._running.server_state.connections) != count:
            if time.monotonic() > patience:
                raise TimeoutError(f"not {count} connections")
            time.sleep(0.01)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=20)

    def send(self, *pieces: bytes | Iterable[bytes], pause: float = 0.0) -> Answer:
        """The answer to raw bytes, sent piece by piece until one comes."""
        with self.connect() as connection:
            sender = threading.Thread(target=self._write, args=(connection, pieces, pause))
            sender.start()
            answer = read_answer(connection)
            connection.close()
            sender.join()
            return answer

    @staticmethod
    def _write(connection: socket.socket, pieces: Sequence[bytes | Iterable[bytes]], pause: float) -> None:
        # The service may stop listening at any time.
        with suppress(OSError):
            for piece in pieces:
                for part in [piece] if isinstance(piece, bytes) else piece:
                    connection.sendall(part)
                    time.sleep(pause)

    def request(
        self, method: str, path: str, *, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> Answer:
        """The answer to a well-formed request with these headers, and Host unless it is among them."""
        fields = [*headers]
        if not any(name.lower() == "host" for name, _ in fields):
            fields.append(("Host", self.host))
        if body:
            fields.append(("Content-Length", str(len(body))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return self.send(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=[(k.replace("_", "-"), v) for k, v in headers.items()])

    def is_healthy(self) -> bool:
        return self.get("/health/live").status == 200


def read_answer(connection: socket.socket, method: str = "GET") -> Answer:
    response = http.client.HTTPResponse(connection, method=method)
    try:
        response.begin()
        return Answer(response.status, response.headers, response.read())
    finally:
        response.close()


@contextmanager
def serving(**options: Any) -> Iterator[Served]:
    """A service with these settings, on a free port, for the length of a block."""
    settings = Settings(port=0, **options)
    echo = Echo(settings)
    routes: list[BaseRoute] = [Route("/v1/echo", echo, methods=["POST", "GET"])]
    app = assemble(Idle(), settings, routes)
    with listening(settings) as (listener, url):
        running = server(app, settings, url)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not running.started and thread.is_alive():
                time.sleep(0.01)
            yield Served(running, listener.getsockname()[:2], echo)
        finally:
            running.should_exit = True
            thread.join()


@pytest.fixture(name="read_answer")
def reading() -> Any:
    """`read_answer`, for connections on which more is said than one request."""
    return read_answer


@pytest.fixture(scope="session")
def patient() -> Iterator[Served]:
    """A service with small limits on sizes and the usual ones on time."""
    with serving(
        body_bytes=100_000, cors_origin=("https://friend.example",), allowed_host=("lab.example",)
    ) as served:
        yield served


@pytest.fixture(scope="session")
def impatient() -> Iterator[Served]:
    """A service that waits for a second at most."""
    with serving(header_deadline=1.0, body_grace=1.0, body_deadline=3.0, unread_deadline=1.0) as served:
        yield served


@pytest.fixture(scope="session")
def roomy() -> Iterator[Served]:
    """A service with the usual limits on sizes, but one: no memory holds what it takes."""
    with serving(body_bytes=10**18) as served:
        yield served


@pytest.fixture
def crowded() -> Iterator[Served]:
    """A service that holds two connections at most."""
    with serving(connections=2) as served:
        yield served


@pytest.fixture
def service(patient: Served) -> Iterator[Served]:
    """`patient`, which must be as healthy after the test as before."""
    yield patient
    assert patient.is_healthy()


@pytest.fixture
def large(roomy: Served) -> Iterator[Served]:
    """`roomy`, which must be as healthy after the test as before."""
    yield roomy
    assert roomy.is_healthy()


@pytest.fixture
def hurried(impatient: Served) -> Iterator[Served]:
    """`impatient`, which must be as healthy after the test as before."""
    yield impatient
    assert impatient.is_healthy()
