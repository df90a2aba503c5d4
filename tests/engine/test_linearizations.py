"""Linearizations: one compile for all points, right at each, kept no longer and no larger than allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.hosting import Counted, ask, hosting, until
from gradwire._errors import ArgumentError, LinearizationLost
from gradwire_service.engine.service import Service


def function(x: Any) -> Any:
    return jnp.sin(x) * jnp.roll(x, 1)


async def linearized(service: Service, x: np.ndarray, owner: str = "me") -> str:
    outcome = await ask(service, "counted", x, operation="linearize", argnums=0, owner=owner)
    assert np.allclose(outcome.fields["value"], function(x))
    return str(outcome.fields["linearization"]["id"])


async def pushed(service: Service, id: str, v: np.ndarray, owner: str = "me") -> Any:
    return (await service.linear(id, owner, "jvp", [v], None)).fields["tangent"]


def test_all_points_share_one_compile_and_each_is_right() -> None:
    counted = Counted(function)
    random = np.random.default_rng(0)

    async def main() -> None:
        async with hosting(counted.map()) as service:
            counted.traces.clear()
            points = random.standard_normal((5, 40))
            ids = [await linearized(service, x) for x in points]
            v, w = random.standard_normal((2, 40))
            with jax.enable_x64(True):
                jacobians = [np.asarray(jax.jacfwd(function)(x)) for x in points]
            for id, jacobian in zip(ids, jacobians, strict=True):
                assert np.allclose(await pushed(service, id, v), jacobian @ v)
                pulled = (await service.linear(id, "me", "vjp", w, None)).fields["cotangents"]
                assert np.allclose(pulled, w @ jacobian)
                dense = (await service.linear(id, "me", "dense", None, None)).fields["jacobian"]
                assert np.allclose(dense, jacobian)
            assert counted.traces.count((40,)) == 1
            assert len(service.engine.compiled) == 4

    asyncio.run(main())


def test_one_that_is_not_used_expires_and_gives_its_memory_back_by_itself() -> None:
    async def main() -> None:
        async with hosting(Counted(function).map(), linearization_ttl=0.5) as service:
            id = await linearized(service, np.ones(1000))
            await until(lambda: service.linearizations.nbytes == 0)
            assert len(service.linearizations) == 0
            with pytest.raises(LinearizationLost):
                await pushed(service, id, np.ones(1000))

    asyncio.run(main())


def test_the_least_recently_used_make_room() -> None:
    async def main() -> None:
        async with hosting(Counted(function).map()) as service:
            await linearized(service, np.ones(1000))
            one = service.linearizations.nbytes
        async with hosting(Counted(function).map(), linearization_bytes=int(2.5 * one)) as service:
            first, second = [await linearized(service, np.full(1000, float(i))) for i in range(2)]
            await pushed(service, first, np.ones(1000))
            third = await linearized(service, np.full(1000, 3.0))
            assert (len(service.linearizations), service.linearizations.nbytes) == (2, 2 * one)
            for id in (first, third):
                await pushed(service, id, np.ones(1000))
            with pytest.raises(LinearizationLost):
                await pushed(service, second, np.ones(1000))
            # One that exceeds the budget alone is kept until the next one comes.
            large = await linearized(service, np.ones(100_000))
            assert len(service.linearizations) == 1
            await pushed(service, large, np.ones(100_000))

    asyncio.run(main())


def test_it_belongs_to_who_made_it_and_is_closed_by_them() -> None:
    async def main() -> None:
        async with hosting(Counted(function).map()) as service:
            id = await linearized(service, np.ones(9))
            unknown = await refusal(pushed(service, "unknown", np.ones(9)))
            assert await refusal(pushed(service, id, np.ones(9), owner="another")) == unknown
            with pytest.raises(LinearizationLost):
                service.linearizations.drop(id, "another")
            await pushed(service, id, np.ones(9))
            service.linearizations.drop(id, "me")
            assert service.linearizations.nbytes == 0
            assert await refusal(pushed(service, id, np.ones(9))) == unknown

    async def refusal(asked: Any) -> str:
        with pytest.raises(LinearizationLost) as caught:
            await asked
        return str(caught.value)

    asyncio.run(main())


def test_it_outlives_the_executable_that_made_it() -> None:
    async def main() -> None:
        async with hosting(Counted(function).map(), compiled_queries=2) as service:
            id = await linearized(service, np.ones(12))
            for n in range(20, 26):
                await ask(service, "counted", np.ones(n))
            assert np.allclose(await pushed(service, id, np.ones(12)), np.cos(1) + np.sin(1))

    asyncio.run(main())


def test_a_vector_that_does_not_fit_is_told() -> None:
    async def main() -> None:
        async with hosting(Counted(function).map()) as service:
            id = await linearized(service, np.ones(4))
            with pytest.raises(ArgumentError, match="one tangent"):
                await service.linear(id, "me", "jvp", [np.ones(4)] * 2, None)

    asyncio.run(main())
