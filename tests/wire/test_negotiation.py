"""Which codec reads a body and writes the answer."""

from __future__ import annotations

import pytest

from gradwire._errors import WireError
from gradwire.wire import JSON, MSGPACK, Codec, answer_codec, codec_for, problem_media_type


@pytest.mark.parametrize(
    ("content_type", "codec"),
    [
        ("application/msgpack", MSGPACK),
        ("application/x-msgpack", MSGPACK),
        ("application/vnd.msgpack", MSGPACK),
        ("Application/JSON", JSON),
        ("application/json; charset=utf-8", JSON),
        ('application/json;charset="UTF-8"', JSON),
    ],
)
def test_a_body_is_read_by_its_content_type(content_type: str, codec: Codec) -> None:
    assert codec_for(content_type) is codec


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/json; charset=latin-1", "json", "x" * 9999]
)
def test_other_content_types_are_refused(content_type: str | None) -> None:
    with pytest.raises(WireError) as caught:
        codec_for(content_type)
    assert caught.value.kind == "media-type" and len(str(caught.value)) < 500


BIN = (MSGPACK, "bin")
STR = (MSGPACK, "str")
LISTS = (JSON, "lists")


@pytest.mark.parametrize(
    ("accept", "request_", "answer"),
    [
        (None, BIN, BIN),
        ("", LISTS, LISTS),
        ("*/*", BIN, BIN),
        ("application/*", LISTS, LISTS),
        ("application/msgpack", BIN, BIN),
        ("application/msgpack", LISTS, STR),
        ("application/msgpack;keys=bin", STR, BIN),
        ("application/x-msgpack; keys=str", BIN, STR),
        ("application/json", BIN, LISTS),
        ("application/json;arrays=object", STR, (JSON, "object")),
        ("application/json; arrays=base64", LISTS, (JSON, "base64")),
        ("application/json, */*", BIN, LISTS),
        ("*/*, application/json", BIN, LISTS),
        ("text/html, */*;q=0.1", BIN, BIN),
        ("application/json;q=0.5, application/msgpack;q=0.9", LISTS, STR),
        ("application/json;q=0.1, */*", LISTS, STR),
        ("application/msgpack;q=0, */*", BIN, LISTS),
        ("application/json;arrays=other, application/json", BIN, LISTS),
        ("application/vnd.gradwire.blocks+msgpack, application/msgpack;q=0.5", LISTS, STR),
    ],
)
def test_an_answer_is_written_as_accepted(
    accept: str | None, request_: tuple[Codec, str], answer: tuple[Codec, str]
) -> None:
    assert answer_codec(accept, request_) == answer


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/json;q=0",
        "application/msgpack;keys=other",
        "application/json;q=x",
        "*/*;q=0",
    ],
)
def test_nothing_acceptable_is_refused(accept: str) -> None:
    with pytest.raises(WireError) as caught:
        answer_codec(accept, STR)
    assert caught.value.kind == "not-acceptable"


def test_problems_have_the_callers_encoding() -> None:
    assert problem_media_type(JSON) == "application/problem+json"
    assert problem_media_type(MSGPACK) == "application/problem+msgpack"
