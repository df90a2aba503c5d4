"""Maps that JAX traces: of every order, complex in the four directions, of one mode only, and counted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from gradwire_service import Map

# Of every order.


@Map
def surface(x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
    """exp(x sin y) / (1 + x²)."""
    return jnp.exp(x * jnp.sin(y)) / (1 + x**2)


@Map
def chained(x: Float[Array, "n"]) -> Float[Array, ""]:
    """Σ xᵢ₊₁ xᵢ² + Σ sin xᵢ + Π x."""
    return jnp.sum(x[1:] * x[:-1] ** 2) + jnp.sum(jnp.sin(x)) + jnp.prod(x)


@Map
def decay(p: Float[Array, "2"], t: Float[Array, "m"]) -> Float[Array, "m"]:
    """p₀ exp(−p₁ t)."""
    return p[0] * jnp.exp(-p[1] * t)


def _coupled(state, y):
    return jnp.sum(state["a"] ** 2 * y) + jnp.sum(y**3) * state["b"][0] ** 2


coupled = Map(
    _coupled, name="coupled", example=({"a": np.ones(2), "b": [np.float64(1.0), np.int64(3)]}, np.ones(2))
)


@Map
def measured(x):
    """A number, and what else there is to say."""
    return jnp.sum(x**3), {"mean": jnp.mean(x), "size": jnp.asarray(x.size)}


# Complex, in the four directions.


@Map
def square(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    return z**2


@Map
def twisted(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    return z * jnp.conj(z) + jnp.conj(z)


@Map
def power(z: Complex[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.abs(z) ** 4)


@Map
def phase(x: Float[Array, "n"]) -> Complex[Array, "n"]:
    return jnp.exp(1j * x)


@Map
def squares(z: Complex[Array, "n"]) -> Complex[Array, ""]:
    """Σ z³, holomorphic."""
    return jnp.sum(z**3)


@Map
def norms(z: Complex[Array, "n"]) -> Complex[Array, ""]:
    """Σ z² conj(z), not holomorphic."""
    return jnp.sum(z**2 * jnp.conj(z))


@Map
def squares_with_aux(z: Complex[Array, "n"]):
    return jnp.sum(z**3), jnp.abs(z)


@Map
def norms_with_aux(z: Complex[Array, "n"]):
    return jnp.sum(z**2 * jnp.conj(z)), jnp.abs(z)


@Map
def weighted(z: Complex[Array, "n"], x: Float[Array, "n"]) -> Complex[Array, "n"]:
    """Complex and real arguments at once."""
    return jnp.conj(z) * x**2


# Linear maps, so that their derivatives are matrices that are known.

M = np.random.default_rng(2).standard_normal((2, 4, 3))
C = M[0] + 1j * M[1]


@Map
def real_matrix(x: Float[Array, "3"]) -> Float[Array, "4"]:
    return jnp.asarray(M[0]) @ x


@Map
def other_matrix(x: Float[Array, "3"]) -> Float[Array, "4"]:
    return jnp.asarray(M[1]) @ x


@Map
def complex_matrix(z: Complex[Array, "3"]) -> Complex[Array, "4"]:
    return jnp.asarray(C) @ z


@Map
def to_complex(x: Float[Array, "3"]) -> Complex[Array, "4"]:
    return jnp.asarray(C) @ x.astype(jnp.complex128)


@Map
def back_matrix(y: Float[Array, "4"]) -> Float[Array, "3"]:
    return jnp.asarray(M[0]).T @ y


def _blocks(state, y):
    return {"one": jnp.asarray(M[0]) @ state["x"], "two": (2 * y, state["x"][0] + y[0])}


blocks = Map(_blocks, name="blocks", example=({"x": np.ones(3)}, np.ones(2)))


# One mode only.


@Map
def newton(a: Float[Array, ""]) -> Float[Array, ""]:
    """The square root of a, by a loop of unknown length: forward mode only."""
    return jax.lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a)


@Map
def stretched(a: Float[Array, "n"]) -> Float[Array, ""]:
    """A loop of unknown length from many to one: forward mode only, though reverse would be cheaper."""
    return jax.lax.while_loop(lambda x: x < 100.0, lambda x: x * 2, jnp.sum(a**2))


@jax.custom_vjp
def _clipped(x):
    return jnp.sin(x)


_clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, w: (w * jnp.cos(x),))


@Map
def clipped(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """A reverse rule by hand: reverse mode only."""
    return _clipped(x)


# A wrong rule.


@jax.custom_jvp
def _wrong(x):
    return jnp.sin(x)


_wrong.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 1.01 * jnp.cos(primals[0]) * tangents[0]))


@Map
def planted(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return _wrong(x)


# What runs is counted on the host.

CALLS = [0]


def _count(x):
    CALLS[0] += 1
    return x


@Map
def counted(x: Float[Array, "n m"]) -> Float[Array, "n"]:
    @jax.custom_jvp
    def noted(x):
        return jax.pure_callback(_count, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")

    noted.defjvp(lambda primals, tangents: (noted(*primals), tangents[0]))
    return jnp.sum(jnp.sin(noted(x)), axis=1)


calls = Map(lambda x: np.float64(CALLS[0]) + 0 * x, name="calls", arrays="numpy")


@Map
def matmul(a: Float[Array, "n n"], b: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return a @ b


@Map
def logarithm(x: Float[Array, "n m"]) -> Float[Array, "n m"]:
    return jnp.log(x)


rough = Map(lambda x: jnp.sin(x), name="rough", precision="float32", device="cpu")
