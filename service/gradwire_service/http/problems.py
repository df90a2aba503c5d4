"""Errors as answers: problem details (RFC 9457), in the caller's format."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradwire import wire
from gradwire._errors import KINDS, GradwireError, MapNotFound, WireError, to_problem
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
    """Answers ``error``, as ``state["speaks"]`` says (codec and style, from an endpoint), or the headers."""
    state = scope["state"]
    status, media_type, body, more = render(error, scope["headers"], state["request_id"], state.get("speaks"))
    await send_buffers(send, status, media_type, body, [*more, *headers])


def render(
    error: GradwireError,
    request_headers: Headers,
    request_id: str,
    speaks: tuple[wire.Codec, str] | None = None,
    *,
    status: int | None = None,
) -> tuple[int, str, list[bytes | memoryview], list[tuple[bytes, bytes]]]:
    """Status, Content-Type, body and further headers of the answer that tells about ``error``.

    Args:
        error: what went wrong.
        request_headers: the request's, which say what the caller reads.
        request_id: names the occurrence.
        speaks: codec and style, where they are known better than from the headers.
        status: where HTTP knows a closer status than the error's kind.
    """
    codec, style = speaks or _speaks(request_headers)
    problem = to_problem(error, instance=f"urn:gradwire:request:{request_id}")
    problem = {member: _sendable(v) if isinstance(v, str) else v for member, v in problem.items()}
    if status is not None:
        problem["status"] = status
    headers: list[tuple[bytes, bytes]] = []
    if problem["status"] in (429, 503):
        seconds = math.ceil(float(error.extra.get("retry_after", RETRY_AFTER)))
        headers.append((b"retry-after", b"%d" % seconds))
    if problem["status"] == 401:
        headers.append((b"www-authenticate", b'Bearer realm="gradwire"'))
        headers.append((b"www-authenticate", b'Basic realm="gradwire"'))
    return problem["status"], wire.problem_media_type(codec), codec.encode(problem, style), headers


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
