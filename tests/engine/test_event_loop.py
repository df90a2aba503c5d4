"""Whatever the service is doing, its event loop answers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np

from engine.hosting import Gate, live
from gradwire import wire
from service.running import Running

MIB = 1 << 20


def test_it_answers_while_a_map_computes() -> None:
    gate = Gate()
    with live(gate.map()) as lab, ThreadPoolExecutor(1) as pool:
        body = {"args": [[1.0]]}
        computing = pool.submit(httpx.post, f"{lab.url}/v1/maps/gate/evaluate", json=body, timeout=60)
        assert gate.reached.acquire(timeout=60)
        for path in ("/health/live", "/health/ready", "/v1/devices", "/v1/maps"):
            assert httpx.get(f"{lab.url}{path}").status_code == 200
        assert httpx.get(f"{lab.url}/v1/devices").json()["devices"][0]["queued"] == 1
        assert not computing.done()
        gate.opened.set()
        assert computing.result().status_code == 200


def test_it_answers_while_a_map_holds_pythons_lock_to_be_traced(served: Running) -> None:
    with httpx.Client() as client, ThreadPoolExecutor(1) as pool:
        tracing = pool.submit(served.ask, "busy_tracing", "evaluate", np.ones(100))
        answered = answered_during(tracing, lambda: is_live(client, served))
        assert tracing.result().status == 200
        assert answered >= 3


def test_it_answers_while_64_mib_come(served: Running) -> None:
    message = wire.MSGPACK.encode({"args": [wire.Tree(np.zeros(8 * MIB))]}, "str")
    body = b"".join(bytes(part) for part in message)
    half = len(body) // 2
    host, port = served.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/maps/less/evaluate HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Type: application/msgpack\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    def upload(sender: socket.socket) -> bytes:
        sender.sendall(body[half:])
        return sender.recv(1 << 16)

    with (
        socket.create_connection((host, int(port))) as sender,
        httpx.Client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        sender.sendall(head.encode() + body[:half])
        assert is_live(client, served)
        uploading = pool.submit(upload, sender)
        answered = answered_during(uploading, lambda: is_live(client, served))
        assert uploading.result().startswith(b"HTTP/1.1 200")
        assert answered >= 1


def is_live(client: httpx.Client, served: Running) -> bool:
    return client.get(f"{served.url}/health/live", timeout=60).status_code == 200


def answered_during(work: Future[Any], ask: Callable[[], bool]) -> int:
    """How often ``ask`` was answered before ``work`` was done."""
    count = 0
    while not work.done():
        count += ask() and not work.done()
    return count
