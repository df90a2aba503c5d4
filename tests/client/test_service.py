"""`connect` and the Service, over real sockets."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

import gradwire
from gradwire import _errors as errors
from gradwire._operator import Options
from gradwire._service import Service, connect
from gradwire._transport import PIECE, pieces

CATALOGUE: dict[str, Any] = {
    "protocol": 1,
    "features": ["has_aux"],
    "maps": [
        {"name": "f", "version": "2"},
        {"name": "f", "version": "1"},
        {"name": "smooth", "version": "1"},
    ],
}


def ask(lab: Service, **fields: Any) -> Any:
    return lab.request("POST", "/v1/maps/f/evaluate", fields).fields


def test_connect_sends_nothing(server: Any) -> None:
    with connect(server.url) as lab:
        repr(lab)
    assert server.requests == []


def test_connect_takes_address_and_token_from_the_environment(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.ArgumentError, match="GRADWIRE_URL"):
        connect()
    monkeypatch.setenv("GRADWIRE_URL", server.url)
    monkeypatch.setenv("GRADWIRE_TOKEN", "from-environment\n")
    server.says(200, {})
    with connect() as lab:
        ask(lab)
    assert server.requests[0].headers["authorization"] == "Bearer from-environment"
    server.says(200, {})
    with connect(token="given") as lab:
        ask(lab)
    assert server.requests[1].headers["authorization"] == "Bearer given"


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": "5"},
        {"timeout": True},
        {"precision": np.float32},
        {"device": 0},
        {"retries": -1},
        {"http_client": object()},
    ],
)
def test_connect_refuses_what_it_cannot_use(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        connect("http://host", **wrong)
    assert caught.value.argument == next(iter(wrong))


def test_a_request_carries_its_fields_and_gets_the_answers(server: Any) -> None:
    server.says(200, {"value": 3, "meta": {"device": "cpu:0"}}, headers={"Server-Timing": "compute;dur=2"})
    with connect(server.url) as lab:
        assert lab.last_timing == {}
        assert ask(lab, sparse=False, mode="auto") == {"value": 3, "meta": {"device": "cpu:0"}}
        assert lab.last_timing == lab.using(timeout=1).last_timing == {"compute": 0.002}
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/maps/f/evaluate")
    assert request.fields == {"sparse": False, "mode": "auto"}
    assert "authorization" not in request.headers


def test_an_empty_answer_has_no_fields(server: Any) -> None:
    server.says(204)
    with connect(server.url) as lab:
        assert lab.request("DELETE", "/v1/linearizations/abc", None).fields == {}
    assert server.requests[0].body == b""
    assert "content-type" not in server.requests[0].headers


def test_a_busy_service_is_asked_again_after_the_time_it_names(server: Any) -> None:
    server.problem(503, "overloaded", headers={"Retry-After": "0.2"})
    server.problem(429, "quota", json=True)
    server.says(200, {"value": 1})
    begun = time.monotonic()
    with connect(server.url) as lab:
        assert ask(lab) == {"value": 1}
    assert time.monotonic() - begun >= 0.2
    assert len({request.headers["x-request-id"] for request in server.requests}) == 1


@pytest.mark.parametrize("cut", [0, 20, -1])
def test_a_connection_that_drops_is_made_anew(server: Any, cut: int) -> None:
    server.says(200, {"value": b"x" * 100}, cut=cut)
    server.says(200, {"value": 1})
    with connect(server.url) as lab:
        assert ask(lab) == {"value": 1}
    assert len(server.requests) == 2


def test_a_service_that_always_drops_is_unavailable(server: Any) -> None:
    server.respond = lambda request: server.Reply(cut=0)
    with connect(server.url, retries=1) as lab, pytest.raises(errors.ServiceUnavailable) as caught:
        ask(lab)
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.map == "f"
    assert len(server.requests) == 3


def test_a_service_that_is_not_there_is_unavailable(server: Any) -> None:
    server.close()
    with (
        connect(server.url, retries=0) as lab,
        pytest.raises(errors.ServiceUnavailable, match="is it running"),
    ):
        ask(lab)


@pytest.mark.parametrize("slow", [{"delay": 1.0}, {"drip": 0.05}])
def test_a_slow_answer_is_a_deadline(server: Any, slow: dict[str, float]) -> None:
    server.respond = lambda request: server.Reply(fields={"value": 1}, **slow)
    with connect(server.url, timeout=60.0) as lab, pytest.raises(errors.DeadlineExceeded) as caught:
        ask(lab.using(timeout=0.3))
    assert isinstance(caught.value, TimeoutError)
    assert float(server.requests[0].headers["gradwire-timeout"]) <= 0.3
    assert len(server.requests) == 1


def test_a_requests_own_timeout_goes_first(server: Any) -> None:
    server.says(200, {}, delay=0.5)
    with connect(server.url) as lab, pytest.raises(errors.DeadlineExceeded):
        lab.request("GET", "/v1/devices", None, options=Options(timeout=0.2))


@pytest.mark.parametrize("json", [False, True])
def test_a_problem_is_raised_with_all_it_says(server: Any, json: bool) -> None:
    server.problem(
        422, "shape", json=json, argument="x", expected="(3,)", got="(4,)", headers={"X-Request-Id": "r7"}
    )
    with connect(server.url) as lab, pytest.raises(errors.ShapeError) as caught:
        ask(lab)
    error = caught.value
    assert (error.map, error.argument, error.expected, error.got) == ("f", "x", "(3,)", "(4,)")
    assert error.request_id == "r7"


def test_a_proxys_page_is_an_error_by_its_status(server: Any) -> None:
    server.says(502, raw=b"<html>Bad gateway", kind="text/html")
    with connect(server.url, retries=0) as lab, pytest.raises(errors.ServiceUnavailable, match="proxy"):
        ask(lab)


def test_redirects_are_not_followed(server: Any) -> None:
    server.says(307, raw=b"", headers={"Location": server.url + "/elsewhere"})
    client = httpx.Client(follow_redirects=True)
    lab = connect(server.url, token="s3cret", http_client=client)
    with client, lab, pytest.raises(errors.ServiceUnavailable, match="redirect"):
        ask(lab)
    assert len(server.requests) == 1


def test_the_token_is_in_no_repr_and_no_error(server: Any) -> None:
    lab = connect(server.url, token="s3cret-token", retries=0, timeout=0.2)
    texts = [repr(lab), str(lab), repr(lab.session), repr(lab.options), repr(lab._transport)]
    server.says(401, raw=b"s3cret-token", kind="text/html")
    server.says(200, {}, cut=0)
    server.says(200, {}, cut=0)
    server.says(200, {}, delay=0.4)
    for _ in range(3):
        with pytest.raises(errors.GradwireError) as caught:
            ask(lab)
        error: BaseException | None = caught.value
        while error is not None:
            texts += [repr(error), str(error), repr(vars(error))]
            error = error.__cause__ or error.__context__
    lab.close()
    assert not any("s3cret" in text for text in texts)


def test_the_service_is_a_mapping_of_its_maps(server: Any) -> None:
    def respond(request: Any) -> Any:
        if request.path == "/v1/maps":
            return server.Reply(fields=CATALOGUE)
        if request.path in ("/v1/maps/f", "/v1/maps/f@1.0%2Bb"):
            return server.Reply(fields=CATALOGUE["maps"][0])
        problem = {"type": "urn:gradwire:map-not-found", "detail": "There is no such map."}
        return server.Reply(404, problem, kind="application/problem+msgpack")

    server.respond = respond
    with connect(server.url) as lab:
        assert list(lab) == ["f", "smooth"]
        assert len(lab) == 2
        assert "f" in lab
        assert "f@1.0+b" in lab
        for absent in ("g", "../f", "", "f/evaluate", 3, None):
            assert absent not in lab
        assert lab.features == frozenset({"has_aux"})
        assert lab == lab and lab != lab.using(timeout=1) and hash(lab) == hash(lab)
        for wrong in ("smoth", "Smooth", "smo oth"):
            with pytest.raises(errors.MapNotFound, match="smooth") as caught:
                lab[wrong]
            assert isinstance(caught.value, KeyError)


def test_features_are_fetched_once(server: Any) -> None:
    server.respond = lambda request: server.Reply(fields=CATALOGUE)
    with connect(server.url) as lab:
        assert lab.features == lab.using(timeout=5).features == frozenset({"has_aux"})
    assert len(server.requests) == 1


def test_another_protocol_is_refused(server: Any) -> None:
    server.says(200, {"protocol": 2, "maps": []})
    with connect(server.url) as lab, pytest.raises(errors.WireError, match="protocol 1"):
        list(lab)


def test_using_changes_what_is_given_and_keeps_the_rest() -> None:
    lab = connect("http://host", precision="float32", timeout=5.0)
    pinned = lab.using(device="gpu:1")
    assert (pinned.options.precision, pinned.options.device, pinned.options.timeout) == (
        "float32",
        "gpu:1",
        5.0,
    )
    assert lab.options.device is None
    with pytest.raises(errors.ArgumentError):
        lab.using(timeout=-1)


def test_many_threads_share_one_service(server: Any) -> None:
    gate = threading.Barrier(64)

    def respond(request: Any) -> Any:
        gate.wait(30)
        number = request.fields["number"]
        timing = {"Server-Timing": f"compute;dur={number}000"}
        return server.Reply(fields={"number": number}, headers=timing)

    server.respond = respond
    with connect(server.url, retries=0) as lab:

        def one(number: int) -> bool:
            return ask(lab, number=number) == {"number": number} and lab.last_timing == {
                "compute": float(number)
            }

        with ThreadPoolExecutor(64) as pool:
            assert all(pool.map(one, range(64)))
    assert len(server.requests) == 64


def test_connections_are_kept(server: Any) -> None:
    seen = set()
    handler = server._server.RequestHandlerClass
    original = handler.setup

    def setup(self: Any) -> None:
        seen.add(self.client_address)
        original(self)

    handler.setup = setup
    server.respond = lambda request: server.Reply()
    with connect(server.url) as lab:
        for _ in range(10):
            ask(lab)
    assert len(seen) == 1


def test_a_closed_service_says_so() -> None:
    lab = connect("http://127.0.0.1:1")
    lab.close()
    lab.close()
    with pytest.raises(RuntimeError, match="connect again"):
        ask(lab)


def test_a_pickled_service_connects_anew(server: Any) -> None:
    server.respond = lambda request: server.Reply(fields={"value": 1})
    with connect(server.url, token="t", timeout=7.0, device="cpu", retries=3) as lab:
        ask(lab)
        with pickle.loads(pickle.dumps(lab)) as copy:
            assert ask(copy) == {"value": 1}
            assert copy.options == lab.options
            assert copy.session.retries == 3
    assert server.requests[1].headers["authorization"] == "Bearer t"


def test_a_service_goes_on_in_a_forked_child(server: Any) -> None:
    server.respond = lambda request: server.Reply(fields={"pid": request.fields["pid"]})
    program = """
import os, sys
from gradwire._service import connect
lab = connect(sys.argv[1], retries=0)
ask = lambda: lab.request("POST", "/v1/maps/f/evaluate", {"pid": os.getpid()}).fields["pid"] == os.getpid()
good = ask()
child = os.fork()
if child == 0:
    os._exit(0 if all([ask() for _ in range(50)]) else 1)
good = all([ask() for _ in range(50)]) and good
sys.exit(0 if os.waitpid(child, 0)[1] == 0 and good else 1)
"""
    subprocess.run([sys.executable, "-c", program, server.url], check=True, timeout=60, env=_environment())
    assert len(server.requests) == 101


def test_a_client_of_ones_own_is_not_shared_with_a_forked_child(server: Any) -> None:
    server.respond = lambda request: server.Reply()
    program = """
import os, sys, httpx
from gradwire._service import connect
lab = connect(sys.argv[1], http_client=httpx.Client())
ask = lambda: lab.request("GET", "/v1/devices", None)
ask()
child = os.fork()
if child == 0:
    try:
        ask()
    except RuntimeError as error:
        os._exit(0 if "connect again" in str(error) else 1)
    os._exit(2)
sys.exit(os.waitpid(child, 0)[1])
"""
    subprocess.run([sys.executable, "-c", program, server.url], check=True, timeout=60, env=_environment())
    assert len(server.requests) == 1


def test_a_unix_socket_is_an_address_like_any_other(unix_server: Any) -> None:
    unix_server.respond = lambda request: unix_server.Reply(fields={"path": request.path})
    with connect(unix_server.url) as lab:
        assert ask(lab) == {"path": "/v1/maps/f/evaluate"}
        with pickle.loads(pickle.dumps(lab)) as copy:
            assert ask(copy) == {"path": "/v1/maps/f/evaluate"}


def test_a_client_of_ones_own_is_used_and_left_open(server: Any) -> None:
    server.respond = lambda request: server.Reply(fields={"value": 1})
    with httpx.Client(headers={"X-Team": "imaging"}) as client:
        with connect(server.url, http_client=client) as lab:
            assert ask(lab) == {"value": 1}
            with pytest.raises(TypeError, match="http_client"):
                pickle.dumps(lab)
        assert not client.is_closed
    assert server.requests[0].headers["x-team"] == "imaging"


def test_proxies_of_the_environment_are_left_out_on_this_machine(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server.says(200, {"value": 1})
    with connect(server.url, retries=0) as lab:
        assert ask(lab) == {"value": 1}


def test_a_large_body_comes_back_whole(server: Any) -> None:
    array = np.random.default_rng(0).standard_normal(8 << 20)
    server.respond = lambda request: server.Reply(raw=request.body)
    with connect(server.url) as lab:
        message = lab.request("POST", "/v1/maps/f/evaluate", {"value": gradwire.wire.Tree(array)})
    (request,) = server.requests
    assert int(request.headers["content-length"]) == len(request.body)
    assert "transfer-encoding" not in request.headers
    back = message.tree(message.fields["value"])
    assert back.flags.writeable
    assert np.array_equal(back, array)


def test_bodies_leave_in_large_pieces() -> None:
    large = os.urandom(5 * PIECE // 2)
    buffers: list[bytes | bytearray | memoryview] = [
        b"head",
        large,
        memoryview(b"tail"),
        b"",
        bytearray(large),
        b"end",
    ]
    sent = list(pieces(buffers))
    assert b"".join(sent) == b"".join(bytes(buffer) for buffer in buffers)
    assert all(len(piece) <= PIECE for piece in sent)
    assert len(sent) <= 8
    assert list(pieces([b"a"] * 1000)) == [b"a" * 1000]
    assert list(pieces([])) == []


def test_importing_the_client_imports_no_array_library_but_numpy() -> None:
    heavy = ("jax", "cupy", "torch", "dask", "scipy", "fastapi", "gradwire_service")
    program = f"import sys, gradwire; sys.exit(str([m for m in {heavy} if m in sys.modules] or '') or 0)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
