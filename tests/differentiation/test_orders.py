"""Derivatives of every order, against closed forms and against mpmath at 50 digits."""

from __future__ import annotations

import functools

import mpmath
import numpy as np
import pytest
from differences import assert_close, jacobian

import gradwire as gw

AT = (np.float64(0.6), np.float64(1.1))
X = np.array([0.3, -1.2, 2.5])
V = np.array([1.0, -0.5, 0.25])
P, T = np.array([2.0, 0.5]), np.linspace(0.0, 2.0, 5)
STATE = {"a": np.array([0.5, 2.0]), "b": [np.float64(1.5), np.int64(3)]}
Y = np.array([-1.0, 0.75])


@functools.cache
def exact(*orders):
    """∂^(i+j) of `surface` at AT, at 50 digits."""
    with mpmath.workdps(50):
        point = tuple(map(mpmath.mpf, AT))
        return np.float64(mpmath.diff(lambda x, y: mpmath.exp(x * mpmath.sin(y)) / (1 + x**2), point, orders))


@pytest.mark.parametrize(
    ("kind", "argnums"),
    [
        ("grad", (1, 0)),
        ("grad", (0, 0, 1)),
        ("grad", (0, 1, 1, 0)),
        ("jacfwd", (1, 1, 1, 1)),
        ("jacrev", (0, 0, 0, 1)),
        ("mixed", (0, 1, 0)),
        ("mixed", (1, 0, 1, 1)),
    ],
)
def test_mixed_partials_to_fourth_order(hosted, kind, argnums):
    f = hosted["surface"]
    for k, position in enumerate(argnums):
        name = ("grad", "jacfwd", "jacrev", "jacobian")[k] if kind == "mixed" else kind
        f = getattr(gw, name)(f, argnums=position)
    assert_close(f(*AT), exact(argnums.count(0), argnums.count(1)), tol=1e-12)


def test_methods_end_a_chain_of_transforms(hosted):
    f = gw.grad(gw.grad(gw.grad(hosted["surface"], 0), 1), 0)
    assert_close(f.grad(*AT, argnums=1), exact(2, 2))
    assert_close(f.jvp(AT, (1.0, 0.0))[1], exact(3, 1))
    assert_close(f.vjp(AT, 1.0)[1][1], exact(2, 2))
    second = gw.hessian(hosted["surface"], argnums=(0, 1))
    assert_close(second(*AT)[0][1], exact(1, 1))
    assert_close(gw.hessian(gw.hessian(hosted["surface"]), argnums=1)(*AT), exact(2, 2))
    assert_close(gw.grad(gw.grad(hosted["surface"])).hvp(AT, (1.0,), argnums=(0,))[0], exact(4, 0))


def tensor(order):
    """The derivative of `chained` of that order at X, entry by entry."""
    n = X.size
    made = np.zeros((n,) * order)
    sines = (np.sin, np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x))
    for index in np.ndindex(*made.shape):
        powers = np.bincount(index, minlength=n)
        entry = 0.0
        for i in range(n - 1):  # x_i² x_{i+1}
            rest = powers.copy()
            a, b = rest[i], rest[i + 1]
            rest[[i, i + 1]] = 0
            if not rest.any() and a <= 2 and b <= 1:
                entry += (X[i] ** 2, 2 * X[i], 2.0)[a] * (X[i + 1], 1.0)[b]
        if np.count_nonzero(powers) == 1:
            entry += sines[order % 4](X[index[0]])
        if powers.max() <= 1:
            entry += np.prod(X[powers == 0])
        made[index] = entry
    return made


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_tensors_to_fourth_order(hosted, order):
    f = gw.grad(hosted["chained"])
    for k in range(order - 1):
        f = (gw.jacfwd, gw.jacrev, gw.jacfwd)[k](f)
    got = f(X)
    assert_close(got, tensor(order))
    for k in range(order - 1):
        assert_close(np.swapaxes(got, k, k + 1), got)


def test_hessian_products(hosted):
    f = hosted["chained"]
    assert_close(f.hessian(X), tensor(2))
    assert_close(f.hvp(X, V), tensor(2) @ V)
    assert_close(f.hvp(X, np.eye(3)), tensor(2))
    assert_close(gw.jvp(gw.grad(f), (X,), (V,))[1], tensor(2) @ V)
    third = tensor(3) @ V @ V
    assert_close(gw.grad(f).hessian(X) @ V @ V, third)
    with gw.grad(f).linearize(X) as H:
        assert_close(H.value, tensor(1))
        assert_close(H @ V, tensor(2) @ V)
        assert_close(H.T @ V, H @ V)
        assert_close(H.matmat(np.eye(3)), tensor(2))
        assert_close(H.todense(), tensor(2))
    with gw.hessian(f).linearize(X) as derivative:
        assert_close(derivative @ V, tensor(3) @ V)
    with gw.vmap(gw.grad(f)).linearize(np.stack([X, V])) as rows:
        assert_close((rows @ np.stack([V, V]))[0], tensor(2) @ V)


def test_the_hessian_of_a_vector_map(hosted):
    decay = np.exp(-P[1] * T)
    want = np.zeros((5, 2, 2))
    want[:, 0, 1] = want[:, 1, 0] = -T * decay
    want[:, 1, 1] = P[0] * T**2 * decay
    assert_close(hosted["decay"].hessian(P, T), want)
    mixed = gw.jacfwd(gw.jacrev(hosted["decay"], argnums=0), argnums=1)(P, T)
    assert mixed.shape == (5, 2, 5)
    assert_close(mixed[:, 0], np.diag(-P[1] * decay))
    assert_close(mixed[:, 1], np.diag(P[0] * decay * (P[1] * T - 1)))


def test_pytrees_and_several_arguments(hosted):
    f = hosted["coupled"]
    a, b = STATE["a"], STATE["b"][0]
    H = f.hessian(STATE, Y, argnums=(0, 1))
    assert_close(H[0]["a"][0]["a"], np.diag(2 * Y))
    assert_close(H[0]["b"][0][0]["b"][0], 2 * np.sum(Y**3))
    assert_close(H[0]["a"][1], np.diag(2 * a))
    assert_close(H[0]["b"][0][1], 6 * Y**2 * b)
    assert_close(H[1][0]["a"], np.diag(2 * a))
    assert_close(H[1][0]["b"][0], 6 * Y**2 * b)
    assert_close(H[1][1], np.diag(6 * Y * b**2))
    assert H[0]["b"][1] is None and H[1][0]["b"][1] is None
    da, db, dy = np.array([1.0, 2.0]), np.float64(-0.5), np.array([0.5, 0.25])
    product = f.hvp((STATE, Y), ({"a": da, "b": [db, None]}, dy))
    assert_close(product[0]["a"], 2 * Y * da + 2 * a * dy)
    assert_close(product[0]["b"][0], 2 * np.sum(Y**3) * db + np.sum(6 * Y**2 * b * dy))
    assert_close(product[1], 2 * a * da + 6 * Y**2 * b * db + 6 * Y * b**2 * dy)
    assert product[0]["b"][1] is None
    alone = f.hvp((STATE, Y), dy, argnums=1)
    assert_close(alone, 6 * Y * b**2 * dy)
    swapped = f.hvp((STATE, Y), (dy, None), argnums=(1, 0))
    assert_close(swapped[0], alone)
    assert_close(swapped[1]["a"], 2 * a * dy)


def test_the_gauss_newton_product(hosted):
    f = hosted["decay"]
    J = np.column_stack([np.exp(-P[1] * T), -P[0] * T * np.exp(-P[1] * T)])
    v = np.array([0.5, -2.0])
    with f.linearize(P, T, argnums=0) as kept:
        assert_close(kept.T @ (kept @ v), J.T @ J @ v)
        assert_close(kept.gram() @ v, J.T @ J @ v)
        assert kept.gram().shape == (2, 2)
        assert_close(kept.gram().matmat(np.eye(2)), J.T @ J)
        damped = kept.gram() + 0.1 * kept.gram()
        assert_close(damped @ v, 1.1 * J.T @ J @ v)


def test_what_else_a_map_returns_goes_along(hosted):
    f = hosted["measured"]
    gradient, aux = gw.grad(f, has_aux=True)(X)
    assert_close(gradient, 3 * X**2)
    assert_close(aux["mean"], X.mean())
    assert aux["size"] == 3
    (value, aux), gradient = gw.value_and_grad(f, has_aux=True)(X)
    assert_close(value, np.sum(X**3))
    assert_close(aux["mean"], X.mean())
    second, aux = gw.hessian(f, has_aux=True)(X)
    assert_close(second, np.diag(6 * X))
    for transform in (gw.jacfwd, gw.jacrev, gw.jacobian):
        found, aux = transform(f, has_aux=True)(X)
        assert_close(found, 3 * X**2)
        assert_close(aux["mean"], X.mean())
    mapped, aux = gw.vmap(gw.grad(f, has_aux=True))(np.stack([X, V]))
    assert_close(mapped[1], 3 * V**2)
    assert aux["mean"].shape == (2,)
    third = gw.jacfwd(gw.jacfwd(gw.grad(f, has_aux=True), has_aux=True), has_aux=True)(X)[0]
    assert_close(np.einsum("iii->i", third), np.full(3, 6.0))
    value, tangent, aux = gw.jvp(f, (X,), (V,), has_aux=True)
    assert_close(tangent, 3 * X**2 @ V)
    _, pull, aux = gw.vjp(f, X, has_aux=True)
    assert_close(pull(2.0)[0], 6 * X**2)


def test_loops_have_every_order_forward(hosted):
    f = hosted["newton"]
    first, second = gw.jacfwd(f), gw.jacfwd(gw.jacfwd(f))
    assert_close(first(2.0), np.float64(0.5 / np.sqrt(2)), tol=1e-11)
    assert_close(second(2.0), np.float64(-0.25 * 2**-1.5), tol=1e-6)
    assert_close(f.jacobian(np.float64(2.0)), first(2.0))


def test_single_precision_goes_through_every_order(hosted):
    got = gw.jacfwd(gw.hessian(hosted["chained"]))(X.astype("f4"))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, tensor(3), rtol=1e-5, atol=1e-5)


def test_differences_say_the_same(hosted):
    f = hosted["chained"]
    assert_close(f.hessian(X), jacobian(lambda x: tensor_at(x), X), tol=1e-9)


def tensor_at(x):
    """The gradient of `chained`, written out."""
    g = np.cos(x) + np.array([np.prod(np.delete(x, i)) for i in range(x.size)])
    g[:-1] += 2 * x[:-1] * x[1:]
    g[1:] += x[:-1] ** 2
    return g
