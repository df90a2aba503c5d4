"""The maps of the operator suite: plain functions for the oracles, and each hosted under its own name."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int

from gradwire_service import Map

# From real arrays to real arrays.


def cubic(x: Float[Array, ""]) -> Float[Array, ""]:
    """x³ sin x: a number to a number, with derivatives of every order."""
    return x**3 * jnp.sin(x)


def valley(x: Float[Array, "n"]) -> Float[Array, ""]:
    """Rosenbrock's valley: 0 at x = 1."""
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def bend(x: Float[Array, "n"]) -> Float[Array, "n+1"]:
    """A vector to a longer one."""
    return jnp.concatenate([jnp.sin(x) * x, jnp.sum(x**2)[None]])


def fold(x: Float[Array, "n m"]) -> Float[Array, "m"]:
    """A matrix to a shorter vector."""
    return jnp.prod(x, axis=0) + jnp.sum(x**2, axis=0)


def outer(a: Float[Array, "n"], b: Float[Array, "m"]) -> Float[Array, "n m"]:
    """Two vectors to a matrix."""
    return jnp.sin(a)[:, None] * b[None, :] ** 2


def blend(x, y):
    """Two arguments of any shape to a number."""
    return jnp.sum(x**2 * jnp.sin(y)) + jnp.sum(y**3)


def affine(x: Float[Array, "n"], matrix: Float[Array, "m n"]) -> Float[Array, "m"]:
    """A matrix product, whose precision the policy decides."""
    return matrix @ jnp.tanh(x)


def identity(x):
    """What came."""
    return x


def product(x, y):
    """x y: what two kinds of numbers make of one another."""
    return x * y


# Integers, static arguments, keywords.


def scaled(x: Float[Array, "n"], k: Int[Array, ""], flag: Any = True):
    """k times the sine of x where flag says so: integers and truth values beside what is differentiated."""
    return jnp.where(flag, k * jnp.sin(x), x)


def total(n: Int[Array, "n"]) -> Int[Array, ""]:
    """Integers to an integer: nothing to differentiate."""
    return jnp.sum(n)


def floor(x):
    """Real numbers to integers."""
    return jnp.floor(x).astype(jnp.int32)


def power(x: Float[Array, "n"], order: Any = 2, *, flavour: Any = "plain"):
    """x**order, tagged with what the static arguments are."""
    kinds = {bool: 100.0, int: 200.0, float: 300.0, str: 400.0, tuple: 500.0, type(None): 600.0}
    exponent = len(order) if isinstance(order, (tuple, str)) else 1 if order is None else order
    return x**exponent + kinds[type(order)] + (0.5 if flavour == "spiced" else 0.0)


def shifted(x: Float[Array, "n"], *, by: Float[Array, "n"]) -> Float[Array, "n"]:
    """x² + by, which is given by keyword."""
    return x**2 + by


def defaulted(x, scale=3.0):
    """x² times a number that has a default."""
    return scale * x**2


def gathered(first, *others):
    """The sum of the cubes of any number of arguments."""
    return jnp.sum(first**3) + sum(jnp.sum(k * other**3) for k, other in enumerate(others, 2))


def labelled(x, **weights):
    """x times the sum of whatever weights there are."""
    return x * sum(weights[name] for name in sorted(weights))


# Pytrees.


def network(params, x):
    """{"w", "b", "steps"} and a vector to {"out", "parts", "steps"}: pytrees in and out."""
    hidden = jnp.tanh(params["w"] @ x + params["b"])
    return {"out": hidden, "parts": (jnp.sum(hidden), [hidden[0] * x]), "steps": params["steps"] + 1}


def energy_of(tree):
    """A pytree of any structure to a number."""
    return sum(jnp.sum(leaf**2 * (k + 1)) for k, leaf in enumerate(jax.tree_util.tree_leaves(tree)))


class Point(NamedTuple):
    x: Any
    y: Any


def point(x):
    """A named tuple."""
    return Point(jnp.cos(x), [jnp.sin(x), None])


def with_aux(x):
    """A number, and what else there is to say."""
    return jnp.sum(x**2), {"mean": jnp.mean(x), "size": jnp.asarray(x.size)}


# Complex numbers, in the four directions.


def wave(x):
    """R→C."""
    return jnp.exp(1j * x) * x


def magnitude(z: Complex[Array, "n"]) -> Float[Array, "n"]:
    """C→R, a vector."""
    return jnp.abs(z) ** 2 * jnp.real(z)


def intensity(z: Complex[Array, "n"]) -> Float[Array, ""]:
    """C→R, a number."""
    return jnp.sum(jnp.abs(z) ** 2) + jnp.sum(jnp.imag(z) ** 3)


def holomorphic(z):
    """C→C, holomorphic."""
    return z**3 + 2j * z


def holomorphic_sum(z):
    """C→C, holomorphic, a number."""
    return jnp.sum(z**3)


def mirrored(z):
    """C→C, not holomorphic."""
    return z * jnp.conj(z) + jnp.conj(z)


# Maps that have one mode only, or fail.


def looped(x):
    """A loop of unknown length: forward mode only."""
    return jax.lax.while_loop(lambda c: jnp.sum(c[1]) < 10.0, lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[1]


@jax.custom_vjp
def _clipped(x):
    return jnp.sin(x)


_clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, w: (jnp.clip(w * jnp.cos(x), -0.5, 0.5),))


def clipped(x: Float[Array, "n"]):
    """A reverse rule by hand: reverse mode only."""
    return _clipped(x)


def failing(x):
    """Raises while it is traced."""
    raise LookupError(f"the scanner is off at shape {x.shape}")


def branching(x):
    """Asks for a value that tracing does not have."""
    return x if x[0] > 0 else -x


def breaking(x):
    """Raises while it runs, in a callback on the host."""

    def broken(x):
        raise ArithmeticError("no such slice")

    return jax.pure_callback(broken, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


PLAIN = (
    cubic, valley, bend, fold, outer, blend, affine, identity, product, scaled, total, floor, shifted,
    defaulted, gathered, labelled, network, energy_of, point, with_aux, wave, magnitude, intensity,
    holomorphic, holomorphic_sum, mirrored, looped, clipped, failing, branching, breaking,
)  # fmt: skip
EXAMPLES = {
    "network": ({"w": np.ones((2, 3)), "b": np.ones(2), "steps": np.int64(1)}, np.ones(3)),
    "energy_of": ((1.0, [2.0]),),
}
HOSTED = {function.__name__: Map(function, example=EXAMPLES.get(function.__name__)) for function in PLAIN}
HOSTED["power"] = Map(power, static_argnames=("order", "flavour"))
HOSTED["rough"] = Map(valley, name="rough", precision="float32", version="1.0")
globals().update({f"hosted_{name}": hosted for name, hosted in HOSTED.items()})
