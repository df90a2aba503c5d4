"""Maps with sparse derivatives, and some in which no pattern can be found."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int

from gradwire_service import Map


@Map
def chain(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Each entry with its two neighbours: a tridiagonal Jacobian."""
    left = jnp.concatenate([jnp.zeros(1, x.dtype), x[:-1]])
    right = jnp.concatenate([x[1:], jnp.zeros(1, x.dtype)])
    return left - 2.0 * x**2 + 3.0 * right


@Map
def valley(x: Float[Array, "n"]) -> Float[Array, ""]:
    """Rosenbrock's valley: a tridiagonal Hessian."""
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@Map
def arrow(x: Float[Array, "n"]) -> Float[Array, ""]:
    """A Hessian with a full row, a full column and a diagonal."""
    return x[0] * jnp.sum(jnp.cos(x[1:])) + jnp.sum(x**2)


@Map
def sheet(u: Float[Array, "h w"]) -> Float[Array, "2 h w"]:
    """A matrix to an array of rank 3: the five-point Laplacian, and a square."""
    around = jnp.pad(u, 1)
    laplacian = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2] - 4.0 * u
    return jnp.stack([laplacian, u**2])


@Map
def product(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.sin(x) * y**2


@Map
def scalar_product(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sin(x) * y**2)


@Map
def tree(p: Any) -> Any:
    """A pytree with an integer in it to another; its keys mean something on the wire."""
    return {"csr": p["a"][:, 1:] * p["scale"], "tuple": (jnp.outer(p["b"], p["a"][0]), p["count"])}


@Map
def total(p: Any) -> Any:
    return jnp.sum(p["a"] ** 3) + jnp.sum(p["b"][1:] * p["b"][:-1])


@Map
def to_complex(x: Float[Array, "n"]) -> Complex[Array, "n"]:
    return jnp.exp(1j * x) + jnp.roll(x, 1)


@Map
def to_real(z: Complex[Array, "n"]) -> Float[Array, "n"]:
    return jnp.real(z) * jnp.imag(jnp.roll(z, 1))


@Map
def holomorphic(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    return z * z + 1j * jnp.roll(z, 1)


@Map
def not_holomorphic(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    return z * jnp.conj(z) + z


@Map
def loop(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Forward mode alone."""
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1]


@jax.custom_vjp
def _by_hand(x: Array) -> Array:
    return x**3


_by_hand.defvjp(lambda x: (x**3, x), lambda x, w: (3.0 * x**2 * w,))


@Map
def reverse_only(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return _by_hand(x)


@Map
def wrong_rule(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """What it computes does not show that its derivative reaches one entry further."""
    return _shifted(x)


@jax.custom_jvp
def _shifted(x: Array) -> Array:
    return x * 1.0


@_shifted.defjvp
def _shifted_jvp(primals: Any, tangents: Any) -> Any:
    return primals[0] * 1.0, tangents[0] + jnp.roll(tangents[0], 1)


@Map
def spectrum(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """asdex has no rule for fft. The Jacobian is diagonal: a convolution with a delta."""
    return jnp.fft.ifft(jnp.fft.fft(x**2)).real


@Map
def spectrum_full(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.abs(jnp.fft.fft(x**2 + x[::-1] ** 3))


@Map
def solved(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Nor for linear solves."""
    return jnp.linalg.solve(jnp.diag(2.0 + x**2), x)


@Map
def called_back(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """What happens on the host is not seen through."""
    return _on_host(x)


@jax.custom_jvp
def _on_host(x: Array) -> Array:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@_on_host.defjvp
def _on_host_jvp(primals: Any, tangents: Any) -> Any:
    return _on_host(primals[0]), jnp.cos(primals[0]) * tangents[0]


@Map
def dense(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.sum(x**2) + x


@Map
def picked(x: Float[Array, "n"], at: Int[Array, "m"]) -> Float[Array, "m"]:
    """Where it reads is known only when it runs."""
    return x[at] ** 2


def structure(seed: int, rows: int, columns: int, density: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return np.nonzero(random.random((rows, columns)) < density)


@partial(Map, static_argnames=("seed", "rows", "density"))
def scattered(x: Any, seed: int, rows: int, density: float) -> Any:
    """A random sparse map of an array of any shape to a vector."""
    flat = x.ravel()
    row, column = structure(seed, rows, flat.size, density)
    terms = jnp.sin(flat[column] * (1.0 + row % 3)) * flat[(column * 7 + 1) % flat.size]
    return jnp.zeros(rows, x.dtype).at[row].add(terms)
