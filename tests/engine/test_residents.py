"""Arrays kept on the service: by hand, and by themselves where arguments repeat."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradwire
from engine.hosting import Live, hosting, live
from engine.proxy import Proxy, counting
from gradwire import _repeats, wire
from gradwire._errors import LinearizationLost, WireError
from gradwire_service import Map

MB = 1_000_000
total = Map(lambda x, y: x.sum() + y.sum(), name="total")
double = Map(lambda x: 2 * x[:3], name="double")


def connect(where: Live | Proxy) -> gradwire.Service:
    return gradwire.connect(where.url, timeout=60.0)


def test_the_least_recently_used_make_room() -> None:
    arrays = [np.full(1000, float(i)) for i in range(3)]
    names = [wire.sha256(array) for array in arrays]

    async def main() -> None:
        async with hosting(total, resident_bytes=20_000) as service:
            residents = service.residents
            assert [residents.put(arrays[i], names[i], "me") for i in (0, 1, 0)] == [True, True, False]
            assert residents.put(arrays[2], names[2], "me")
            assert (len(residents), residents.nbytes) == (2, 16_000)
            assert np.array_equal(residents.find(names[0], "me"), arrays[0])
            with pytest.raises(LinearizationLost) as caught:
                residents.find(names[1], "me")
            assert caught.value.extra == {"missing": [names[1]]}
            with pytest.raises(LinearizationLost):
                residents.find(names[0], "another")
            with pytest.raises(WireError) as refused:
                residents.put(np.zeros(3000), wire.sha256(np.zeros(3000)), "me")
            assert refused.value.kind == "too-large"
            residents.drop(names[0], "me")
            assert residents.nbytes == 8000

    asyncio.run(main())


def test_what_is_put_shares_no_memory_with_the_message() -> None:
    array = np.ones(100)

    async def main() -> None:
        async with hosting(total) as service:
            service.residents.put(array, wire.sha256(array), "me")
            array[:] = 5
            assert np.array_equal(service.residents.find(wire.sha256(np.ones(100)), "me"), np.ones(100))

    asyncio.run(main())


def test_a_service_that_was_started_anew_is_given_them_again() -> None:
    x, large = np.arange(10.0), np.arange(MB / 8)
    with live(total, double) as first:
        port = first.port
        lab = gradwire.connect(first.url, timeout=60.0)
        resident = lab.put(x)
        operator = lab["total"]
        assert operator(resident, large) == x.sum() + large.sum()
        linear = lab["double"].linearize(x)
    with live(total, double, at=port) as second:
        assert operator(resident, large) == x.sum() + large.sum()
        assert np.array_equal(linear.jvp(x), 2 * x[:3])
        assert len(second.service.residents) >= 1
    lab.close()


def test_the_bytes_of_an_argument_that_repeats_cross_once() -> None:
    x = np.random.default_rng(0).standard_normal(MB)
    with live(total, double) as service, counting(service.port) as proxy, connect(proxy) as lab:
        operator = lab["double"]
        counts = []
        for call in (operator, operator, lambda x: operator.jvp(x, x[::-1])[0], operator):
            before = proxy.sent
            assert np.array_equal(call(x), 2 * x[:3])
            counts.append(proxy.sent - before)
        assert 8 * MB < counts[0] < 8 * MB + 10_000
        assert counts[1] < 2000
        assert 8 * MB < counts[2] < 8 * MB + 10_000  # its tangent alone
        assert counts[3] < 2000
        # Equal bytes are the same argument, wherever they are; another layout of them is not asked for.
        before = proxy.sent
        assert np.array_equal(operator(x.copy()), 2 * x[:3])
        assert proxy.sent - before < 2000


def test_an_array_of_another_layout_repeats_too() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 500)).T
    assert not x.flags.c_contiguous
    with live(double) as service, counting(service.port) as proxy, connect(proxy) as lab:
        assert np.array_equal(lab["double"](x), 2 * x[:3])
        before = proxy.sent
        for _ in range(4):
            assert np.array_equal(lab["double"](x), 2 * x[:3])
        assert proxy.sent - before < 10_000


def test_an_array_that_was_changed_in_place_is_another_one() -> None:
    x = np.zeros(MB)
    with live(double) as service, counting(service.port) as proxy, connect(proxy) as lab:
        for i in range(6):
            x[1] = i
            before = proxy.sent
            assert np.array_equal(lab["double"](x), [0, 2 * i, 0])
            assert proxy.sent - before > 8 * MB
        x[-1] = np.nan  # the last bytes count as well
        assert np.array_equal(lab["double"](x), [0, 10, 0])
        x[1] = 0  # and an old content is recognised
        before = proxy.sent
        x[-1] = 0
        assert np.array_equal(lab["double"](x), [0, 0, 0])
        assert proxy.sent - before < 2000
        negative = -np.zeros(MB)  # equal to zero, and yet not the same
        before = proxy.sent
        assert np.signbit(lab["double"](negative)).all()
        assert proxy.sent - before > 8 * MB


def test_arrays_that_never_repeat_are_soon_put_no_more() -> None:
    x = np.zeros(_repeats.SMALLEST // 8)
    with live(double) as service, connect(service) as lab:
        for i in range(20):
            x[0] = i
            assert lab["double"](x)[0] == 2 * i
        assert len(service.service.residents) == _repeats.CREDIT
        for _ in range(3):  # one that does come again is found out all the same
            assert lab["double"](x)[0] == 2 * 19
        assert len(service.service.residents) == _repeats.CREDIT + 1


def test_small_arguments_are_never_put() -> None:
    with live(double) as service, connect(service) as lab:
        for _ in range(3):
            lab["double"](np.ones(_repeats.SMALLEST // 8 - 1))
        assert len(service.service.residents) == 0


def test_a_service_that_keeps_less_than_one_is_sent_it_every_time() -> None:
    x = np.ones(_repeats.SMALLEST // 4)
    with live(double, resident_bytes=_repeats.SMALLEST) as service, connect(service) as lab:
        for i in range(4):
            x[0] = i // 2
            assert lab["double"](x)[0] == 2 * (i // 2)
        assert len(service.service.residents) == 0


def test_sixty_four_threads_may_share_them() -> None:
    def answers(lab: Any) -> None:
        arrays = [np.full(_repeats.SMALLEST // 8, float(i)) for i in range(6)]
        operator = lab["double"]

        def call(i: int) -> bool:
            return bool(np.array_equal(operator(arrays[i % 6]), np.full(3, 2.0 * (i % 6))))

        with ThreadPoolExecutor(64) as pool:
            assert all(pool.map(call, range(192)))

    with live(double) as service, connect(service) as lab:
        answers(lab)
        assert 1 <= len(service.service.residents) <= 6


def test_a_service_that_keeps_losing_them_still_answers() -> None:
    arrays = [np.full(_repeats.SMALLEST // 8, float(i)) for i in range(6)]
    # Room for two of six that are asked for in turn, by 16 threads.
    with live(double, resident_bytes=2 * _repeats.SMALLEST) as service, connect(service) as lab:
        operator = lab["double"]

        def call(i: int) -> bool:
            return bool(np.array_equal(operator(arrays[i % 6]), np.full(3, 2.0 * (i % 6))))

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(call, range(96)))
