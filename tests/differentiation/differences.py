"""Oracles that know nothing of automatic differentiation: differences of values, and exact comparisons."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np


def directional(function: Callable[[np.ndarray], Any], x: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The derivative of ``function`` at ``x`` along ``v``: central differences, extrapolated by Richardson.

    Errors fall with the eighth power of the step: about 1e-11 for smooth functions of size one.
    """
    steps = 0.05 * 0.5 ** np.arange(4)
    table = [(np.asarray(function(x + h * v)) - np.asarray(function(x - h * v))) / (2 * h) for h in steps]
    for order in range(1, 4):
        table = [(4**order * fine - coarse) / (4**order - 1) for coarse, fine in itertools.pairwise(table)]
    return table[0]


def jacobian(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """The Jacobian of ``function`` at the real array ``x``, of shape value.shape + x.shape."""
    columns = []
    for index in np.ndindex(*x.shape):
        e = np.zeros_like(x)
        e[index] = 1.0
        columns.append(directional(function, x, e))
    return np.moveaxis(np.array(columns), 0, -1).reshape(*columns[0].shape, *x.shape)


def pairs(z: np.ndarray) -> np.ndarray:
    """A complex array as a real one with a last axis of two."""
    return np.stack([np.real(z), np.imag(z)], axis=-1)


def joined(p: np.ndarray) -> np.ndarray:
    """The inverse of `pairs`."""
    return p[..., 0] + 1j * p[..., 1]


def in_pairs(function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """``function`` of a complex array, on real pairs; what is complex of the value as pairs too."""

    def real(p: np.ndarray) -> np.ndarray:
        value = np.asarray(function(joined(p)))
        return pairs(value) if np.iscomplexobj(value) else value

    return real


def assert_same(got: Any, want: Any) -> None:
    """Of one structure, and leaf by leaf of one dtype, one shape and the same bits."""
    if isinstance(want, tuple | list):
        assert type(got) is type(want) and len(got) == len(want), (got, want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
    elif isinstance(want, dict):
        assert set(got) == set(want)
        for key in want:
            assert_same(got[key], want[key])
    elif want is None:
        assert got is None
    else:
        want = np.asarray(want)
        assert isinstance(got, np.ndarray), type(got)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tobytes() == want.tobytes(), f"{got} is not {want} bit for bit"


def assert_close(got: Any, want: Any, tol: float = 1e-12) -> None:
    """Of one dtype and shape, and equal up to ``tol`` times the largest entry."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol * max(1.0, np.abs(want).max(initial=0.0)))
