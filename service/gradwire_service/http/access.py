"""Who may ask, and what stands on every answer: request id, Host, Origin, security headers."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradwire._errors import GradwireError, Unauthorized, WireError
from gradwire_service.http.problems import send_problem
from gradwire_service.settings import Settings

ANONYMOUS = "anonymous"
"""The owner of every request, until there are tokens."""

SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
"""For every answer that does not bring its own: it loads nothing and is framed by nobody."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", re.IGNORECASE)


class Access:
    """ASGI middleware, outermost: names the request and its owner, and refuses strangers.

    Leaves ``request_id`` and ``owner`` in ``scope["state"]``.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.origins = frozenset(origin.encode("latin-1") for origin in settings.cors_origin)
        self.hosts = LOOPBACK | {settings.host.lower(), *(name.lower() for name in settings.allowed_host)}
        self.open = not is_loopback(settings.host)
        if self.open:
            self.hosts |= {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = _read(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = asked.request_id.decode("ascii")
        state["owner"] = ANONYMOUS
        origin = asked.origin if asked.origin in self.origins else None
        is_head = scope["method"] == "HEAD"

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"x-request-id", asked.request_id), *SECURITY]
                if not any(name == b"content-security-policy" for name, _ in headers):
                    headers.append(CONTENT_POLICY)
                if self.origins:
                    headers.append((b"vary", b"Origin"))
                if origin is not None:
                    headers += _cors(origin)
                message = {**message, "headers": headers}
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        refused = self._refusal(scope, asked)
        if refused is not None:
            await send_problem(refused, scope, stamped)
        elif scope["method"] == "OPTIONS" and asked.preflight:
            await stamped({"type": "http.response.start", "status": 204, "headers": PREFLIGHT})
            await stamped({"type": "http.response.body", "body": b""})
        else:
            await self.app(scope, receive, stamped)

    def _refusal(self, scope: Scope, asked: _Asked) -> GradwireError | None:
        if not self._knows_host(scope, asked.host):
            return WireError(
                "The request needs one Host header that names this service. If it is reached by another "
                "name, start it with --allowed-host.",
            )
        own = f"{scope['scheme']}://{asked.host}".lower().encode("latin-1")
        if asked.origin is not None and asked.origin != own and asked.origin not in self.origins:
            return Unauthorized(
                "Web pages of this origin may not call the service unless it is started with --cors-origin.",
                kind="forbidden",
            )
        return None

    def _knows_host(self, scope: Scope, host: str | None) -> bool:
        """Whether Host is a name of ours: a page that rebinds its own name to our address has another."""
        match = _HOST.fullmatch(host or "")
        if match is None:
            return False
        name = (match[1] or match[2]).lower()
        server = scope.get("server")
        if name in self.hosts or (server is not None and name == server[0]):
            return True
        # Beyond loopback any address will do: rebinding needs a name.
        return self.open and _is_address(name)


class _Asked(NamedTuple):
    """What the headers say about the asker."""

    request_id: bytes
    host: str | None
    origin: bytes | None
    preflight: bool


def _read(scope: Scope) -> _Asked:
    request_id = origin = None
    hosts: list[str] = []
    preflight = False
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value.decode("latin-1"))
        elif name == b"origin":
            # Two origins are no origin that could be allowed.
            origin = value.lower() if origin is None else b"several"
        elif name == b"x-request-id" and _SANE_ID.fullmatch(value):
            request_id = value
        elif name == b"access-control-request-method":
            preflight = True
    return _Asked(
        request_id or new_request_id().encode("ascii"),
        hosts[0] if len(hosts) == 1 else None,
        origin,
        preflight and origin is not None,
    )


def new_request_id() -> str:
    """A name for a request whose client gave none."""
    return secrets.token_hex(8)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to ``host``."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
    (
        b"access-control-allow-headers",
        b"Accept, Authorization, Content-Type, Gradwire-Timeout, Traceparent, X-Request-Id",
    ),
    (b"access-control-max-age", b"600"),
)


def _cors(origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"Retry-After, Server-Timing, X-Request-Id"),
    )
