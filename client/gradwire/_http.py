"""A lean transport for httpx, and for this client without httpx's requests and responses around it.

One service, blocking sockets, HTTP/1.1. What httpx adds to a small call is most of its time, so
`LeanTransport.send` takes and gives the session's own `Outgoing` and `Incoming`; as an
`httpx.BaseTransport` it also goes under an `httpx.Client`.
"""

from __future__ import annotations

import math
import os
import socket
import ssl
import threading
import time
import weakref
from functools import cached_property
from typing import Any

import httpx

from gradwire._connection import Connection, left_until, size_of
from gradwire._session import Address, Incoming, Lost, Outgoing

CONNECT_SECONDS = 10.0
"""How long a connection may take to be made."""

IDLE_SECONDS = 20.0
"""Below any server's or proxy's own, so that the client closes idle connections first."""

_KEPT = 100
"""Idle connections that are kept."""


class LeanTransport(httpx.BaseTransport):
    """Sends to the service at ``address``, and to no other.

    Safe among threads: each that waits has a connection of its own. A forked child does not
    touch its parent's connections.
    """

    def __init__(self, address: Address) -> None:
        base = httpx.URL(address.base)
        self._base = address.base
        self._secure = base.scheme == "https"
        self._host = base.raw_host.decode("ascii")
        self._port = base.port or (443 if self._secure else 80)
        self._uds = address.socket
        self._prefix = base.raw_path.decode("ascii").rstrip("/")
        self._opening = f" HTTP/1.1\r\nHost: {base.netloc.decode('ascii')}\r\nUser-Agent: gradwire\r\n"
        self._pools: dict[int, _Pool] = {}
        # Also when nobody calls close: at the latest when the interpreter ends.
        weakref.finalize(self, _close_own, self._pools)

    def send(self, outgoing: Outgoing) -> Incoming | Lost:
        """The answer to ``outgoing``, or how it was lost; within its timeout, whatever the service does."""
        target = self._prefix + outgoing.url[len(self._base) :]
        return self._exchange(outgoing, target)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """For an `httpx.Client`. The read timeout bounds the whole exchange.

        Raises:
            httpx.TransportError: as httpx's own transport does.
        """
        if request.url.copy_with(raw_path=b"/") != httpx.URL(self._base).copy_with(raw_path=b"/"):
            raise httpx.UnsupportedProtocol(f"this transport sends to {self._base} only", request=request)
        body = [piece for piece in request.stream if piece]  # type: ignore[union-attr]
        skipped = ("host", "user-agent", "transfer-encoding", "content-length")
        headers = {name: value for name, value in request.headers.items() if name not in skipped}
        wait = request.extensions.get("timeout", {}).get("read")
        outgoing = Outgoing(request.method, self._base, headers, body, math.inf if wait is None else wait)
        answer = self._exchange(outgoing, request.url.raw_path.decode("ascii"))
        if isinstance(answer, Lost):
            raise _as_httpx(answer, request) from answer.cause
        return httpx.Response(answer.status, headers=answer.headers, content=bytes(answer.body))

    def close(self) -> None:
        """Closes this process's connections."""
        _close_own(self._pools)

    def _exchange(self, outgoing: Outgoing, target: str) -> Incoming | Lost:
        deadline = time.monotonic() + outgoing.timeout
        head = self._head(outgoing, target)
        pool = self._pool()
        connection = pool.take()
        if connection is None:
            try:
                connection = Connection(self._connected(deadline))
            except OSError as error:
                return Lost(error, connected=False)
        try:
            answer = connection.exchange(
                head, outgoing.body, deadline, bodiless=outgoing.method == "HEAD", takes=outgoing.takes
            )
        except TimeoutError as error:
            return Lost(error, answered=connection.answered, timed_out=True)
        except (OSError, httpx.RemoteProtocolError) as error:
            return Lost(error, answered=connection.answered)
        finally:
            pool.give(connection)
        return Incoming(answer.head.status, answer.head.fields, answer.body)

    def _head(self, outgoing: Outgoing, target: str) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in outgoing.headers.items()])
        if outgoing.body or outgoing.method in ("POST", "PUT", "PATCH"):
            lines += f"Content-Length: {sum(map(size_of, outgoing.body))}\r\n"
            fields = len(outgoing.headers) + 1
        else:
            fields = len(outgoing.headers)
        if lines.count("\n") != fields or lines.count("\r") != fields or " " in target:
            raise httpx.LocalProtocolError("a header or the path has a line break or a blank in it")
        return f"{outgoing.method} {target}{self._opening}{lines}\r\n".encode("latin-1")

    def _pool(self) -> _Pool:
        process = os.getpid()
        pool = self._pools.get(process)
        if pool is None:
            # Two threads may both come here: one's pool wins.
            pool = self._pools.setdefault(process, _Pool())
        return pool

    # Connecting.

    def _connected(self, deadline: float) -> socket.socket:
        by = min(deadline, time.monotonic() + CONNECT_SECONDS)
        if self._uds is not None:
            return _open(socket.AF_UNIX, self._uds, by)
        failure: OSError | None = None
        for family, _, _, _, where in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
            try:
                plain = _open(family, where, by)
            except OSError as error:
                failure = failure or error
                continue
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._secured(plain, by) if self._secure else plain
        raise failure or OSError("the host has no address")

    def _secured(self, plain: socket.socket, by: float) -> socket.socket:
        try:
            plain.settimeout(left_until(by))
            # A connection cut short must not pass for the end of an answer.
            return self._trust.wrap_socket(plain, server_hostname=self._host, suppress_ragged_eofs=False)
        except BaseException:
            plain.close()
            raise

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        # Certificates take long to load, and only https has a use for them.
        context = httpx.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context


class _Pool:
    """Idle connections of one process; the one used last is the first to be used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    def take(self) -> Connection | None:
        """A connection that is open still, or None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if time.monotonic() - connection.idle_since < IDLE_SECONDS and connection.is_quiet():
                return connection
            connection.close()

    def give(self, connection: Connection) -> None:
        """Keeps ``connection`` if another request may follow on it; closes it else, and those long idle."""
        now = time.monotonic()
        overdue: list[Connection] = []
        with self._lock:
            if connection.reusable and not self._closed:
                connection.idle_since = now
                self._idle.append(connection)
            else:
                overdue.append(connection)
            while self._idle and (now - self._idle[0].idle_since > IDLE_SECONDS or len(self._idle) > _KEPT):
                overdue.append(self._idle.pop(0))
        for old in overdue:
            old.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _close_own(pools: dict[int, _Pool]) -> None:
    pool = pools.pop(os.getpid(), None)
    if pool is not None:
        pool.close()


def _open(family: int, where: Any, by: float) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(left_until(by))
        made.connect(where)
    except BaseException:
        made.close()
        raise
    return made


def _as_httpx(lost: Lost, request: httpx.Request) -> httpx.TransportError:
    timed_out = isinstance(lost.cause, TimeoutError)
    if isinstance(lost.cause, httpx.TransportError):
        return type(lost.cause)(str(lost.cause), request=request)
    if not lost.connected:
        kind = httpx.ConnectTimeout if timed_out else httpx.ConnectError
        return kind(str(lost.cause), request=request)
    return (httpx.ReadTimeout if timed_out else httpx.ReadError)(str(lost.cause), request=request)
