"""Colourings: every entry of a matrix can be read from the sums of its columns (or rows) of one colour."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwire._sparse import Pattern
from gradwire_service.sparse import colour, detect


def pattern_of(matrix: np.ndarray) -> Pattern:
    found = scipy.sparse.csr_array(matrix)
    return Pattern.of(found.shape, found.indptr, found.indices)


def read_back(matrix: np.ndarray, axis: str, *, symmetric: bool = False) -> int:
    """How many colours it takes; after reading every entry of ``matrix`` from the sums."""
    found = colour(pattern_of(matrix), axis, symmetric=symmetric)
    chosen = (found.colours == np.arange(found.count)[:, None]).astype(float)
    sums = chosen @ (matrix if axis == "rows" else matrix.T)
    np.testing.assert_allclose(sums.ravel()[found.where], scipy.sparse.csr_array(matrix).data, atol=1e-12)
    return found.count


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 30),
    columns=st.integers(0, 30),
    density=st.sampled_from([0.02, 0.2, 0.7]),
    seed=st.integers(0, 10**6),
)
def test_any_matrix(rows, columns, density, seed):
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((rows, columns)) * (random.random((rows, columns)) < density)
    for axis in ("rows", "columns"):
        fullest = max(np.count_nonzero(matrix, axis=int(axis == "columns")), default=0)
        assert fullest <= read_back(matrix, axis) <= len(matrix if axis == "rows" else matrix.T)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 60), full=st.integers(0, 5), seed=st.integers(0, 10**6))
def test_any_symmetric_matrix(n, full, seed):
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((n, n)) * (random.random((n, n)) < 0.05)
    matrix[random.integers(0, n, full)] = 1.0
    matrix += matrix.T
    assert read_back(matrix, "columns", symmetric=True) <= read_back(matrix, "columns")


@pytest.mark.parametrize(("width", "colours"), [(0, 1), (1, 3), (2, 5)])
def test_a_band_takes_as_many_colours_as_it_is_wide(width, colours):
    matrix = sum(np.eye(50, k=k) for k in range(-width, width + 1))
    assert read_back(matrix, "columns") == read_back(matrix, "rows") == colours


def test_an_arrow_takes_two():
    matrix = np.eye(100)
    matrix[0] = matrix[:, 0] = 1.0
    assert read_back(matrix, "columns", symmetric=True) == 2
    assert read_back(matrix, "columns") == 100


def test_a_pattern_holds_at_every_point():
    """Found without computing: an entry that happens to be zero has its place."""
    found = detect(lambda x, y: [x * y, x[:2]], [np.zeros(3)], [np.zeros(3)])
    assert found.shape == (5, 3)
    np.testing.assert_array_equal(found.indptr, [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(found.indices, [0, 1, 2, 0, 1])
