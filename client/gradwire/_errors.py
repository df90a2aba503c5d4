"""What can go wrong, as exceptions a caller can catch.

::

    GradwireError
    ├── MapNotFound          (KeyError)         no such map, version or route
    ├── ArgumentError        (TypeError)        missing, extra or unknown arguments, bad argnums
    ├── ShapeError           (ValueError)       an array of another shape than the map takes
    ├── DTypeError           (TypeError)        an array of another dtype than the map takes
    ├── NotDifferentiable    (TypeError)        that derivative does not exist
    ├── MapFailed            (RuntimeError)     the map itself raised
    ├── AnswerTooLarge       (MemoryError)      the answer would exceed the service's budget
    ├── OutOfMemory          (MemoryError)      the device has not enough memory
    ├── LinearizationLost                       the service no longer holds it
    ├── QuotaExceeded                           the caller's allowance is used up
    ├── Overloaded                              busy or draining; try again later
    ├── DeadlineExceeded     (TimeoutError)     not answered in time
    ├── Unauthorized         (PermissionError)  the token does not allow it
    ├── ServiceUnavailable   (ConnectionError)  no answer from the service
    └── WireError            (ValueError)       a message that breaks the format or its limits

Each error has a ``kind``: the last part of the ``urn:gradwire:<kind>`` that the
service sends as the ``type`` of its problem details (RFC 9457). The table `KINDS`
gives each kind its HTTP status, its title and its exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple


class GradwireError(Exception):
    """Base of every error of Gradwire.

    Attributes:
        kind: which error, as in ``urn:gradwire:<kind>``.
        detail: one or two sentences: what was wrong and what to do.
        map: name of the map concerned, or None.
        argument: name of the argument concerned, or None.
        expected: what was expected, or None.
        got: what came, or None.
        request_id: the service's id for the request, or None.
        extra: further members of the problem details (such as ``missing``).
    """

    default_kind: ClassVar[str] = "internal"

    def __init__(
        self,
        detail: str,
        *,
        kind: str | None = None,
        map: str | None = None,
        argument: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        request_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind or self.default_kind
        self.detail = detail
        self.map = map
        self.argument = argument
        self.expected = expected
        self.got = got
        self.request_id = request_id
        self.extra: dict[str, Any] = dict(extra or {})

    def __str__(self) -> str:
        parts = [self.detail]
        came = [f"{word} {text}" for word, text in (("expected", self.expected), ("got", self.got)) if text]
        if came:
            parts.append(f"({', '.join(came)})")
        where = []
        if self.map is not None:
            where.append(f"map {self.map}")
        if self.argument is not None:
            where.append(f"argument {self.argument}")
        if self.request_id is not None:
            where.append(f"request {self.request_id}")
        if where:
            parts.append(f"[{', '.join(where)}]")
        return " ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.detail, dict(self.__dict__)))


def _rebuild(cls: type[GradwireError], detail: str, state: dict[str, Any]) -> GradwireError:
    error = cls(detail)
    error.__dict__.update(state)
    return error


class MapNotFound(GradwireError, KeyError):
    """No map of that name or version; the detail names near misses."""

    default_kind = "map-not-found"


class ArgumentError(GradwireError, TypeError):
    """Missing, extra or unknown arguments, or argnums that fit none."""

    default_kind = "arguments"


class ShapeError(GradwireError, ValueError):
    """An array whose shape is not what the map or its (co)tangent takes."""

    default_kind = "shape"


class DTypeError(GradwireError, TypeError):
    """An array whose dtype is not what the map or its (co)tangent takes."""

    default_kind = "dtype"


class NotDifferentiable(GradwireError, TypeError):
    """A derivative that does not exist, or not in the mode asked for."""

    default_kind = "not-differentiable"


class MapFailed(GradwireError, RuntimeError):
    """The map raised: the detail holds its exception's type and message."""

    default_kind = "map-failed"


class AnswerTooLarge(GradwireError, MemoryError):
    """The answer would be larger than the service sends; nothing was computed."""

    default_kind = "answer-too-large"


class OutOfMemory(GradwireError, MemoryError):
    """The device has not enough memory for this query."""

    default_kind = "out-of-memory"


class LinearizationLost(GradwireError):
    """The service no longer holds the linearization (or resident array) named."""

    default_kind = "gone"


class QuotaExceeded(GradwireError):
    """The caller's allowance is used up for now."""

    default_kind = "quota"


class Overloaded(GradwireError):
    """The service is busy or draining; try again later."""

    default_kind = "overloaded"


class DeadlineExceeded(GradwireError, TimeoutError):
    """The answer did not come within the timeout."""

    default_kind = "deadline"


class Unauthorized(GradwireError, PermissionError):
    """No token, a wrong one, or one that does not allow this."""

    default_kind = "unauthorized"


class ServiceUnavailable(GradwireError, ConnectionError):
    """The service could not be reached, or broke off."""

    default_kind = "unavailable"


class WireError(GradwireError, ValueError):
    """A message that breaks the wire format, HTTP's rules or a limit."""

    default_kind = "malformed"


class PrecisionWarning(UserWarning):
    """The service computed below the precision of the arrays it was given."""


class DenseFallbackWarning(UserWarning):
    """No sparsity pattern was found: the answer is right, by dense blocks."""


class Kind(NamedTuple):
    """One kind of error: its HTTP status, its title and its exception."""

    status: int
    title: str
    exception: type[GradwireError]


KINDS: dict[str, Kind] = {
    "malformed": Kind(400, "Malformed request", WireError),
    "unauthorized": Kind(401, "Unauthorized", Unauthorized),
    "forbidden": Kind(403, "Forbidden", Unauthorized),
    "map-not-found": Kind(404, "Map not found", MapNotFound),
    "route-not-found": Kind(404, "Route not found", MapNotFound),
    "method": Kind(405, "Method not allowed", WireError),
    "not-acceptable": Kind(406, "Not acceptable", WireError),
    "slow-body": Kind(408, "Body too slow", DeadlineExceeded),
    "gone": Kind(410, "Gone", LinearizationLost),
    "too-large": Kind(413, "Request too large", WireError),
    "media-type": Kind(415, "Unsupported media type", WireError),
    "arguments": Kind(422, "Wrong arguments", ArgumentError),
    "shape": Kind(422, "Wrong shape", ShapeError),
    "dtype": Kind(422, "Wrong dtype", DTypeError),
    "not-differentiable": Kind(422, "Not differentiable", NotDifferentiable),
    "map-failed": Kind(422, "The map failed", MapFailed),
    "answer-too-large": Kind(422, "Answer too large", AnswerTooLarge),
    "quota": Kind(429, "Quota exceeded", QuotaExceeded),
    "internal": Kind(500, "Internal error", GradwireError),
    "overloaded": Kind(503, "Overloaded", Overloaded),
    "draining": Kind(503, "Draining", Overloaded),
    "out-of-memory": Kind(503, "Out of memory", OutOfMemory),
    "deadline": Kind(504, "Deadline exceeded", DeadlineExceeded),
}
"""Every kind the service answers with."""

_RESERVED = frozenset({"type", "title", "status", "detail", "instance", "map", "argument", "expected", "got"})


def to_problem(error: GradwireError, *, instance: str | None = None) -> dict[str, Any]:
    """The RFC 9457 problem details of ``error``, as a plain dict."""
    kind = KINDS[error.kind]
    problem: dict[str, Any] = {
        "type": f"urn:gradwire:{error.kind}",
        "title": kind.title,
        "status": kind.status,
        "detail": error.detail,
    }
    if instance is not None:
        problem["instance"] = instance
    for member in ("map", "argument", "expected", "got"):
        value = getattr(error, member)
        if value is not None:
            problem[member] = value
    problem.update({k: v for k, v in error.extra.items() if k not in _RESERVED})
    return problem


def from_problem(problem: Mapping[str, Any], *, status: int, request_id: str | None = None) -> GradwireError:
    """The exception for problem details that came with ``status``.

    Unknown kinds (a newer service, a proxy's own error page) become the exception
    that fits the status.
    """
    urn = str(problem.get("type", ""))
    name = urn.removeprefix("urn:gradwire:")
    kind = KINDS.get(name) or next((k for k in KINDS.values() if k.status == status), KINDS["internal"])
    if name not in KINDS:
        name = next((n for n, k in KINDS.items() if k is kind), "internal")

    def text(member: str) -> str | None:
        value = problem.get(member)
        return None if value is None else str(value)

    return kind.exception(
        text("detail") or text("title") or f"the service answered {status}",
        kind=name,
        map=text("map"),
        argument=text("argument"),
        expected=text("expected"),
        got=text("got"),
        request_id=request_id,
        extra={k: v for k, v in problem.items() if k not in _RESERVED},
    )
