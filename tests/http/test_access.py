"""Who may ask, and what stands on every answer."""

from __future__ import annotations

from typing import Any

import pytest

ROUTES = ["/", "/docs", "/openapi.json", "/health/live", "/v1/echo", "/nowhere"]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1", "[::1]:80", "LAB.example", "lab.example:9"]
)
def test_names_of_the_service_are_taken(service: Any, host: str) -> None:
    assert service.get("/health/live", Host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "", "a b", "[::1", "localhost/x"]
)
@pytest.mark.parametrize("path", ROUTES)
def test_a_foreign_host_is_refused_on_every_route(service: Any, host: str, path: str) -> None:
    answer = service.get(path, Host=host)
    assert (answer.status, answer.kind) == (400, "malformed")


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_request_without_host_is_refused(service: Any, version: bytes) -> None:
    assert service.send(b"GET / HTTP/" + version + b"\r\n\r\n").kind == "malformed"


def test_two_hosts_are_refused(service: Any) -> None:
    answer = service.request("GET", "/", headers=[("Host", "localhost"), ("Host", "localhost")])
    assert answer.kind == "malformed"


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "https://friend.example.evil"]
)
@pytest.mark.parametrize("path", ROUTES)
def test_a_foreign_origin_is_forbidden_on_every_route(service: Any, origin: str, path: str) -> None:
    answer = service.get(path, Origin=origin)
    assert (answer.status, answer.kind) == (403, "forbidden")
    assert answer.headers["access-control-allow-origin"] is None


def test_two_origins_are_forbidden(service: Any) -> None:
    twice = [("Origin", "https://friend.example")] * 2
    assert service.request("GET", "/health/live", headers=twice).status == 403


def test_our_own_origin_is_allowed(service: Any) -> None:
    assert service.get("/health/live", Origin=service.url).status == 200


@pytest.mark.parametrize("path", ["/health/live", "/nowhere", "/v1/echo?raise=shape"])
def test_an_allowed_origin_may_read_answers_and_problems(service: Any, path: str) -> None:
    answer = service.get(path, Origin="https://friend.example")
    assert answer.headers["access-control-allow-origin"] == "https://friend.example"
    assert answer.headers["access-control-expose-headers"] == "Retry-After, Server-Timing, X-Request-Id"
    assert answer.headers["vary"] == "Origin"


def preflight(service: Any, origin: str) -> Any:
    headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")]
    return service.request("OPTIONS", "/v1/echo", headers=headers)


def test_a_preflight_of_an_allowed_origin_is_answered(service: Any) -> None:
    answer = preflight(service, "https://friend.example")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "https://friend.example"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "Content-Type" in answer.headers["access-control-allow-headers"]


def test_a_preflight_of_a_foreign_origin_is_forbidden(service: Any) -> None:
    answer = preflight(service, "https://evil.example")
    assert answer.kind == "forbidden"
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", [*ROUTES, "/v1/echo?raise=surprise"])
def test_a_sane_request_id_is_echoed_on_every_answer(service: Any, path: str) -> None:
    assert service.get(path, X_Request_Id="run-7.a_B").headers["x-request-id"] == "run-7.a_B"


@pytest.mark.parametrize("given", ["a b", "x" * 65, "", "é", "a;b"])
def test_another_request_id_is_replaced(service: Any, given: str) -> None:
    ids = {service.get("/health/live", X_Request_Id=given).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert given not in ids


@pytest.mark.parametrize("path", [*ROUTES, "/v1/echo?raise=surprise"])
def test_every_answer_has_the_security_headers_and_no_banner(service: Any, path: str) -> None:
    headers = service.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers.get_all("content-security-policy") == [headers["content-security-policy"]]
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["server"] is None
