"""Requests and answers as bytes, by the way that fits: nothing of their meaning."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from gradwire._http import CONNECT_SECONDS, IDLE_SECONDS, LeanTransport
from gradwire._session import Address, Buffer, Incoming, Lost, Outgoing

PIECE = 1 << 20
"""Bytes handed to httpx at a time. It copies what is left of a piece after each write to
the socket, so that one large body costs quadratic time; pieces cost linear time."""


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
    """Sends to one service: by itself, or over the caller's httpx client.

    By itself means `LeanTransport`, or a client of httpx where the environment names a proxy on
    the way. Safe among threads. Connections are never shared with a forked child.
    """

    def __init__(self, address: Address, http_client: httpx.Client | None = None) -> None:
        self._address = address
        self._given = http_client
        self._owner = os.getpid()
        self._lean = LeanTransport(address) if http_client is None and not _behind_proxy(address) else None
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
        """The answer to ``outgoing``, or how it was lost; within its timeout."""
        if self._closed:
            raise RuntimeError("This service was closed; connect again.")
        if self._lean is not None:
            return self._lean.send(outgoing)
        return _send_over(self._client(), outgoing)

    def close(self) -> None:
        """Closes this process's connections; a client that the caller brought stays open."""
        self._closed = True
        if self._lean is not None:
            self._lean.close()
        _close_own(self._clients)

    def _client(self) -> httpx.Client:
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


def _behind_proxy(address: Address) -> bool:
    """Whether the environment names a proxy; which hosts go without it is left to httpx."""
    scheme = urlsplit(address.base).scheme
    return not address.loopback and not {scheme, "all"}.isdisjoint(getproxies())


def _send_over(client: httpx.Client, outgoing: Outgoing) -> Incoming | Lost:
    """Sends over httpx.

    Time is checked at each piece of a body. In between, each wait for the socket is bounded
    by the whole timeout: a service that goes silent in the middle of its answer is
    noticed within twice that.
    """
    deadline = time.monotonic() + outgoing.timeout
    answered = False
    try:
        request = _request(client, outgoing, deadline)
        response = client.send(request, stream=True, follow_redirects=False)
        answered = True
        body = bytearray()
        stream = outgoing.takes(response.status_code, response.headers.get("content-type", ""))
        try:
            for piece in response.iter_raw():
                if stream is None:
                    body += piece
                else:
                    stream.feed(piece)
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


def _close_own(clients: dict[int, httpx.Client]) -> None:
    client = clients.pop(os.getpid(), None)
    if client is not None:
        client.close()


def _client_for(address: Address) -> httpx.Client:
    # One connection for each thread that is waiting; none waits for another's.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=IDLE_SECONDS)
    # Certificates take long to load, and only https has a use for them.
    return httpx.Client(limits=limits, verify=address.base.startswith("https:"))


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
        timeout=httpx.Timeout(wait, connect=min(CONNECT_SECONDS, outgoing.timeout)),
    )
    if outgoing.body:
        # Set afterwards: build_request would wrap a stream, and join it into one body.
        request.stream = Pieces(outgoing.body, deadline)
    return request
