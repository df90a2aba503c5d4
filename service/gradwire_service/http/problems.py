"""Errors as answers: in the dialect of the path; the native one gives problem details (RFC 9457)."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradwire import wire
from gradwire._errors import KINDS, GradwireError, MapNotFound, WireError, to_problem
from gradwire_service.http.dialects import Answer, Occasion, spoken_at
from gradwire_service.http.receiver import ClientDisconnected
from gradwire_service.http.responses import Headers, send_buffers

log = logging.getLogger("gradwire.service")

RETRY_AFTER = 1
"""Seconds a client should wait before it tries again, where nothing better is known."""


LONGEST = 4000
"""Characters of a member of a problem: a map's own exception may go on and on."""


class Problems:
    """ASGI middleware: whatever an endpoint raises becomes the answer that tells the caller about it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        headers: Headers = ()
        try:
            await self.app(scope, receive, noted)
            return
        except ClientDisconnected:
            return
        except GradwireError as error:
            problem = _without_frames(error)
        except HTTPException as error:
            problem = _of_router(error, scope)
            if error.status_code == 405:
                headers = [(b"allow", ", ".join(_allowed(scope)).encode("ascii"))]
        except Exception:
            # Not a word of the exception leaves the house: it may hold anything.
            log.exception("request %s failed", scope["state"]["request_id"])
            problem = GradwireError(
                "The service failed to answer; its log tells why under this request's id."
            )
        if started:
            # Half an answer cannot be taken back: end the connection so that the client sees it.
            raise RuntimeError(f"the answer broke off: {problem.kind}")
        await send_problem(problem, scope, send, headers)


def _without_frames(error: GradwireError) -> GradwireError:
    """``error``, whose frames would hold it, and the request's arrays, until garbage is collected."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__context__
    return error


async def unhandled(request: Request, error: Any) -> Response:
    """Starlette's handler for its own exceptions: leaves them to `Problems`."""
    raise error


async def send_problem(error: GradwireError, scope: Scope, send: Send, headers: Headers = ()) -> None:
    """Answers ``error`` in the dialect that the path belongs to.

    ``state["speaks"]`` is codec and style of the answer, where an endpoint has found them out.
    """
    state = scope["state"]
    occasion = Occasion(scope["path"], scope["headers"], state["request_id"], state.get("speaks"))
    answer, more = told(error, occasion, scope["app"].state.dialects)
    await send_buffers(send, answer.status, answer.media_type, answer.body, [*more, *headers])


def told(
    error: GradwireError, occasion: Occasion, dialects: Sequence[str]
) -> tuple[Answer, list[tuple[bytes, bytes]]]:
    """The answer that tells about ``error``, and the header fields that go with its status."""
    answer = spoken_at(occasion.path, dialects).render(error, occasion)
    headers: list[tuple[bytes, bytes]] = []
    if answer.status in (429, 503):
        seconds = math.ceil(float(error.extra.get("retry_after", RETRY_AFTER)))
        headers.append((b"retry-after", b"%d" % seconds))
    if answer.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="gradwire"'))
        headers.append((b"www-authenticate", b'Basic realm="gradwire"'))
    return answer, headers


def render(error: GradwireError, occasion: Occasion) -> Answer:
    """Problem details (RFC 9457), in the format that the caller reads."""
    codec, style = occasion.speaks or _speaks(occasion.headers)
    problem = to_problem(error, instance=f"urn:gradwire:request:{occasion.request_id}")
    problem = {member: _sendable(v) if isinstance(v, str) else v for member, v in problem.items()}
    if occasion.status is not None:
        problem["status"] = occasion.status
    return Answer(problem["status"], wire.problem_media_type(codec), codec.encode(problem, style))


def _speaks(headers: Headers) -> tuple[wire.Codec, str]:
    """Codec and style of a caller of whom only the headers are known; JSON when in doubt."""
    accept = ",".join(value.decode("latin-1") for name, value in headers if name == b"accept")
    sent = next((value.decode("latin-1") for name, value in headers if name == b"content-type"), None)
    plain: tuple[wire.Codec, str] = (wire.JSON, "lists")
    with suppress(WireError):
        if wire.codec_for(sent) is wire.MSGPACK:
            plain = (wire.MSGPACK, "str")
    with suppress(WireError):
        return wire.answer_codec(accept, plain)
    return plain


def _sendable(text: str) -> str:
    """A text that every format can hold, of a length that helps."""
    return text[:LONGEST].encode("utf-8", "backslashreplace").decode()


def _allowed(scope: Scope) -> list[str]:
    """The methods that the request's path takes, of whichever route."""
    routes = [route for route in scope["app"].routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})


def _of_router(error: HTTPException, scope: Scope) -> GradwireError:
    """The router's own refusals, as ours."""
    path = repr(scope["path"][:80])
    if error.status_code == 404:
        return MapNotFound(
            "There is nothing at this path; /docs lists what there is.", kind="route-not-found", got=path
        )
    if error.status_code == 405:
        return WireError(
            "This path does not take that method.",
            kind="method",
            expected=" or ".join(_allowed(scope)),
            got=scope["method"],
        )
    fitting = next((name for name, kind in KINDS.items() if kind.status == error.status_code), None)
    return WireError(error.detail, kind=fitting or ("internal" if error.status_code >= 500 else "malformed"))
