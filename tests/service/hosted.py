"""Maps of every kind, for the tests to host and to compute with here."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Float32, Inexact, Int, Num, Shaped

from gradwire_service import Map

# What can be differentiated how.


@Map
def cubic(x: Float[Array, ""]) -> Float[Array, ""]:
    """x³: every derivative."""
    return x**3


@Map
def wave(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """sin(x)·x, element by element."""
    return jnp.sin(x) * x


@Map
def energy(x: Float[Array, "n"]) -> Float[Array, ""]:
    """½Σx⁴, a scalar of a vector."""
    return 0.5 * jnp.sum(x**4)


@Map
def spectrum(x: Float[Array, "n"]) -> Complex[Array, "n"]:
    """R→C."""
    return jnp.fft.fft(x)


@Map
def power(z: Complex[Array, "n"]) -> Float[Array, ""]:
    """C→R."""
    return jnp.sum(jnp.abs(z) ** 2)


@Map
def square(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    """C→C, holomorphic."""
    return z * z


@Map
def mixed(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    """C→C, not holomorphic."""
    return z * jnp.conj(z) + z


@Map
def doubled(k: Int[Array, "n"]) -> Int[Array, "n"]:
    """Integers alone: no derivative."""
    return 2 * k


@Map
def halved_until_small(x: Float[Array, ""]) -> Float[Array, ""]:
    """A loop of unknown length: forward mode alone."""
    return jax.lax.while_loop(lambda x: jnp.abs(x) > 1, lambda x: x / 2, x)


@jax.custom_vjp
def _clipped(x: Array) -> Array:
    return jnp.clip(x, -1, 1)


_clipped.defvjp(lambda x: (_clipped(x), x), lambda x, w: (jnp.where(jnp.abs(x) < 1, w, 0.1 * w),))


@Map
def clipped(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """A hand-written reverse rule: reverse mode alone."""
    return _clipped(x)


@Map
def on_host(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """NumPy in a callback: no derivative at all."""
    return jax.pure_callback(lambda x: np.cos(np.asarray(x)), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@Map
def anything(x):
    """Nothing declared."""
    return jnp.tanh(x) + x


def _powered(x: Float[Array, "n"], order: int) -> Float[Array, "n"]:
    """xᵒʳᵈᵉʳ with a static order."""
    return x**order


powered = Map(_powered, name="powered", static_argnames=("order",), example=(np.ones(2), 3))


@Map
def pair(x, y):
    """Pytrees in and out."""
    return {"sum": x["a"] + y, "parts": (x["a"], [y])}


pair_with_example = Map(
    pair._declaration.fun, name="pair_with_example", example=({"a": np.ones(3)}, np.ones(3))
)

# Declarations.


@Map
def product(a: Float[Array, "m k"], b: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """A matrix product: the inner dimensions agree."""
    return a @ b


@Map
def chosen(x: Float[Array, "n"], mask: Bool[Array, "n"], k: Int[Array, ""]) -> Float[Array, "n"]:
    """Floating, boolean and integer arguments."""
    return jnp.where(mask, x * k, 0)


@Map
def single(x: Float32[Array, "n"]) -> Float32[Array, "n"]:
    """One dtype and no other."""
    return x + 1


@Map
def shaped(x: Shaped[Array, "n"], y: Num[Array, "n"], z: Inexact[Array, "n"]) -> Shaped[Array, "n"]:
    """Wide classes."""
    return x + y + z


@Map
def joined(*parts: Float[Array, "n"], scale: Float[Array, ""] = 1.0, **others: Float[Array, "n"]):
    """Any number of arguments."""
    return scale * (sum(parts) + sum(others.values()))


# Precision.


@Map
def same(x):
    """As it came."""
    return x


@Map
def ramped(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Makes its own float64 wherever JAX lets it."""
    return x + jnp.linspace(0, 1, x.shape[0]) + np.linspace(0, 1, x.shape[0])


in_single = Map(wave._declaration.fun, name="in_single", precision="compute=float32,output=input")
in_half = Map(anything._declaration.fun, name="in_half", precision="float16")
on_the_last = Map(wave._declaration.fun, name="on_the_last", device="cpu:2")


def _smoothed(x: Float[Array, "n"], order: int = 1) -> Float[Array, "n"]:
    """Compiled anew for every order."""
    return x / order


smoothed = Map(_smoothed, name="smoothed", static_argnames=("order",))

# Time, and failure.


def _slow(x: Float[Array, "n"], seconds: float = 1.0) -> Float[Array, "n"]:
    """Takes its time, on the host."""

    def wait(x: Array) -> np.ndarray:
        time.sleep(seconds)
        return np.asarray(x)

    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


slow = Map(_slow, name="slow", static_argnames=("seconds",))


def _long_to_trace(x: Float[Array, "n"], seconds: float = 0.0) -> Float[Array, "n"]:
    """Takes its time before it is compiled."""
    time.sleep(seconds)
    return x


long_to_trace = Map(_long_to_trace, name="long_to_trace", static_argnames=("seconds",))


@Map
def refusing(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Raises while it is traced."""
    raise ValueError("only on Tuesdays")


@Map
def refusing_on_host(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Raises while it runs."""

    def refuse(x: Array) -> np.ndarray:
        raise ValueError("only on Wednesdays")

    return jax.pure_callback(refuse, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@Map
def lost(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """NaN and infinities."""
    return jnp.log(x - x) + jnp.where(x > 0, jnp.nan, 0)


@Map
def talking(x: Float[Array, "n"]):
    """No array."""
    return "hello"


@Map
def looking_at(x: Float[Array, "n"]):
    """Python control flow on values, which cannot be traced."""
    return x if x[0] > 0 else -x


# Versions.


def _first(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x + 1


def _second(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x + 2


first = Map(_first, name="plus", version="1.0")
second = Map(_second, name="plus", version="2.0+b")
