"""Every error is a problem details message, in the caller's format."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgpack
import pytest

from gradwire._errors import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_status_and_urn(service: Any, kind: str) -> None:
    answer = service.get(f"/v1/echo?raise={kind}", X_Request_Id="abc")
    assert answer.kind == kind
    assert answer.status == KINDS[kind].status
    problem = json.loads(answer.body)
    assert problem["title"] == KINDS[kind].title
    assert problem["detail"] == "It went wrong."
    assert problem["instance"] == "urn:gradwire:request:abc"
    assert (problem["argument"], problem["expected"]) == ("x", "this")
    assert problem["got"] == "\\ud800"  # what no format can hold is escaped


@pytest.mark.parametrize("kind", ["quota", "overloaded", "draining", "out-of-memory"])
def test_what_passes_says_when_to_come_back(service: Any, kind: str) -> None:
    assert int(service.get(f"/v1/echo?raise={kind}").headers["retry-after"]) >= 1


def test_unauthorized_says_how_to_authenticate(service: Any) -> None:
    schemes = service.get("/v1/echo?raise=unauthorized").headers.get_all("www-authenticate")
    assert [scheme.split()[0] for scheme in schemes] == ["Bearer", "Basic"]


@pytest.mark.parametrize(
    ("headers", "packed"),
    [
        ({}, False),
        ({"Accept": "application/json"}, False),
        ({"Accept": "text/html"}, False),
        ({"Accept": "application/msgpack"}, True),
        ({"Accept": "application/x-msgpack, application/json;q=0.5"}, True),
        ({"Content_Type": "application/msgpack"}, True),
        ({"Content_Type": "application/vnd.msgpack", "Accept": "*/*"}, True),
        ({"Content_Type": "application/msgpack", "Accept": "application/vnd.gradwire.blocks+msgpack"}, True),
        ({"Content_Type": "application/msgpack", "Accept": "application/json"}, False),
        ({"Content_Type": "text/plain"}, False),
    ],
)
@pytest.mark.parametrize("path", ["/v1/echo?raise=shape", "/nowhere"])
def test_msgpack_callers_get_msgpack(service: Any, headers: dict[str, str], packed: bool, path: str) -> None:
    answer = service.get(path, **headers)
    assert answer.headers["content-type"] == f"application/problem+{'msgpack' if packed else 'json'}"
    problem = msgpack.unpackb(answer.body) if packed else json.loads(answer.body)
    assert problem["status"] == answer.status


def test_a_caller_of_bin_keys_gets_bin_keys(service: Any) -> None:
    answer = service.get("/nowhere", Accept="application/msgpack;keys=bin")
    assert msgpack.unpackb(answer.body)[b"type"] == "urn:gradwire:route-not-found"


def test_a_msgpack_caller_gets_msgpack_even_when_the_head_is_refused(service: Any) -> None:
    head = b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
    answer = service.send(head + b"A: " + b"a" * 70_000 + b"\r\n\r\n")
    assert msgpack.unpackb(answer.body)["status"] == answer.status == 431
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/nowhere", "/v1", "/v1/echo/", "/docs/", "/v1/maps/a/b/c/d"])
def test_a_path_that_is_not_there_is_a_problem(service: Any, path: str) -> None:
    answer = service.get(path)
    assert (answer.status, answer.kind) == (404, "route-not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/echo", {"GET", "HEAD", "POST"}),
        ("POST", "/docs", {"GET", "HEAD"}),
        ("PROPFIND", "/", {"GET", "HEAD"}),
        ("OPTIONS", "/health/live", {"GET", "HEAD"}),
    ],
)
def test_a_method_that_does_not_fit_names_those_that_do(
    service: Any, method: str, path: str, allowed: set[str]
) -> None:
    answer = service.request(method, path)
    assert (answer.status, answer.kind) == (405, "method")
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_a_surprise_tells_nothing_but_its_id_and_is_logged(
    service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="gradwire.service"):
        answer = service.get("/v1/echo?raise=surprise", X_Request_Id="find-me")
    assert (answer.status, answer.kind) == (500, "internal")
    assert b"swordfish" not in answer.body
    assert b"RuntimeError" not in answer.body
    assert "find-me" in caplog.text
    assert "swordfish" in caplog.text


def test_an_error_after_the_body_is_a_problem(service: Any) -> None:
    assert service.request("POST", "/v1/echo?late", body=b"x" * 1000).kind == "internal"
