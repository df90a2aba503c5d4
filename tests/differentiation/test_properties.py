"""What is true of every derivative, over random maps, shapes and dtypes: on NumPy's values alone."""

from __future__ import annotations

import numpy as np
import pytest
import random_maps
from differences import directional
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradwire as gw

SHAPES = ((3,), (2, 3))
TOLERANCE = {"f8": 1e-11, "f4": 2e-4}

few = settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
cases = st.tuples(
    st.integers(0, random_maps.COUNT - 1),
    st.sampled_from(SHAPES),
    st.sampled_from(["f8", "f4"]),
    st.integers(0, 2**32 - 1),
)


def drawn(case, count):
    """The number of the map, and arrays of the shape and dtype."""
    number, shape, dtype, seed = case
    random = np.random.default_rng(seed)
    return number, dtype, [random.standard_normal(shape).astype(dtype) for _ in range(count)]


def near(got, want, dtype, scale=1.0):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == np.dtype(dtype) and got.shape == want.shape
    size = max(1.0, float(np.abs(want).max(initial=0.0)), scale)
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype] * size)


@few
@given(case=cases)
def test_the_value_is_numpys(hosted, case):
    number, dtype, (x,) = drawn(case, 1)
    near(hosted[f"vector_{number}"](x), random_maps.VECTORS[f"vector_{number}"](np, x.astype("f8")), dtype)


@few
@given(case=cases)
def test_the_two_products_belong_together(hosted, case):
    number, dtype, (x, v, w) = drawn(case, 3)
    f = hosted[f"vector_{number}"]
    value, tangent = f.jvp(x, v)
    _, cotangent = f.vjp(x, w)
    assert value.dtype == tangent.dtype == cotangent.dtype == np.dtype(dtype)
    left, right = np.vdot(w, tangent), np.vdot(cotangent, v)
    sizes = np.linalg.norm(w) * np.linalg.norm(tangent) + np.linalg.norm(cotangent) * np.linalg.norm(v)
    assert abs(left - right) <= TOLERANCE[dtype] * max(1.0, sizes)
    with f.linearize(x) as J:
        near(J @ v, tangent, dtype)
        near(J.T @ w, cotangent, dtype)
        assert J.dottest()


@few
@given(case=cases, factor=st.floats(-8, 8).map(lambda x: round(x, 3)))
def test_products_are_linear_in_the_tangent(hosted, case, factor):
    number, dtype, (x, u, v) = drawn(case, 3)
    f = hosted[f"vector_{number}"]
    factor = np.dtype(dtype).type(factor)
    both = f.jvp(x, u + factor * v)[1]
    one, other = f.jvp(x, u)[1], f.jvp(x, v)[1]
    near(both, one + factor * other, dtype, scale=10 * float(np.abs(other).max(initial=0.0)))


@few
@given(case=cases)
def test_columns_of_the_jacobian_are_products(hosted, case):
    number, dtype, (x,) = drawn(case, 1)
    f = hosted[f"vector_{number}"]
    jacobian = f.jacobian(x)
    assert jacobian.shape == x.shape + x.shape
    basis = np.eye(x.size, dtype=dtype).reshape(x.size, *x.shape)
    columns = f.jvp(x, basis)[1]
    near(np.moveaxis(columns, 0, -1).reshape(jacobian.shape), jacobian, dtype)
    rows = f.vjp(x, basis)[1]
    near(rows.reshape(jacobian.shape), jacobian, dtype)


@few
@given(case=cases)
def test_hessians_are_symmetric_and_give_the_products(hosted, case):
    number, dtype, (x, v) = drawn(case, 2)
    f = hosted[f"scalar_{number}"]
    hessian = f.hessian(x).reshape(x.size, x.size)
    near(hessian.T, hessian, dtype)
    near(f.hvp(x, v), (hessian @ v.ravel()).reshape(x.shape), dtype, scale=float(np.abs(hessian).sum()))


@few
@given(case=cases)
def test_derivatives_are_those_of_differences(hosted, case):
    number, _, (x, v) = drawn((*case[:2], "f8", case[3]), 2)
    v /= np.linalg.norm(v)
    vector, scalar = random_maps.VECTORS[f"vector_{number}"], random_maps.SCALARS[f"scalar_{number}"]
    want = directional(lambda x: vector(np, x), x, v)
    size = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(hosted[f"vector_{number}"].jvp(x, v)[1], want, atol=1e-6 * size, rtol=0)
    slope = directional(lambda x: scalar(np, x), x, v)
    gradient = hosted[f"scalar_{number}"].grad(x)
    assert np.vdot(gradient, v) == pytest.approx(float(slope), rel=1e-6, abs=1e-6)


@few
@given(case=cases)
def test_a_row_at_a_time_is_all_at_once(hosted, case):
    number, dtype, rows = drawn(case, 3)
    f = hosted[f"scalar_{number}"]
    stacked = gw.vmap(gw.grad(f))(np.stack(rows))
    for row, got in zip(rows, stacked, strict=True):
        near(got, f.grad(row), dtype)
