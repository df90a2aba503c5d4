"""The maps of the benchmarks: cheap, so that the time is the service's own, or as slow as a bar needs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gradwire_service import Map

DENSE = 1_000
SCANNED = 64


def matrix(n: int) -> np.ndarray:
    """A fixed (n, n) matrix of norm about 1, float64."""
    a: np.ndarray = np.random.default_rng(0).standard_normal((n, n)) / (2.0 * np.sqrt(n))
    return a


@Map
def wave(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """x · sin x, elementwise."""
    return jnp.sin(x) * x


@Map
def dense(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """A tanh x, for a fixed A."""
    return jnp.asarray(matrix(DENSE), x.dtype) @ jnp.tanh(x)


@Map
def drift(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """64 steps of c + 0.01 sin c: its derivative is much cheaper than itself."""
    return jax.lax.scan(lambda c, _: (c + 0.01 * jnp.sin(c), None), x, None, length=SCANNED)[0]


@Map
def layers(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """64 steps of tanh(A c): its derivative costs about as much as itself."""
    a = jnp.asarray(matrix(x.shape[0]), x.dtype)
    return jax.lax.scan(lambda c, _: (jnp.tanh(a @ c), None), x, None, length=SCANNED)[0]


def _product(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.asarray(matrix(x.shape[0]), x.dtype) @ x


alone = Map(_product, name="alone")
"""A x, one request at a time."""

joined = Map(_product, name="joined", coalesce=True)
"""A x, concurrent requests joined."""


@Map
def total(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    """x + y."""
    return x + y


@Map
def neighbours(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """sin x times its left neighbour: a Jacobian of any size for little computation."""
    return jnp.sin(x) * jnp.roll(x, 1)


@Map
def slow(x: Float[Array, "n n"], steps: Int[Array, ""]) -> Float[Array, "n n"]:
    """As many matrix products as asked for."""
    a = jnp.asarray(matrix(x.shape[0]), x.dtype)
    made: Array = jax.lax.fori_loop(0, steps, lambda _, c: jnp.tanh(a @ c), x)
    return made


@Map
def unrolled(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """A loop that was written out: its compilation takes many seconds."""
    for step in range(60):
        x = jnp.sin(x) * jnp.roll(x, step % 7 + 1) + jnp.tanh(x)
    return x
