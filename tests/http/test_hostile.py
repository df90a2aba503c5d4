"""Requests that abuse HTTP get their 4xx, as problem details, and leave the service healthy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

START = b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\n"


def with_length(*values: str) -> bytes:
    return START + b"".join(f"Content-Length: {value}\r\n".encode() for value in values) + b"\r\n"


LAST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"


def read_all(service: Any, request: bytes) -> bytes:
    """Everything that comes back until the service closes the connection."""
    with service.connect() as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize("values", [("-5",), ("+5",), ("5_0",), ("0x5",), ("five",), ("5, 6",), ("9" * 30,)])
def test_a_content_length_that_is_no_length_is_malformed(service: Any, values: tuple[str, ...]) -> None:
    assert service.send(with_length(*values) + b"x" * 50).kind == "malformed"


@pytest.mark.parametrize("values", [("5", "6"), ("5", "5")])
def test_a_content_length_given_twice_is_malformed(service: Any, values: tuple[str, ...]) -> None:
    assert service.send(with_length(*values) + b"x" * 6).kind == "malformed"


def test_a_body_shorter_than_its_length_ends_quietly_when_the_client_leaves(service: Any) -> None:
    with service.connect() as connection:
        connection.sendall(with_length("50") + b"x" * 10)


def test_what_follows_a_body_longer_than_its_length_is_no_request(service: Any) -> None:
    received = read_all(service, with_length("5") + b"xxxxxGARBAGE\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")


def test_both_length_and_chunks_are_malformed(service: Any) -> None:
    head = START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert service.send(head + b"5\r\nhello\r\n0\r\n\r\n").kind == "malformed"


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"chunked, chunked", b"identity", b"x"])
def test_another_transfer_encoding_is_malformed(service: Any, coding: bytes) -> None:
    head = START + b"Transfer-Encoding: " + coding + b"\r\n\r\n"
    assert service.send(head + b"5\r\nhello\r\n0\r\n\r\n").kind == "malformed"


@pytest.mark.parametrize(
    "chunk", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"5\r\nhello!!\r\n", b"f" * 30 + b"\r\n"]
)
def test_broken_chunks_are_malformed(service: Any, chunk: bytes) -> None:
    assert service.send(CHUNKED + chunk).kind == "malformed"


def test_a_body_too_large_by_its_length_is_refused_before_it_comes(service: Any) -> None:
    answer = service.send(with_length("100001"))
    assert answer.kind == "too-large"
    assert b"at most 100000 bytes" in answer.body
    assert b"100001 bytes" in answer.body


def test_a_client_that_sends_a_body_too_large_gets_to_read_the_answer(service: Any) -> None:
    assert service.send(with_length("40000000"), repeat(b"x" * 1_000_000, 40)).kind == "too-large"


def test_after_a_refused_body_the_connection_takes_the_next_request(service: Any) -> None:
    received = read_all(service, with_length("100001") + b"x" * 100_001 + LAST)
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b"HTTP/1.1 200 OK" in received


def test_endless_chunks_are_too_large(service: Any) -> None:
    def endless() -> Iterator[bytes]:
        yield from repeat(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")

    assert service.send(CHUNKED, endless()).kind == "too-large"


def test_a_thousand_chunks_of_one_byte_are_a_body_of_a_thousand_bytes(service: Any) -> None:
    answer = service.send(CHUNKED, repeat(b"1\r\nx\r\n", 1000), b"0\r\n\r\n")
    assert (answer.status, answer.body) == (200, b"x" * 1000)


def test_endless_chunk_extensions_are_refused(service: Any) -> None:
    answer = service.send(CHUNKED + b"5;", repeat(b"a" * 10_000))
    assert (answer.status, answer.kind) == (431, "too-large")


@pytest.mark.parametrize("trailer", [b"A: " + b"a" * 1000 + b"\r\n", b"A" * 10_000])
def test_endless_trailers_are_refused(service: Any, trailer: bytes) -> None:
    answer = service.send(CHUNKED + b"1\r\nx\r\n0\r\n", repeat(trailer))
    assert (answer.status, answer.kind) == (431, "too-large")


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "identity, gzip"])
def test_a_compressed_body_is_refused(service: Any, coding: str) -> None:
    answer = service.request("POST", "/v1/echo", body=b"x", headers=[("Content-Encoding", coding)])
    assert (answer.status, answer.kind) == (415, "media-type")


def test_a_body_said_to_be_plain_is_taken(service: Any) -> None:
    answer = service.request("POST", "/v1/echo", body=b"x", headers=[("Content-Encoding", "identity")])
    assert answer.status == 200


def test_ten_thousand_headers_are_too_many(service: Any) -> None:
    answer = service.send(START, (f"A{i}: b\r\n".encode() for i in range(10_000)), b"\r\n")
    assert (answer.status, answer.kind) == (431, "too-large")


@pytest.mark.parametrize("size", [70_000, 10_000_000])
def test_a_head_of_too_many_bytes_is_refused(service: Any, size: int) -> None:
    answer = service.send(START + b"A: " + b"a" * size + b"\r\n\r\n")
    assert (answer.status, answer.kind) == (431, "too-large")


def test_a_header_without_end_is_refused(service: Any) -> None:
    answer = service.send(START + b"A: ", repeat(b"a" * 10_000))
    assert (answer.status, answer.kind) == (431, "too-large")


def test_a_path_of_a_mebibyte_is_refused(service: Any) -> None:
    answer = service.send(b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (answer.status, answer.kind) == (414, "too-large")


@pytest.mark.parametrize(
    "target", [b"*", b"no-slash", b"http://[::1", b"/%ff%00%zz", b"/\x80", b"//", b"/?" + b"&" * 99]
)
def test_odd_targets_get_an_answer(service: Any, target: bytes) -> None:
    answer = service.send(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.status == 200 or answer.kind in ("malformed", "route-not-found")


@pytest.mark.parametrize("method", [b"BREW", b"get", b"\x16\x03\x01\x02", b"G" * 5000])
def test_a_method_that_http_does_not_know_is_refused(service: Any, method: bytes) -> None:
    answer = service.send(method + b" /v1/echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (answer.status, answer.kind) == (405, "method")


@pytest.mark.parametrize(
    "line", [b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_another_protocol_is_malformed(service: Any, line: bytes) -> None:
    assert service.send(line).status == 400


@pytest.mark.parametrize("field", [b"A b: c", b"A\x00: c", b": c", b"A: b\x00c", b"A: b\r\n c"])
def test_broken_header_fields_are_malformed_or_harmless(service: Any, field: bytes) -> None:
    answer = service.send(START + field + b"\r\nContent-Length: 0\r\n\r\n")
    assert answer.status in (200, 400)


def test_an_upgrade_is_answered_in_http_and_the_connection_closed(service: Any) -> None:
    head = (
        b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )
    assert read_all(service, head).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_flood_of_pipelined_requests_is_bounded(service: Any) -> None:
    one = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with service.connect() as connection:
        connection.sendall(one * 2000)
        received = b""
        try:
            while data := connection.recv(1 << 16):
                received += data
        except ConnectionResetError:
            pass
    assert received.count(b"HTTP/1.1 200 OK") < 2000


def test_a_few_pipelined_requests_are_answered_in_order(service: Any) -> None:
    received = read_all(service, b"".join(with_length("1") + b"%d" % i for i in range(5)) + LAST)
    answers = received.split(b"HTTP/1.1 200 OK")[1:]
    assert [answer[-1:] for answer in answers[:5]] == [b"%d" % i for i in range(5)]
    assert answers[5].endswith(b'{"status":"live"}')


def test_garbage_after_a_request_does_not_stand_before_its_answer(service: Any) -> None:
    received = read_all(service, with_length("1") + b"x" + b"\x00garbage\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("end", [b"", b"Connection: close\r\n"])
def test_a_client_that_reads_only_after_sending_all_gets_its_answer(service: Any, end: bytes) -> None:
    head = START + end + b"Content-Length: 5000000\r\n\r\n"
    with service.connect() as connection:
        connection.sendall(head)
        for piece in repeat(b"x" * 50_000, 100):
            connection.sendall(piece)
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_connections_beyond_the_limit_are_told_to_come_back(crowded: Any) -> None:
    with crowded.connect(), crowded.connect():
        crowded.wait_for_connections(2)
        answer = crowded.get("/health/live")
        assert (answer.status, answer.kind) == (503, "overloaded")
        assert answer.headers["retry-after"]
    crowded.wait_for_connections(0)
    assert crowded.is_healthy()


def test_a_dripping_head_is_timed_out(hurried: Any) -> None:
    answer = hurried.send((bytes([byte]) for byte in START * 100), pause=0.05)
    assert (answer.status, answer.kind) == (408, "slow-body")


def test_a_head_that_stops_is_timed_out(hurried: Any) -> None:
    assert hurried.send(START).status == 408


@pytest.mark.parametrize("start", [b"", b"\r\n\r\n"])
def test_a_connection_that_says_nothing_is_closed(hurried: Any, start: bytes) -> None:
    with hurried.connect() as connection:
        connection.sendall(start)
        assert connection.recv(100) == b""


def test_a_dripping_body_is_timed_out(hurried: Any) -> None:
    answer = hurried.send(with_length("1000"), repeat(b"x", 1000), pause=0.05)
    assert (answer.status, answer.kind) == (408, "slow-body")


def test_dripping_chunks_are_timed_out(hurried: Any) -> None:
    assert hurried.send(CHUNKED, repeat(b"1\r\nx\r\n", 1000), pause=0.05).kind == "slow-body"


def test_a_body_that_never_starts_is_timed_out(hurried: Any) -> None:
    assert hurried.send(with_length("1000")).kind == "slow-body"


def test_a_body_that_is_fast_but_without_end_is_timed_out(hurried: Any) -> None:
    # 200 kB/s: above the least rate, for longer than any body may take.
    answer = hurried.send(with_length("1000000000"), repeat(b"x" * 10_000), pause=0.05)
    assert answer.kind == "slow-body"


def test_a_client_that_does_not_read_its_answer_is_let_go(hurried: Any) -> None:
    hurried.wait_for_connections(0)
    with hurried.connect() as connection:
        connection.sendall(with_length("40000000") + b"x" * 40_000_000)
        hurried.wait_for_connections(1)
        hurried.wait_for_connections(0)


def test_a_client_that_never_finishes_a_refused_body_is_let_go(hurried: Any) -> None:
    received = read_all(hurried, START + b"Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\nx")
    assert received.startswith(b"HTTP/1.1 415 ")
