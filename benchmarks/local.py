"""The computation alone: local ``jax.jit``, from aligned NumPy arrays to NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

ALIGNMENT = 64
"""Bytes at which JAX on the CPU takes NumPy memory as it is."""


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy in memory that JAX need not copy again."""
    raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def jitted(fun: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """A call of ``jax.jit(fun)`` on ``args``, until the answer is in host memory."""
    compiled = jax.jit(fun).lower(*args).compile()

    def call() -> Any:
        return jax.tree_util.tree_map(np.asarray, compiled(*args))

    return call


def value_and_cotangent(fun: Callable[..., Any]) -> Callable[..., Any]:
    """``(x, w) ->`` the value and the VJP."""

    def both(x: Any, w: Any) -> Any:
        value, pull = jax.vjp(fun, x)
        return value, pull(w)[0]

    return both
