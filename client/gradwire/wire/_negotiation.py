"""Which codec reads a body, and which one writes the answer."""

from __future__ import annotations

from typing import NamedTuple

from gradwire._errors import WireError
from gradwire.wire._codec import Codec
from gradwire.wire._json import JSON
from gradwire.wire._msgpack import MSGPACK

_TYPES: dict[str, Codec] = {
    "application/msgpack": MSGPACK,
    "application/x-msgpack": MSGPACK,
    "application/vnd.msgpack": MSGPACK,
    "application/json": JSON,
}
_STYLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "msgpack": ("keys", ("str", "bin")),
    "json": ("arrays", ("lists", "object", "base64")),
}
"""By codec: the parameter of its media type that chooses a style, and the styles."""


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    """A media type or range and its parameters."""
    head, *rest = text.split(";")
    parameters = {}
    for item in rest:
        name, _, value = item.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"').lower()
    return head.strip().lower(), parameters


def codec_for(content_type: str | None) -> Codec:
    """The codec of a request's Content-Type.

    Raises:
        WireError: of kind ``media-type``, where it is none that we read.
    """
    media_type, parameters = _parsed(content_type or "")
    codec = _TYPES.get(media_type)
    if codec is None or parameters.get("charset", "utf-8") not in ("utf-8", "utf8"):
        raise WireError(
            "the body's Content-Type is none that is read here",
            kind="media-type",
            expected="application/msgpack or application/json (UTF-8)",
            got=ascii(content_type[:80]) if content_type else "no Content-Type",
        )
    return codec


class _Choice(NamedTuple):
    """An answer that a range of Accept allows, comparable by preference."""

    quality: float
    named: bool
    codec: Codec
    style: str


def answer_codec(accept: str | None, request: tuple[Codec, str]) -> tuple[Codec, str]:
    """The codec and style to answer with.

    Args:
        accept: the Accept header. ``application/msgpack;keys=bin`` and
            ``application/json;arrays=object`` (or ``base64``) choose a style.
        request: codec and style of the request, which the answer has where
            Accept leaves the choice.

    Raises:
        WireError: of kind ``not-acceptable``, where Accept allows no answer we can give.
    """
    if accept is None or not accept.strip():
        return request
    best: _Choice | None = None
    for choice in _choices(accept, request):
        if best is None or choice[:2] > best[:2]:
            best = choice
    if best is None:
        raise WireError(
            "Accept allows no media type of this service",
            kind="not-acceptable",
            expected="application/msgpack or application/json",
            got=ascii(accept[:80]),
        )
    return best.codec, best.style


def _choices(accept: str, request: tuple[Codec, str]) -> list[_Choice]:
    ranges = [_parsed(item) for item in accept.split(",")]
    named = {_TYPES[name] for name, _ in ranges if name in _TYPES}
    choices = []
    for name, parameters in ranges:
        quality = _quality(parameters)
        if quality == 0:
            continue
        if name in ("*/*", "application/*"):
            for codec, style in (request, (JSON, "lists"), (MSGPACK, "str")):
                if codec not in named:  # what is said of a type by name goes before the wildcard
                    choices.append(_Choice(quality, False, codec, style))
        elif name in _TYPES:
            codec = _TYPES[name]
            parameter, styles = _STYLES[codec.name]
            style = parameters.get(parameter, request[1] if codec is request[0] else styles[0])
            if style in styles:
                choices.append(_Choice(quality, True, codec, style))
    return choices


def _quality(parameters: dict[str, str]) -> float:
    try:
        return min(max(float(parameters.get("q", "1")), 0.0), 1.0)
    except ValueError:
        return 0.0


def problem_media_type(codec: Codec) -> str:
    """The Content-Type of problem details (RFC 9457) to a caller of this codec."""
    return f"application/problem+{codec.name}"
