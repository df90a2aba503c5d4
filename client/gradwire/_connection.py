"""One HTTP/1.1 connection: a request out, its answer in, all of it before a deadline.

Blocking sockets, nothing shared, nothing retried. Every wait is bounded by what is left of
the time, so a peer that drips, or falls silent in the middle of its answer, gains nothing. Nothing in an
answer is trusted: heads are bounded and parsed strictly, and memory is taken as bytes come.
"""

from __future__ import annotations

import math
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import httpx

from gradwire._memory import TRUSTED, Growing, aligned

if TYPE_CHECKING:
    from gradwire._blocks import Stream

Buffer = bytes | bytearray | memoryview

HEAD_BYTES = 1 << 16
"""Bytes that a head (status line and fields), or the size line of a chunk, may have."""

FIELDS = 100
"""Fields that a head may have, and interim answers that may come before the final one."""

_JOINED = 1 << 16
"""Bytes up to which head and body leave in one piece; larger bodies leave from their own memory."""

_PIECE = 1 << 20
"""Bytes handed to the socket at a time, between looks at whether an answer comes already."""

_ENDLESS = 1e6
"""Seconds from which on a wait is not bounded: more than the system's timers can count."""


class Head(NamedTuple):
    """The status and the fields of an answer; ``persistent``: the connection stays open after it."""

    status: int
    fields: dict[str, str]
    persistent: bool


class Answer(NamedTuple):
    """A whole answer. ``body`` is writable memory that nobody else has."""

    head: Head
    body: bytearray | memoryview


class Connection:
    """A connected socket, for one exchange at a time.

    Attributes:
        answered: whether a byte came in answer to the request at hand.
        reusable: whether another request may follow: the last answer came whole, and nothing after it.
        idle_since: for the pool that keeps it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.answered = False
        self.reusable = False
        self.idle_since = 0.0
        self._socket = sock
        # What was received and is not yet taken stands in _came[_start:_end].
        self._came = bytearray(HEAD_BYTES)
        self._room = memoryview(self._came)
        self._start = self._end = 0
        self._ended = False

    def exchange(
        self,
        head: bytes,
        body: Sequence[Buffer],
        deadline: float,
        *,
        bodiless: bool,
        takes: Callable[[int, str], Stream | None] = lambda status, media_type: None,
    ) -> Answer:
        """Sends a request, and receives its answer.

        Args:
            head: all of it, with the empty line.
            body: sent one after the other; as many bytes as ``head`` says.
            deadline: of `time.monotonic`, for all of it together.
            bodiless: whether the answer has no body, whatever its head says (HEAD).
            takes: by status and Content-Type, what takes the bytes of the body as they come.

        Raises:
            TimeoutError: the deadline passed.
            OSError: the connection broke.
            httpx.RemoteProtocolError: what came is no valid answer.
            MemoryError: the answer is too large for this machine.
        """
        self.answered = self.reusable = False
        self._start = self._end = 0
        try:
            sent, early = self._send(head, body, deadline)
        except (BrokenPipeError, ConnectionResetError):
            sent, early = False, None  # It hung up on us; perhaps it said why.
        final = early or self._head(deadline)
        stream = takes(final.status, final.fields.get("content-type", ""))
        answer = Answer(final, self._body(final, deadline, bodiless, stream))
        self.reusable = sent and final.persistent and self._start == self._end and not self._ended
        return answer

    def is_quiet(self) -> bool:
        """Whether it is still open, and nothing came unasked."""
        return not _ready(self._socket, 0.0, write=False)[0]

    def close(self) -> None:
        self.reusable = False
        self._socket.close()

    # The request.

    def _send(self, head: bytes, body: Sequence[Buffer], deadline: float) -> tuple[bool, Head | None]:
        """Whether all was sent; and the head of an answer that came before it was."""
        size = sum(map(size_of, body))
        if size <= _JOINED:
            self._socket.settimeout(left_until(deadline))
            self._socket.sendall(b"".join((head, *body)) if size else head)
            return True, None
        for buffer in (head, *body):
            view = memoryview(buffer)
            if not view.nbytes:
                continue
            view = view.cast("B")
            done = 0
            while done < len(view):
                seconds = left_until(deadline)
                readable, writable = _ready(self._socket, seconds, write=True)
                if readable and (early := self._early()):
                    return False, early
                if writable:
                    self._socket.settimeout(seconds)
                    done += self._socket.send(view[done : done + _PIECE])
                elif not readable:
                    raise TimeoutError("the request was not sent in time")
        return True, None

    def _early(self) -> Head | None:
        """The head of a final answer that is here already. What is not whole yet is waited for elsewhere."""
        self._socket.settimeout(0.0)
        try:
            self._receive()
        except (BlockingIOError, ssl.SSLWantReadError):
            return None  # The socket had something of its own to say (a TLS ticket), but no answer.
        return self._take_head()

    # The answer.

    def _receive(self) -> None:
        """Receives at least one byte more, within the socket's timeout."""
        if self._end == HEAD_BYTES:
            kept = self._end - self._start
            self._room[:kept] = self._room[self._start : self._end]
            self._start, self._end = 0, kept
        count = self._socket.recv_into(self._room[self._end :])
        if not count:
            raise _hung_up()
        self.answered = True
        self._end += count

    def _head(self, deadline: float) -> Head:
        while (head := self._take_head()) is None:
            self._socket.settimeout(left_until(deadline))
            self._receive()
        return head

    def _take_head(self) -> Head | None:
        """The final head, if it is here whole; interim ones before it are dropped."""
        for _ in range(FIELDS):
            end = self._came.find(b"\r\n\r\n", self._start, self._end)
            if end < 0:
                if self._end - self._start == HEAD_BYTES:
                    raise _broken(f"its head is longer than {HEAD_BYTES} bytes")
                return None
            text = self._came[self._start : end].decode("latin-1")
            self._start = end + 4
            head = parse_head(text)
            if head.status >= 200:
                return head
        raise _broken("it is interim without end")

    def _body(
        self, head: Head, deadline: float, bodiless: bool, stream: Stream | None
    ) -> bytearray | memoryview:
        if bodiless or head.status in (204, 304):
            return bytearray()
        length = head.fields.get("content-length")
        coding = head.fields.get("transfer-encoding")
        if coding is not None:
            if length is not None or coding.lower() != "chunked":
                raise _broken("it is neither of one length nor in plain chunks")
            return self._chunks(deadline, stream)
        if length is None:
            return self._rest(deadline)
        if not re.fullmatch("[0-9]{1,18}", length):
            raise _broken("its length is no number")
        return self._exactly(int(length), deadline)

    def _exactly(self, length: int, deadline: float) -> bytearray | memoryview:
        start, stop = self._start, self._start + length
        if stop <= self._end:
            self._start = stop
            return self._came[start:stop]
        if length > TRUSTED:
            long = Growing(TRUSTED)
            self._pour(long, length, deadline)
            return long.content()
        body, got = aligned(length), 0
        while got < length:
            count = self._take(body[got:], deadline)
            if not count:
                raise _hung_up()
            got += count
        return body

    def _rest(self, deadline: float) -> memoryview:
        body = Growing(HEAD_BYTES)
        while True:
            with body.room(HEAD_BYTES) as room:
                count = self._take(room, deadline)
            if not count:
                return body.content()
            body.size += count

    def _chunks(self, deadline: float, stream: Stream | None) -> bytearray | memoryview:
        body = stream or Growing(HEAD_BYTES)
        while True:
            size = self._line(deadline).partition(";")[0].strip(" \t")
            if not re.fullmatch("[0-9a-fA-F]{1,15}", size):
                raise _broken("the size of a chunk is no number")
            if not int(size, 16):
                break
            self._pour(body, int(size, 16), deadline)
            if self._line(deadline):
                raise _broken("a chunk is longer than its size")
        for _ in range(FIELDS + 1):
            if not self._line(deadline):
                return body.content() if isinstance(body, Growing) else bytearray()
        raise _broken(f"it has more than {FIELDS} trailers")

    def _line(self, deadline: float) -> str:
        while (end := self._came.find(b"\r\n", self._start, self._end)) < 0:
            if self._end - self._start == HEAD_BYTES:
                raise _broken(f"a line of it is longer than {HEAD_BYTES} bytes")
            self._socket.settimeout(left_until(deadline))
            self._receive()
        line = self._came[self._start : end].decode("latin-1")
        self._start = end + 2
        return line

    def _pour(self, body: Growing | Stream, count: int, deadline: float) -> None:
        while count:
            with body.room(count) as room:
                got = self._take(room, deadline)
            if not got:
                raise _hung_up()
            body.size += got
            count -= got

    def _take(self, room: memoryview, deadline: float) -> int:
        """Bytes of the body put into ``room``: those that came with the head, or new ones; 0 at the end."""
        here = min(self._end - self._start, len(room))
        if here:
            room[:here] = self._room[self._start : self._start + here]
            self._start += here
            return here
        self._socket.settimeout(left_until(deadline))
        count = self._socket.recv_into(room)
        self._ended = not count
        return count


_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def parse_head(text: str) -> Head:
    """A head without its last empty line, strictly; names in lower case, repeated fields joined by commas.

    Raises:
        httpx.RemoteProtocolError: it breaks HTTP/1.1.
    """
    status_line, *lines = text.split("\r\n")
    match = _STATUS_LINE.fullmatch(status_line)
    if match is None:
        raise _broken("it does not begin as one")
    if len(lines) > FIELDS:
        raise _broken(f"it has more than {FIELDS} fields")
    if text.count("\n") != len(lines) or text.count("\r") != len(lines) or "\0" in text:
        raise _broken("its lines are not ended by CR LF")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = _field_name(name if colon else ""), value.strip(" \t")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    status = int(match[2])
    if status == 101:
        raise _broken("it changes to a protocol that nobody asked for")
    options = fields.get("connection")
    closing = options is not None and "close" in re.split(r"[ \t]*,[ \t]*", options.lower())
    return Head(status, fields, match[1] == "1" and not closing)


@lru_cache(maxsize=256)
def _field_name(text: str) -> str:
    # Always the same few: they are looked up rather than looked at.
    if not _NAME.fullmatch(text):
        raise _broken("a field in it has no name")
    return text.lower()


def _broken(why: str) -> httpx.RemoteProtocolError:
    return httpx.RemoteProtocolError(f"what came is not a valid HTTP/1.1 answer: {why}")


def _hung_up() -> ConnectionResetError:
    return ConnectionResetError("the connection was closed before the answer was complete")


def left_until(deadline: float) -> float | None:
    """Seconds until ``deadline``, as sockets take them."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is over")
    return seconds if seconds < _ENDLESS else None


def size_of(buffer: Buffer) -> int:
    """Bytes of ``buffer``."""
    return buffer.nbytes if type(buffer) is memoryview else len(buffer)


def _ready(sock: socket.socket, seconds: float | None, *, write: bool) -> tuple[bool, bool]:
    """Whether ``sock`` can be read (or is closed), and whether it can be written, after a wait for either."""
    if not hasattr(select, "poll"):
        readable, writable, _ = select.select([sock], [sock] if write else [], [], seconds)
        return bool(readable), bool(writable)
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT if write else select.POLLIN)
    # Rounded up: a wait of no milliseconds at all would turn around at full speed.
    events = poll.poll(None if seconds is None else math.ceil(seconds * 1000))
    found = events[0][1] if events else 0
    return bool(found & ~select.POLLOUT), bool(found & select.POLLOUT)
