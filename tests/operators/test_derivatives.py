"""Every derivative against JAX itself, against closed forms, and against differences."""

from __future__ import annotations

import jax
import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, differences, jitted

import gradwire

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.25])
V = np.array([1.0, -0.5, 0.25])
W = np.array([0.5, 2.0, -1.0, 0.75])
EYE = np.eye(3)


def test_jacobian_is_jaxs_in_either_mode(hosted):
    f = hosted["bend"]
    assert_same(f.jacobian(X), jitted(jax.jacfwd(maps.bend), X))
    assert_same(f.jacobian(X, mode="fwd"), jitted(jax.jacfwd(maps.bend), X))
    assert_same(f.jacobian(X, mode="rev"), jitted(jax.jacrev(maps.bend), X))
    assert_same(f.jacobian(X.astype("f4")), jitted(jax.jacfwd(maps.bend), X.astype("f4"), x64=False))


def test_jacobian_has_the_values_shape_and_then_the_arguments(hosted):
    a = np.random.default_rng(2).standard_normal((2, 3))
    assert hosted["fold"].jacobian(a).shape == (3, 2, 3)
    assert hosted["outer"].jacobian(X, Y).shape == (3, 2, 3)
    assert hosted["outer"].jacobian(X, Y, argnums=1).shape == (3, 2, 2)
    assert hosted["valley"].jacobian(X).shape == (3,)
    assert_same(hosted["fold"].jacobian(a), jitted(jax.jacrev(maps.fold), a))


def test_jacobian_agrees_with_closed_forms_and_differences(hosted):
    closed = np.vstack([np.diag(np.cos(X) * X + np.sin(X)), 2 * X])
    assert_close(hosted["bend"].jacobian(X), closed)
    np.testing.assert_allclose(hosted["bend"].jacobian(X), differences(hosted["bend"], X), atol=1e-8)


def test_a_derivative_agrees_with_the_complex_step(hosted):
    h = 1e-30
    value = (0.7 + 1j * h) ** 3 * np.sin(0.7 + 1j * h)
    assert hosted["cubic"].grad(np.float64(0.7)) == pytest.approx(value.imag / h, rel=1e-15)


def test_an_unknown_mode_is_refused(hosted):
    with pytest.raises(gradwire.ArgumentError, match="no such mode") as caught:
        hosted["bend"].jacobian(X, mode="forward")
    assert caught.value.argument == "mode" and caught.value.got == "'forward'"


def test_jvp_is_jaxs(hosted):
    want = jitted(lambda x, v: jax.jvp(maps.bend, (x,), (v,)), X, V)
    assert_same(hosted["bend"].jvp(X, V), want)
    assert_same(hosted["bend"].jvp((X,), (V,)), want)
    want = jitted(lambda x, y, v, w: jax.jvp(maps.outer, (x, y), (v, w)), X, Y, V, Y)
    assert_same(hosted["outer"].jvp((X, Y), (V, Y)), want)


def test_vjp_is_jaxs(hosted):
    def of(x, w):
        value, pull = jax.vjp(maps.bend, x)
        return value, pull(w)[0]

    assert_same(hosted["bend"].vjp(X, W), jitted(of, X, W))
    value, (cotangent,) = hosted["bend"].vjp((X,), W)
    assert_same((value, cotangent), jitted(of, X, W))


def test_jvp_and_vjp_are_products_with_the_jacobian(hosted):
    J = hosted["bend"].jacobian(X)
    assert_close(hosted["bend"].jvp(X, V)[1], J @ V)
    assert_close(hosted["bend"].vjp(X, W)[1], W @ J)
    assert_close(W @ hosted["bend"].jvp(X, V)[1], hosted["bend"].vjp(X, W)[1] @ V)


def test_grad_and_value_and_grad_are_jaxs(hosted):
    assert_same(hosted["valley"].grad(X), jitted(jax.grad(maps.valley), X))
    assert_same(hosted["valley"].value_and_grad(X), jitted(jax.value_and_grad(maps.valley), X))
    x = X.astype("f4")
    assert_same(hosted["valley"].value_and_grad(x), jitted(jax.value_and_grad(maps.valley), x, x64=False))
    assert_same(hosted["valley"].grad(np.ones(4)), np.zeros(4))


def test_hessian_is_jaxs_of_scalar_and_vector_maps(hosted):
    assert_same(hosted["valley"].hessian(X), jitted(jax.hessian(maps.valley), X))
    H = hosted["bend"].hessian(X)
    assert H.shape == (4, 3, 3)
    assert_same(H, jitted(jax.hessian(maps.bend), X))
    assert_close(H[3], 2 * EYE)


def test_hvp_is_the_hessian_times_a_vector(hosted):
    H = hosted["valley"].hessian(X)
    assert_close(hosted["valley"].hvp(X, V), H @ V)
    (product,) = hosted["valley"].hvp((X,), (V,))
    assert_same(product, hosted["valley"].hvp(X, V))
    want = jitted(lambda x, v: jax.jvp(jax.grad(maps.valley), (x,), (v,))[1], X, V)
    assert_same(product, want)


@pytest.mark.parametrize("operation", ["grad", "value_and_grad"])
def test_a_gradient_needs_a_number(hosted, operation):
    with pytest.raises(gradwire.NotDifferentiable, match="scalar") as caught:
        getattr(hosted["bend"], operation)(X)
    assert caught.value.map == "bend"
    with pytest.raises(gradwire.NotDifferentiable):
        getattr(hosted["identity"], operation)(np.ones(1))  # shape (1,) is no number, in JAX too
    with pytest.raises(gradwire.NotDifferentiable):
        hosted["bend"].hvp(X, V)


# Maps that have one mode only.


def test_a_loop_of_unknown_length_goes_forward(hosted):
    f = hosted["looped"]
    # From 0.3 + 0.2 it takes eight steps until the sum is 10.
    x = np.array([0.3, 0.2])
    assert_close(f.jacobian(x), 1.5**8 * np.eye(2))
    assert_same(f.jacobian(x), f.jacobian(x, mode="fwd"))
    # Wide, where size alone would choose reverse mode.
    summed = gradwire.jacobian(f)
    assert_close(summed(x), 1.5**8 * np.eye(2))
    assert_close(f.jvp(x, x)[1], 1.5**8 * x)
    for refused in (
        lambda: f.jacobian(x, mode="rev"),
        lambda: f.vjp(x, x),
        lambda: gradwire.jacrev(f)(x),
    ):
        with pytest.raises(gradwire.NotDifferentiable, match="Reverse-mode") as caught:
            refused()
        assert caught.value.map == "looped"
    with f.linearize(x) as J:
        assert_close(J @ x, 1.5**8 * x)
        assert_close(J.todense(), 1.5**8 * np.eye(2))


def test_a_reverse_rule_by_hand_goes_backward(hosted):
    f = hosted["clipped"]
    x = np.array([0.3, 3.0])
    clipped = np.diag(np.clip(np.cos(x), -0.5, 0.5))
    assert_close(f.jacobian(x), clipped)
    assert_same(f.jacobian(x), f.jacobian(x, mode="rev"))
    assert_close(f.vjp(x, np.array([0.1, 0.1]))[1], 0.1 * np.cos(x))
    for refused in (
        lambda: f.jacobian(x, mode="fwd"),
        lambda: f.jvp(x, x),
        lambda: gradwire.jacfwd(f)(x),
    ):
        with pytest.raises(gradwire.NotDifferentiable, match="forward-mode") as caught:
            refused()
        assert caught.value.map == "clipped"
    with f.linearize(x) as J:
        assert_close(J.T @ np.array([0.1, 0.1]), 0.1 * np.cos(x))


def test_integers_have_no_derivative(hosted):
    for refused in (
        lambda: hosted["total"].jacobian(np.arange(3)),
        lambda: hosted["total"].jvp(np.arange(3), np.arange(3)),
        lambda: hosted["total"].grad(np.arange(3)),
        lambda: hosted["total"].linearize(np.arange(3)),
        lambda: hosted["floor"].jacobian(X),
        lambda: hosted["floor"].hessian(X),
    ):
        with pytest.raises(gradwire.NotDifferentiable):
            refused()


def test_a_value_of_integers_has_no_tangent(hosted):
    assert_same(hosted["floor"].jvp(X, V), (np.floor(X).astype("i4"), None))
    _, cotangent = hosted["floor"].vjp(X, None)
    assert_same(cotangent, np.zeros(3))
