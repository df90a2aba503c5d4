"""Where no pattern is to be had the matrix is right all the same, and a warning says so."""

from __future__ import annotations

import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
import sparse_maps

import gradwire
from gradwire_service import Map
from gradwire_service.sparse import Undetected, detect


@pytest.mark.parametrize(
    ("name", "why"),
    [("spectrum", "fft"), ("solved", "custom_linear_solve"), ("called_back", "seen through")],
)
def test_dense_blocks_give_the_same_matrix_with_a_warning(hosted, random, name, why):
    x = random.standard_normal(8)
    with pytest.warns(gradwire.DenseFallbackWarning, match=why) as caught:
        found = hosted[name].jacobian(x, sparse=True)
    assert caught[0].filename == __file__
    np.testing.assert_allclose(found.toarray(), hosted[name].jacobian(x), atol=1e-13)
    if name == "called_back":
        assert found.nnz == 8  # what is zero is left out


def test_a_pattern_that_does_not_hold_is_found_out(hosted, random):
    x = random.standard_normal(6)
    with pytest.warns(gradwire.DenseFallbackWarning, match="does not hold"):
        found = hosted["wrong_rule"].jacobian(x, sparse=True)
    np.testing.assert_array_equal(found.toarray(), np.eye(6) + np.roll(np.eye(6), 1, axis=0))


def test_a_full_matrix_that_is_full_needs_no_warning(hosted, random):
    x = random.standard_normal(5)
    found = hosted["dense"].jacobian(x, sparse=True)
    np.testing.assert_allclose(found.toarray(), 2.0 * x + np.eye(5))


def test_more_columns_than_fit_a_block(random):
    x = random.standard_normal(700)
    with pytest.warns(gradwire.DenseFallbackWarning):
        found = sparse_maps.called_back.jacobian(x, sparse=True)
    np.testing.assert_array_equal(found.diagonal(), np.cos(x))
    assert found.nnz == 700


def test_indices_known_only_at_run_time(hosted, random):
    x, at = random.standard_normal(6), np.array([4, 0, 4])
    with pytest.warns(gradwire.DenseFallbackWarning):
        found = hosted["picked"].jacobian(x, at, sparse=True)
    assert found.nnz == 3
    np.testing.assert_allclose(found.toarray(), hosted["picked"].jacobian(x, at))


def test_derivatives_by_hand_are_made_sparse():
    by_hand = Map(
        lambda x: x**2,
        name="by_hand",
        arrays="numpy",
        jvp=lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]),
    )
    x = np.arange(6.0).reshape(2, 3)
    with pytest.warns(gradwire.DenseFallbackWarning, match="by hand"):
        found = by_hand.jacobian(x, sparse=True)
    assert found.shape == (6, 6) and found.nnz == 5
    np.testing.assert_array_equal(found.diagonal(), 2 * x.ravel())


def test_a_search_that_takes_too_long_or_too_much_is_ended():
    def large(x):
        return [jax.numpy.sum(x) * x]

    threads = threading.active_count()
    with pytest.raises(Undetected, match="more than 0"):
        detect(large, [np.zeros(20_000)], [], seconds=0.2)
    with pytest.raises(Undetected, match="MiB"):
        detect(large, [np.zeros(20_000)], [], most_bytes=1 << 20)
    assert threading.active_count() == threads


def test_a_matrix_that_is_too_large_is_refused_before_it_is_computed(lab):
    with pytest.raises(gradwire.AnswerTooLarge) as caught:
        lab["dense"].jacobian(np.ones(700), sparse=True)
    assert "bytes" in caught.value.expected
    with pytest.raises(gradwire.AnswerTooLarge):
        lab["spectrum_full"].jacobian(np.linspace(0, 1, 700), sparse=True)


def test_without_asdex_the_extra_is_named():
    script = """
import sys
sys.modules["asdex"] = None
import importlib.util, numpy
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "asdex" else find(name, *rest)
import gradwire
from gradwire_service import Map
from gradwire_service.http.native import FEATURES
assert "sparse" not in FEATURES
try:
    Map(lambda x: x, name="f").jacobian(numpy.ones(2), sparse=True)
except gradwire.NotDifferentiable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "gradwire[sparse]" in done.stdout


def test_without_scipy_the_extra_is_named():
    script = """
import sys
sys.modules["scipy"] = sys.modules["scipy.sparse"] = None
from gradwire._sparse import scipy_sparse
try:
    scipy_sparse()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "gradwire[sparse]" in done.stdout


def test_a_tracer_is_refused(random):
    with pytest.raises(gradwire.NotDifferentiable, match="outside of jit"):
        jax.jit(lambda x: sparse_maps.chain.jacobian(x, sparse=True))(random.standard_normal(3))
