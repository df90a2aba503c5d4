"""The protocols that the service speaks. A dialect is one entry here, and the module that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from starlette.routing import BaseRoute

from gradwire import wire
from gradwire._errors import ArgumentError, GradwireError
from gradwire_service.http.responses import Buffer, Headers
from gradwire_service.settings import Settings

if TYPE_CHECKING:
    from gradwire_service.engine.service import Service

DIALECTS = {
    "native": "gradwire_service.http.native",
}
"""The module of each dialect, by the name that ``--dialects`` takes."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """The request that went wrong, as far as it is known.

    Attributes:
        path: its path, without the query; empty where not even that could be read.
        headers: its header fields.
        request_id: names the occurrence.
        speaks: codec and style of the answer, where an endpoint knows them better than the headers tell.
        status: where HTTP knows a closer status than the error's kind.
    """

    path: str
    headers: Headers
    request_id: str
    speaks: tuple[wire.Codec, str] | None = None
    status: int | None = None


class Answer(NamedTuple):
    """An answer that tells about an error."""

    status: int
    media_type: str
    body: Sequence[Buffer]


class Dialect(Protocol):
    """What a dialect's module has.

    Its routes' endpoints are `exchange.Exchange.endpoint`s: they translate a request's body to a
    `Request`, hand it to the service, and translate the `Outcome` back. What they raise is told by
    ``render``, and so is whatever is refused on the way to them (401, 413, 503, ...).
    """

    def routes(self, service: Service, settings: Settings) -> list[BaseRoute]:
        """Its routes."""

    def owns(self, path: str) -> bool:
        """Whether ``path`` is one of its own, be there a route or not."""

    def render(self, error: GradwireError, occasion: Occasion) -> Answer:
        """How the dialect tells of ``error``."""


def named(names: Sequence[str]) -> list[Dialect]:
    """The dialects of those names.

    Raises:
        ArgumentError: there is no such dialect.
    """
    for name in names:
        if name not in DIALECTS:
            known = ", ".join(DIALECTS)
            raise ArgumentError(
                f"There is no dialect {name!r}.", argument="dialects", expected=f"some of {known}"
            )
    return [cast(Dialect, import_module(DIALECTS[name])) for name in names]


def spoken_at(path: str, names: Sequence[str]) -> Dialect:
    """The dialect among ``names`` whose path it is; where it is nobody's, the native one."""
    native = import_module(DIALECTS["native"])
    return next((dialect for dialect in named(names) if dialect.owns(path)), cast(Dialect, native))
