"""Compiled queries: how many are held, what compiles when, and who waits for whom."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradwire
from engine.hosted import __file__ as HOSTED
from engine.hosting import Counted, Gate, ask, hosting, resident_memory, value
from gradwire._errors import DeadlineExceeded, MapFailed
from gradwire_service import Map
from gradwire_service.query import Asked
from service.running import started

MIB = 1 << 20


def test_the_least_recently_used_go_first() -> None:
    counted = Counted(jnp.sin)

    async def main() -> None:
        async with hosting(counted.map(), compiled_queries=3) as service:
            counted.traces.clear()
            for n in (10, 20, 30, 10, 40):
                await ask(service, "counted", np.ones(n))
            assert len(service.engine.compiled) == 3
            assert counted.traces == [(10,), (20,), (30,), (40,)]
            await ask(service, "counted", np.ones(10))
            assert len(counted.traces) == 4
            await ask(service, "counted", np.ones(20))
            assert counted.traces[-1] == (20,)
            assert len(service.engine.compiled) == 3

    asyncio.run(main())


def test_three_hundred_shapes_against_a_cap_of_sixteen_keep_the_memory_level() -> None:
    with started(HOSTED, "--compiled-queries", "16") as running, gradwire.connect(running.url) as lab:
        less, pid = lab["less"], running.process.pid
        levels = []
        for n in range(1, 301):
            assert np.array_equal(less(np.ones(n)), -np.ones(n))
            if n % 100 == 0:
                levels.append(resident_memory(pid))
            if n % 50 == 0:
                assert running.devices["compiled_queries"] <= 16
        # Level it is within 1 MiB; without evictions it grows by 40.
        assert levels[-1] - levels[0] < 8 * MIB, [level // MIB for level in levels]


def test_static_arguments_do_not_add_up() -> None:
    powered = Map(lambda x, n: x**n, name="powered", static_argnames=("n",))

    async def main() -> None:
        async with hosting(powered, compiled_queries=4) as service:
            for n in range(20):
                assert np.array_equal(await value(service, "powered", np.full(2, 2.0), n), [2.0**n] * 2)
            assert len(service.engine.compiled) == 4

    asyncio.run(main())


def test_identical_calls_at_one_time_are_compiled_once() -> None:
    counted = Counted(jnp.cos)

    async def main() -> None:
        async with hosting(counted.map()) as service:
            counted.traces.clear()
            x = np.arange(50.0)
            values = await asyncio.gather(*(value(service, "counted", x) for _ in range(8)))
            assert counted.traces == [(50,)]
            assert all(np.allclose(each, np.cos(x)) for each in values)

    asyncio.run(main())


def test_a_slow_compile_of_one_map_delays_no_other() -> None:
    gate = Gate()
    other = Counted(jnp.exp)

    async def main() -> None:
        async with hosting(gate.traced_map(), other.map()) as service:
            slow = asyncio.create_task(value(service, "sluggish", np.zeros(100)))
            await gate.is_reached()
            # The others are traced, compiled and run meanwhile.
            for n in (1, 10, 100):
                assert np.allclose(await value(service, "counted", np.zeros(n)), 1.0)
            assert not slow.done()
            gate.opened.set()
            assert np.array_equal(await slow, np.ones(100))

    asyncio.run(main())


def test_a_caller_that_gives_up_takes_nobody_elses_executable_along() -> None:
    gate = Gate()

    async def main() -> None:
        async with hosting(gate.traced_map()) as service:
            first = asyncio.create_task(value(service, "sluggish", np.zeros(100), deadline=0.05))
            await gate.is_reached()
            second = asyncio.create_task(value(service, "sluggish", np.zeros(100)))
            with pytest.raises(DeadlineExceeded):
                await first
            gate.opened.set()
            assert np.array_equal(await second, np.ones(100))
            assert not gate.reached.acquire(blocking=False)  # it was traced once

    asyncio.run(main())


def test_what_is_dropped_leaves_jaxs_caches_and_what_is_held_goes_on() -> None:
    counted = Counted(jnp.sin)
    seen: list[Any] = []

    @jax.jit
    def elsewhere(x: Any) -> Any:
        seen.append(None)
        return x + 1

    async def main() -> None:
        async with hosting(counted.map(), compiled_queries=4) as service:
            elsewhere(1.0)
            elsewhere(1.0)
            assert len(seen) == 1
            for n in range(10, 20):
                await ask(service, "counted", np.ones(n))
                assert np.allclose(await value(service, "counted", np.ones(5)), np.sin(1))
            # JAX has forgotten what it traced; what the service holds was never traced again.
            elsewhere(1.0)
            assert len(seen) == 2
            assert counted.traces.count((5,)) == 1

    asyncio.run(main())


def test_a_failure_is_not_kept() -> None:
    broken = True

    def sometimes(x: Any) -> Any:
        if broken:
            raise ValueError("not today")
        return x

    async def main() -> None:
        nonlocal broken
        async with hosting(Map(sometimes, name="sometimes")) as service:
            with pytest.raises(MapFailed, match="not today"):
                await value(service, "sometimes", np.ones(7))
            broken = False
            assert np.array_equal(await value(service, "sometimes", np.ones(7)), np.ones(7))

    asyncio.run(main())


def test_failures_do_not_add_up() -> None:
    def refusing(x: Any) -> Any:
        raise ValueError("never")

    def alive() -> int:
        # Of the exact type: to ask a foreign object for its class may run its code.
        gc.collect()
        return sum(type(thing) is Asked for thing in gc.get_objects())

    async def main() -> None:
        before = alive()  # what other tests in this process keep
        async with hosting(Map(refusing, name="refusing")) as service:
            for n in range(50):
                with pytest.raises(MapFailed):
                    await value(service, "refusing", np.ones(n))
            assert len(service.engine.compiled) == 0
            assert alive() - before < 10

    asyncio.run(main())
