"""What the benchmarks differentiate: cheap, so that the time measured is the service's own."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from gradwire_service import Map


@Map
def wave(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """x · sin x, elementwise."""
    return jnp.sin(x) * x
