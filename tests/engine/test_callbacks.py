"""Maps that call back to Python while they run, from whichever thread XLA likes."""

from __future__ import annotations

import asyncio
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from engine.hosting import hosting, value
from gradwire_service import Map


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "complex128"])
def test_a_callback_gets_and_gives_what_the_query_computes_in(dtype: str) -> None:
    dtypes: set[str] = set()

    def noted(x: Any) -> np.ndarray:
        dtypes.add(np.asarray(x).dtype.name)
        return np.asarray(x)

    def through(x: Any) -> Any:
        spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
        # Enough work around it for XLA to spread it over its own threads.
        return jax.pure_callback(noted, spec, x) + 0 * jnp.cumsum(x)

    async def main() -> None:
        async with hosting(Map(through, name="through")) as service:
            for n in (3, 1000, 100_000):
                x = (np.random.default_rng(0).standard_normal(n) * 1e6).astype(dtype)
                for _ in range(4):
                    made = await value(service, "through", x)
                    assert made.dtype == dtype
                    assert np.array_equal(made, x)
            assert dtypes == {dtype}

    asyncio.run(main())


def test_no_query_computes_in_more_than_it_should() -> None:
    def ramped(x: Float[Array, "n"]) -> Any:
        return x + jnp.linspace(0, 1, x.shape[0]) + jnp.arange(x.shape[0])

    async def main() -> None:
        async with hosting(Map(ramped)) as service:
            for dtype in ("float32", "float64"):
                assert (await value(service, "ramped", np.ones(5, dtype))).dtype == dtype

    asyncio.run(main())
