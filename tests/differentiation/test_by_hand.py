"""Derivatives by hand: what is given runs as given, and what can be built from it is."""

from __future__ import annotations

import hand_maps
import mpmath
import numpy as np
import pytest
from differences import assert_close, assert_same
from scipy import special

import gradwire

X = np.array([0.7, 1.5, 2.25])
V = np.array([1.0, -0.5, 0.25])
W = np.array([0.5, 2.0, -1.0])
E = np.float64(0.3)
SLOPE = special.gamma(X) * special.psi(X)
STATE = {"x": X, "k": np.float64(2.0), "label": np.int64(7)}


# As given.


def test_values_and_products_are_those_of_the_authors_code_bit_for_bit(hosted):
    f = hosted["gamma"]
    assert_same(f(X), hand_maps.gamma(X))
    assert_same(f.jvp(X, V), hand_maps.gamma_jvp((X,), (V,)))
    value, (cotangent,) = hand_maps.gamma_vjp((X,), W)
    assert_same(f.vjp(X, W), (value, cotangent))
    assert_same(f.apply(X.astype("f4")), hand_maps.gamma(X.astype("f4")))
    assert_same(
        f.jvp(X.astype("f4"), V.astype("f4")), hand_maps.gamma_jvp((X.astype("f4"),), (V.astype("f4"),))
    )


def test_a_c_library_is_a_map(hosted):
    f = hosted["erf"]
    with mpmath.workdps(50):
        for x in (-1.25, 0.0, 0.5):
            assert_close(f(x), np.float64(mpmath.erf(x)), tol=1e-15)
            assert_close(f.grad(x), np.float64(mpmath.diff(mpmath.erf, x)), tol=1e-14)
            assert_close(f.hvp(x, 2.0), np.float64(2 * mpmath.diff(mpmath.erf, x, 2)), tol=1e-9)
    xs = np.array([-1.0, 0.25, 2.0])
    assert_close(gradwire.vmap(gradwire.grad(f))(xs), 2 / np.sqrt(np.pi) * np.exp(-(xs**2)))


def test_jax_arrays_are_given_as_jax_arrays(hosted):
    f = hosted["soft"]
    slope = 1 / (1 + np.exp(-X))
    assert_close(f(X), np.log1p(np.exp(X)))
    assert_close(f.jacobian(X), np.diag(slope))
    assert_close(f.vjp(X, W)[1], slope * W)
    assert f(X.astype("f4")).dtype == np.float32
    with f.linearize(X) as J:
        assert J.dottest()


def test_what_the_code_gets_cannot_be_written_to(hosted):
    x = X.copy()
    with pytest.raises(gradwire.MapFailed, match="read-only"):
        hosted["writes"](x)
    assert_same(x, X)
    v = V.copy()
    with pytest.raises(gradwire.MapFailed, match="read-only"):
        hosted["writing_rule"].jvp(x, v)
    assert_same(v, V)


def test_answers_are_fresh_and_writable(hosted):
    x = X.copy()
    for answer in (
        hosted["powered"](x, 1, shift=0 * x),
        hosted["gamma"].jacobian(x),
        hosted["gamma"].jvp(x, V)[1],
    ):
        assert answer.flags.writeable and not np.shares_memory(answer, x)


# Built from them.


def test_the_jacobian_in_both_modes(hosted):
    f = hosted["gamma"]
    for mode in ("auto", "fwd", "rev"):
        assert_close(f.jacobian(X, mode=mode), np.diag(SLOPE))
    for transform in (gradwire.jacfwd, gradwire.jacrev, gradwire.jacobian):
        assert_close(transform(f)(X), np.diag(SLOPE))


def test_several_arguments(hosted):
    f = hosted["kepler"]
    solved = f(X, E)
    assert_close(solved - E * np.sin(solved), X)
    by_anomaly, by_eccentricity = (
        np.diag(1 / (1 - E * np.cos(solved))),
        np.sin(solved) / (1 - E * np.cos(solved)),
    )
    assert_close(f.jacobian(X, E), by_anomaly)
    for mode in ("fwd", "rev"):
        both = f.jacobian(X, E, argnums=(1, 0), mode=mode)
        assert type(both) is tuple
        assert_close(both[0], by_eccentricity)
        assert_close(both[1], by_anomaly)
    assert_close(f.jvp((X, E), (V, 2.0))[1], by_anomaly @ V + 2 * by_eccentricity)
    assert_close(f.jvp((X, E), (None, 2.0))[1], 2 * by_eccentricity)
    assert_close(f.jvp((X, E), V, argnums=0)[1], by_anomaly @ V)
    cotangents = f.vjp((X, E), W, argnums=(1, 0))[1]
    assert_close(cotangents[0], by_eccentricity @ W)
    assert_close(cotangents[1], by_anomaly @ W)
    with f.linearize(X, E) as J:
        assert J.shape == (3, 4)
        assert_close(J @ (V, np.float64(2.0)), by_anomaly @ V + 2 * by_eccentricity)
        assert_close(J.matmat(np.eye(4)), np.column_stack([by_anomaly, by_eccentricity]))
        assert_close(J.todense()[1], by_eccentricity)


def test_a_scalar_map_has_a_gradient(hosted):
    f = hosted["log_gamma"]
    assert_close(f.grad(X), special.psi(X))
    value, gradient = f.value_and_grad(X)
    assert_same(value, f(X))
    assert_close(gradient, special.psi(X))
    assert_close(gradwire.grad(f)(X), special.psi(X))
    value, gradient = gradwire.value_and_grad(f, argnums=(0,))(X)
    assert_close(gradient[0], special.psi(X))


def test_stacks_of_tangents_and_cotangents(hosted):
    f = hosted["gamma"]
    stack = np.arange(12.0).reshape(2, 2, 3)
    value, tangents = f.jvp(X, stack)
    assert_close(value, special.gamma(X))
    assert_close(tangents, SLOPE * stack)
    assert_close(f.vjp(X, stack)[1], SLOPE * stack)
    assert_close(f.jvp(X, np.empty((0, 3)))[1], np.empty((0, 3)))
    with f.linearize(X) as J:
        assert_close(J.jvp(stack), SLOPE * stack)
        assert_close(J.vjp(stack), SLOPE * stack)
    with pytest.raises(gradwire.ShapeError):
        hosted["kepler"].jvp((X, E), (np.ones((2, 3)), np.ones(3)))


def test_a_linearization(hosted):
    with hosted["gamma"].linearize(X) as J:
        assert_same(J.value, special.gamma(X))
        assert J.shape == (3, 3) and J.dtype == np.float64
        assert_close(J @ V, SLOPE * V)
        assert_close(J.T @ W, SLOPE * W)
        assert_close(J.todense(), np.diag(SLOPE))
        assert_close(J.gram() @ V, SLOPE**2 * V)
        assert J.dottest()
        assert J.norm() == pytest.approx(np.abs(SLOPE).max(), rel=1e-2)
    value, pull = gradwire.vjp(hosted["kepler"], X, E)
    assert_same(value, hosted["kepler"](X, E))
    assert_close(pull(W)[0], hosted["kepler"].vjp((X, E), W)[1][0])


def test_a_linearization_keeps_its_own_point(hosted):
    x = X.copy()
    with hosted["gamma"].linearize(x) as J:
        x[:] = 5.0
        assert_close(J @ V, SLOPE * V)


# vmap loops.


def test_vmap_of_values_over_every_kind_of_axis(hosted):
    f = hosted["kepler"]
    Ms, es = np.stack([X, 2 * X]), np.array([0.1, 0.3])
    rows = np.stack([f(M, e) for M, e in zip(Ms, es, strict=True)])
    assert_same(gradwire.vmap(f)(Ms, es), rows)
    assert_same(gradwire.vmap(f, in_axes=(0, None))(Ms, E), np.stack([f(M, E) for M in Ms]))
    assert_same(gradwire.vmap(f, in_axes=(None, 0))(X, es), np.stack([f(X, e) for e in es]))
    assert_same(gradwire.vmap(f, in_axes=(1, 0))(Ms.T.copy(), es), rows)
    assert_same(gradwire.vmap(f, in_axes=(-1, 0), out_axes=-1)(Ms.T.copy(), es), rows.T)
    cube = np.stack([Ms, Ms + 1])
    nested = gradwire.vmap(gradwire.vmap(f), in_axes=(0, None))
    assert_same(nested(cube, es), np.stack([gradwire.vmap(f)(part, es) for part in cube]))


def test_products_of_a_mapped_map_sum_over_what_is_not_mapped(hosted):
    f = hosted["kepler"]
    Ms = np.stack([X, 2 * X])
    mapped = gradwire.vmap(f, in_axes=(0, None))
    cotangent = np.stack([W, V])
    rows = [f.vjp((M, E), w)[1] for M, w in zip(Ms, cotangent, strict=True)]
    _, (by_anomaly, by_eccentricity) = mapped.vjp((Ms, E), cotangent)
    assert_close(by_anomaly, np.stack([row[0] for row in rows]))
    assert_close(by_eccentricity, rows[0][1] + rows[1][1])
    tangents = np.stack([V, W])
    want = np.stack([f.jvp((M, E), (v, 2.0))[1] for M, v in zip(Ms, tangents, strict=True)])
    assert_close(mapped.jvp((Ms, E), (tangents, 2.0))[1], want)
    with mapped.linearize(Ms, E) as J:
        assert J.shape == (6, 7) and J.dottest()
    other = gradwire.vmap(f, in_axes=(1, None), out_axes=1)
    assert_close(other.vjp((Ms.T.copy(), E), cotangent.T.copy())[1][0], by_anomaly.T)


def test_the_jacobian_of_a_mapped_map_is_of_the_whole(hosted):
    f = hosted["gamma"]
    xs = np.stack([X, X + 1])
    whole = gradwire.vmap(f).jacobian(xs)
    rows = gradwire.vmap(gradwire.jacobian(f))(xs)
    assert whole.shape == (2, 3, 2, 3) and rows.shape == (2, 3, 3)
    for k in range(2):
        assert_close(whole[k, :, k], rows[k])
        assert_close(rows[k], np.diag(special.gamma(xs[k]) * special.psi(xs[k])))
    assert not whole[0, :, 1].any() and not whole[1, :, 0].any()
    assert_close(gradwire.jacrev(gradwire.vmap(f))(xs), whole)


@pytest.mark.parametrize(
    ("error", "ask"),
    [
        (gradwire.ShapeError, lambda f: gradwire.vmap(f)(np.ones((2, 3)), np.ones(3))),
        (gradwire.ShapeError, lambda f: gradwire.vmap(f)(np.ones((0, 3)), np.ones(0))),
        (gradwire.ShapeError, lambda f: gradwire.vmap(f, in_axes=(None, 3))(X, np.ones(2))),
        (gradwire.ArgumentError, lambda f: gradwire.vmap(f, in_axes=(0,))(np.ones((2, 3)), np.ones(2))),
        (gradwire.ArgumentError, lambda f: gradwire.vmap(f, out_axes=(0, 0))(np.ones((2, 3)), np.ones(2))),
        (gradwire.ShapeError, lambda f: gradwire.vmap(f)(np.ones((2, 2, 3)), np.ones(2))),
    ],
)  # fmt: skip
def test_axes_that_do_not_fit_are_refused(hosted, error, ask):
    with pytest.raises(error) as caught:
        ask(hosted["kepler"])
    assert caught.value.map == "kepler"


# Pytrees, integers, statics, keywords.


def test_pytrees_and_integers(hosted):
    f = hosted["spring"]
    value = f(STATE, 3)
    assert_close(value["force"], -6 * X)
    assert value["steps"] == 4 and value["steps"].dtype == np.int64
    moved = {"x": V, "k": np.float64(0.5), "label": None}
    force = -3 * (0.5 * X + 2 * V)
    _, tangent = f.jvp((STATE, 3), (moved,))
    assert_close(tangent["force"], force)
    assert_close(tangent["parts"][0], force.sum())
    assert_close(tangent["parts"][1][0], 2 * X * V)
    assert tangent["steps"] is None
    cotangent = {"force": W, "parts": (np.float64(2.0), [V]), "steps": None}
    _, (found,) = f.vjp((STATE, 3), cotangent)
    assert found["label"] is None
    assert_close(found["x"], -6 * (W + 2) + 2 * X * V)
    assert_close(found["k"], np.sum(-3 * X * (W + 2)))
    by_rows, by_columns = (f.jacobian(STATE, 3, mode=mode) for mode in ("rev", "fwd"))
    for found in (by_rows, by_columns):
        assert_close(found["force"]["x"], -6 * np.eye(3))
        assert_close(found["force"]["k"], -3 * X)
        assert_close(found["parts"][0]["x"], np.full(3, -6.0))
        assert_close(found["parts"][1][0]["x"], np.diag(2 * X))
        assert found["force"]["label"] is None and found["steps"] is None
    with f.linearize(STATE, 3) as J:
        assert J.shape == (7, 4)
        assert J.dottest()
        assert_close((J @ moved)["force"], force)


def test_zero_tangents_inside_a_pytree_reach_the_rule_as_zeros(hosted):
    f = hosted["spring"]
    _, tangent = f.jvp((STATE, 3), ({"x": V, "k": None, "label": None},))
    assert_close(tangent["force"], -6 * V)
    with f.linearize(STATE, 3) as J:
        assert_close(J.jvp({"x": None, "k": np.float64(1.0), "label": None})["force"], -3 * X)
    _, (found,) = f.vjp((STATE, 3), {"force": W, "parts": None, "steps": None})
    assert_close(found["x"], -6 * W)


def test_integer_arguments_are_not_differentiated(hosted):
    with pytest.raises(gradwire.NotDifferentiable):
        hosted["spring"].jacobian(STATE, np.int64(3), argnums=1)
    with pytest.raises(gradwire.ArgumentError):
        hosted["gamma"].jacobian(X, argnums=1)
    # A bare integer becomes floating where it is declared or differentiated so.
    assert_close(hosted["erf"].grad(1), np.float64(2 / np.sqrt(np.pi) / np.e))


def test_statics_and_keywords(hosted):
    f = hosted["powered"]
    assert_close(f(X, shift=W), X**2 + W)
    assert_close(f(X, 3, shift=W, flip=True), -(X**3) + W)
    assert_close(f.jacobian(X, 3, shift=W), np.diag(3 * X**2))
    assert_close(f.jvp((X, 3), (V,), shift=W, flip=True)[1], -3 * X**2 * V)
    assert_close(f.vjp((X, 3), (W), argnums=0, shift=W)[1], 3 * X**2 * W)
    assert_close(f.vjp(X, W, shift=W)[1], 2 * X * W)
    with f.linearize(X, 3, shift=W) as J:
        assert_close(J @ V, 3 * X**2 * V)
    xs = np.stack([X, 2 * X])
    assert_close(gradwire.vmap(f, in_axes=(0, None))(xs, 3, shift=xs), xs**3 + xs)
    assert_close(gradwire.vmap(gradwire.jacfwd(f))(xs, shift=xs)[1], np.diag(4 * X))
    with pytest.raises(gradwire.ShapeError):
        f(X, shift=W[:2])


# Complex.


def test_complex_maps(hosted):
    z, v, w = X + 1j * V, V - 2j * W, W + 1j * X
    f = hosted["hand_twisted"]
    assert_same(f.jvp(z, v), hand_maps.twisted_jvp((z,), (v,)))
    assert_same(f.vjp(z, w)[1], hand_maps.twisted_vjp((z,), w)[1][0])
    with f.linearize(z) as J:
        assert J.dottest()
        assert_close(J.H @ w, np.conj(J.T @ np.conj(w)))
    assert_close(hosted["hand_square"].jacobian(z, holomorphic=True), np.diag(2 * z))
    assert_close(hosted["hand_square"].jacobian(z, holomorphic=True, mode="rev"), np.diag(2 * z))
    assert_close(hosted["hand_phase"].jacobian(X), np.diag(1j * np.exp(1j * X)))
    assert_close(hosted["hand_power"].grad(z), 4 * np.abs(z) ** 2 * np.conj(z))
    for wrong in (
        lambda: hosted["hand_square"].jacobian(z),
        lambda: hosted["hand_phase"].jacobian(X, mode="rev"),
        lambda: hosted["hand_power"].jacobian(z, mode="fwd"),
    ):
        with pytest.raises(gradwire.NotDifferentiable):
            wrong()


@pytest.mark.parametrize("name", ["hand_twisted", "reverse_twisted"])
def test_a_map_that_is_not_holomorphic_is_refused_by_hand_too(hosted, name):
    z = X + 1j * V
    f = hosted[name]
    for ask in (
        lambda: f.jacobian(z, holomorphic=True),
        lambda: gradwire.jacobian(f, holomorphic=True)(z),
        lambda: gradwire.vmap(gradwire.jacobian(f, holomorphic=True))(z[None]),
    ):
        with pytest.raises(gradwire.NotDifferentiable, match="not holomorphic"):
            ask()
    with f.linearize(z) as J, pytest.raises(gradwire.NotDifferentiable, match="not holomorphic"):
        J.todense()


@pytest.mark.parametrize("name", ["hand_square", "reverse_square"])
def test_a_holomorphic_map_by_hand_has_a_matrix(hosted, name):
    z = X + 1j * V
    f = hosted[name]
    assert_close(f.jacobian(z, holomorphic=True), np.diag(2 * z))
    assert_close(gradwire.vmap(gradwire.jacobian(f, holomorphic=True))(z[None]), np.diag(2 * z)[None])
    with f.linearize(z) as J:
        assert_close(J.todense(), np.diag(2 * z))


# One side only.


def test_a_jvp_alone_gives_what_it_can(hosted):
    f = hosted["forward_gamma"]
    assert f.operations == ("evaluate", "jacobian", "jvp", "linearize")
    assert_close(f.jacobian(X), np.diag(SLOPE))
    with f.linearize(X) as J:
        assert_close(J @ V, SLOPE * V)
        assert_close(J.todense(), np.diag(SLOPE))
        with pytest.raises(gradwire.NotDifferentiable, match="no vjp"):
            J.T @ W
    for ask in (lambda: f.vjp(X, W), lambda: f.jacobian(X, mode="rev"), lambda: gradwire.jacrev(f)(X)):
        with pytest.raises(gradwire.NotDifferentiable) as caught:
            ask()
        assert caught.value.map == "forward_gamma" and "by hand" in str(caught.value)


def test_a_vjp_alone_gives_what_it_can(hosted):
    f = hosted["reverse_gamma"]
    assert f.operations == ("evaluate", "jacobian", "vjp", "linearize")
    assert_close(f.jacobian(X), np.diag(SLOPE))
    with f.linearize(X) as J:
        assert_close(J.T @ W, SLOPE * W)
        assert_close(J.todense(), np.diag(SLOPE))
        with pytest.raises(gradwire.NotDifferentiable, match="no jvp"):
            J @ V
    for ask in (lambda: f.jvp(X, V), lambda: f.jacobian(X, mode="fwd"), lambda: gradwire.jacfwd(f)(X)):
        with pytest.raises(gradwire.NotDifferentiable) as caught:
            ask()
        assert caught.value.map == "reverse_gamma" and "by hand" in str(caught.value)


# What a map says it has is what it has.

POINTS = {
    "gamma": (X,),
    "forward_gamma": (X,),
    "reverse_gamma": (X,),
    "plain_gamma": (X,),
    "erf": (0.5,),
    "kepler": (X, E),
    "log_gamma": (X,),
    "curved_log_gamma": (X,),
    "soft": (X,),
    "spring": (STATE, np.int64(2)),
    "hand_phase": (X,),
    "hand_power": (X + 1j,),
    "of_matrix": (X,),
    "pyxu_square": (np.ones((2, 3)),),
    "newton": (2.0,),
    "clipped": (X,),
    "chained": (X,),
    "power": (X + 1j * V,),
    "phase": (X,),
    "decay": (X[:2], X),
}
SPRING = {"force": X, "parts": None, "steps": None}
ASKED = {
    "evaluate": lambda f, args: f(*args),
    "jacobian": lambda f, args: f.jacobian(*args),
    "jvp": lambda f, args: f.jvp(args, (None,), argnums=(0,)),
    "vjp": lambda f, args: f.vjp(args, SPRING if f.name == "spring" else f(*args)),
    "grad": lambda f, args: f.grad(*args),
    "value_and_grad": lambda f, args: f.value_and_grad(*args),
    "hessian": lambda f, args: f.hessian(*args),
    "hvp": lambda f, args: f.hvp(args, (None,), argnums=(0,)),
    "linearize": lambda f, args: f.linearize(*args).close(),
    "eval_shape": lambda f, args: f.eval_shape(*args),
}


@pytest.mark.parametrize("name", POINTS)
def test_the_operations_in_the_description_are_those_that_succeed(hosted, name):
    f = hosted[name]
    works = []
    for operation, ask in ASKED.items():
        try:
            ask(f, POINTS[name])
        except gradwire.NotDifferentiable as error:
            assert error.map == name, operation
        else:
            works.append(operation)
    assert tuple(works) == tuple(name for name in ASKED if name in f.operations)
    assert set(f.operations) <= set(ASKED)


# What is refused, and why.


def test_there_is_no_second_derivative(hosted):
    f = hosted["log_gamma"]
    for ask in (
        lambda: f.hessian(X),
        lambda: f.hvp(X, V),
        lambda: gradwire.hessian(f)(X),
        lambda: gradwire.grad(f).jvp(X, V),
        lambda: gradwire.jacfwd(gradwire.grad(f))(X),
        lambda: gradwire.grad(f).linearize(X) @ V,
        lambda: gradwire.vmap(gradwire.grad(f)).jacobian(X[None]),
    ):
        with pytest.raises(gradwire.NotDifferentiable) as caught:
            ask()
        assert caught.value.map == "log_gamma" and "by hand" in str(caught.value)


def test_hessian_products_by_differences_are_had_where_they_are_asked_for(hosted):
    f = hosted["curved_log_gamma"]
    curvature = special.polygamma(1, X)
    assert "hvp" in f.operations and "hessian" not in f.operations
    assert_close(f.hvp(X, V), curvature * V, tol=1e-8)
    assert_close(f.hvp(X, 1e-6 * V), 1e-6 * curvature * V, tol=1e-14)
    assert_close(f.hvp(X, np.zeros(3)), np.zeros(3))
    stack = np.stack([V, W])
    assert_close(f.hvp(X, stack), curvature * stack, tol=1e-8)
    single = f.hvp(X.astype("f4"), V.astype("f4"))
    assert_close(single, (curvature * V).astype("f4"), tol=2e-3)
    z, v = X + 1j * V, V - 1j * W
    want = 8 * np.real(np.conj(z) * v) * np.conj(z) + 4 * np.abs(z) ** 2 * np.conj(v)
    assert_close(hosted["hand_power"].hvp(z, v), want, tol=1e-7)


def test_tracers_are_refused(hosted):
    jax = pytest.importorskip("jax")
    with pytest.raises((gradwire.NotDifferentiable, TypeError)):
        jax.grad(lambda x: hosted["gamma"](x).sum())(jax.numpy.ones(3))


def test_a_rule_that_gives_another_shape_is_named_with_what_was_expected(hosted):
    f = hosted["long_rules"]
    for ask, rule in (
        (lambda: f.jvp(X, V), "jvp returned a tangent"),
        (lambda: f.jacobian(X, mode="fwd"), "jvp returned a tangent"),
        (lambda: f.vjp(X, W), "vjp returned a cotangent 0"),
        (lambda: f.jacobian(X, mode="rev"), "vjp returned a cotangent 0"),
        (lambda: f.linearize(X) @ V, "jvp returned a tangent"),
    ):
        with pytest.raises(gradwire.MapFailed, match=rule) as caught:
            ask()
        assert caught.value.map == "long_rules"
        assert "float64[3]" in caught.value.expected and "float64[4]" in caught.value.got


def test_rules_that_give_no_pair_or_another_number_or_complex_ones(hosted):
    for name, ask in (
        ("no_pairs", lambda f: f.jvp(X, V)),
        ("no_pairs", lambda f: f.vjp(X, W)),
        ("too_many", lambda f: f.vjp(X, W)),
        ("complex_rules", lambda f: f.jvp(X, V)),
    ):
        with pytest.raises(gradwire.MapFailed) as caught:
            ask(hosted[name])
        assert caught.value.map == name and caught.value.expected


def test_a_rule_that_raises_is_named(hosted):
    f = hosted["raising"]
    assert_close(f(X), np.sin(X))
    for rule, ask in (("jvp", lambda: f.jvp(X, V)), ("vjp", lambda: f.vjp(X, W))):
        with pytest.raises(
            gradwire.MapFailed, match=f"raising's {rule} raised ArithmeticError: the detector"
        ):
            ask()


def test_declared_shapes_hold_for_the_innermost_map(hosted):
    with pytest.raises(gradwire.ShapeError) as caught:
        hosted["gamma"](np.ones((2, 3)))
    assert caught.value.argument == "x"
    assert gradwire.vmap(hosted["gamma"])(np.ones((2, 3))).shape == (2, 3)


def test_a_map_says_what_it_cannot_be_made_of():
    from gradwire_service import Map

    for options in ({"arrays": "torch"}, {"arrays": "numpy", "hvp": "exact"}, {"hvp": "central"}):
        with pytest.raises(gradwire.ArgumentError) as caught:
            Map(hand_maps.gamma, **options)
        assert caught.value.map == "gamma"
