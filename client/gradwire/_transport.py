"""Requests and answers over httpx: bytes in large pieces, nothing of their meaning."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Iterator, Sequence

import httpx

from ._session import Address, Buffer, Incoming, Lost, Outgoing

PIECE = 1 << 20
"""Bytes handed to httpx at a time. It copies what is left of a piece after each write to
the socket, so that one large body costs quadratic time; pieces cost linear time."""

_CONNECT_SECONDS = 10.0
# Below any server's or proxy's own, so that the client closes idle connections first.
_IDLE_SECONDS = 20.0


class Pieces(httpx.SyncByteStream):
    """A body as pieces of about `PIECE` bytes; it can be read again."""

    def __init__(self, buffers: Sequence[Buffer], deadline: float) -> None:
        self._buffers = buffers
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        for piece in pieces(self._buffers):
            if time.monotonic() > self._deadline:
                raise httpx.WriteTimeout("the request was not sent in time")
            yield piece


def pieces(buffers: Sequence[Buffer]) -> Iterator[bytes]:
    """The bytes of ``buffers`` in order, small ones joined, large ones cut at `PIECE` bytes."""
    small = bytearray()
    for buffer in buffers:
        view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
        if len(small) + view.nbytes <= PIECE:
            small += view
            continue
        if small:
            yield bytes(small)
            small = bytearray()
        whole = view.nbytes - view.nbytes % PIECE
        for start in range(0, whole, PIECE):
            yield bytes(view[start : start + PIECE])
        small += view[whole:]
    if small:
        yield bytes(small)


class Transport:
    """Sends to one service: over a client of its own in each process, or over the caller's.

    Safe among threads. Connections are never shared with a forked child.
    """

    def __init__(self, address: Address, http_client: httpx.Client | None = None) -> None:
        self._address = address
        self._given = http_client
        self._owner = os.getpid()
        # By process: a parent's client stays here untouched in its forked child.
        self._clients: dict[int, httpx.Client] = {}
        self._closed = False
        # Also when nobody calls close: at the latest when the interpreter ends.
        weakref.finalize(self, _close_own, self._clients)

    @property
    def given(self) -> bool:
        """Whether the caller brought the httpx client."""
        return self._given is not None

    def send(self, outgoing: Outgoing) -> Incoming | Lost:
        """The answer to ``outgoing``, or how it was lost; within its timeout.

        Time is checked at each piece of a body. In between, each wait for the socket is bounded
        by the whole timeout: a service that goes silent in the middle of its answer is
        noticed within twice that.
        """
        client = self._client()
        deadline = time.monotonic() + outgoing.timeout
        answered = False
        try:
            request = _request(client, outgoing, deadline)
            response = client.send(request, stream=True, follow_redirects=False)
            answered = True
            body = bytearray()
            try:
                for piece in response.iter_raw():
                    body += piece
                    if time.monotonic() > deadline:
                        raise httpx.ReadTimeout("the answer did not come in time")
            finally:
                response.close()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Lost(error, connected=False)
        except httpx.TimeoutException as error:
            return Lost(error, answered=answered, timed_out=True)
        except httpx.TransportError as error:
            return Lost(error, answered=answered)
        return Incoming(response.status_code, response.headers, body)

    def close(self) -> None:
        """Closes this process's connections; a client that the caller brought stays open."""
        self._closed = True
        _close_own(self._clients)

    def _client(self) -> httpx.Client:
        if self._closed:
            raise RuntimeError("This service was closed; connect again.")
        process = os.getpid()
        if self._given is not None:
            if process != self._owner:
                raise RuntimeError(
                    "A http_client= cannot be shared with a forked process: connect again in the child."
                )
            return self._given
        client = self._clients.get(process)
        if client is None:
            # Two threads may both come here: one client wins, the other is closed unused.
            made = _client_for(self._address)
            client = self._clients.setdefault(process, made)
            if client is not made:
                made.close()
        return client


def _close_own(clients: dict[int, httpx.Client]) -> None:
    client = clients.pop(os.getpid(), None)
    if client is not None:
        client.close()


def _client_for(address: Address) -> httpx.Client:
    # One connection for each thread that is waiting; none waits for another's.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=_IDLE_SECONDS)
    # Certificates take long to load, and only https has a use for them.
    verify = address.base.startswith("https:")
    if address.socket is not None:
        socket = httpx.HTTPTransport(uds=address.socket, limits=limits, verify=verify, trust_env=False)
        return httpx.Client(transport=socket, trust_env=False)
    return httpx.Client(limits=limits, verify=verify, trust_env=not address.loopback)


def _request(client: httpx.Client, outgoing: Outgoing, deadline: float) -> httpx.Request:
    wait = None if math.isinf(outgoing.timeout) else outgoing.timeout
    headers = dict(outgoing.headers)
    length = sum(memoryview(buffer).nbytes for buffer in outgoing.body)
    if outgoing.body:
        headers["Content-Length"] = str(length)
    request = client.build_request(
        outgoing.method,
        outgoing.url,
        headers=headers,
        timeout=httpx.Timeout(wait, connect=min(_CONNECT_SECONDS, outgoing.timeout)),
    )
    if outgoing.body:
        # Set afterwards: build_request would wrap a stream, and join it into one body.
        request.stream = Pieces(outgoing.body, deadline)
    return request
