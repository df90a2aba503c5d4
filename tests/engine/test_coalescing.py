"""Concurrent calls joined into one: how many runs, whose error is whose, and when they are alone."""

from __future__ import annotations

import asyncio
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from engine.hosting import PATIENCE, Gate, ask, hosting, until, value
from gradwire._errors import GradwireError, MapFailed
from gradwire_service import Map
from gradwire_service.engine.service import Service


class Runs:
    """A map that notes how many rows each of its runs has (0 for a run of one call alone)."""

    def __init__(self, *, refuses: float = np.inf) -> None:
        self.rows: list[int] = []
        self.given: list[np.ndarray] = []
        self.refuses = refuses

    def noted(self, x: Any) -> np.ndarray:
        x = np.asarray(x)
        self.rows.append(x.shape[0] if x.ndim > 1 else 0)
        self.given.append(x.copy())
        if (x == self.refuses).any():
            raise ValueError("not this one")
        return x

    def __call__(self, x: Any) -> Any:
        spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(self.noted, spec, x, vmap_method="broadcast_all")

    def map(
        self, then: Callable[[Any], Any] = lambda x: x + 1, name: str = "joined", coalesce: bool = True
    ) -> Map:
        return Map(lambda x: then(self(x)), name=name, coalesce=coalesce)


async def together(
    service: Service, gate: Gate, xs: list[np.ndarray], map: str = "joined", **fields: Any
) -> list[Any]:
    """The answers to calls that have all come while the device was busy: outcomes, or exceptions."""
    gate.opened.clear()
    busy = asyncio.create_task(value(service, "gate", np.zeros(2)))
    await gate.is_reached()
    (device,) = service.engine.devices
    calls = [asyncio.create_task(ask(service, map, x, **fields)) for x in xs]
    await until(lambda: device.queued > len(xs))
    gate.opened.set()
    await busy
    return await asyncio.gather(*calls, return_exceptions=True)


async def until_joined(service: Service, gate: Gate, runs: Runs, xs: list[np.ndarray]) -> list[Any]:
    """`together` once the executable for so many rows is there: it is compiled meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while True:
            runs.rows.clear()
            runs.given.clear()
            answers = await together(service, gate, xs)
            if any(runs.rows):
                return answers


def test_an_idle_device_answers_a_call_by_itself() -> None:
    runs = Runs()

    async def main() -> None:
        async with hosting(runs.map()) as service:
            for i in range(5):
                assert np.array_equal(
                    await value(service, "joined", np.full(3, float(i))), np.full(3, i + 1.0)
                )
            assert runs.rows == [0] * 5
            assert len(service.engine.compiled) == 1

    asyncio.run(main())


@pytest.mark.parametrize(("count", "rows"), [(2, [2]), (5, [8]), (8, [8])])
def test_calls_that_wait_are_joined_into_one_run_of_a_power_of_two(count: int, rows: list[int]) -> None:
    runs, gate = Runs(), Gate()
    xs = [np.arange(3.0) + 10 * i for i in range(count)]

    async def main() -> None:
        async with hosting(runs.map(), gate.map()) as service:
            answers = await until_joined(service, gate, runs, xs)
            assert runs.rows == rows
            for x, answer in zip(xs, answers, strict=True):
                assert np.array_equal(answer.fields["value"], x + 1)
            # What pads a batch is one of its rows.
            assert all((row == xs[-1]).all() for row in runs.given[0][count:])

    asyncio.run(main())


def test_no_more_are_joined_than_allowed() -> None:
    runs, gate = Runs(), Gate()
    xs = [np.full(2, float(i)) for i in range(10)]

    async def main() -> None:
        async with hosting(runs.map(), gate.map(), coalesce_rows=4) as service:
            async with asyncio.timeout(PATIENCE):
                while runs.rows != [4, 4, 2]:
                    runs.rows.clear()
                    answers = await together(service, gate, xs)
            assert [answer.fields["value"][0] for answer in answers] == [i + 1.0 for i in range(10)]

    asyncio.run(main())


def test_only_calls_of_one_query_are_joined() -> None:
    runs, gate = Runs(), Gate()
    xs = [np.full(n, float(i)) for i, n in enumerate((2, 3, 2, 3, 2))]

    async def main() -> None:
        async with hosting(runs.map(), gate.map()) as service:
            async with asyncio.timeout(PATIENCE):
                while sorted(runs.rows) != [2, 4]:
                    runs.rows.clear()
                    answers = await together(service, gate, xs)
            for x, answer in zip(xs, answers, strict=True):
                assert np.array_equal(answer.fields["value"], x + 1)

    asyncio.run(main())


def test_maps_that_do_not_allow_it_are_not_joined() -> None:
    runs, gate = Runs(), Gate()
    xs = [np.full(2, float(i)) for i in range(4)]

    async def main() -> None:
        async with hosting(runs.map(coalesce=False), gate.map()) as service:
            for _ in range(3):
                await together(service, gate, xs)
            assert set(runs.rows) == {0}

    asyncio.run(main())


@pytest.mark.parametrize("operation", ["grad", "jvp", "vjp", "hessian"])
def test_every_row_gets_its_own_derivative_and_none_gets_nan(operation: str) -> None:
    # The gradient of a norm is NaN at 0: padding with zeros would show.
    gate = Gate()
    scalar = operation in ("grad", "hessian")
    joined = Map(
        lambda x: jnp.linalg.norm(x) if scalar else x * jnp.linalg.norm(x), name="joined", coalesce=True
    )
    plain = Map(joined._declaration.fun, name="plain")
    random = np.random.default_rng(1)
    xs = list(random.standard_normal((3, 4)))
    fields: dict[str, Any] = {
        "jvp": {"tangents": (np.ones(4),), "argnums": 0},
        "vjp": {"cotangent": np.ones(4), "argnums": 0},
    }.get(operation, {"argnums": 0})

    async def main() -> None:
        async with hosting(joined, plain, gate.map()) as service:
            alone = [await ask(service, "plain", x, operation=operation, **fields) for x in xs]
            for _ in range(3):
                before = len(service.engine.compiled)
                answers = await together(service, gate, xs, operation=operation, **fields)
                for answer, expected in zip(answers, alone, strict=True):
                    for name, field in expected.fields.items():
                        made = jax.tree_util.tree_leaves(answer.fields[name])
                        for leaf, wanted in zip(made, jax.tree_util.tree_leaves(field), strict=True):
                            assert isinstance(leaf, np.ndarray)
                            assert (leaf.shape, leaf.dtype) == (wanted.shape, wanted.dtype)
                            np.testing.assert_allclose(leaf, wanted, rtol=1e-12)
                async with asyncio.timeout(PATIENCE):  # the next round is a joint one
                    while before == 3 and len(service.engine.compiled) == before:
                        await asyncio.sleep(0.01)

    asyncio.run(main())


def test_an_error_of_one_row_is_its_own() -> None:
    runs, gate = Runs(refuses=13.0), Gate()
    good = [np.full(3, float(i)) for i in range(4)]
    mixed = [*good[:2], np.full(3, 13.0), good[3]]

    async def main() -> None:
        async with hosting(runs.map(), gate.map()) as service:
            await until_joined(service, gate, runs, good)
            answers = await together(service, gate, mixed)
            assert isinstance(answers.pop(2), MapFailed)
            for x, answer in zip([good[0], good[1], good[3]], answers, strict=True):
                assert np.array_equal(answer.fields["value"], x + 1)

    asyncio.run(main())


def test_who_gives_up_is_no_row() -> None:
    runs, gate = Runs(), Gate()
    xs = [np.full(3, float(i)) for i in range(4)]

    async def main() -> None:
        async with hosting(runs.map(), gate.map()) as service:
            await until_joined(service, gate, runs, xs)
            runs.given.clear()
            gate.opened.clear()
            busy = asyncio.create_task(value(service, "gate", np.zeros(2)))
            await gate.is_reached()
            gone = asyncio.create_task(ask(service, "joined", np.full(3, 99.0), deadline=0.05))
            calls = [asyncio.create_task(ask(service, "joined", x)) for x in xs]
            with pytest.raises(GradwireError):
                await gone
            gate.opened.set()
            await asyncio.gather(busy, *calls)
            assert not any((given == 99).any() for given in runs.given)

    asyncio.run(main())


@pytest.mark.parametrize("bucket", [None, 4])
def test_a_map_that_vmap_cannot_take_is_answered_one_by_one(bucket: int | None) -> None:
    gate, seen = Gate(), []

    def noted(x: Any) -> np.ndarray:
        seen.append(np.shape(x))
        return np.asarray(x)

    def stubborn(x: Float[Array, "n"]) -> Any:
        return jax.pure_callback(noted, jax.ShapeDtypeStruct(x.shape, x.dtype), x)  # no vmap_method

    async def main() -> None:
        async with hosting(
            Map(stubborn, name="joined", coalesce=True), gate.map(), coalesce_bucket=bucket
        ) as service:
            for _ in range(3):
                answers = await together(service, gate, [np.full(2, float(i)) for i in range(3)])
                assert [answer.fields["value"][0] for answer in answers] == [0.0, 1.0, 2.0]
            assert set(seen) == {(2,)}

    asyncio.run(main())


def test_with_one_fixed_bucket_an_answer_is_the_same_bits_whoever_else_calls() -> None:
    gate = Gate()
    matrix = np.random.default_rng(0).standard_normal((33, 33)).astype("float32")
    joined = Map(
        lambda x: jnp.sum(jnp.asarray(matrix) @ x) * jnp.tanh(matrix @ x), name="joined", coalesce=True
    )
    xs = list(np.random.default_rng(1).standard_normal((7, 33)).astype("float32"))

    async def main() -> None:
        async with hosting(joined, gate.map(), coalesce_bucket=4) as service:
            alone = [await value(service, "joined", x) for x in xs]
            for few in (xs, xs[:5], xs[2:4], xs[::-1]):
                answers = await together(service, gate, few)
                expected = [alone[next(i for i, x in enumerate(xs) if x is each)] for each in few]
                for answer, bits in zip(answers, expected, strict=True):
                    assert answer.fields["value"].tobytes() == bits.tobytes()

    asyncio.run(main())


def test_many_shapes_that_cannot_be_joined_do_not_add_up() -> None:
    gate = Gate()

    def stubborn(x: Float[Array, "n"]) -> Any:
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    async def main() -> None:
        stubborn_map = Map(stubborn, name="joined", coalesce=True)
        async with hosting(stubborn_map, gate.map(), compiled_queries=2) as service:
            for n in range(2, 10):
                await together(service, gate, [np.zeros(n)] * 2)
            assert len(service.engine.compiled) <= 2
            assert len(service._begun) <= 4

    asyncio.run(main())
