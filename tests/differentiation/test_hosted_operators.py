"""Operators that exist already, hosted: SciPy's, PyLops', and the glue for Pyxu's.

Pyxu itself needs an environment of its own (it wants other versions of NumPy): what stands here for
its operators are small classes with their interface, so only how the parts are put together is shown.
"""

from __future__ import annotations

import numpy as np
import pytest
from differences import assert_close
from hand_maps import COMPLEX_MATRIX, MATRIX

import gradwire
from gradwire_service import Map

X = np.array([0.5, -1.0, 2.0])
Y = np.array([1.0, 0.25, -0.5, 3.0])


@pytest.mark.parametrize("name", ["of_matrix", "of_sparse"])
def test_a_matrix_is_a_map(hosted, name):
    f = hosted[name]
    assert_close(f(X), MATRIX @ X)
    assert_close(f.jacobian(X), MATRIX)
    assert_close(f.jacobian(X, mode="rev"), MATRIX)
    assert_close(f.vjp(X, Y)[1], MATRIX.T @ Y)
    with f.linearize(X) as J:
        assert_close(J.H @ Y, MATRIX.T @ Y)
        assert J.dottest()
        assert J.norm(rtol=1e-12) == pytest.approx(np.linalg.norm(MATRIX, 2), rel=1e-6)
    assert_close(gradwire.vmap(f)(np.stack([X, 2 * X])), np.stack([X, 2 * X]) @ MATRIX.T)


def test_a_complex_operator_has_a_transpose_and_an_adjoint(hosted):
    f = hosted["of_operator"]
    z, w = X + 1j, Y - 2j
    assert_close(f(z), COMPLEX_MATRIX @ z)
    assert_close(f.vjp(z, w)[1], COMPLEX_MATRIX.T @ w)
    assert_close(f.jacobian(z, holomorphic=True), COMPLEX_MATRIX)
    with f.linearize(z) as J:
        assert_close(J.T @ w, COMPLEX_MATRIX.T @ w)
        assert_close(J.H @ w, COMPLEX_MATRIX.conj().T @ w)
        assert_close(J.todense(), COMPLEX_MATRIX)
        assert J.dottest()


def test_hosted_operators_pass_the_check(hosted):
    for name in ("of_matrix", "of_sparse", "pyxu_averages", "pyxu_square", "pyxu_cubes"):
        dims = {"of_matrix": (3,), "of_sparse": (3,), "pyxu_cubes": (3,)}.get(name, (2, 3))
        report = hosted[name].check(np.random.default_rng(0).standard_normal(dims))
        assert report.ok, str(report)
        assert any(finding.outcome == "ok" for finding in report.findings)


def test_pylops_operators_act_on_arrays_of_their_dims():
    pylops = pytest.importorskip("pylops")
    gradient = pylops.FirstDerivative((4, 5), axis=1, kind="centered", edge=True)
    f = Map.from_pylops(gradient, name="derivative")
    image = np.random.default_rng(3).standard_normal((4, 5))
    assert_close(f(image), gradient @ image)
    assert_close(f.vjp(image, image)[1], gradient.H @ image)
    assert f.jacobian(image).shape == (4, 5, 4, 5)
    assert_close(f.jacobian(image).reshape(20, 20), gradient.todense())
    assert f.check(image).ok
    spectrum = Map.from_pylops(pylops.signalprocessing.FFT(8), name="spectrum")
    signal = np.random.default_rng(4).standard_normal(8) + 0j
    with spectrum.linearize(signal) as J:
        assert_close(J @ signal, np.fft.fft(signal, norm="ortho"))
        assert_close(J.H @ signal, np.fft.ifft(signal, norm="ortho"))
        assert J.dottest()


def test_the_glue_for_a_pyxu_linop(hosted):
    f = hosted["pyxu_averages"]
    x = np.arange(6.0).reshape(2, 3)
    assert_close(f(x), x.mean(axis=0))
    assert_close(f.vjp(x, X)[1], np.stack([X, X]) / 2)
    with f.linearize(x) as J:
        assert J.shape == (3, 6) and J.dottest()


def test_the_glue_for_a_pyxu_functional(hosted):
    f = hosted["pyxu_square"]
    x = np.arange(6.0).reshape(2, 3)
    assert_close(f(x), np.array([np.sum(x**2) / 2]))
    assert_close(f.jvp(x, np.ones((2, 3)))[1], np.array([x.sum()]))
    assert_close(f.vjp(x, np.array([2.0]))[1], 2 * x)
    assert_close(f.jacobian(x), x[None])


def test_the_glue_for_a_pyxu_map(hosted):
    f = hosted["pyxu_cubes"]
    assert_close(f.jacobian(X), np.diag(3 * X**2))
    with pytest.raises(gradwire.ArgumentError, match="derivatives") as caught:
        Map.from_pyxu(object(), name="nothing")
    assert caught.value.argument == "op"
