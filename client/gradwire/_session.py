"""A session with a service, without any I/O.

`Session.exchange` is one request as a conversation, written once for the blocking and
the awaited client. It is a generator: it yields what to do next (`Outgoing`: send this;
`Pause`: wait so long), is sent what came of it (`Incoming`, `Lost`, or None after a
pause), and returns the answer's `Message` or raises. Deadlines, retries, the
reading of errors and the restoring of lost arrays are in here; a client is the few lines
that do as the generator says.
"""

from __future__ import annotations

import email.utils
import ipaddress
import math
import os
import random
import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit
from weakref import WeakValueDictionary

from gradwire import _errors as errors
from gradwire import wire
from gradwire._repeats import Repeats
from gradwire._sparse import Patterns

if TYPE_CHECKING:
    from gradwire._blocks import Stream
    from gradwire._operator import Options
    from gradwire._resident import Kept

MSGPACK_TYPE = "application/msgpack"
STREAMED = "application/vnd.gradwire.blocks+msgpack"
"""The media type of a Jacobian in blocks."""

Buffer = bytes | bytearray | memoryview

ANSWER_LIMITS = wire.Limits(body_bytes=1 << 44, elements=1 << 44)
"""The caller asked for the answer and has it in memory: its size is no danger, its nesting could be."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is: ``base`` has no trailing slash; ``socket`` is a Unix socket's path."""

    base: str
    socket: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """From ``http://…``, ``https://…`` or ``unix:///path.sock``. No error repeats the URL."""
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except (ValueError, AttributeError, TypeError):
            raise _bad_url("something that is not a URL") from None
        if parts.username is not None or parts.password is not None:
            raise _bad_url("a URL with a user or password in it; give the token as token= or GRADWIRE_TOKEN")
        if parts.query or parts.fragment:
            raise _bad_url("a URL with a query or a fragment")
        if parts.scheme == "unix":
            path = unquote(parts.path)
            if parts.netloc or not path.startswith("/") or path.endswith("/"):
                raise _bad_url(
                    "a unix URL without the socket's absolute path (three slashes: unix:///run/x.sock)"
                )
            return cls("http://localhost", path)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _bad_url("a URL without one of these schemes, or without a host")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        where = host if port is None else f"{host}:{port}"
        return cls(f"{parts.scheme}://{where}{parts.path.rstrip('/')}")

    @property
    def loopback(self) -> bool:
        """Whether the service is on this machine, where no proxy belongs in between."""
        host = urlsplit(self.base).hostname or ""
        if self.socket is not None or host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return self.base if self.socket is None else f"unix://{quote(self.socket)}"


def _bad_url(got: str) -> errors.ArgumentError:
    return errors.ArgumentError(
        "The service's URL is not understood.",
        argument="url",
        expected="http://host:port, https://host or unix:///path.sock",
        got=got,
    )


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Send this. ``body`` is a list of buffers, sent one after the other.

    Neither headers (they hold the token) nor body show in its repr.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Sequence[Buffer] = field(repr=False)
    timeout: float
    stream: Stream | None = field(default=None, repr=False)

    def takes(self, status: int, media_type: str) -> Stream | None:
        """Where the body of an answer of that status and Content-Type goes, if not into memory of its own."""
        return self.stream if 200 <= status < 300 and media_type == STREAMED else None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Incoming:
    """A whole answer. Arrays decoded from ``body`` share its memory.

    ``headers`` is looked up with lower-case names.
    """

    status: int
    headers: Mapping[str, str]
    body: bytearray | memoryview = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """No whole answer: the connection failed, or time ran out.

    Attributes:
        cause: the transport's own error.
        connected: False where no connection was made at all.
        answered: whether part of an answer had come.
        timed_out: whether it was the time that ran out.
    """

    cause: Exception
    connected: bool = True
    answered: bool = False
    timed_out: bool = False


Step = Outgoing | Pause
Exchange = Generator[Step, Incoming | Lost | None, wire.Message]


class Session:
    """What one client knows of one service: where it is, the token, what it holds there.

    Shared by everything made from one `connect`, among threads. Does no I/O.
    """

    def __init__(self, address: Address, token: str | None, retries: int) -> None:
        self.address = address
        self.token = check_token(token)
        self.retries = check_retries(retries)
        self.kept: WeakValueDictionary[str, Kept] = WeakValueDictionary()
        self.features: frozenset[str] | None = None
        self.warned: set[str] = set()
        self.repeats = Repeats()
        self.patterns = Patterns()
        self._seen = threading.local()

    def __repr__(self) -> str:
        return f"Session({str(self.address)!r})"

    @property
    def last_timing(self) -> dict[str, float]:
        """Seconds per stage of this thread's last answer, as the service measured them."""
        return server_timing(getattr(self._seen, "timing", ""))

    def exchange(
        self,
        method: str,
        path: str,
        body: Sequence[Buffer] | None,
        *,
        timeout: float,
        accept: str | None = None,
        stream: Stream | None = None,
    ) -> Exchange:
        """One request and its answer, retried and within ``timeout`` seconds.

        Lost connections, 429, 502 and 503 are tried again up to ``retries`` times (every
        operation is pure), with jittered exponential backoff that honours Retry-After.
        A connection that drops before any answer is taken for a stale one of the pool: the
        first is retried at once and not counted. Arrays that the service has lost
        (410 with ``missing``) are put there again, once, where this client keeps them.

        An answer in blocks goes into ``stream``, and leaves a message without fields.

        Raises:
            GradwireError: the service's own error, or `DeadlineExceeded`, or `ServiceUnavailable`.
        """
        started = time.monotonic()
        headers = self._headers(body is not None, accept)
        request_id = headers["X-Request-Id"]
        attempt, stale, restored = 0, False, False
        while True:
            left = timeout - (time.monotonic() - started)
            if left <= 0:
                raise out_of_time(timeout, map_in(path), request_id)
            if left < math.inf:
                headers["Gradwire-Timeout"] = f"{left:.3f}"
            if stream is not None:
                stream.restart()
            answer = yield Outgoing(method, self.address.base + path, dict(headers), body or (), left, stream)
            assert answer is not None, "an Outgoing is answered by Incoming or Lost"
            if isinstance(answer, Incoming):
                # Kept as text: most callers never ask.
                self._seen.timing = answer.headers.get("server-timing", "")
                if 200 <= answer.status < 300:
                    return read_message(answer, path, request_id)
                error = read_error(answer, map_in(path), request_id)
                missing = self._restorable(error)
                if missing and not restored and method != "DELETE":
                    restored = True
                    for kept in missing:
                        left = max(timeout - (time.monotonic() - started), 1e-3)
                        yield from self.exchange("PUT", kept.path, kept.body(), timeout=left)
                    continue
                retry_after = seconds_of(answer.headers.get("retry-after", ""))
                again = answer.status in _RETRIED
            elif answer.timed_out:
                raise out_of_time(timeout, map_in(path), request_id) from answer.cause
            else:
                if answer.connected and not answer.answered and not stale:
                    stale = True
                    continue
                error = self._unreachable(answer, map_in(path), request_id)
                error.__cause__ = answer.cause
                retry_after, again = 0.0, True
            wait = backoff(attempt, retry_after)
            attempt += 1
            if not again or attempt > self.retries or wait >= timeout - (time.monotonic() - started):
                raise error
            yield Pause(wait)

    def _headers(self, has_body: bool, accept: str | None) -> dict[str, str]:
        headers = {
            "Accept": accept or MSGPACK_TYPE,
            # Answers are not compressed, and nothing on the way should begin to.
            "Accept-Encoding": "identity",
            "X-Request-Id": os.urandom(16).hex(),
        }
        if has_body:
            headers["Content-Type"] = MSGPACK_TYPE
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def _restorable(self, error: errors.GradwireError) -> list[Kept]:
        """The arrays that ``error`` says are missing, if this client can put them all again."""
        missing = error.extra.get("missing")
        if error.kind != "gone" or not isinstance(missing, list):
            return []
        kept = [self.kept.get(digest) for digest in missing if isinstance(digest, str)]
        found = [k for k in kept if k is not None]
        return found if len(found) == len(missing) else []

    def _unreachable(self, lost: Lost, name: str | None, request_id: str) -> errors.GradwireError:
        if not lost.connected:
            detail = f"No service answers at {self.address}: is it running, and is the address right?"
        elif lost.answered:
            detail = f"The connection to {self.address} broke off in the middle of the answer."
        else:
            detail = f"The connection to {self.address} broke off before an answer came."
        return errors.ServiceUnavailable(
            detail, map=name, got=type(lost.cause).__name__, expected="an answer", request_id=request_id
        )


_RETRIED = frozenset({429, 502, 503})


def backoff(attempt: int, retry_after: float = 0.0) -> float:
    """Seconds to wait after attempt number ``attempt`` (from 0) failed.

    Doubles from 0.1 s to at most 10 s, of which between half and all is taken at random,
    so that clients turned away together do not come back together; on top of what
    the service asked for.
    """
    whole = min(0.1 * 2.0**attempt, 10.0)
    return retry_after + whole * random.uniform(0.5, 1.0)


def seconds_of(retry_after: str) -> float:
    """A Retry-After header in seconds: a number or an HTTP date; 0 where it is neither."""
    text = retry_after.strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


def server_timing(header: str) -> dict[str, float]:
    """A Server-Timing header (``compute;dur=1.5, encode;dur=0.2``, milliseconds) in seconds."""
    timing: dict[str, float] = {}
    for entry in header.split(","):
        stage, *parameters = (part.strip() for part in entry.split(";"))
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if stage and key.strip().lower() == "dur":
                try:
                    timing[stage] = float(value.strip().strip('"')) / 1000.0
                except ValueError:
                    continue
    return timing


def out_of_time(timeout: float, name: str | None, request_id: str) -> errors.DeadlineExceeded:
    """The error for a request that was not answered within ``timeout`` seconds."""
    return errors.DeadlineExceeded(
        f"No answer within {timeout:g} s. Ask for less at once, or give it longer with using(timeout=…).",
        map=name,
        request_id=request_id,
    )


def map_in(path: str) -> str | None:
    """The map's name in a path such as ``/v1/maps/{name}/{operation}``, or None."""
    parts = path.split("/")
    return unquote(parts[3]) if parts[1:3] == ["v1", "maps"] and len(parts) > 3 else None


def path_of(name: str) -> str:
    """The path of the map ``name`` (which may carry ``@version``)."""
    return f"/v1/maps/{quote(name, safe='@')}"


def read_message(answer: Incoming, path: str, request_id: str) -> wire.Message:
    """The message in a good answer to ``path``; one without fields for an empty one.

    Raises:
        WireError: it is not in Gradwire's format, or breaks it.
    """
    if not answer.body:
        return wire.MSGPACK.decode(b"\x80")  # A map without entries.
    coding = answer.headers.get("content-encoding", "identity")
    kind = media_type(answer)
    try:
        codec = wire.MSGPACK if kind == MSGPACK_TYPE else wire.codec_for(kind)
        if coding.lower() != "identity":
            raise errors.WireError(
                "The answer came compressed. Let nothing on the way to the service compress its answers.",
                expected="no Content-Encoding",
                got=coding,
            )
        return codec.decode(answer.body, ANSWER_LIMITS)
    except errors.GradwireError as error:
        error.map = error.map or map_in(path)
        error.request_id = error.request_id or answer.headers.get("x-request-id", request_id)
        raise


def read_error(answer: Incoming, name: str | None, request_id: str) -> errors.GradwireError:
    """The exception for an answer that is not a good one, from the service or from a proxy."""
    request_id = answer.headers.get("x-request-id", request_id)
    problem = _problem_in(answer)
    if problem is None:
        error = _foreign(answer)
        error.request_id = request_id
    else:
        error = errors.from_problem(problem, status=answer.status, request_id=request_id)
    error.map = error.map or name
    return error


def _problem_in(answer: Incoming) -> Mapping[str, Any] | None:
    codecs = (wire.JSON, wire.MSGPACK)
    codec = next((c for c in codecs if wire.problem_media_type(c) == media_type(answer)), None)
    if codec is None:
        return None
    try:
        return codec.decode(answer.body, ANSWER_LIMITS).fields
    except errors.GradwireError:
        return None


_FOREIGN: dict[int, tuple[type[errors.GradwireError], str]] = {
    401: (errors.Unauthorized, "Access was refused. Is the token right?"),
    403: (errors.Unauthorized, "Access was refused. Is the token right?"),
    407: (errors.Unauthorized, "A proxy on the way wants its own credentials."),
    408: (errors.DeadlineExceeded, "The request took too long to arrive."),
    413: (errors.WireError, "The request is larger than a proxy on the way lets through."),
    429: (errors.QuotaExceeded, "Too many requests; try again later."),
    502: (errors.ServiceUnavailable, "A proxy on the way cannot reach the service."),
    503: (errors.Overloaded, "The service, or a proxy before it, is busy; try again later."),
    504: (errors.DeadlineExceeded, "A proxy on the way gave up waiting for the service."),
}


def _foreign(answer: Incoming) -> errors.GradwireError:
    """The exception for an error page that is not Gradwire's own. Its text is not repeated."""
    status = answer.status
    if 300 <= status < 400:
        detail = "The address redirects elsewhere, which is not followed. Connect to where it leads."
        cls: type[errors.GradwireError] = errors.ServiceUnavailable
    else:
        cls, detail = _FOREIGN.get(
            status, (errors.ServiceUnavailable, "What answers there does not look like a Gradwire service.")
        )
    got = f"status {status}, {media_type(answer)[:60] or 'no media type'}"
    return cls(detail, expected="an answer of Gradwire's own", got=got)


def media_type(answer: Incoming) -> str:
    """The answer's media type in lower case, without parameters."""
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_token(token: str | None) -> str | None:
    """``token`` without surrounding blanks. No error repeats it."""
    if token is None:
        return None
    text = token.strip() if isinstance(token, str) else ""
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise errors.ArgumentError(
            "The token cannot be sent in a header.",
            argument="token",
            expected="visible ASCII characters without blanks",
            got="something else",
        )
    return text


def check_options(options: Options) -> Options:
    """``options`` where they are of the right types.

    Raises:
        ArgumentError: precision or device that is not text, or a timeout that is no time.
    """
    for name in ("precision", "device"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, str):
            raise errors.ArgumentError(
                f"{name} is given as text.", argument=name, expected="str", got=type(value).__name__
            )
    timeout = options.timeout
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (number and timeout > 0):
        raise errors.ArgumentError(
            "timeout is a time in seconds; math.inf means no end.",
            argument="timeout",
            expected="a number above 0",
            got=repr(timeout),
        )
    return options


def check_retries(retries: int) -> int:
    """``retries`` where it is a count."""
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise errors.ArgumentError(
            "retries is how often a failed request is sent again.",
            argument="retries",
            expected="an int, 0 or more",
            got=repr(retries),
        )
    return retries
