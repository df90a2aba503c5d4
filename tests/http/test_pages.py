"""Health, documentation and the pages for people."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import pytest
from openapi_spec_validator import validate

from gradwire._errors import KINDS
from gradwire_service.http.openapi import OPERATIONS, document

PAGES = ["/", "/docs"]


@pytest.mark.parametrize(
    "path", ["/health/live", "/health/ready", "/openapi.json", "/", "/docs", "/v1/echo", "/nope"]
)
def test_head_is_get_without_the_body(service: Any, path: str) -> None:
    with service.connect() as connection:
        request = f" {path} HTTP/1.1\r\nHost: {service.host}\r\nConnection: close\r\n\r\n".encode()
        connection.sendall(b"HEAD" + request)
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert body == b""
    assert b"content-length: %d\r\n" % len(service.get(path).body) in head + b"\r\n"


def test_health_is_json(service: Any) -> None:
    assert json.loads(service.get("/health/live").body) == {"status": "live"}
    assert json.loads(service.get("/health/ready").body) == {"status": "ready"}


def test_the_openapi_document_is_valid_and_served(service: Any) -> None:
    served = json.loads(service.get("/openapi.json").body)
    validate(served)
    assert served == document()


def test_the_openapi_document_describes_both_body_formats() -> None:
    query = document()["paths"]["/v1/maps/{name}/{operation}"]["post"]
    for content in (query["requestBody"]["content"], query["responses"]["200"]["content"]):
        assert set(content) == {"application/msgpack", "application/json"}
        assert content["application/msgpack"]["schema"]["contentMediaType"] == "application/msgpack"
        assert "contentSchema" in content["application/msgpack"]["schema"]


def test_the_request_has_the_fields_of_the_contract() -> None:
    fields = (
        "args kwargs tangents cotangent argnums mode sparse holomorphic has_aux transforms precision device "
        "known_patterns"
    )
    schemas = document()["components"]["schemas"]
    for format in ("Json", "Msgpack"):
        assert set(schemas[f"{format}Request"]["properties"]) == set(fields.split())


def test_the_openapi_document_knows_every_kind_of_error() -> None:
    types = document()["components"]["schemas"]["Problem"]["properties"]["type"]["enum"]
    assert types == [f"urn:gradwire:{kind}" for kind in KINDS]


@pytest.mark.parametrize("path", PAGES)
def test_pages_load_nothing_and_run_nothing(service: Any, path: str) -> None:
    answer = service.get(path)
    html = answer.body.decode()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert all(link.startswith("/") for link in re.findall(r"""(?:src|href)=["']?([^"'>\s]+)""", html))
    assert not re.search(r"<script|<iframe|<img|@import|url\(|\son\w+=", html)


@pytest.mark.parametrize("path", PAGES)
def test_the_policy_of_a_page_allows_its_own_style_only(service: Any, path: str) -> None:
    answer = service.get(path)
    (style,) = re.findall(r"<style>(.*?)</style>", answer.body.decode(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_the_docs_tell_every_route_field_and_kind(service: Any) -> None:
    html = service.get("/docs").body.decode()
    for path in document()["paths"]:
        assert path in html
    for word in [*KINDS, *OPERATIONS, "known_patterns"]:
        assert word in html


def test_the_home_page_lists_the_maps_escaped_with_snippets_for_this_address(service: Any) -> None:
    html = service.get("/").body.decode()
    assert "valley(x: Float[Array, &quot;n&quot;]) -&gt; Float[Array, &quot;&quot;]" in html
    assert "Least at &lt;b&gt;1&lt;/b&gt; &amp; nowhere else." in html
    assert f"curl {service.url}/v1/maps/valley/evaluate" in html
    assert "[[1.0, 1.0]]" in html
