"""Maps for a service in a process of its own."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gradwire_service import Map


@Map
def wave(x: Float[Array, "n"]):
    """sin(x)·x."""
    return jnp.sin(x) * x


@Map
def less(x: Float[Array, "n"]):
    """-x, the cheapest to compile."""
    return -x


@Map
def neighbours(x: Float[Array, "n"]):
    """A dense-shaped Jacobian of a cheap map."""
    return jnp.sin(x) * jnp.roll(x, 1)


def _waiting(x: Float[Array, "n"], seconds=1.0):
    """Takes its device for that long."""

    def wait(x):
        time.sleep(seconds)
        return np.asarray(x)

    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


waiting = Map(_waiting, name="waiting", static_argnames=("seconds",))


@Map
def busy_tracing(x: Float[Array, "n"]):
    """Holds Python's lock for a second while it is traced with more than a few elements."""
    if x.size > 64:
        end = time.perf_counter() + 1.0
        while time.perf_counter() < end:
            pass
    return x + 1


def _warmed(x: Float[Array, "n"]):
    return jnp.tanh(x) @ x


warmed = Map(_warmed, name="warmed", example=(np.linspace(0, 1, 9),))
