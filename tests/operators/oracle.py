"""What the suite compares with: JAX itself in the test process, and derivatives by differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import maps
import numpy as np


def jitted(function: Callable[..., Any], *args: Any, x64: bool = True, **kwargs: Any) -> Any:
    """``jax.jit(function)`` at these arguments, as NumPy arrays, at the settings that the contract names."""
    with jax.enable_x64(x64), jax.default_matmul_precision("highest"):
        return jax.tree_util.tree_map(np.array, jax.jit(function)(*args, **kwargs))


@functools.cache
def of_suite(transform: Callable[..., Any], name: str, *args: Any) -> Callable[..., Any]:
    """``jitted(transform(function, *args))`` of the suite's function ``name``, compiled once."""
    function = jax.jit(transform(getattr(maps, name), *args))

    def evaluate(*arrays: Any) -> Any:
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            return jax.tree_util.tree_map(np.array, function(*arrays))

    return evaluate


def assert_same(got: Any, want: Any) -> None:
    """Of one structure, and leaf by leaf of one dtype, one shape and the same bits."""
    assert type(got) is type(want) or not isinstance(want, tuple | list | dict), (got, want)
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
    elif isinstance(want, dict):
        assert set(got) == set(want)
        for key in want:
            assert_same(got[key], want[key])
    elif want is None:
        assert got is None
    else:
        assert isinstance(got, np.ndarray), type(got)
        want = np.asarray(want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tobytes() == want.tobytes(), f"{got} is not {want} bit for bit"


def assert_close(got: Any, want: Any, rtol: float = 1e-12) -> None:
    """Of one dtype and shape, and equal up to rounding."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def differences(function: Callable[[np.ndarray], Any], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The Jacobian of ``function`` at the real array ``x`` by central differences: value.shape + x.shape."""
    columns = []
    for index in np.ndindex(*x.shape):
        e = np.zeros_like(x)
        e[index] = step
        columns.append((np.asarray(function(x + e)) - np.asarray(function(x - e))) / (2 * step))
    value = columns[0].shape
    return np.moveaxis(np.array(columns), 0, -1).reshape(*value, *x.shape)
