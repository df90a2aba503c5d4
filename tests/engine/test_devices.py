"""Queues, placement and memory: what a device is given, in which order, and what it never gets."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradwire
from engine.hosting import Gate, ask, hosting, live, until, value
from gradwire._errors import AnswerTooLarge, DeadlineExceeded, OutOfMemory
from gradwire_service import Map
from service.running import Running


def evaluate(url: str, map: str, x: list[float], **headers: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/maps/{map}/evaluate", json={"args": [x]}, headers=headers, timeout=60)


def test_work_is_done_in_the_order_in_which_it_came() -> None:
    gate = Gate()

    async def main() -> None:
        async with hosting(gate.map()) as service:
            calls = []
            for i in range(5):
                calls.append(asyncio.create_task(value(service, "gate", np.full(2, float(i)))))
                if i == 0:
                    await gate.is_reached()
            (device,) = service.engine.devices
            await until(lambda: device.queued == 5)
            gate.opened.set()
            await asyncio.gather(*calls)
            assert gate.seen == [0.0, 1.0, 2.0, 3.0, 4.0]
            await until(lambda: device.queued == 0)

    asyncio.run(main())


def test_a_full_queue_turns_away_and_says_when_to_come_back() -> None:
    gate = Gate()
    with live(gate.map(), queue_length=2) as lab, ThreadPoolExecutor(3) as pool:
        first = pool.submit(evaluate, lab.url, "gate", [0.0])
        assert gate.reached.acquire(timeout=60)
        waiting = [pool.submit(evaluate, lab.url, "gate", [float(i)]) for i in (1, 2)]
        (device,) = lab.service.engine.devices
        while device.queued < 3:
            pass
        turned_away = evaluate(lab.url, "gate", [9.0])
        assert turned_away.status_code == 503
        assert turned_away.json()["type"] == "urn:gradwire:overloaded"
        assert int(turned_away.headers["retry-after"]) >= 1
        gate.opened.set()
        assert [call.result().status_code for call in (first, *waiting)] == [200] * 3
        assert 9.0 not in gate.seen


def test_who_gives_up_takes_work_and_place_in_the_queue_along() -> None:
    gate = Gate()

    async def main() -> None:
        async with hosting(gate.map(), queue_length=1) as service:
            await warmed_up(service)
            first = asyncio.create_task(value(service, "gate", np.zeros(2)))
            await gate.is_reached()
            with pytest.raises(DeadlineExceeded):
                await value(service, "gate", np.ones(2), deadline=0.05)
            # Its place is free again, though the device has not moved.
            second = asyncio.create_task(value(service, "gate", np.full(2, 2.0)))
            (device,) = service.engine.devices
            await until(lambda: device.queued == 2)
            gate.opened.set()
            await asyncio.gather(first, second)
            assert 1.0 not in gate.seen

    async def warmed_up(service: Any) -> None:
        gate.opened.set()
        await value(service, "gate", np.full(2, -1.0))
        await gate.is_reached()
        gate.opened.clear()

    asyncio.run(main())


def test_a_timeout_that_passes_is_504_and_nothing_is_computed_for_it() -> None:
    gate = Gate()
    with live(gate.map()) as lab, ThreadPoolExecutor(1) as pool:
        first = pool.submit(evaluate, lab.url, "gate", [0.0])
        assert gate.reached.acquire(timeout=60)
        late = evaluate(lab.url, "gate", [1.0], **{"Gradwire-Timeout": "0.1"})
        assert late.status_code == 504
        assert late.json()["type"] == "urn:gradwire:deadline"
        gate.opened.set()
        assert first.result().status_code == 200
        assert evaluate(lab.url, "gate", [2.0]).status_code == 200
        assert gate.seen == [0.0, 2.0]


def test_what_is_begun_when_the_time_is_up_is_thrown_away() -> None:
    gate = Gate()
    with live(gate.map(), deadline=0.2) as lab:
        assert evaluate(lab.url, "gate", [1.0]).status_code == 504
        gate.opened.set()
        (device,) = lab.service.engine.devices
        while device.queued:
            pass
        with httpx.Client() as client:
            answer = client.post(f"{lab.url}/v1/maps/gate/evaluate", json={"args": [[3.0]]})
        assert answer.json()["value"] == [3.0]


@pytest.mark.parametrize("operation", ["evaluate", "jacobian"])
def test_what_needs_too_much_memory_is_refused_with_its_size_before_it_runs(operation: str) -> None:
    ran = []

    def noted(x: Any) -> np.ndarray:
        ran.append(1)
        return np.asarray(x)

    def large(x: Any) -> Any:
        y = jax.pure_callback(noted, jax.ShapeDtypeStruct(x.shape, x.dtype), jax.lax.stop_gradient(x))
        return jnp.sort(jnp.outer(y + x, x).ravel())[:3]

    async def main() -> None:
        async with hosting(Map(large, name="large"), device_memory=1 << 20) as service:
            with pytest.raises(AnswerTooLarge) as caught:
                await ask(service, "large", np.ones(1000), operation=operation, argnums=0)
            assert caught.value.expected == "at most 1048576 bytes"
            assert int(str(caught.value.got).split()[0]) >= 8_000_000
            assert not ran
            await ask(service, "large", np.ones(10), operation=operation, argnums=0)
            assert ran

    asyncio.run(main())


def test_an_answer_that_is_too_large_is_refused_with_its_size() -> None:
    async def main() -> None:
        async with hosting(Map(lambda x: x, name="same"), answer_bytes=8000) as service:
            with pytest.raises(AnswerTooLarge) as caught:
                await ask(service, "same", np.ones(1000), operation="jacobian", argnums=0)
            assert (caught.value.expected, caught.value.got) == ("at most 8000 bytes", "8000000 bytes")
            await ask(service, "same", np.ones(1000))

    asyncio.run(main())


def test_a_device_that_runs_out_of_memory_goes_on() -> None:
    def absurd(x: Any) -> Any:
        # More than there are addresses, and sort cannot be fused away.
        many = 1 << 45
        return jnp.sort(jnp.broadcast_to(x, (many,)) * jnp.arange(many, dtype=x.dtype))[0]

    with live(Map(absurd, name="absurd"), Map(lambda x: x + 1, name="more"), device_memory="1000TiB") as lab:
        lab_client = gradwire.connect(lab.url, retries=0)
        with lab_client, pytest.raises(OutOfMemory, match="RESOURCE_EXHAUSTED"):
            lab_client["absurd"](np.float64(1))
        answer = httpx.post(f"{lab.url}/v1/maps/absurd/evaluate", json={"args": [1.0]})
        assert answer.status_code == 503
        assert answer.json()["type"] == "urn:gradwire:out-of-memory"
        assert "retry-after" in answer.headers
        assert evaluate(lab.url, "more", [1.0]).json()["value"] == [2.0]


def test_the_least_busy_device_is_chosen(served: Running) -> None:
    def ask_for(seconds: float, device: str | None = None) -> str:
        fields = {"kwargs": {"seconds": seconds}, "device": device}
        answer = served.ask("waiting", "evaluate", np.ones(2), **fields)
        assert answer.status == 200
        return str(answer.fields["meta"]["device"])

    names = ["cpu:0", "cpu:1", "cpu:2"]
    assert [ask_for(1.0, name) for name in names] == names  # compiled everywhere
    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(ask_for, [1.0] * 3)) == names
    assert ask_for(1.0, "cpu") == "cpu:0"
