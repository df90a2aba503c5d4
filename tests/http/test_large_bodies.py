"""Large bodies go past the parser, and what holds of bodies holds of them."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pytest

MEBI = 1 << 20
BODY = np.random.default_rng(0).bytes(2 * MEBI + 7)
LAST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def head(length: int = len(BODY), query: str = "", *lines: str, method: str = "POST") -> bytes:
    """The head of a request to the echo."""
    fields = [f"{method} /v1/echo{query} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *lines]
    return "".join(f"{field}\r\n" for field in [*fields, ""]).encode()


def digest(body: bytes | bytearray) -> str:
    return hashlib.sha256(body).hexdigest()


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(MEBI), b""))


def test_64_mebibytes_come_and_go_whole(large: Any) -> None:
    body = np.random.default_rng(1).bytes(64 * MEBI)
    assert digest(large.send(head(len(body)) + body).body) == digest(body)


def test_a_body_lands_in_aligned_memory_that_may_be_written_to(large: Any) -> None:
    for size in (131_073, 1_000_003, 5_000_000):
        assert json.loads(large.send(head(size, "?memory"), bytes(size)).body) == [0, True]


@pytest.mark.parametrize("size", [131_071, 131_072, 131_073, 256_001, MEBI, MEBI + 1])
def test_a_body_of_any_size_is_whole(large: Any, size: int) -> None:
    assert large.send(head(size), BODY[:size]).body == BODY[:size]


def test_dribbled_bytes_are_a_whole_body(large: Any) -> None:
    cuts = [0, 1, 2, 1000, 131_072, 300_000, 300_001, len(BODY) - 1, len(BODY)]
    pieces = [BODY[start:stop] for start, stop in pairwise(cuts)]
    request = head()
    assert large.send(request[:10], request[10:] + pieces[0], *pieces[1:], pause=0.02).body == BODY


def test_requests_behind_large_bodies_are_answered_in_order(large: Any) -> None:
    requests = head() + BODY + head(3) + b"abc" + head() + BODY + head(0) + head(200_000) + BODY[:200_000]
    with large.connect() as connection:
        sender = threading.Thread(target=connection.sendall, args=(requests + LAST,))
        sender.start()
        received = read_all(connection)
        sender.join()
    answers = [answer.partition(b"\r\n\r\n")[2] for answer in received.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert answers[:-1] == [BODY, b"abc", BODY, b"", BODY[:200_000]]


def test_a_connection_is_used_again_after_large_bodies(large: Any, read_answer: Any) -> None:
    with large.connect() as connection:
        for size in (len(BODY), 5, len(BODY), 150_000):
            connection.sendall(head(size) + BODY[:size])
            assert read_answer(connection).body == BODY[:size]


def test_a_client_that_asks_first_is_told_to_continue(large: Any, read_answer: Any) -> None:
    with large.connect() as connection:
        connection.sendall(head(len(BODY), "", "Expect: 100-continue"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert read_answer(connection).body == BODY


def test_a_client_that_leaves_in_mid_body_is_forgotten(large: Any) -> None:
    with large.connect() as connection:
        connection.sendall(head() + BODY[:MEBI])
        large.wait_for_connections(1)
    large.wait_for_connections(0)


def test_a_client_that_says_no_more_in_mid_body_is_let_go(large: Any) -> None:
    with large.connect() as connection:
        connection.sendall(head() + BODY[:MEBI])
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b""


def test_what_follows_a_body_longer_than_its_length_is_no_request(large: Any) -> None:
    with large.connect() as connection:
        connection.sendall(head(200_000) + BODY[:200_000] + b"\x00garbage\r\n\r\n")
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert BODY[:200_000] in received
    assert received.count(b"HTTP/1.1 200 OK") == 1


def test_a_length_beyond_all_memory_costs_none(large: Any) -> None:
    for _ in range(3):
        assert large.send(head(10**17, "", "Content-Encoding: gzip") + BODY).status == 415
    with large.connect() as connection:
        connection.sendall(head(10**12) + BODY)
        large.wait_for_connections(1)


def test_a_client_that_still_sends_gets_to_read_an_early_answer(large: Any) -> None:
    answer = large.send(head(100 * MEBI, "?raise=unauthorized"), repeat(BODY, 50))
    assert (answer.status, answer.kind) == (401, "unauthorized")


def test_after_an_early_answer_the_connection_takes_the_next_request(large: Any, read_answer: Any) -> None:
    with large.connect() as connection:
        connection.sendall(head(len(BODY), "?raise=shape"))
        assert read_answer(connection).status == 422
        connection.sendall(BODY + head() + BODY)
        assert read_answer(connection).body == BODY


def test_an_early_answer_that_closes_the_connection_is_read(large: Any) -> None:
    with large.connect() as connection:
        connection.sendall(head(len(BODY), "?raise=shape", "Connection: close") + BODY[:MEBI])
        received = connection.recv(4096)
        connection.sendall(BODY[MEBI:])
        received += read_all(connection)
    assert received.startswith(b"HTTP/1.1 422 ")


def test_a_head_request_with_a_large_body_has_none_in_its_answer(large: Any) -> None:
    with large.connect() as connection:
        connection.sendall(head(method="HEAD") + BODY + LAST)
        received = read_all(connection)
    first, _, rest = received.partition(b"\r\n\r\n")
    assert f"content-length: {len(BODY)}".encode() in first
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_streamed_answer_holds_the_same_bytes(large: Any) -> None:
    answer = large.send(head(len(BODY), "?stream") + BODY)
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.body == BODY + b"end"


@pytest.mark.parametrize("query", ["", "?late", "?memory", "?stream"])
def test_no_body_outlives_its_answer(large: Any, read_answer: Any, query: str) -> None:
    with large.connect() as connection:
        connection.sendall(head(len(BODY), query) + BODY)
        assert read_answer(connection)
        patience = time.monotonic() + 20
        while large.echo.memory() is not None:
            assert time.monotonic() < patience
            time.sleep(0.01)


def test_a_large_body_below_the_least_rate_is_timed_out(hurried: Any) -> None:
    answer = hurried.send(head(), BODY[:200_000], repeat(b"x", 1000), pause=0.05)
    assert (answer.status, answer.kind) == (408, "slow-body")
    assert re.search(rb"20\d{4} bytes in", answer.body)


def test_a_large_body_that_stops_is_timed_out(hurried: Any) -> None:
    assert hurried.send(head() + BODY[:150_000]).kind == "slow-body"


def test_a_large_body_at_a_good_rate_may_take_longer_than_the_grace(hurried: Any) -> None:
    answer = hurried.send(head(400_000), repeat(b"x" * 20_000, 20), pause=0.06)
    assert answer.body == b"x" * 400_000
