"""Complex maps in the four directions, on complex arrays and on real pairs, against differences of values."""

from __future__ import annotations

import numpy as np
import pytest
from differences import assert_close, assert_same, directional, in_pairs, jacobian, joined, pairs

import gradwire as gw

Z = np.array([0.5 + 1.0j, -1.0 + 0.25j, 0.75 - 0.5j])
U = np.array([1.0 + 2.0j, -0.5j, 0.25 + 0.0j])
W = np.array([0.5 - 1.0j, 2.0 + 0.25j, 1.0j])
X = np.array([0.3, -1.2, 2.5])
V = np.array([1.0, -0.5, 0.25])

NUMPY = {
    "square": lambda z: z**2,
    "twisted": lambda z: z * np.conj(z) + np.conj(z),
    "power": lambda z: np.sum(np.abs(z) ** 4),
    "phase": lambda x: np.exp(1j * x),
}
TRACED = ("square", "twisted", "power", "phase")
COMPLEX = ("square", "twisted", "power", "hand_square", "hand_twisted", "hand_power")
EVERY = (*TRACED, "hand_square", "hand_twisted", "hand_power", "hand_phase")


def plain(name):
    return NUMPY[name.removeprefix("hand_").removeprefix("reverse_")]


def point(name):
    return X if name.endswith("phase") else Z


def real_jacobian(name):
    """(…, 2, n, 2) (without the 2 where something is real): the derivative of real parts in real parts."""
    f = plain(name)
    if name.endswith("phase"):
        return jacobian(lambda x: pairs(f(x)), X)
    return jacobian(in_pairs(f), pairs(Z))


def vectors(name):
    """A tangent and a cotangent."""
    value = np.asarray(plain(name)(point(name)))
    w = W if np.iscomplexobj(value) else np.float64(0.7)
    return (V if name.endswith("phase") else U), w


def as_pairs(array):
    return pairs(array) if np.iscomplexobj(array) else np.asarray(array)


@pytest.mark.parametrize("name", EVERY)
def test_products_are_those_of_real_and_imaginary_parts(hosted, name):
    f, z = hosted[name], point(name)
    v, w = vectors(name)
    J = real_jacobian(name)
    value, tangent = f.jvp(z, v)
    assert_close(value, plain(name)(z))
    flat = as_pairs(v)
    assert_close(as_pairs(tangent), np.tensordot(J, flat, flat.ndim), tol=1e-9)
    # JAX's pairing: Re(w·Jv) = Re(Jᵀw·v). Of the real pairs of w and of the answer, both conjugates.
    _, cotangent = f.vjp(z, w)
    back = np.tensordot(as_pairs(np.conj(w)), J, np.ndim(as_pairs(w)))
    assert_close(as_pairs(np.conj(cotangent)), back, tol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_the_transpose_and_the_adjoint(hosted, name):
    v, w = vectors(name)
    J = real_jacobian(name)
    with hosted[name].linearize(point(name)) as kept:
        # The adjoint is the transpose of the real pairs' matrix.
        back = np.tensordot(as_pairs(w), J, np.ndim(as_pairs(w)))
        assert_close(as_pairs(kept.H @ w), back, tol=1e-9)
        assert_close(kept.H @ w, np.conj(kept.T @ np.conj(w)))
        assert_close(kept.T.H @ v, np.conj(kept @ np.conj(v)))
        assert np.real(np.vdot(w, kept @ v)) == pytest.approx(np.real(np.vdot(kept.H @ w, v)), rel=1e-12)
        assert kept.dottest()


def test_the_complex_step_says_the_same(hosted):
    # Of an analytic function with real values on the real axis: Im f(x + ih v) / h, exact to rounding.
    f = hosted["square"]
    h = 1e-30
    got = f.jvp(X + 0j, V + 0j)[1]
    np.testing.assert_allclose(got.real, np.imag(f(X + 1j * h * V)) / h, rtol=1e-14)
    assert not got.imag.any()


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "f8") for name in COMPLEX), ("twisted", "f4"), ("hand_power", "f4")]
)
def test_real_pairs(hosted, name, dtype):
    f = hosted[name].using(complex_as="real_pairs")
    tol = 1e-9 if dtype == "f8" else 2e-5
    z, v, w = (pairs(a).astype(dtype) for a in (Z, U, W))
    J = real_jacobian(name).astype(dtype)
    value = as_pairs(plain(name)(Z)).astype(dtype)
    w = w if value.ndim else np.asarray(0.7, dtype)
    assert_close(f(z), value, tol=tol)
    for mode in ("auto", "fwd", "rev"):
        assert_close(f.jacobian(z, mode=mode), J, tol=tol)
    assert_close(f.jvp(z, v)[1], np.tensordot(J, v, 2), tol=tol)
    assert_close(f.vjp(z, w)[1], np.tensordot(w, J, w.ndim), tol=tol)
    stack = np.stack([v, 2 * v])
    assert_close(f.jvp(z, stack)[1][1], 2 * np.tensordot(J, v, 2), tol=tol)
    with f.linearize(z) as kept:
        assert kept.dtype == np.dtype(dtype)
        assert_close(kept @ v, np.tensordot(J, v, 2), tol=tol)
        assert_close(kept.T @ w, np.tensordot(w, J, w.ndim), tol=tol)
        assert_close(kept.H @ w, kept.T @ w, tol=tol)
        assert_close(kept.todense(), J, tol=tol)
        assert kept.dottest()


@pytest.mark.parametrize("name", ["power", "hand_power"])
def test_second_order_on_real_pairs(hosted, name):
    f, z, v = hosted[name].using(complex_as="real_pairs"), pairs(Z), pairs(U)

    def gradient(p):
        return 4 * np.sum(p**2, axis=-1, keepdims=True) * p

    assert_close(f.grad(z), gradient(z))
    assert_close(gw.grad(f)(z), gradient(z))
    assert_close(f.hvp(z, v), directional(gradient, z, v), tol=1e-7 if name == "hand_power" else 1e-9)
    if name == "power":
        assert_close(f.hessian(z), jacobian(gradient, z), tol=1e-9)
        assert_close(gw.jacfwd(gw.grad(f))(z), jacobian(gradient, z), tol=1e-9)


def test_real_pairs_under_vmap(hosted):
    for name in ("twisted", "hand_twisted"):
        f = gw.vmap(hosted[name].using(complex_as="real_pairs"))
        rows = np.stack([pairs(Z), pairs(W)])
        got = gw.vmap(gw.jacobian(hosted[name].using(complex_as="real_pairs")))(rows)
        assert_close(got[0], real_jacobian(name), tol=1e-9)
        assert_close(f(rows)[1], pairs(plain(name)(W)))
        assert f.jacobian(rows).shape == (2, 3, 2, 2, 3, 2)


def test_only_what_is_declared_complex_comes_in_pairs(hosted):
    f = hosted["weighted"].using(complex_as="real_pairs")
    assert_close(f(pairs(Z), X), pairs(np.conj(Z) * X**2))
    by_z, by_x = f.jacobian(pairs(Z), X, argnums=(0, 1))
    assert by_z.shape == (3, 2, 3, 2) and by_x.shape == (3, 2, 3)
    assert_close(by_x, jacobian(lambda x: pairs(np.conj(Z) * x**2), X), tol=1e-9)
    assert_close(by_z, jacobian(in_pairs(lambda z: np.conj(z) * X**2), pairs(Z)), tol=1e-9)


def test_what_is_no_pairs_is_refused(hosted):
    for name in ("twisted", "hand_twisted"):
        f = hosted[name].using(complex_as="real_pairs")
        for wrong in (np.ones((3, 3)), np.ones(()), np.ones((3, 2), int), Z):
            with pytest.raises((gw.ShapeError, gw.DTypeError)) as caught:
                f(wrong)
            assert caught.value.map == name
    with pytest.raises(gw.ArgumentError) as caught:
        hosted["twisted"].using(complex_as="ignore")
    assert caught.value.argument == "complex_as"


def test_infinities_survive_as_pairs(hosted):
    p = np.array([[np.inf, 1.0], [1.0, -np.inf], [0.0, 2.0]])
    f = hosted["hand_mirror"].using(complex_as="real_pairs")
    assert_same(f(p), p)


# Maps that are holomorphic, and maps that are said to be.


def test_holomorphic_maps_in_every_form(hosted):
    f, s = hosted["square"], hosted["squares"]
    assert_close(f.jacobian(Z, holomorphic=True), np.diag(2 * Z))
    assert_close(s.grad(Z, holomorphic=True), 3 * Z**2)
    assert_close(s.value_and_grad(Z, holomorphic=True)[0], np.sum(Z**3))
    assert_close(gw.hessian(s, holomorphic=True)(Z), np.diag(6 * Z))
    assert_close(gw.jacfwd(gw.grad(s, holomorphic=True), holomorphic=True)(Z), np.diag(6 * Z))
    rows = np.stack([Z, U])
    assert_close(gw.vmap(gw.grad(s, holomorphic=True))(rows), 3 * rows**2)
    assert_close(gw.vmap(gw.jacobian(f, holomorphic=True))(rows)[1], np.diag(2 * U))
    gradient, aux = gw.grad(hosted["squares_with_aux"], holomorphic=True, has_aux=True)(Z)
    assert_close(gradient, 3 * Z**2)
    assert_close(aux, np.abs(Z))
    with f.linearize(Z) as J:
        assert_close(J.todense(), np.diag(2 * Z))
        assert_close(J.H.todense(), np.diag(np.conj(2 * Z)))
    # In real pairs a holomorphic derivative is a rotation and a stretch.
    J = f.using(complex_as="real_pairs").jacobian(pairs(Z))
    assert_close(J[0, :, 0], 2 * np.array([[Z[0].real, -Z[0].imag], [Z[0].imag, Z[0].real]]))


ROWS = np.stack([Z, U])
PROMISES = {
    "jacobian": lambda lab: lab["twisted"].jacobian(Z, holomorphic=True),
    "jacobian, reverse": lambda lab: lab["twisted"].jacobian(Z, mode="rev", holomorphic=True),
    "grad": lambda lab: lab["norms"].grad(Z, holomorphic=True),
    "value_and_grad": lambda lab: lab["norms"].value_and_grad(Z, holomorphic=True),
    "jacfwd": lambda lab: gw.jacfwd(lab["twisted"], holomorphic=True)(Z),
    "jacrev": lambda lab: gw.jacrev(lab["twisted"], holomorphic=True)(Z),
    "grad transform": lambda lab: gw.grad(lab["norms"], holomorphic=True)(Z),
    "hessian": lambda lab: gw.hessian(lab["norms"], holomorphic=True)(Z),
    "under vmap": lambda lab: gw.vmap(gw.grad(lab["norms"], holomorphic=True))(ROWS),
    "of vmap": lambda lab: gw.vmap(lab["twisted"]).jacobian(ROWS, holomorphic=True),
    "under vmap over another axis": lambda lab: gw.vmap(gw.jacrev(lab["twisted"], holomorphic=True), 1)(
        ROWS.T.copy()
    ),
    "with aux": lambda lab: gw.grad(lab["norms_with_aux"], holomorphic=True, has_aux=True)(Z),
    "inside": lambda lab: gw.jacfwd(gw.grad(lab["norms"], holomorphic=True), holomorphic=True)(Z),
    "a linearization's matrix": lambda lab: lab["twisted"].linearize(Z).todense(),
    "single": lambda lab: lab["twisted"].jacobian(Z.astype("c8"), holomorphic=True),
}


@pytest.mark.parametrize("promise", PROMISES)
def test_a_map_that_is_not_holomorphic_is_refused(hosted, promise):
    with pytest.raises(gw.NotDifferentiable, match="not holomorphic") as caught:
        PROMISES[promise](hosted)
    assert caught.value.map in ("twisted", "norms", "norms_with_aux")


def test_a_promise_over_no_rows_is_answered(hosted):
    got = gw.vmap(gw.grad(hosted["squares"], holomorphic=True))(np.empty((0, 3), complex))
    assert got.shape == (0, 3) and got.dtype == np.complex128


def test_descent_goes_along_the_conjugate(hosted):
    for name in ("power", "hand_power"):
        f = hosted[name]
        g = f.grad(Z)
        assert_close(g, 4 * np.abs(Z) ** 2 * np.conj(Z))
        assert f(Z - 1e-3 * np.conj(g)) < f(Z)
        assert_close(joined(f.using(complex_as="real_pairs").grad(pairs(Z))), np.conj(g))
