"""A service's life: getting ready, answering while it computes, draining, ending; and curl."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from running import EXAMPLES, FEW, Running, started

import gradwire

X = np.array([1.0, 2.0])


def wait_until(condition: object, patience: float = 30.0) -> None:
    began = time.monotonic()
    while not condition():  # type: ignore[operator]
        assert time.monotonic() - began < patience
        time.sleep(0.01)


def queued(service: Running) -> int:
    return sum(device["queued"] for device in service.devices["devices"])


class Asking(threading.Thread):
    """A request on its way."""

    def __init__(self, service: Running, seconds: float, map: str = "slow", **headers: str) -> None:
        super().__init__()
        self.service, self.seconds, self.map, self.headers = service, seconds, map, headers
        self.status = 0
        self.fields: dict[str, object] = {}
        self.start()

    def run(self) -> None:
        body = {"args": [[1.0, 2.0]], "kwargs": {"seconds": self.seconds}}
        answer = httpx.post(
            f"{self.service.url}/v1/maps/{self.map}/evaluate", json=body, timeout=60, headers=self.headers
        )
        self.status, self.fields = answer.status_code, answer.json()


def test_it_lives_before_it_is_ready_and_then_takes_requests(tmp_path: Path) -> None:
    file = tmp_path / "tardy.py"
    file.write_text(
        "import time\nfrom gradwire_service import Map\n"
        f"from pathlib import Path\nopened = Path({str(tmp_path / 'opened')!r})\n"
        "@Map\ndef cubic(x):\n"
        "    while not opened.exists(): time.sleep(0.01)\n"
        "    return x**3\n"
    )
    with started(file, until_ready=False) as service:
        wait_until(lambda: service.status("/health/live") == 200)
        ready = service.get("/health/ready")
        assert (ready.status, ready.kind) == (503, "draining")
        assert int(ready.headers["retry-after"]) >= 1
        (tmp_path / "opened").touch()
        wait_until(lambda: service.get("/health/ready").status == 200)
        assert service.is_healthy()


def test_it_answers_while_it_computes(service: Running) -> None:
    slow = [Asking(service, 1.5) for _ in range(6)]
    wait_until(lambda: queued(service) >= 3)
    asked = 0
    while any(thread.is_alive() for thread in slow):
        assert service.get("/health/live").status == 200
        assert service.get("/health/ready").status == 200
        assert service.get("/v1/maps/wave").status == 200
        asked += 1
        time.sleep(0.01)
    # Were the computation on the event loop, each would have waited for it.
    assert asked > 10
    assert [thread.status for thread in slow] == [200] * 6


def test_it_answers_while_it_compiles(service: Running) -> None:
    slow = [Asking(service, 1.0 + n / 100, map="long_to_trace") for n in range(2)]
    asked = 0
    while any(thread.is_alive() for thread in slow):
        assert service.get("/health/live").status == 200
        asked += 1
        time.sleep(0.01)
    assert asked > 5
    assert [thread.status for thread in slow] == [200] * 2


def test_what_is_not_answered_in_time_is_given_up(service: Running) -> None:
    late = Asking(service, 1.0, **{"Gradwire-Timeout": "0.2"})
    late.join()
    assert (late.status, late.fields["type"]) == (504, "urn:gradwire:deadline")
    with gradwire.connect(service.url) as lab, pytest.raises(gradwire.DeadlineExceeded):
        lab["slow"].using(timeout=0.2)(X)
    wait_until(lambda: queued(service) == 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_runs_is_answered_before_the_service_ends(number: signal.Signals) -> None:
    with started(FEW) as service:
        running = Asking(service, 1.5)
        wait_until(lambda: queued(service) == 1)
        service.process.send_signal(number)
        time.sleep(0.2)
        # Nothing new is taken meanwhile: on a connection that is open already it is turned away.
        assert service.status("/health/ready") in (0, 503)
        running.join()
        assert running.status == 200
        assert running.fields["value"] == [1.0, 2.0]
        assert service.process.wait(20) == 0


def test_a_service_whose_client_has_gone_goes_on(service: Running) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{service.url}/v1/maps/slow/evaluate",
            json={"args": [[1.0]], "kwargs": {"seconds": 0.5}},
            timeout=httpx.Timeout(20, read=0.1),
        )
    wait_until(lambda: queued(service) == 0)


def test_curl_is_enough(examples: Running) -> None:
    command = [EXAMPLES / "languages" / "curl.sh", examples.url]
    script = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in script.stdout.splitlines()]
    assert all(answer.pop("meta")["computed_in"] == "float64" for answer in answers)
    x_axis = answers[4].pop("cotangents")
    assert np.allclose(x_axis, [[np.sin(2) * np.cos(3), np.cos(2) * np.cos(3), -np.sin(2) * np.sin(3)]])
    assert answers == [
        {"value": 11.0},
        {"gradient": 17.0},
        {"gradient": [12.0, 21.0]},
        {"hessian": [[2.0, 2.0], [2.0, 4.0]]},
        {"value": [np.sin(2) * np.cos(3), np.sin(2) * np.sin(3), np.cos(2)]},
        {"value": [0.0, -2.0, 8.0]},
    ]
