"""Small random maps: expression trees over a safe set, each written once for NumPy and for JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from gradwire_service import Map

Expression = Callable[[Any, Any], Any]
"""``expression(xp, x)``, xp being numpy or jax.numpy: as large as x, smooth everywhere."""

UNARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda xp, a: xp.sin(a),
    lambda xp, a: xp.tanh(a),
    lambda xp, a: xp.sqrt(1 + a**2),
    lambda xp, a: xp.exp(-(a**2)),
    lambda xp, a: xp.log1p(a**2),
    lambda xp, a: a * xp.mean(a),
    lambda xp, a: xp.roll(a, 1),
    lambda xp, a: xp.cumsum(a, axis=-1),
)
BINARY: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda xp, a, b: a + b,
    lambda xp, a, b: a * b,
    lambda xp, a, b: a / (1 + b**2),
    lambda xp, a, b: xp.where(True, a, b) - 0.5 * b,
)


def expression(random: np.random.Generator, depth: int) -> Expression:
    if depth == 0:
        factor = float(random.uniform(0.5, 1.5))
        return lambda xp, x: factor * x
    if random.uniform() < 0.5:
        operation = UNARY[random.integers(len(UNARY))]
        inner = expression(random, depth - 1)
        return lambda xp, x: operation(xp, inner(xp, x))
    join = BINARY[random.integers(len(BINARY))]
    left, right = expression(random, depth - 1), expression(random, depth - 1)
    return lambda xp, x: join(xp, left(xp, x), right(xp, x))


def scalar_of(inner: Expression) -> Expression:
    return lambda xp, x: xp.sum(inner(xp, x) ** 2) + xp.sum(xp.cos(x)) / 2


def hosting(expression: Expression, name: str) -> Map:
    return Map(lambda x: expression(jnp, x), name=name)


COUNT = 2
VECTORS = {f"vector_{seed}": expression(np.random.default_rng(seed), 4) for seed in range(COUNT)}
SCALARS = {
    f"scalar_{seed}": scalar_of(expression(np.random.default_rng(100 + seed), 3)) for seed in range(COUNT)
}
globals().update({f"hosted_{name}": hosting(found, name) for name, found in {**VECTORS, **SCALARS}.items()})
