"""uvicorn's request and answer, without its copies of large bodies."""

from __future__ import annotations

import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gradwire_service.http.landing import Landing

JOINED = 1 << 14
"""Bytes up to which one write of joined buffers is cheaper than a list of them."""

_NOT_IN_NAMES = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\\\[\]={} "]')
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Cycle(RequestResponseCycle):
    """One request and its answer.

    A large body is received in one message, as a memoryview that is the receiver's alone;
    ``received()`` in the scope's extension ``gradwire.body`` tells how much of it has come. The
    head of the answer is written together with the first bytes of its body, and large
    buffers are written from the memory they are in.
    """

    landing: Landing | None = None
    head = b""
    """The answer's, until it is written."""

    async def receive(self) -> Any:
        landing = self.landing
        if landing is not None:
            landing.wanted = True
        message: dict[str, Any] = await super().receive()  # type: ignore[assignment]
        if landing is not None and landing.complete and message["type"] == "http.request":
            message["body"], self.landing = landing.take(), None
        return message

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._start(message["status"], self.default_headers + list(message.get("headers", ())))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._continue(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is out of order")

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        if _NOT_IN_NAMES.search(b"".join([name for name, _ in headers])):
            raise RuntimeError("the name of a header holds what no name may hold")
        if _NOT_IN_VALUES.search(b"".join([value for _, value in headers])):
            raise RuntimeError("the value of a header holds control characters")
        lines = [STATUS_LINE[status]]
        self.chunked_encoding = self.scope["method"] != "HEAD" and status not in (204, 304)
        for name, value in headers:
            lines += (name, b": ", value, b"\r\n")
            if name == b"content-length":
                self.chunked_encoding = False
                self.expected_content_length = int(value)
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive = False
        if self.chunked_encoding:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self.head = b"".join(lines)

    def _continue(self, body: bytes | memoryview, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            body, self.expected_content_length = b"", 0
        size = len(body)
        buffers = [self.head, body]
        if self.chunked_encoding:
            buffers = [self.head]
            if size:
                buffers += (b"%x\r\n" % size, body, b"\r\n")
            if not more:
                buffers.append(b"0\r\n\r\n")
        else:
            self.expected_content_length -= size
            if self.expected_content_length < 0 or (self.expected_content_length and not more):
                raise RuntimeError("the answer has another length than its Content-Length")
        self.head = b""
        if size <= JOINED:
            self.transport.write(b"".join(buffers))
        else:
            self.transport.writelines(buffers)
        if not more:
            self.response_complete = True
            if self.landing is not None:
                self.landing.abandon()
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
