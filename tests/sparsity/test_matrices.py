"""Sparse Jacobians and Hessians are the dense ones: here and remotely, for every kind of map and argument."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import sparse_maps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradwire


def assert_matrix(sparse: Any, dense: Any, rtol: float | None = None) -> None:
    """``sparse`` is a well-formed csr_array of the entries of ``dense``, whose shape is ravelled."""
    dense = np.asarray(dense)
    assert isinstance(sparse, scipy.sparse.csr_array)
    assert sparse.has_sorted_indices and sparse.has_canonical_format
    assert sparse.indices.dtype == sparse.indptr.dtype == np.int32
    assert sparse.dtype == dense.dtype
    flat = dense.reshape(sparse.shape)
    tolerance = rtol or {4: 1e-5, 8: 1e-12}[np.finfo(dense.dtype).dtype.itemsize]
    np.testing.assert_allclose(sparse.toarray(), flat, rtol=tolerance, atol=tolerance)


DTYPES = [np.float64, np.float32]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tridiagonal_jacobian_has_exactly_its_three_diagonals(hosted, random, dtype):
    x = random.standard_normal(40).astype(dtype)
    found = hosted["chain"].jacobian(x, sparse=True)
    one = np.ones(39, dtype)
    wanted = scipy.sparse.diags_array([one, -4 * x, 3 * one], offsets=[-1, 0, 1], dtype=dtype).tocsr()
    assert_matrix(found, wanted.toarray())
    assert found.nnz == 3 * 40 - 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tridiagonal_hessian_has_exactly_its_three_diagonals(hosted, random, dtype):
    x = random.standard_normal(40).astype(dtype)
    found = hosted["valley"].hessian(x, sparse=True)
    main = np.zeros(40)
    main[:-1] += 1200.0 * x[:-1].astype(float) ** 2 - 400.0 * x[1:] + 2.0
    main[1:] += 200.0
    off = -400.0 * x[:-1].astype(float)
    wanted = scipy.sparse.diags_array([off, main, off], offsets=[-1, 0, 1]).toarray()
    np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-5 if dtype is np.float32 else 1e-12)
    assert found.nnz == 3 * 40 - 2 and found.dtype == dtype
    np.testing.assert_array_equal(found.toarray(), found.toarray().T)


def test_an_arrow_has_no_more_than_its_entries(hosted, random):
    x = random.standard_normal(60)
    found = hosted["arrow"].hessian(x, sparse=True)
    wanted = np.diag(2.0 - x[0] * np.cos(x) * (np.arange(60) > 0))
    wanted[0, 1:] = wanted[1:, 0] = -np.sin(x[1:])
    assert_matrix(found, wanted)
    assert found.nnz == 3 * 60 - 2


def test_rows_and_columns_are_ravelled_in_c_order(hosted, random):
    u = random.standard_normal((4, 5))
    f = hosted["sheet"]
    found = f.jacobian(u, sparse=True)
    assert found.shape == (40, 20)
    assert_matrix(found, f.jacobian(u))
    neighbours = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(4, 4))
    along = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(5, 5))
    laplacian = scipy.sparse.kronsum(along, neighbours) - 4.0 * scipy.sparse.eye_array(20)
    np.testing.assert_array_equal(found[:20].toarray(), laplacian.toarray())
    np.testing.assert_allclose(found[20:].diagonal(), 2.0 * u.ravel())


def test_it_is_what_differences_say(hosted, random):
    x = random.standard_normal(12)
    by_differences = scipy.optimize.approx_fprime(x, hosted["chain"], 1e-7)
    np.testing.assert_allclose(hosted["chain"].jacobian(x, sparse=True).toarray(), by_differences, atol=1e-5)
    gradient = scipy.optimize.approx_fprime(x, hosted["valley"].grad, 1e-7)
    np.testing.assert_allclose(hosted["valley"].hessian(x, sparse=True).toarray(), gradient, atol=2e-3)


def test_several_arguments_nest_blocks_as_the_dense_ones(hosted, random):
    x, y = random.standard_normal((2, 6))
    f, g = hosted["product"], hosted["scalar_product"]
    for argnums in ((0, 1), (1, 0), (1,), [0, 1]):
        found, dense = f.jacobian(x, y, argnums=argnums, sparse=True), f.jacobian(x, y, argnums=argnums)
        assert type(found) is type(dense) and len(found) == len(dense)
        for block, wanted in zip(found, dense, strict=True):
            assert_matrix(block, wanted)
            assert block.nnz == 6
        found, dense = g.hessian(x, y, argnums=argnums, sparse=True), g.hessian(x, y, argnums=argnums)
        for row, wanted_row in zip(found, dense, strict=True):
            assert type(row) is type(wanted_row)
            for block, wanted in zip(row, wanted_row, strict=True):
                assert_matrix(block, wanted)
    assert_matrix(f.jacobian(x, y, argnums=-1, sparse=True), f.jacobian(x, y, argnums=1))


def test_pytrees_nest_as_the_dense_ones(hosted, random):
    p = {
        "a": random.standard_normal((2, 4)),
        "b": random.standard_normal(3).astype(np.float32).astype(float),
        "scale": 2.0,
        "count": np.int64(3),
    }
    for found, dense in (
        (hosted["tree"].jacobian(p, sparse=True), hosted["tree"].jacobian(p)),
        (hosted["total"].hessian(p, sparse=True), hosted["total"].hessian(p)),
    ):
        flat, structure = jax.tree_util.tree_flatten(found, is_leaf=scipy.sparse.issparse)
        wanted, same = jax.tree_util.tree_flatten(dense)
        assert structure == same
        for block, want in zip(flat, wanted, strict=True):
            np.testing.assert_allclose(block.toarray(), np.reshape(want, block.shape), rtol=1e-12)
    assert found["a"]["a"].shape == (8, 8) and found["a"]["b"].nnz == 0
    assert found["count"] is None and found["a"]["count"] is None


def test_a_mode_is_kept_to_and_only_one_that_exists_is_used(hosted, random):
    x = random.standard_normal(9)
    for mode in ("fwd", "rev"):
        assert_matrix(hosted["chain"].jacobian(x, mode=mode, sparse=True), hosted["chain"].jacobian(x))
    assert_matrix(hosted["loop"].jacobian(x, sparse=True), hosted["loop"].jacobian(x, mode="fwd"))
    assert_matrix(hosted["reverse_only"].jacobian(x, sparse=True), np.diag(3 * x**2))
    with pytest.raises(gradwire.NotDifferentiable):
        hosted["loop"].jacobian(x, mode="rev", sparse=True)
    with pytest.raises(gradwire.NotDifferentiable):
        hosted["reverse_only"].jacobian(x, mode="fwd", sparse=True)


def test_complex_matrices_are_the_dense_ones(hosted, random):
    x = random.standard_normal(7)
    z = x + 1j * random.standard_normal(7)
    assert_matrix(hosted["to_complex"].jacobian(x, sparse=True), hosted["to_complex"].jacobian(x))
    assert_matrix(hosted["to_real"].jacobian(z, sparse=True), hosted["to_real"].jacobian(z))
    f = hosted["holomorphic"]
    found = f.jacobian(z, sparse=True, holomorphic=True)
    assert_matrix(found, np.diag(2 * z) + 1j * np.roll(np.eye(7), 1, axis=0))
    with pytest.raises(gradwire.NotDifferentiable, match="holomorphic"):
        f.jacobian(z, sparse=True)
    with pytest.raises(gradwire.NotDifferentiable, match="holomorphic"):
        hosted["not_holomorphic"].jacobian(z, sparse=True, holomorphic=True)


def test_transforms_are_maps_too(hosted, random):
    x, rows = random.standard_normal(6), random.standard_normal((3, 6))
    assert_matrix(
        gradwire.grad(hosted["valley"]).jacobian(x, sparse=True), hosted["valley"].hessian(x), rtol=1e-10
    )
    many = gradwire.vmap(hosted["chain"]).jacobian(rows, sparse=True)
    assert_matrix(many, gradwire.vmap(hosted["chain"]).jacobian(rows))
    assert many.nnz == 3 * (3 * 6 - 2)
    third = gradwire.jacobian(gradwire.grad(hosted["valley"])).jacobian(x, sparse=True)
    assert_matrix(third, gradwire.jacobian(gradwire.grad(hosted["valley"])).jacobian(x))
    assert third.shape == (36, 6)


def test_a_hessian_is_that_of_a_scalar_map(hosted, random):
    x = random.standard_normal(4)
    with pytest.raises(gradwire.NotDifferentiable, match=r"gradwire\.jacobian\(f\)\.jacobian"):
        hosted["chain"].hessian(x, sparse=True)
    second = gradwire.jacobian(hosted["chain"]).jacobian(x, sparse=True)
    np.testing.assert_allclose(second.toarray().reshape(4, 4, 4), hosted["chain"].hessian(x))


def test_small_and_empty_matrices(hosted):
    for n in (0, 1, 2):
        x = np.ones(n)
        assert_matrix(hosted["product"].jacobian(x, x, sparse=True), np.diag(np.cos(x)))
    number = hosted["total"].hessian({"a": np.zeros((0, 2)), "b": np.ones(1)}, sparse=True)
    assert number["a"]["b"].shape == (0, 1) and number["b"]["b"].toarray().tolist() == [[0.0]]


def test_statics_and_shapes_have_patterns_of_their_own(hosted, random):
    x = random.standard_normal(10)
    f = hosted["scattered"]
    found = [f.jacobian(x, seed=seed, rows=8, density=0.2, sparse=True) for seed in (1, 3, 1)]
    assert not np.array_equal(found[0].indices, found[1].indices)
    np.testing.assert_array_equal(found[0].toarray(), found[2].toarray())
    assert f.jacobian(x[:6], seed=1, rows=8, density=0.2, sparse=True).shape == (8, 6)


def test_a_policy_decides_the_dtype(hosted, random):
    x = random.standard_normal(5)
    f = hosted["chain"].using(precision="compute=float64,output=float32")
    assert f.jacobian(x, sparse=True).dtype == np.float32
    half = hosted["chain"].jacobian(x.astype(np.float16), sparse=True)
    assert half.dtype == np.float32  # SciPy has no narrower one
    np.testing.assert_allclose(half.toarray(), hosted["chain"].jacobian(x), rtol=2e-3)


def test_what_is_not_finite_stays_in_its_row(hosted):
    found = hosted["chain"].jacobian(np.array([1.0, 2.0, 3.0, np.nan, np.inf, 4.0]), sparse=True).toarray()
    assert np.isnan(found[3, 3]) and found[4, 4] == -np.inf
    np.testing.assert_array_equal(found[:3], hosted["chain"].jacobian(np.array([1.0, 2, 3, 0, 0, 0]))[:3])
    np.testing.assert_array_equal(found[5], [0, 0, 0, 0, 1, -16])
    with pytest.raises(gradwire.MapFailed, match=r"the first at \(1, 0\)"):
        hosted["chain"].using(nonfinite="raise").jacobian(np.array([1.0, np.inf, 2.0, 3.0]), sparse=True)


def test_jax_arrays_give_scipy_matrices_too(hosted):
    found = hosted["chain"].jacobian(jnp.linspace(0, 1, 5), sparse=True)
    assert isinstance(found, scipy.sparse.csr_array)
    assert found.dtype == np.float32


def test_matrices_share_memory_with_nothing(hosted, random):
    x = random.standard_normal(30)
    first = hosted["chain"].jacobian(x, sparse=True)
    for array in (first.data, first.indices, first.indptr):
        assert array.flags.writeable
        array[:] = 0
    assert_matrix(hosted["chain"].jacobian(x, sparse=True), hosted["chain"].jacobian(x))


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    shape=st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple),
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 9),
    density=st.sampled_from([0.05, 0.3, 0.9]),
    dtype=st.sampled_from(DTYPES),
    mode=st.sampled_from(["auto", "fwd", "rev"]),
)
def test_random_sparse_maps_of_any_rank(shape, seed, rows, density, dtype, mode):
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    given = {"seed": seed, "rows": rows, "density": density}
    f = sparse_maps.scattered
    found = f.jacobian(x, mode=mode, sparse=True, **given)
    assert found.shape == (rows, math.prod(shape))
    dense = np.asarray(f.jacobian(x, **given))
    assert_matrix(found, dense)
    row, column = sparse_maps.structure(seed, rows, x.size, density)
    allowed = {*zip(row, column, strict=True), *zip(row, (column * 7 + 1) % x.size, strict=True)}
    assert {*zip(*found.nonzero(), strict=True)} <= allowed


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(DTYPES))
def test_random_sparse_maps_remotely(lab, seed, dtype):
    x = np.random.default_rng(seed).standard_normal((3, 4)).astype(dtype)
    given = {"seed": seed, "rows": 7, "density": 0.2}
    found = lab["scattered"].jacobian(x, sparse=True, **given)
    assert_matrix(found, np.asarray(sparse_maps.scattered.jacobian(x, **given)))
