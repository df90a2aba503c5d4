"""Complex maps in the four directions, for every operation."""

from __future__ import annotations

import jax
import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, differences, jitted

import gradwire

X = np.array([0.3, -1.2])
Z = np.array([0.5 + 1j, -1.0 + 0.25j])
V = np.array([1.0, -0.5])
U = np.array([1.0 + 2j, -0.5j])

# map, point, direction of the derivative
DIRECTIONS = {
    "R→C": ("wave", X),
    "C→R": ("magnitude", Z),
    "C→C holomorphic": ("holomorphic", Z),
    "C→C": ("mirrored", Z),
}


def real_jacobian(f, z):
    """As a map of real and imaginary parts to real and imaginary parts, by differences."""
    n = z.size
    parts = np.concatenate([z.real, z.imag])
    J = differences(lambda p: f(p[:n] + 1j * p[n:]), parts)
    return J[:, :n], J[:, n:]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_jvp_and_vjp_always_work(hosted, direction):
    name, point = DIRECTIONS[direction]
    f, plain = hosted[name], getattr(maps, name)
    tangent = U if np.iscomplexobj(point) else V
    got = f.jvp(point, tangent)
    assert_same(got, jitted(lambda x, v: jax.jvp(plain, (x,), (v,)), point, tangent))
    cotangent = U if np.iscomplexobj(got[0]) else V

    def of(x, w):
        value, pull = jax.vjp(plain, x)
        return value, pull(w)[0]

    assert_same(f.vjp(point, cotangent), jitted(of, point, cotangent))
    if np.iscomplexobj(point):
        by_real, by_imaginary = real_jacobian(plain_numpy(name), point)
        np.testing.assert_allclose(got[1], by_real @ tangent.real + by_imaginary @ tangent.imag, atol=1e-7)


def plain_numpy(name):
    return {
        "magnitude": lambda z: np.abs(z) ** 2 * z.real,
        "holomorphic": lambda z: z**3 + 2j * z,
        "mirrored": lambda z: z * z.conj() + z.conj(),
    }[name]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_four_views_of_a_linearization(hosted, direction):
    name, point = DIRECTIONS[direction]
    f = hosted[name]
    with f.linearize(point) as J:
        v = U if np.iscomplexobj(point) else V
        w = U[::-1].copy() if np.iscomplexobj(J.value) else V[::-1].copy()
        forward, back = f.jvp(point, v)[1], f.vjp(point, w)[1]
        assert_close(J @ v, forward)
        assert_close(J.T @ w, back)
        assert_close(w @ J, back)
        assert_close(J.vjp(w), back)
        assert_close(J.H @ w, np.conj(J.T @ np.conj(w)))
        assert_close(J.H.T @ v, np.conj(J @ np.conj(v)))
        assert_close(J.H.H @ v, forward)
        assert_close(J.T.T @ v, forward)
        assert_close(J.T.H @ v, np.conj(J @ np.conj(v)))
        assert_close(J.matvec(v), J @ v)
        assert_close(J.rmatvec(w), J.H @ w)
        assert J.H.shape == J.T.shape == J.shape[::-1]
        # JAX's transpose: real parts of the two pairings agree.
        assert np.real(w @ forward) == pytest.approx(np.real(back @ v), rel=1e-13)
        # The adjoint: real parts of the two inner products agree.
        assert np.real(np.vdot(w, J @ v)) == pytest.approx(np.real(np.vdot(J.H @ w, v)), rel=1e-13)


def test_jacobian_from_real_to_complex_goes_forward(hosted):
    f = hosted["wave"]
    assert_same(f.jacobian(X), jitted(jax.jacfwd(maps.wave), X))
    assert_close(f.jacobian(X), np.diag(np.exp(1j * X) * (1 + 1j * X)))
    assert_same(f.jacobian(X, mode="fwd"), f.jacobian(X))
    assert_same(gradwire.jacobian(f)(X), f.jacobian(X))
    for ask in (lambda: f.jacobian(X, mode="rev"), lambda: gradwire.jacrev(f)(X)):
        with pytest.raises(gradwire.NotDifferentiable):
            ask()
    with f.linearize(X) as J:
        assert J.dtype == np.complex128
        assert_close(J.todense(), f.jacobian(X))
        assert_close(J.H.todense(), f.jacobian(X).conj().T)


def test_jacobian_from_complex_to_real_goes_backward(hosted):
    f = hosted["magnitude"]
    assert_same(f.jacobian(Z), jitted(jax.jacrev(maps.magnitude), Z))
    assert_same(f.jacobian(Z, mode="rev"), f.jacobian(Z))
    by_real, by_imaginary = real_jacobian(plain_numpy("magnitude"), Z)
    np.testing.assert_allclose(f.jacobian(Z), by_real - 1j * by_imaginary, atol=1e-7)
    for ask in (lambda: f.jacobian(Z, mode="fwd"), lambda: gradwire.jacfwd(f)(Z)):
        with pytest.raises(gradwire.NotDifferentiable):
            ask()
    with f.linearize(Z) as J:
        assert_close(J.todense(), f.jacobian(Z))


def test_jacobian_from_complex_to_complex_must_be_promised_holomorphic(hosted):
    f = hosted["holomorphic"]
    assert_close(f.jacobian(Z, holomorphic=True), np.diag(3 * Z**2 + 2j))
    assert_same(f.jacobian(Z, holomorphic=True), jitted(jax.jacfwd(maps.holomorphic, holomorphic=True), Z))
    for mode in ("fwd", "rev"):
        assert_close(f.jacobian(Z, mode=mode, holomorphic=True), np.diag(3 * Z**2 + 2j))
    for transform in (gradwire.jacfwd, gradwire.jacrev, gradwire.jacobian):
        assert_close(transform(f, holomorphic=True)(Z), np.diag(3 * Z**2 + 2j))
    for ask in (
        lambda: f.jacobian(Z),
        lambda: f.jacobian(Z, mode="fwd"),
        lambda: f.jacobian(Z, mode="rev"),
        lambda: hosted["mirrored"].jacobian(Z),
        lambda: gradwire.jacfwd(f)(Z),
        lambda: gradwire.jacobian(f)(Z),
    ):
        with pytest.raises(gradwire.NotDifferentiable) as caught:
            ask()
        assert caught.value.map in ("holomorphic", "mirrored")


def test_a_linearization_knows_whether_it_is_complex_linear(hosted):
    with hosted["holomorphic"].linearize(Z) as J:
        assert_close(J.todense(), np.diag(3 * Z**2 + 2j))
    with hosted["mirrored"].linearize(Z) as J:
        with pytest.raises(gradwire.NotDifferentiable, match="not holomorphic") as caught:
            J.todense()
        assert caught.value.map == "mirrored"
        assert_close(J @ U, 2 * np.real(Z.conj() * U) + U.conj())


def test_holomorphic_is_refused_for_real_maps(hosted):
    for ask in (
        lambda: hosted["bend"].jacobian(X, holomorphic=True),
        lambda: hosted["valley"].grad(X, holomorphic=True),
        lambda: hosted["intensity"].grad(Z, holomorphic=True),
    ):
        with pytest.raises(gradwire.NotDifferentiable):
            ask()


def test_the_gradient_of_a_real_number_points_down_along_its_conjugate(hosted):
    f = hosted["intensity"]
    g = f.grad(Z)
    assert_same(g, jitted(jax.grad(maps.intensity), Z))
    assert_close(g, 2 * Z.real - 1j * (2 * Z.imag + 3 * Z.imag**2))
    assert f(Z - 1e-3 * np.conj(g)) < f(Z)
    assert f(Z - 1e-6 * np.conj(g)) == pytest.approx(f(Z) - 1e-6 * np.vdot(g, g).real, rel=1e-10)
    assert_same(f.value_and_grad(Z), jitted(jax.value_and_grad(maps.intensity), Z))


def test_second_derivatives_of_a_real_number_of_complex_ones(hosted):
    f = hosted["intensity"]
    with pytest.raises(gradwire.NotDifferentiable):
        f.hessian(Z)  # as in JAX: forward over reverse has no mode left
    want = jitted(lambda z, u: jax.jvp(jax.grad(maps.intensity), (z,), (u,))[1], Z, U)
    assert_same(f.hvp(Z, U), want)
    assert_close(f.hvp(Z, U), 2 * U.real - 1j * (2 * U.imag + 6 * Z.imag * U.imag))


def test_a_holomorphic_number(hosted):
    f = hosted["holomorphic_sum"]
    assert_close(f.grad(Z, holomorphic=True), 3 * Z**2)
    assert_close(f.value_and_grad(Z, holomorphic=True)[1], 3 * Z**2)
    assert_close(gradwire.hessian(f, holomorphic=True)(Z), np.diag(6 * Z))
    with pytest.raises(gradwire.NotDifferentiable):
        f.grad(Z)
    with pytest.raises(gradwire.NotDifferentiable):
        f.hessian(Z)


def test_complex64_is_computed_in_single_precision(hosted):
    z = Z.astype("c8")
    assert_same(hosted["holomorphic"](z), jitted(maps.holomorphic, z, x64=False))
    assert hosted["intensity"].grad(z).dtype == np.complex64
    assert hosted["magnitude"](z).dtype == np.float32
    assert hosted["holomorphic"].using(precision="float64")(z).dtype == np.complex128


def test_a_gradient_needs_a_real_number(hosted):
    for ask in (
        lambda: gradwire.grad(hosted["wave"])(np.float64(1)),
        lambda: hosted["wave"].grad(np.float64(1)),
    ):
        with pytest.raises(gradwire.NotDifferentiable, match="real"):
            ask()


def test_complex_stacks(hosted):
    stack = np.stack([U, 1j * U, U + 1])
    with hosted["mirrored"].linearize(Z) as J:
        for row, u in zip(J.jvp(stack), stack, strict=True):
            assert_close(row, J @ u)
        columns = J.matmat(stack.T)
        assert_close(columns.T, J.jvp(stack))
        assert_close(J.rmatmat(stack.T).T, np.stack([J.H @ u for u in stack]))
