"""LinearOperator: the derivative at one point, as the linear map it is."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from oracle import assert_close, assert_same

import gradwire

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.25])
V = np.array([1.0, -0.5, 0.25])
U = np.array([-1.0, 2.0])
W = np.array([0.5, 2.0, -1.0, 0.75])
A = np.random.default_rng(4).standard_normal((2, 3))


def test_it_holds_the_value_its_shape_and_its_dtype(hosted):
    with hosted["fold"].linearize(A) as J:
        assert_same(J.value, hosted["fold"](A))
        assert J.shape == (3, 6) and J.T.shape == (6, 3)
        assert repr(J) == "<LinearOperator 3×6, float64>"
        assert J.dtype == np.float64
    with hosted["valley"].linearize(X.astype("f4")) as J:
        assert J.shape == (1, 3)
        assert J.dtype == J.value.dtype == np.float32
    with hosted["wave"].linearize(X) as J:
        assert J.dtype == np.complex128


def test_products_are_those_of_the_jacobian(hosted):
    dense = hosted["fold"].jacobian(A)
    matrix = dense.reshape(3, 6)
    v, w = A[::-1].copy(), V
    with hosted["fold"].linearize(A) as J:
        assert_same(J.todense(), dense)
        assert_close(J @ v, (matrix @ v.ravel()))
        assert_close(J.T @ w, (w @ matrix).reshape(2, 3))
        assert_close(w @ J, J.T @ w)
        assert_close(v @ J.T, J @ v)
        assert_close(J.H @ w, J.T @ w)
        assert_close(J.jvp(v), J @ v)
        assert_close(J.vjp(w), J.T @ w)
        assert_close(J.T.vjp(v), J @ v)
        assert_close(J.T.T @ v, J @ v)


def test_flat_vectors_and_columns(hosted):
    matrix = hosted["fold"].jacobian(A).reshape(3, 6)
    rng = np.random.default_rng(5)
    x, y, columns, rows = (
        rng.standard_normal(6),
        rng.standard_normal(3),
        rng.standard_normal((6, 4)),
        np.eye(3),
    )
    with hosted["fold"].linearize(A) as J:
        assert_close(J.matvec(x), matrix @ x)
        assert_close(J.matvec(x[:, None]), (matrix @ x)[:, None])
        assert_close(J.rmatvec(y), matrix.T @ y)
        assert_close(J.matmat(columns), matrix @ columns)
        assert_close(J.rmatmat(rows), matrix.T)
        assert_close(J.matmat(np.empty((6, 0))), np.empty((3, 0)))
        assert_close(J.T.matvec(y), matrix.T @ y)
        assert_close(J.T.rmatmat(columns), matrix @ columns)
        for found in (J.matvec(x), J.matmat(columns), J.rmatmat(rows)):
            assert found.flags.writeable and found.flags.c_contiguous
        for wrong in (
            lambda: J.matvec(x[:5]),
            lambda: J.matvec(columns),
            lambda: J.matmat(x),
            lambda: J.rmatvec(x),
        ):
            with pytest.raises(gradwire.ShapeError) as caught:
                wrong()
            assert caught.value.map == "fold" and caught.value.expected and caught.value.got


def test_at_takes_exactly_one_vector(hosted):
    with hosted["bend"].linearize(X) as J:
        for wrong in (
            lambda: J @ np.ones((2, 3)),
            lambda: J @ np.ones((3, 1)),
            lambda: J @ np.ones(4),
            lambda: J.T @ np.ones((2, 4)),
            lambda: J.H @ np.ones(3),
            lambda: np.ones((2, 4)) @ J,
            lambda: J @ 1.0,
        ):
            with pytest.raises(gradwire.ShapeError, match="exactly one vector") as caught:
                wrong()
            assert caught.value.map == "bend" and caught.value.expected and caught.value.got


def test_several_arguments(hosted):
    J0, J1 = hosted["outer"].jacobian(X, Y, argnums=(0, 1))
    matrix = np.hstack([J0.reshape(6, 3), J1.reshape(6, 2)])
    w = np.arange(6.0).reshape(3, 2)
    with hosted["outer"].linearize(X, Y) as J:
        assert J.shape == (6, 5)
        assert_close(J @ (V, U), (matrix @ np.concatenate([V, U])).reshape(3, 2))
        assert_close((J.T @ w)[1], (w.ravel() @ matrix)[3:])
        assert_close(J.matvec(np.concatenate([V, U])), matrix @ np.concatenate([V, U]))
        assert_close(J.rmatmat(np.eye(6)), matrix.T)
        assert_close(np.hstack([part.reshape(6, -1) for part in J.todense()]), matrix)
        with pytest.raises(gradwire.ArgumentError):
            J @ V
    with hosted["outer"].linearize(X, Y, argnums=(1, 0)) as J:
        assert_close(J.matmat(np.eye(5)), np.hstack([matrix[:, 3:], matrix[:, :3]]))
    with hosted["outer"].linearize(X, b=Y) as J:
        assert J.shape == (6, 3)


def test_a_transformed_map_can_be_linearized(hosted):
    with gradwire.grad(hosted["valley"]).linearize(X) as J:
        assert_same(J.value, hosted["valley"].grad(X))
        assert_close(J.todense(), hosted["valley"].hessian(X))
        assert_close(J @ V, hosted["valley"].hvp(X, V))
    xs = np.stack([X, 2 * X])
    with gradwire.vmap(hosted["valley"]).linearize(xs) as J:
        assert_close(J @ xs, np.array([hosted["valley"].grad(x) @ x for x in xs]))


def test_scipy_takes_it_as_it_is(hosted):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    matrix = hosted["bend"].jacobian(X)
    b = matrix @ V
    with hosted["bend"].linearize(X) as J:
        assert_close(linalg.lsqr(J, b, atol=1e-14, btol=1e-14)[0], V, rtol=1e-8)
        L = linalg.aslinearoperator(J)
        assert L.shape == (4, 3)
        assert_close(L @ V, b)
        assert_close(L.H @ W, matrix.T @ W)
        assert_close(L @ np.eye(3), matrix)
        assert_close((2 * L + L) @ V, 3 * b)
        M = J.to_scipy()
        assert isinstance(M, linalg.LinearOperator) and M.shape == J.shape and M.dtype == J.dtype
        assert_close(M @ V, b)
        assert_close(M.rmatmat(np.eye(4)), matrix.T)
        assert_close((M.H @ M) @ V, matrix.T @ b)
        sigma = linalg.svds(M, k=2, return_singular_vectors=False)
        assert_close(np.sort(sigma), np.sort(np.linalg.svd(matrix, compute_uv=False))[-2:], rtol=1e-8)


def test_gmres_solves_with_it(hosted):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    with gradwire.grad(hosted["valley"]).linearize(X) as J:
        step, status = linalg.gmres(J, -J.value, rtol=1e-12)
    assert status == 0
    assert_close(step, np.linalg.solve(hosted["valley"].hessian(X), -hosted["valley"].grad(X)), rtol=1e-8)


def test_least_squares_takes_it_as_a_jacobian(hosted):
    optimize = pytest.importorskip("scipy.optimize")
    f = hosted["bend"]
    found = optimize.least_squares(f, X, jac=lambda x: f.linearize(x).to_scipy(), method="trf")
    assert found.cost == pytest.approx(0, abs=1e-6)


def test_closing_frees_it(hosted):
    J = hosted["bend"].linearize(X)
    J.close()
    J.close()  # twice does nothing
    for ask in (lambda: J @ V, lambda: J.T @ W, lambda: J.todense(), lambda: J.matvec(V)):
        with pytest.raises(ValueError, match="closed"):
            ask()
    with hosted["bend"].linearize(X) as J:
        view = J.T
    with pytest.raises(ValueError, match="closed"):
        view @ W
    assert_same(J.value, hosted["bend"](X))


def test_it_is_no_sequence(hosted):
    with hosted["bend"].linearize(X) as J, pytest.raises(TypeError, match="todense"):
        list(J)


def test_many_may_be_open_at_once(hosted):
    open_ones = [hosted["bend"].linearize(k * X) for k in range(8)]
    for k, J in enumerate(open_ones):
        assert_close(J @ V, hosted["bend"].jvp(k * X, V)[1])
        J.close()


def test_closing_frees_it_on_the_service(lab):
    def held():
        return lab.request("GET", "/v1/devices", None).fields["linearizations"]

    gc.collect()
    before = held()
    J = lab["bend"].linearize(X)
    assert held() == before + 1
    J.close()
    assert held() == before


def test_products_send_one_request_and_not_the_point(counted):
    f = counted["bend"]
    big = np.linspace(-1, 1, 500)
    with f.linearize(big) as J:
        assert counted.requests == ["POST /v1/maps/bend/linearize"]
        for ask in (
            lambda: J @ big,
            lambda: J.jvp(np.ones((3, 500))),
            lambda: J.rmatmat(np.ones((501, 2))),
            J.todense,
        ):
            counted.requests.clear()
            ask()
            (request,) = counted.requests
            assert request.startswith("POST /v1/linearizations/")
        counted.requests.clear()
    (request,) = counted.requests
    assert request.startswith("DELETE /v1/linearizations/")


def test_a_linearization_answers_at_the_policys_precision(hosted):
    f = hosted["bend"].using(precision="compute=float64,output=float32")
    with f.linearize(X) as J:
        assert J.value.dtype == (J @ V).dtype == (J.T @ W).dtype == J.todense().dtype == np.float32
        assert_close((J @ V).astype("f8"), hosted["bend"].jvp(X, V)[1], rtol=1e-6)
