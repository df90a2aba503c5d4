"""Linear operators composed, against dense NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from differences import assert_close
from traced_maps import C, M

import gradwire as gw
from gradwire._linear import Jacobian

X = np.array([0.5, -1.0, 2.0])
Y = np.array([1.0, 0.25, -0.5, 3.0])
Z = X + 1j * X[::-1]
W = Y - 1j * Y[::-1]


@pytest.fixture
def kept(hosted):
    """Linearizations by name, closed afterwards."""
    points = {"real_matrix": X, "other_matrix": X, "back_matrix": Y, "complex_matrix": Z, "to_complex": X}
    made = {name: hosted[name].linearize(point) for name, point in points.items()}
    yield made
    for operator in made.values():
        operator.close()


def check(operator, matrix):
    """``operator`` is ``matrix`` in every way of asking."""
    random = np.random.default_rng(0)
    rows, columns = matrix.shape

    def draw(size):
        drawn = random.standard_normal(size)
        return drawn + 1j * random.standard_normal(size) if matrix.dtype.kind == "c" else drawn

    v, w, V, U = draw(columns), draw(rows), draw((columns, 2)), draw((rows, 2))
    assert operator.shape == matrix.shape and operator.dtype == matrix.dtype
    assert_close(operator @ v, matrix @ v)
    assert_close(operator.matvec(v), matrix @ v)
    assert_close(operator.rmatvec(w), matrix.conj().T @ w)
    assert_close(operator.matmat(V), matrix @ V)
    assert_close(operator.rmatmat(U), matrix.conj().T @ U)
    assert_close(operator.T @ w, matrix.T @ w)
    assert_close(operator.H @ w, matrix.conj().T @ w)
    assert_close(w @ operator, w @ matrix)
    assert_close(operator.T.T @ v, matrix @ v)
    assert_close(operator.H.H @ v, matrix @ v)
    assert_close(operator.T.H @ v, matrix.conj() @ v)
    assert_close(operator.jvp(V.T.copy()), (matrix @ V).T)
    assert_close(operator.vjp(U.T.copy()), (matrix.T @ U).T)
    assert_close(operator.todense(), matrix)
    assert_close(operator.gram() @ v, matrix.conj().T @ matrix @ v)
    assert operator.dottest()
    assert operator.norm(rtol=1e-10, most=1000) == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-5)


REAL = {
    "A": (lambda A, B, D: A, M[0]),
    "A + B": (lambda A, B, D: A + B, M[0] + M[1]),
    "A - B": (lambda A, B, D: A - B, M[0] - M[1]),
    "-A": (lambda A, B, D: -A, -M[0]),
    "2.5 A": (lambda A, B, D: 2.5 * A, 2.5 * M[0]),
    "A 2": (lambda A, B, D: A * 2, 2 * M[0]),
    "A / 4": (lambda A, B, D: A / 4, M[0] / 4),
    "numpy's numbers": (lambda A, B, D: np.float64(3.0) * A / np.int64(2), 1.5 * M[0]),
    "D B": (lambda A, B, D: D @ B, M[0].T @ M[1]),
    "B.T A": (lambda A, B, D: B.T @ A, M[1].T @ M[0]),
    "A B.H": (lambda A, B, D: A @ B.H, M[0] @ M[1].T),
    "(2 A) (D / 3)": (lambda A, B, D: (2 * A) @ (D / 3), 2 / 3 * M[0] @ M[0].T),
    "(A + 2 B) (D - A.T)": (
        lambda A, B, D: (A + 2 * B) @ (D - 0.5 * A.T),
        (M[0] + 2 * M[1]) @ (0.5 * M[0].T),
    ),
    "A D A": (lambda A, B, D: A @ D @ B, M[0] @ M[0].T @ M[1]),
    "A.T": (lambda A, B, D: (A + B).T, (M[0] + M[1]).T),
    "gram": (lambda A, B, D: (A + B).gram(), (M[0] + M[1]).T @ (M[0] + M[1])),
}


@pytest.mark.parametrize("name", REAL)
def test_real_operators(kept, name):
    compose, matrix = REAL[name]
    check(compose(kept["real_matrix"], kept["other_matrix"], kept["back_matrix"]), matrix)


COMPLEX = {
    "C": (lambda C_: C_, C),
    "2j C": (lambda C_: 2j * C_, 2j * C),
    "C (1 − 2j)": (lambda C_: C_ * (1 - 2j), (1 - 2j) * C),
    "C / 2j": (lambda C_: C_ / 2j, C / 2j),
    "C + 3j C": (lambda C_: C_ + 3j * C_, (1 + 3j) * C),
    "C.H C": (lambda C_: C_.H @ C_, C.conj().T @ C),
    "C.T C": (lambda C_: C_.T @ C_, C.T @ C),
    "(1j C) (2j C).H": (lambda C_: (1j * C_) @ (2j * C_).H, 1j * -2j * C @ C.conj().T),
    "(2j C).T": (lambda C_: (2j * C_).T, 2j * C.T),
    "(2j C).H": (lambda C_: (2j * C_).H, -2j * C.conj().T),
    "gram of 2j C": (lambda C_: (2j * C_).gram(), (4 + 0j) * C.conj().T @ C),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_operators(kept, name):
    compose, matrix = COMPLEX[name]
    check(compose(kept["complex_matrix"]), matrix)


def test_from_real_to_complex(kept):
    J = kept["to_complex"]
    assert_close(J @ X, C @ X)
    assert_close(J.T @ W, (C.T @ W).real)
    assert_close(J.H @ W, (C.conj().T @ W).real)
    assert_close(J.todense(), C)
    assert_close((J @ kept["back_matrix"]) @ Y, C @ M[0].T @ Y)
    assert_close((kept["back_matrix"].T.T @ kept["real_matrix"]) @ X, M[0].T @ M[0] @ X)
    assert_close((2 * J - J / 2) @ X, 1.5 * C @ X)
    assert_close(J.gram() @ X, (C.conj().T @ C).real @ X)
    assert J.dottest() and (J + 2 * J).dottest()
    # As a map between real spaces.
    assert J.norm(rtol=1e-10, most=1000) == pytest.approx(
        np.linalg.norm(np.vstack([C.real, C.imag]), 2), rel=1e-5
    )


def test_a_complex_factor_takes_complex_arrays(kept):
    for name in ("real_matrix", "to_complex"):
        with pytest.raises(gw.DTypeError) as caught:
            2j * kept[name]
        assert caught.value.argument == "factor" and caught.value.map == name


def test_derivatives_that_are_not_complex_linear(hosted):
    z, v = Z, Z[::-1] * 1j
    f = lambda v: v * np.conj(z) + (z + 1) * np.conj(v)  # noqa: E731 (a formula)
    with hosted["twisted"].linearize(z) as J:
        assert_close((2j * J) @ v, 2j * f(v))
        assert_close((J - 1j * J) @ v, (1 - 1j) * f(v))
        assert_close((J @ (2j * J)) @ v, f(2j * f(v)))
        assert_close(((2j * J) @ J) @ v, 2j * f(f(v)))
        for composed in (J, 2j * J, J @ (2j * J), (1j * J).T, (1j * J).H @ J, J + 1j * J, J.gram()):
            assert composed.dottest()
            assert composed.T.dottest() and composed.H.dottest()


def test_pytrees_and_several_arguments(hosted):
    state, y = {"x": X}, np.array([1.0, -2.0])
    matrix = np.zeros((7, 5))
    matrix[:4, :3], matrix[4:6, 3:], matrix[6, 0], matrix[6, 3] = M[0], 2 * np.eye(2), 1.0, 1.0
    v = np.arange(1.0, 6.0)
    tree = ({"x": v[:3].copy()}, v[3:].copy())
    flat = lambda out: np.concatenate([out["one"], out["two"][0], [out["two"][1]]])  # noqa: E731 (a formula)
    with hosted["blocks"].linearize(state, y) as J:
        assert J.shape == (7, 5)
        for operator, dense in ((J, matrix), (J + J, 2 * matrix), (3 * J - J, 2 * matrix), (-J, -matrix)):
            assert_close(flat(operator @ tree), dense @ v)
            assert_close(operator.matmat(np.eye(5)), dense)
            assert_close(operator.rmatmat(np.eye(7)), dense.T)
            assert operator.dottest()
        product = J.gram() @ tree
        assert_close(product[0]["x"], (matrix.T @ matrix @ v)[:3])
        assert_close(product[1], (matrix.T @ matrix @ v)[3:])
        assert J.norm(rtol=1e-10, most=1000) == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-5)
        scipy_operator = (J / 2).to_scipy()
        assert_close(scipy_operator @ v, matrix @ v / 2)


def test_what_does_not_fit_is_refused(kept):
    A, C_ = kept["real_matrix"], kept["complex_matrix"]
    for wrong in (lambda: A + A.T, lambda: A @ A, lambda: A - kept["back_matrix"]):
        with pytest.raises(gw.ShapeError) as caught:
            wrong()
        assert caught.value.expected and caught.value.got
    for wrong in (lambda: A + 1.0, lambda: A * "2", lambda: A / A):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (lambda: C_.H @ W[:3], lambda: (2 * A) @ Y, lambda: (A + A).T @ X):
        with pytest.raises(gw.ShapeError):
            wrong()


class Skewed(Jacobian):
    """A derivative whose transpose is another one's."""

    other: gw.LinearOperator

    @property
    def H(self):
        return self.other.H


def test_the_dot_test_finds_a_pair_that_does_not_belong_together(kept):
    A, B, C_ = kept["real_matrix"], kept["other_matrix"], kept["complex_matrix"]
    for right, wrong in ((A, B), (C_, -1 * C_), (C_, 1j * C_), (C_, C_.H.T)):
        pair = Skewed(
            right._handle,
            value=right.value,
            inputs=right._domain,
            outputs=right._codomain,
            like=right._like,
            map="pair",
        )
        pair.other = right
        assert pair.dottest()
        pair.other = wrong
        assert not pair.dottest()


def test_the_dot_test_finds_a_rule_that_is_wrong_by_a_factor(hosted):
    with hosted["doubled"].linearize(X) as J:
        assert not J.dottest()
    with hosted["gamma"].linearize(np.abs(X)) as J:
        assert J.dottest()


def test_single_precision_stays_single(hosted):
    with hosted["chained"].linearize(X.astype("f4")) as J:
        v = X.astype("f4")
        for operator in (J, 2 * J, J + J, J / 3, -J, J.gram(), 0.1 * J.gram()):
            assert operator.dtype == np.float32
            assert (operator @ v).dtype == np.float32
            assert operator.matvec(v).dtype == np.float32
        assert J.dottest()
    with hosted["square"].linearize(Z.astype("c8")) as J:
        for operator in (J, 2j * J, J + 1j * J, J.gram()):
            assert operator.dtype == np.complex64
            assert (operator @ Z.astype("c8")).dtype == np.complex64


def test_64_bit_results_stay_64_bit_for_jax_arrays_where_x64_is_off(hosted):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x = jax.numpy.asarray(np.array([0.1, 0.2, 0.3]))
    assert x.dtype == "float64" and not jax.config.jax_enable_x64
    want = np.array([0.1, 0.2, 0.3])
    f = hosted["chained"]
    for answer, expected in (
        (f.grad(x), f.grad(want)),
        (f.hessian(x), f.hessian(want)),
        (gw.grad(f)(x), f.grad(want)),
    ):
        assert isinstance(answer, jax.Array) and answer.dtype == "float64"
        assert np.asarray(answer).tobytes() == expected.tobytes()
    with gw.grad(f).linearize(x) as J, gw.grad(f).linearize(want) as same:
        for operator, other in ((J, same), (J / 3, same / 3), (J + J, same + same), (J.gram(), same.gram())):
            answer = operator @ x
            assert isinstance(answer, jax.Array) and answer.dtype == "float64"
            assert np.asarray(answer).tobytes() == (other @ want).tobytes()


def test_the_norm_of_nothing(hosted):
    with 0 * hosted["real_matrix"].linearize(X) as J:
        assert J.norm() == 0.0
