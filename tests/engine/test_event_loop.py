"""Whatever the service is doing, its event loop answers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np

from engine.hosted import __file__ as HOSTED
from engine.hosting import Gate, live
from gradwire import wire
from service.running import started

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


def answered_during(work: Future[Any], ask: Callable[[], bool]) -> int:
    """How often ``ask`` was answered before ``work`` was done."""
    count = 0
    while not work.done():
        count += ask() and not work.done()
    return count


def test_it_answers_while_a_map_holds_pythons_lock_to_be_traced() -> None:
    with started(HOSTED) as running, ThreadPoolExecutor(1) as pool:
        tracing = pool.submit(running.ask, "busy_tracing", "evaluate", np.ones(100))
        with httpx.Client() as client:
            answered = answered_during(
                tracing, lambda: client.get(f"{running.url}/health/live", timeout=60).status_code == 200
            )
        assert tracing.result().status == 200
        assert answered >= 3

        # And while 64 MiB come, at whatever rate they come.
        x = np.zeros(8 * MIB)
        message = b"".join(bytes(part) for part in wire.MSGPACK.encode({"args": [wire.Tree(x)]}, "str"))
        half = len(message) // 2

        def upload(sender: socket.socket) -> bytes:
            sender.sendall(message[half:])
            return sender.recv(1 << 16)

        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as sender, httpx.Client() as client:
            head = (
                f"POST /v1/maps/less/evaluate HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Content-Type: application/msgpack\r\nContent-Length: {len(message)}\r\n\r\n"
            )
            sender.sendall(head.encode() + message[:half])
            assert client.get(f"{running.url}/health/live").status_code == 200
            uploading = pool.submit(upload, sender)
            answered = answered_during(
                uploading, lambda: client.get(f"{running.url}/health/live", timeout=60).status_code == 200
            )
            assert uploading.result().startswith(b"HTTP/1.1 200")
            assert answered >= 1
