"""The functions of a first tutorial on differentiation with JAX, as maps.

``tutorial_client.py`` differentiates them from a process that has no JAX.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from gradwire_service import Map


@Map
def polynomial(x: Float[Array, ""]) -> Float[Array, ""]:
    """x³ + 2x² − 3x + 1."""
    return x**3 + 2 * x**2 - 3 * x + 1


@Map
def surface(x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
    """x²y + y³: two arguments, so two derivatives to choose from."""
    return x**2 * y + y**3


@Map
def quadratic(x: Float[Array, "n"], a: Float[Array, "n n"]) -> Float[Array, ""]:
    """The quadratic form ½ xᵀAx; its Hessian in x is the symmetric part of A."""
    return 0.5 * x @ a @ x


@Map
def cartesian(spherical: Float[Array, "3"]) -> Float[Array, "3"]:
    """The point (r, θ, φ) in Cartesian coordinates; the determinant of its Jacobian is r² sin θ."""
    r, theta, phi = spherical
    x = r * jnp.sin(theta) * jnp.cos(phi)
    y = r * jnp.sin(theta) * jnp.sin(phi)
    return jnp.stack([x, y, r * jnp.cos(theta)])


@Map
def quartic(x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
    """y·x⁴ − 2x²: a polynomial in x for every y, to be mapped over many x."""
    return y * x**4 - 2 * x**2
