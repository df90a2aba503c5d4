"""The session without I/O: addresses, retries, timing, and the reading of answers."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgpack
import pytest

from gradwire import _errors as errors
from gradwire._session import (
    Address,
    Incoming,
    Lost,
    Outgoing,
    Pause,
    Session,
    backoff,
    read_error,
    seconds_of,
    server_timing,
)


@pytest.mark.parametrize(
    ("url", "base", "socket", "loopback"),
    [
        ("http://gpu-host:8000", "http://gpu-host:8000", None, False),
        ("https://example.org/lab/", "https://example.org/lab", None, False),
        ("http://LOCALHOST:1/", "http://localhost:1", None, True),
        ("http://[::1]:8000", "http://[::1]:8000", None, True),
        ("http://127.8.0.1", "http://127.8.0.1", None, True),
        ("unix:///run/my%20lab.sock", "http://localhost", "/run/my lab.sock", True),
    ],
)
def test_addresses_are_understood(url: str, base: str, socket: str | None, loopback: bool) -> None:
    address = Address.parse(url)
    assert (address.base, address.socket, address.loopback) == (base, socket, loopback)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "url",
    [
        "gpu-host:8000",
        "gpu-host",
        "ftp://gpu-host",
        "http://",
        "http://host:99999",
        "unix://relative.sock",
        "unix:///",
        "http://user:secret@host",
        "http://host/?token=secret",
        "http://host/#secret",
        "http://[::1",
    ],
)
def test_other_addresses_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(errors.ArgumentError, match="http://host:port") as caught:
        Address.parse(url)
    assert "secret" not in str(caught.value)


def test_backoff_doubles_to_a_bound_is_jittered_and_honours_retry_after() -> None:
    for attempt in range(20):
        whole = min(0.1 * 2**attempt, 10.0)
        waits = {backoff(attempt) for _ in range(50)}
        assert len(waits) > 1
        assert all(whole / 2 <= wait <= whole for wait in waits)
        assert backoff(attempt, 7.0) >= 7.0 + whole / 2


def test_retry_after_is_a_number_or_a_date() -> None:
    assert seconds_of("3") == 3.0
    assert seconds_of(" 0.5 ") == 0.5
    for nonsense in ("", "soon", "-1", "nan", "inf", "1e999", "99999999999999999999"):
        assert seconds_of(nonsense) == 0.0
    later = datetime.now(UTC) + timedelta(seconds=60)
    assert 50 < seconds_of(format_datetime(later, usegmt=True)) <= 60
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_server_timing_is_read_in_seconds() -> None:
    header = 'decode;dur=0.5, compute;desc="on gpu:0";dur=12, proxy, broken;dur=x, encode; dur="3"'
    assert server_timing(header) == {"decode": 0.0005, "compute": 0.012, "encode": 0.003}
    assert server_timing("") == {}


def session(retries: int = 2, token: str | None = None) -> Session:
    return Session(Address.parse("http://host"), token, retries)


def incoming(status: int, fields: Any = None, kind: str = "application/msgpack", **headers: str) -> Incoming:
    body = bytearray(b"" if fields is None else msgpack.packb(fields))
    return Incoming(status, {"content-type": kind, **headers}, body)


GOOD = incoming(200, {"answer": "yes"})
BUSY = incoming(503, {"type": "urn:gradwire:overloaded"}, "application/problem+msgpack")


def play(given: Session, *answers: Incoming | Lost, timeout: float = 60.0) -> tuple[list[Any], Any]:
    """The steps that an exchange takes with these answers, and what it gives or raises."""
    steps: list[Any] = []
    exchange = given.exchange("POST", "/v1/maps/f/evaluate", [b"x"], timeout=timeout)
    left = iter(answers)
    try:
        step = next(exchange)
        while True:
            steps.append(step)
            step = exchange.send(None if isinstance(step, Pause) else next(left))
    except StopIteration as done:
        return steps, done.value
    except errors.GradwireError as error:
        return steps, error


def kinds_of(steps: list[Any]) -> list[str]:
    return [type(step).__name__ for step in steps]


def test_a_good_answer_takes_one_step() -> None:
    steps, message = play(session(), GOOD)
    assert kinds_of(steps) == ["Outgoing"]
    assert message.fields == {"answer": "yes"}


def test_headers_say_who_asks_for_what_and_how_long_it_may_take() -> None:
    steps, _ = play(session(token="s3cret"), GOOD, timeout=60.0)
    (step,) = steps
    assert isinstance(step, Outgoing)
    assert step.url == "http://host/v1/maps/f/evaluate"
    assert step.headers["Authorization"] == "Bearer s3cret"
    assert step.headers["Accept"] == step.headers["Content-Type"] == "application/msgpack"
    assert 59.0 < float(step.headers["Gradwire-Timeout"]) <= 60.0
    assert len(step.headers["X-Request-Id"]) == 32
    assert "s3cret" not in repr(step) + repr(session(token="s3cret"))


def test_without_end_no_time_is_named() -> None:
    steps, _ = play(session(), GOOD, timeout=math.inf)
    assert "Gradwire-Timeout" not in steps[0].headers


def test_attempts_of_one_request_share_its_id_and_its_time() -> None:
    steps, message = play(session(), BUSY, BUSY, GOOD)
    assert kinds_of(steps) == ["Outgoing", "Pause", "Outgoing", "Pause", "Outgoing"]
    sent = [step for step in steps if isinstance(step, Outgoing)]
    assert len({step.headers["X-Request-Id"] for step in sent}) == 1
    assert 60.0 >= sent[0].timeout > sent[1].timeout > sent[2].timeout > 50.0
    assert message.fields == {"answer": "yes"}


@pytest.mark.parametrize("status", [429, 502, 503])
def test_retries_end_with_the_last_error(status: int) -> None:
    refused = incoming(status, kind="text/html")
    steps, error = play(session(retries=2), refused, refused, refused)
    assert kinds_of(steps) == ["Outgoing", "Pause", "Outgoing", "Pause", "Outgoing"]
    assert isinstance(error, errors.GradwireError)


@pytest.mark.parametrize("status", [400, 401, 404, 408, 410, 413, 422, 500, 504])
def test_other_errors_are_not_retried(status: int) -> None:
    steps, error = play(session(), incoming(status, kind="text/html"))
    assert kinds_of(steps) == ["Outgoing"]
    assert isinstance(error, errors.GradwireError)


def test_no_wait_goes_beyond_the_timeout() -> None:
    busy = incoming(503, kind="text/html", **{"retry-after": "120"})
    steps, error = play(session(), busy, timeout=60.0)
    assert kinds_of(steps) == ["Outgoing"]
    assert isinstance(error, errors.Overloaded)


def test_a_stale_connection_is_replaced_at_once_and_not_counted() -> None:
    dropped = Lost(OSError("reset"))
    steps, message = play(session(retries=0), dropped, GOOD)
    assert kinds_of(steps) == ["Outgoing", "Outgoing"]
    assert message.fields == {"answer": "yes"}
    steps, error = play(session(retries=0), dropped, dropped)
    assert isinstance(error, errors.ServiceUnavailable)


def test_a_service_that_is_not_there_is_asked_again_after_a_while() -> None:
    absent = Lost(OSError("refused"), connected=False)
    steps, error = play(session(retries=1), absent, absent)
    assert kinds_of(steps) == ["Outgoing", "Pause", "Outgoing"]
    assert isinstance(error, errors.ServiceUnavailable)
    assert isinstance(error.__cause__, OSError)
    assert "http://host" in str(error)
    assert error.map == "f"


def test_time_that_ran_out_is_a_deadline() -> None:
    _, error = play(session(), Lost(OSError("timeout"), timed_out=True))
    assert isinstance(error, errors.DeadlineExceeded)
    assert isinstance(error, TimeoutError)


@pytest.mark.parametrize("kind", sorted(errors.KINDS))
@pytest.mark.parametrize("coding", ["json", "msgpack"])
def test_every_kind_of_problem_is_its_exception(kind: str, coding: str) -> None:
    import json

    status, _, exception = errors.KINDS[kind]
    problem = errors.to_problem(
        errors.GradwireError("So it is.", kind=kind, map="f", argument="x", expected="this", got="that")
    )
    body = json.dumps(problem).encode() if coding == "json" else msgpack.packb(problem)
    headers = {"content-type": f"application/problem+{coding}; charset=utf-8", "x-request-id": "r1"}
    error = read_error(Incoming(status, headers, bytearray(body)), None, "mine")
    assert type(error) is exception
    assert (error.kind, error.detail, error.map, error.argument) == (kind, "So it is.", "f", "x")
    assert (error.expected, error.got, error.request_id) == ("this", "that", "r1")


@pytest.mark.parametrize(
    ("status", "exception"),
    [
        (302, errors.ServiceUnavailable),
        (401, errors.Unauthorized),
        (403, errors.Unauthorized),
        (404, errors.ServiceUnavailable),
        (413, errors.WireError),
        (418, errors.ServiceUnavailable),
        (429, errors.QuotaExceeded),
        (500, errors.ServiceUnavailable),
        (502, errors.ServiceUnavailable),
        (503, errors.Overloaded),
        (504, errors.DeadlineExceeded),
    ],
)
@pytest.mark.parametrize("kind", ["text/html", "application/json", "", "application/problem+json"])
def test_a_proxys_own_page_is_read_by_its_status(
    status: int, exception: type[errors.GradwireError], kind: str
) -> None:
    page = Incoming(status, {"content-type": kind}, bytearray(b"<html>nginx"))
    error = read_error(page, "f", "mine")
    assert type(error) is exception
    assert (error.map, error.request_id) == ("f", "mine")
    assert "nginx" not in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        Incoming(200, {"content-type": "text/html"}, bytearray(b"<html>sign in")),
        Incoming(200, {}, bytearray(b"\x80")),
        Incoming(200, {"content-type": "application/msgpack"}, bytearray(b"\xc1")),
        Incoming(200, {"content-type": "application/msgpack"}, bytearray(b"\x80\x80")),
        Incoming(
            200, {"content-type": "application/msgpack", "content-encoding": "gzip"}, bytearray(b"\x80")
        ),
    ],
)
def test_a_good_status_around_something_else_is_a_wire_error(answer: Incoming) -> None:
    steps, error = play(session(), answer)
    assert kinds_of(steps) == ["Outgoing"]
    assert isinstance(error, errors.WireError)
    assert error.map == "f"


def test_an_empty_answer_is_a_message_without_fields() -> None:
    _, message = play(session(), Incoming(204, {}, bytearray()))
    assert message.fields == {}


@pytest.mark.parametrize("token", ["", " ", "two words", "line\nbreak", "ключ", 5])
def test_a_token_that_cannot_be_sent_is_refused_without_repeating_it(token: Any) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        session(token=token)
    assert str(token).strip() == "" or str(token) not in str(caught.value)


@pytest.mark.parametrize("retries", [-1, 1.5, True, None, "3"])
def test_retries_are_a_count(retries: Any) -> None:
    with pytest.raises(errors.ArgumentError):
        session(retries=retries)
