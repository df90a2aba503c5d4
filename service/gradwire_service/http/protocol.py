"""uvicorn's httptools protocol, with the limits that it lacks.

uvicorn takes request heads of any size at any speed, trailers without end, and reads on
for ever after an early answer. `protocol_class` adds the bounds; a body's own (size,
deadline, rate) are in `receiver`, where every server has them. Large bodies go past its parser
(`landing`), and answers past its joins (`cycle`).
"""

from __future__ import annotations

import asyncio
from asyncio.events import TimerHandle
from contextlib import suppress
from typing import ClassVar, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gradwire._errors import DeadlineExceeded, GradwireError, Overloaded, WireError
from gradwire_service.http import problems
from gradwire_service.http.access import SECURITY, new_request_id
from gradwire_service.http.cycle import Cycle
from gradwire_service.http.dialects import Occasion
from gradwire_service.http.landing import DIRECT, Landing
from gradwire_service.settings import Settings

PIPELINED = 32
"""Requests that may wait on one connection while an earlier one is answered."""

DISCARDED = 16 << 20
"""Bytes read and thrown away so that a client still sending gets to read the answer."""


def protocol_class(settings: Settings) -> type[GuardedProtocol]:
    """The protocol to hand to ``uvicorn.Config(http=…)``."""
    return type("ConfiguredProtocol", (GuardedProtocol,), {"settings": settings})


class _Refused(Exception):
    """Stops the parser; the connection answers ``error`` and closes."""

    def __init__(self, error: GradwireError, status: int | None = None) -> None:
        self.error = error
        self.status = status


class _GentleTransport:
    """Where an answer goes after which the connection closes: not before its client could read it.

    Closing a socket that holds unread bytes resets it, and a client that still sends then
    loses the answer.
    """

    def __init__(self, protocol: GuardedProtocol) -> None:
        self.write = protocol.transport.write
        self.writelines = protocol.transport.writelines
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.close_gently


class GuardedProtocol(HttpToolsProtocol):
    """One connection.

    Every state in which the connection waits for its client has an end: idle between
    requests (uvicorn's keep-alive), in a head or in what is left of an answered body
    (`header_deadline`), in a body (the receiver), in an answer it does not read (`unread_deadline`).
    """

    settings: ClassVar[Settings]

    url = b""
    """The request's target, as far as it has come."""
    unread_timer: TimerHandle | None = None
    """Set while the client does not read what is sent to it."""
    head_timer: TimerHandle | None = None
    """Set while a head, or the rest of a body that is already answered, is due."""
    in_head = False
    closing = False
    """Whether everything is said here: what still comes is thrown away."""
    silent = 0
    """Bytes fed to the parser since it last handed something on."""
    discarded = 0
    landing: Landing | None = None
    """Set while a large body comes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.settings.connections:
            self._refuse(_Refused(Overloaded("Too many connections are open (option connections).")))
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._was_read()
        self.landing = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            self.discard(len(data))
            return
        self._unset_keepalive_if_required()
        self.silent += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # What follows would be in a protocol that is not spoken here: answer in HTTP, then close.
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError as error:
            self._refuse(_reason(error))
        else:
            if self.silent > self.settings.header_bytes:
                self._refuse(self._head_too_large("header_bytes", self.settings.header_bytes))
            elif self._is_idle() and self.head_timer is None and self.timeout_keep_alive_task is None:
                self._expect_head()
            if self.landing is not None:
                # What is left of the body needs no parser, and what follows it a new one.
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.transport.set_protocol(self.landing)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._was_read()
        self.unread_timer = self.loop.call_later(self.settings.unread_deadline, self.transport.abort)

    def resume_writing(self) -> None:
        self._was_read()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        self._hang_up()

    # Parser callbacks

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise _Refused(WireError(f"More than {PIPELINED} requests were sent ahead on one connection."))
        super().on_message_begin()
        self.in_head = True
        self.head_bytes = self.head_count = self.silent = self.discarded = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self.silent = 0
        if len(self.url) > self.settings.path_bytes:
            raise _Refused(
                WireError(
                    "The request's path is too long (option path_bytes).",
                    kind="too-large",
                    expected=f"at most {int(self.settings.path_bytes)} bytes",
                ),
                status=414,
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self.silent = 0
        self.head_count += 1
        self.head_bytes += len(name) + len(value) + 4
        if self.head_count > self.settings.header_count:
            raise self._head_too_large("header_count", self.settings.header_count)
        if self.head_bytes > self.settings.header_bytes:
            raise self._head_too_large("header_bytes", self.settings.header_bytes)
        # Trailers count, and say nothing: the head is what was checked.
        if self.in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        self._head_came()
        super().on_headers_complete()
        if not self.cycle.keep_alive:
            self.cycle.transport = cast(asyncio.Transport, _GentleTransport(self))
        # uvicorn names its own class in the middle of all this; the task that runs it has not begun.
        self.cycle.__class__ = Cycle
        self._prepare_to_land(cast(Cycle, self.cycle))

    def on_body(self, body: bytes) -> None:
        self.silent = 0
        if self.landing is not None:
            self.landing.add(body)
        elif self.cycle.response_complete:
            self.discard(len(body))
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.landing = None
        super().on_message_complete()
        if self.cycle.response_complete:
            # The rest of a body that was answered early: the connection is idle from here.
            self._head_came()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.closing:
            self._unset_keepalive_if_required()
        elif self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._expect_head()

    # Large bodies

    def _prepare_to_land(self, cycle: Cycle) -> None:
        length = 0
        for name, value in self.headers:
            if name == b"content-length":
                length = int(value)
            elif name in (b"transfer-encoding", b"upgrade"):
                return
        if DIRECT < length <= self.settings.body_bytes:
            # Where there is not so much address space, the body comes as small ones do.
            with suppress(MemoryError):
                cycle.landing = self.landing = landing = Landing(self, length)
                cycle.scope["extensions"] = {"gradwire.body": {"received": lambda: landing.received}}

    def landed(self) -> None:
        """The body has come past the parser, whole."""
        self.transport.set_protocol(self)
        if not self.closing:
            self.on_message_complete()

    def pause_reading(self) -> None:
        """Read no more until the request is waited for."""
        self.flow.pause_reading()

    # Limits

    def _is_idle(self) -> bool:
        """Whether every request so far has its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self.head_timer = self.loop.call_later(self.settings.header_deadline, self._head_overdue)

    def _head_came(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _was_read(self) -> None:
        if self.unread_timer is not None:
            self.unread_timer.cancel()
            self.unread_timer = None

    def _hang_up(self) -> None:
        """Closes at once: what the client has not read by now is lost to it."""
        self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()

    def _head_overdue(self) -> None:
        self.head_timer = None
        if not self.in_head:
            # Nothing asked, nothing to answer.
            self._hang_up()
            return
        late = DeadlineExceeded(
            "The request's head did not arrive in time (option header_deadline).",
            kind="slow-body",
            expected=f"all of it within {self.settings.header_deadline:g} s",
        )
        self._refuse(_Refused(late))

    def _head_too_large(self, option: str, limit: int) -> _Refused:
        error = WireError(
            f"The request's head is too large (option {option}).",
            kind="too-large",
            expected=f"at most {int(limit)} {'bytes' if option == 'header_bytes' else 'fields'}",
        )
        return _Refused(error, status=431)

    def discard(self, size: int) -> None:
        """Count bytes that nobody wants; there is an end to them."""
        self.discarded += size
        if self.discarded > DISCARDED:
            self.transport.close()

    def _refuse(self, reason: _Refused) -> None:
        """Answers what cannot be parsed, as the last answer on this connection."""
        self.closing = True
        self.discarded = 0
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self.pipeline or (cycle.response_started and cycle.more_body):
                self.transport.close()
                return
            if not cycle.more_body:
                # An earlier request is being answered: nothing may stand before its answer.
                cycle.keep_alive = False
                return
            # It is this request's own body that broke: its endpoint need not wait for the rest.
            cycle.disconnected = True
            cycle.message_event.set()
        if not self.transport.is_closing():
            self.transport.write(self._told(reason))
            self.close_gently()

    def _told(self, reason: _Refused) -> bytes:
        """The answer that tells of it, in the dialect of its path, as far as head and path have come."""
        request_id = new_request_id()
        path = unquote(self.url.partition(b"?")[0].decode("latin-1"))
        occasion = Occasion(path, self.headers or [], request_id, status=reason.status)
        answer, headers = problems.told(reason.error, occasion, self.settings.dialects)
        content = b"".join(answer.body)
        headers += [
            (b"content-type", answer.media_type.encode("ascii")),
            (b"content-length", b"%d" % len(content)),
            (b"connection", b"close"),
            (b"x-request-id", request_id.encode("ascii")),
            *SECURITY,
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        return STATUS_LINE[answer.status] + lines + b"\r\n" + content

    def close_gently(self) -> None:
        """Says that nothing more comes, and closes once the client has stopped sending, or soon."""
        self.closing = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._head_came()
        self.head_timer = self.loop.call_later(self.settings.header_deadline, self._hang_up)


def _reason(error: httptools.HttpParserError) -> _Refused:
    """Why the parser stopped: our own limit, or what it could not read."""
    if isinstance(error.__context__, _Refused):
        return error.__context__
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        return _Refused(WireError("HTTP knows no such method.", kind="method"))
    return _Refused(WireError("The request is not valid HTTP/1.1."))
