"""A service over a real socket whose answers are written by the test."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps
from pathlib import Path
from typing import Any

import msgpack
import pytest


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> Any:
        return msgpack.unpackb(self.body)


@dataclass
class ScriptedReply:
    """One answer: after ``delay`` seconds, its body with a pause of ``drip`` seconds after each byte.

    ``cut``: only so many bytes of it, headers included, then the connection drops.
    """

    status: int = 200
    fields: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    kind: str = "application/msgpack"
    delay: float = 0.0
    drip: float = 0.0
    cut: int | None = None


class Scripted:
    """Answers with ``script``, one after the other, or else with ``respond(request)``."""

    Reply = ScriptedReply

    def __init__(self, socket: Path | None = None) -> None:
        self.requests: list[Request] = []
        self.script: list[ScriptedReply] = []
        self.respond: Callable[[Request], ScriptedReply] = lambda request: ScriptedReply(
            404, raw=b"", kind="text/plain"
        )
        self._lock = threading.Lock()
        server = _Unix(str(socket), _handler(self)) if socket else _Tcp(("127.0.0.1", 0), _handler(self))
        self._server = server
        self.url = f"unix://{socket}" if socket else f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        self._thread.start()

    def says(self, status: int = 200, fields: Any = None, **more: Any) -> None:
        self.script.append(ScriptedReply(status, {} if fields is None else fields, **more))

    def problem(
        self, status: int, kind: str, *, json: bool = False, headers: Any = None, **members: Any
    ) -> None:
        details = {"type": f"urn:gradwire:{kind}", "status": status, "detail": "It is so.", **members}
        raw = dumps(details).encode() if json else msgpack.packb(details)
        media = f"application/problem+{'json' if json else 'msgpack'}"
        self.says(status, raw=raw, kind=media, headers=headers or {})

    def reply_to(self, request: Request) -> ScriptedReply:
        with self._lock:
            self.requests.append(request)
            if self.script:
                return self.script.pop(0)
        return self.respond(request)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Tcp(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up in these tests; that is no error."""


class _Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up in these tests; that is no error."""


def _handler(scripted: Scripted) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = scripted.reply_to(Request(self.command, self.path, headers, body))
            time.sleep(reply.delay)
            content = msgpack.packb(reply.fields) if reply.raw is None else reply.raw
            if reply.status == 204:
                content = b""
            lines = [f"HTTP/1.1 {reply.status} Scripted", f"Content-Length: {len(content)}"]
            lines += [f"{name}: {value}" for name, value in reply.headers.items()]
            lines += [f"Content-Type: {reply.kind}"] if content else []
            whole = "\r\n".join([*lines, "", ""]).encode() + content
            if reply.cut is not None:
                self.wfile.write(whole[: reply.cut])
                self.close_connection = True
            elif reply.drip:
                self.wfile.write(whole[: -len(content)])
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    time.sleep(reply.drip)
            else:
                self.wfile.write(whole)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    return Handler


@pytest.fixture
def server() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.close()


@pytest.fixture
def unix_server(tmp_path: Path) -> Iterator[Scripted]:
    scripted = Scripted(tmp_path / "service.sock")
    yield scripted
    scripted.close()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests say themselves where the service is."""
    for name in ("GRADWIRE_URL", "GRADWIRE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
