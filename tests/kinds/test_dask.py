"""Dask arrays stay deferred: one call when computed, and no derivatives."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from gradwire.kinds import is_dask, kind_of, lazy, refuse_dask  # noqa: E402


def spec(shape: tuple[int, ...], dtype: str) -> SimpleNamespace:
    return SimpleNamespace(shape=shape, dtype=dtype)


def test_dask_arrays_are_known_and_of_no_kind() -> None:
    x = da.ones((4, 6), chunks=2)
    assert is_dask(x) and kind_of(x) is None
    assert not is_dask(np.ones(3)) and not is_dask(dask.delayed(1))


def test_an_evaluation_is_one_call_made_when_the_result_is_computed() -> None:
    calls: list[type] = []

    def call(x: np.ndarray, factor: float) -> np.ndarray:
        calls.append(type(x))
        return np.asarray(factor * x.sum(axis=0))

    x = da.from_array(np.arange(24.0).reshape(4, 6), chunks=2)
    y = lazy(call, spec((6,), "float64"), x, 2.0)
    assert y.shape == (6,) and y.dtype == np.float64 and not calls
    assert (y + 1).compute(scheduler="synchronous").tolist() == (
        2 * np.arange(24.0).reshape(4, 6).sum(0) + 1
    ).tolist()
    assert calls == [np.ndarray]


def test_a_pytree_of_results_is_one_call_too() -> None:
    calls: list[int] = []

    def call(x: np.ndarray) -> dict[str, object]:
        calls.append(1)
        return {"sum": x.sum(), "pair": (x, [2 * x]), "nothing": None}

    vector = spec((3,), "float32")
    y = lazy(
        call,
        {"sum": spec((), "float32"), "pair": (vector, [vector]), "nothing": None},
        da.ones(3, dtype="float32", chunks=1),
    )
    (got,) = dask.compute(y, scheduler="synchronous")
    assert got["sum"] == 3 and got["pair"][1][0].tolist() == [2, 2, 2] and got["nothing"] is None
    assert type(y["pair"]) is tuple and y["pair"][0].dtype == np.float32
    assert len(calls) == 1


def test_a_derivative_is_refused_with_the_way_to_go() -> None:
    refuse_dask([np.ones(3)], "vjp")
    with pytest.raises(NotImplementedError, match=r"f\.vjp\(x\.compute\(\)\).*map_blocks"):
        refuse_dask([np.ones(3), da.ones(3)], "vjp")
