"""Tangents and cotangents: their form, their stack dimensions, their dtype."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import assert_close, assert_same

import gradwire

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.25])
V = np.array([1.0, -0.5, 0.25])
U = np.array([-1.0, 2.0])
RNG = np.random.default_rng(3)
STACKS = [(4,), (2, 3), (1,), (1, 1, 2), (0,), (2, 0)]


@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_stack_dimensions_stand_in_front_of_the_answer_too(hosted, stack):
    f = hosted["bend"]
    J = f.jacobian(X)
    tangents, cotangents = RNG.standard_normal((*stack, 3)), RNG.standard_normal((*stack, 4))

    value, out = f.jvp(X, tangents)
    assert value.shape == (4,)  # the value is not stacked
    assert_close(out, tangents @ J.T)
    value, back = f.vjp(X, cotangents)
    assert value.shape == (4,)
    assert_close(back, cotangents @ J)
    if stack in ((2, 3), (0,)):
        assert_close(hosted["valley"].hvp(X, tangents), tangents @ hosted["valley"].hessian(X))
        with f.linearize(X) as L:
            assert_close(L.jvp(tangents), tangents @ J.T)
            assert_close(L.vjp(cotangents), cotangents @ J)
            assert_close(L.T.jvp(cotangents), cotangents @ J)
            assert_close(L.H.vjp(tangents), tangents @ J.T)


def test_a_stack_is_its_entries_one_by_one(hosted):
    tangents = RNG.standard_normal((3, 2, 3))
    a = RNG.standard_normal((2, 3))
    _, together = hosted["fold"].jvp(a, tangents)
    for row, tangent in zip(together, tangents, strict=True):
        assert_close(row, hosted["fold"].jvp(a, tangent)[1])


def test_the_stack_of_a_scalar_value(hosted):
    weights = np.array([1.0, -2.0, 0.5])
    _, cotangents = hosted["valley"].vjp(X, weights)
    assert_close(cotangents, weights[:, None] * hosted["valley"].grad(X))


def test_every_leaf_has_the_same_stack(hosted):
    vs, us = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 2))
    J0, J1 = hosted["outer"].jacobian(X, Y, argnums=(0, 1))
    _, out = hosted["outer"].jvp((X, Y), (vs, us))
    assert_close(out, np.einsum("ijk,sk->sij", J0, vs) + np.einsum("ijk,sk->sij", J1, us))
    for tangents in [(vs, U), (V, us), (vs, us[:3]), (vs, us[None])]:
        with pytest.raises(gradwire.ShapeError, match=r"[Ss]tack dimensions are the same") as caught:
            hosted["outer"].jvp((X, Y), tangents)
        assert caught.value.map == "outer" and caught.value.argument == "tangents"
    with pytest.raises(gradwire.ShapeError):
        hosted["energy_of"].jvp({"a": X, "b": Y}, {"a": vs, "b": U})


@pytest.mark.parametrize(
    "wrong", [np.ones(2), np.ones((3, 1)), np.ones((3, 4)), np.float64(1.0)], ids=np.shape
)
def test_another_shape_is_refused_never_broadcast(hosted, wrong):
    with pytest.raises(gradwire.ShapeError) as caught:
        hosted["bend"].jvp(X, wrong)
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.map == "bend" and error.argument.startswith("tangents")
    assert error.expected == "(…, 3)" and error.got == str(np.shape(wrong))
    with pytest.raises(gradwire.ShapeError):
        hosted["valley"].hvp(X, wrong)
    with hosted["bend"].linearize(X) as J, pytest.raises(gradwire.ShapeError):
        J.jvp(wrong)


def test_a_cotangent_has_the_values_shape(hosted):
    with pytest.raises(gradwire.ShapeError) as caught:
        hosted["bend"].vjp(X, np.ones(3))
    assert caught.value.map == "bend" and caught.value.argument == "cotangent"
    assert caught.value.expected == "(…, 4)" and caught.value.got == "(3,)"


def test_none_is_a_zero_tangent(hosted):
    f = hosted["outer"]
    zeros = np.zeros(3), np.zeros(2)
    assert_same(f.jvp((X, Y), (V, None)), f.jvp((X, Y), (V, zeros[1])))
    assert_same(f.jvp((X, Y), (None, None))[1], np.zeros((3, 2)))
    vs = RNG.standard_normal((4, 3))
    assert_close(f.jvp((X, Y), (vs, None))[1], f.jvp((X, Y), (vs, np.zeros((4, 2))))[1])
    assert_same(hosted["valley"].hvp(X, None), np.zeros(3))
    with f.linearize(X, Y) as J:
        assert_same(J.jvp((None, U)), J.jvp((zeros[0], U)))
        assert [abs(cotangent).max() for cotangent in J.vjp(None)] == [0, 0]
    assert_close(hosted["bend"].vjp(X, None)[1], np.zeros(3))


@pytest.mark.parametrize(
    "wrong", [(V,), (V, U, V), [V, U], V, {"a": V}], ids=["1", "3", "list", "array", "dict"]
)
def test_one_tangent_for_each_differentiated_argument(hosted, wrong):
    for ask in (
        lambda: hosted["outer"].jvp((X, Y), wrong),
        lambda: hosted["blend"].hvp((X, X), wrong),
        lambda: hosted["outer"].linearize(X, Y).jvp(wrong),
    ):
        with pytest.raises(gradwire.ArgumentError, match="one entry for each") as caught:
            ask()
        assert caught.value.argument == "tangents" and caught.value.expected == "a tuple of 2"


# Dtypes.


def test_a_tangent_is_cast_to_its_arguments_dtype(hosted):
    f, x = hosted["bend"], X.astype("f4")
    want = f.jvp(x, V.astype("f4"))
    assert want[1].dtype == np.float32
    ones = f.jvp(x, np.ones(3, "f4"))
    assert_same(f.jvp(x, V), want)
    for tangent in (
        np.ones(3, "i8"),
        np.ones(3, bool),
        np.ones(3, "f2"),
        [1, 1, 1],
        [1.0, 1, 1],
        np.ones(3, ">f8"),
    ):
        assert_same(f.jvp(x, tangent), ones)
    w = np.ones(4, "f4")
    assert_same(f.vjp(x, w.astype("f8")), f.vjp(x, w))
    assert_same(f.vjp(x, w.astype("i4")), f.vjp(x, w))
    with f.linearize(x) as J:
        assert J.dtype == np.float32
        assert_same(J @ V, J @ V.astype("f4"))
        assert_same(w.astype("i8") @ J, w @ J)
        assert_same(J.matvec([1, 1, 1]), J.matvec(np.ones(3, "f4")))
    assert_same(hosted["valley"].hvp(x, V), hosted["valley"].hvp(x, V.astype("f4")))


def test_real_passes_where_complex_is_wanted(hosted):
    z = X + 1j
    assert_same(hosted["holomorphic"].jvp(z, V), hosted["holomorphic"].jvp(z, V + 0j))
    assert_same(hosted["wave"].vjp(X, V), hosted["wave"].vjp(X, V + 0j))
    assert hosted["wave"].vjp(X, V)[1].dtype == np.float64


def test_complex_is_refused_where_real_is_wanted(hosted):
    f = hosted["bend"]
    for ask in (
        lambda: f.jvp(X, V + 0j),
        lambda: f.jvp(X, [1.0, 2.0, 3j]),
        lambda: f.vjp(X, np.ones(4, complex)),
        lambda: hosted["valley"].hvp(X, V + 1j),
        lambda: hosted["valley"].vjp(X, 1j),
    ):
        with pytest.raises(gradwire.DTypeError) as caught:
            ask()
        assert isinstance(caught.value, TypeError)
        assert caught.value.expected == "float64" and "complex" in caught.value.got
        assert caught.value.argument.startswith(("tangents", "cotangent"))
        assert caught.value.map in ("bend", "valley")
    with f.linearize(X) as J:
        for ask in (lambda: J.jvp(V + 0j), lambda: J.vjp(np.ones(4, complex)), lambda: J @ (1j * V)):
            with pytest.raises(gradwire.DTypeError):
                ask()


def test_a_zero_dimensional_cotangent_may_be_a_python_number(hosted):
    x = np.float64(0.7)
    assert_same(hosted["cubic"].vjp(x, 2)[1], 2 * hosted["cubic"].grad(x))
    assert_same(hosted["cubic"].jvp(x, 1), hosted["cubic"].jvp(x, np.float64(1)))
    assert_same(hosted["cubic"].hvp(x, 1.0), hosted["cubic"].hessian(x))


@pytest.mark.parametrize("name", ["jvp", "vjp"])
def test_text_is_no_tangent(hosted, name):
    with pytest.raises(gradwire.ArgumentError):
        getattr(hosted["bend"], name)(X, "ones")
