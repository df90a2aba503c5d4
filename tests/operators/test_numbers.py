"""Python numbers, lists of them, integers, and static arguments."""

from __future__ import annotations

import jax
import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, jitted

import gradwire

X = np.array([0.3, -1.2, 2.5])
V = np.array([1.0, -0.5, 0.25])

# Weakly typed numbers.

WEAK = [
    ("f4", 2.0, "f4"), ("f4", 2, "f4"), ("f4", True, "f4"), ("f4", 2j, "c8"), ("f8", 2, "f8"),
    ("f8", 2j, "c16"),
    ("f2", 2.0, "f2"), ("i4", 2, "i4"), ("i4", True, "i4"), ("i8", 2, "i8"), ("i4", 2.0, "f8"),
    ("i4", 2j, "c16"),
    ("u1", 2, "u1"), ("b1", 2, "i8"), ("b1", True, "b1"), ("c8", 2.0, "c8"), ("c8", 2j, "c8"),
    ("c16", 2, "c16"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "number", "result"), WEAK, ids=lambda x: str(x))
def test_a_python_number_takes_the_other_arguments_dtype(hosted, dtype, number, result):
    x = np.array([1, 0, 1]).astype(dtype)
    got = hosted["product"](x, number)
    assert got.dtype == np.dtype(result)
    assert_close(got, (x * number).astype(result))
    # As in JAX, at the precision of the arrays given: without a floating one, 64 bit.
    assert_same(got, jitted(maps.product, x, number, x64=dtype not in ("f2", "f4", "c8")))


@pytest.mark.parametrize(
    ("number", "dtype"), [(3, "i8"), (3.0, "f8"), (3j, "c16"), (True, "b1"), (2**53 + 1, "i8")]
)
def test_a_python_number_alone_is_64_bit(hosted, number, dtype):
    got = hosted["identity"](number)
    assert_same(got, np.array(number, dtype))
    assert hosted["identity"].eval_shape(number) == gradwire.ArraySpec((), np.dtype(dtype))


def test_a_python_number_never_decides_the_precision(hosted):
    x = X.astype("f4")
    assert hosted["defaulted"](x, 1 / 3).dtype == np.float32
    assert hosted["defaulted"].jacobian(x, 1 / 3, argnums=1).dtype == np.float32
    value, (of_x, of_scale) = hosted["defaulted"].vjp((x, 2.0), x)
    assert value.dtype == of_x.dtype == of_scale.dtype == np.float32
    with hosted["defaulted"].linearize(x, 2.0) as J:
        assert J.dtype == np.float32 and J.shape == (3, 4)
        assert_close(J @ (V, 1), hosted["defaulted"].jvp((x, 2.0), (V, 1.0))[1], rtol=1e-6)


def test_a_numpy_scalar_does_decide(hosted):
    assert hosted["product"](np.float64(2.0), X.astype("f4")).dtype == np.float64
    assert hosted["product"](np.float32(2.0), np.arange(3)).dtype == np.float32


def test_an_int_becomes_floating_where_it_is_declared_so(hosted):
    assert_same(hosted["cubic"](2), jitted(maps.cubic, 2.0))
    assert_same(hosted["valley"]([1, 2, 3]), jitted(maps.valley, np.array([1.0, 2.0, 3.0])))
    assert_same(hosted["shifted"]([1, 2], by=[3, 4]), np.array([4.0, 8.0]))


def test_an_int_becomes_floating_where_it_is_differentiated(hosted):
    f = hosted["blend"]
    want = jitted(jax.grad(maps.blend, (0, 1)), 2.0, 3.0)
    assert_same(f.grad(2, 3, argnums=(0, 1)), want)
    assert_same(gradwire.grad(f, argnums=(0, 1))(2, 3), want)
    assert_same(
        f.jacobian([1, 2], X[:2], argnums=0), jitted(jax.grad(maps.blend), np.array([1.0, 2.0]), X[:2])
    )
    assert_same(hosted["identity"].jvp(3, 1, argnums=0), (np.array(3.0), np.array(1.0)))
    # An array of integers is what it says.
    with pytest.raises(gradwire.NotDifferentiable):
        f.grad(np.int64(2), 3.0)


def test_a_number_that_fits_its_declaration_only_by_rounding_is_refused(hosted):
    for ask in (
        lambda: hosted["scaled"](X, 2.0),
        lambda: hosted["scaled"](X, np.float64(2)),
        lambda: hosted["cubic"](1j),
        lambda: hosted["cubic"](True),
        lambda: hosted["valley"](np.arange(3)),
        lambda: hosted["valley"](X + 0j),
        lambda: hosted["intensity"](X),
    ):
        with pytest.raises(gradwire.DTypeError, match="is declared") as caught:
            ask()
        assert isinstance(caught.value, TypeError)
        assert caught.value.map and caught.value.argument and caught.value.expected and caught.value.got


# Lists of numbers.


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([1.0, 2, 3], np.array([1.0, 2.0, 3.0])),
        ([1, 2, 3], np.array([1, 2, 3], "i8")),
        ([True, False], np.array([True, False])),
        ([[1, 2], [3, 4.5]], np.array([[1, 2], [3, 4.5]])),
        ([1j, 2.0], np.array([1j, 2])),
        ([[1]], np.array([[1]], "i8")),
        ([], np.empty(0)),
        ([[], []], np.empty((2, 0))),
    ],
    ids=repr,
)
def test_a_nested_list_of_numbers_is_one_array(hosted, given, meant):
    assert_same(hosted["identity"](given), meant)


def test_any_other_list_is_a_pytree(hosted):
    assert_same(hosted["identity"]([X, 2.0]), [X, np.array(2.0)])
    assert_same(hosted["identity"]((1.0, 2.0)), (np.array(1.0), np.array(2.0)))
    assert_same(hosted["identity"]([(1, 2), [3, 4]]), [(np.array(1), np.array(2)), np.array([3, 4])])
    assert_same(hosted["identity"]({"a": [1, 2]}), {"a": np.array([1, 2])})


def test_lists_work_in_every_place(hosted):
    f, x = hosted["bend"], X.tolist()
    J = f.jacobian(X)
    assert_same(f.jacobian(x), J)
    assert_same(f.jvp(x, [1, 0, 0]), f.jvp(X, np.array([1.0, 0, 0])))
    assert_same(f.vjp(x, [1, 0, 0, 0]), f.vjp(X, np.array([1.0, 0, 0, 0])))
    assert f.jvp(X, [[1, 0, 0], [0, 1, 0]])[1].shape == (2, 4)
    with f.linearize(x) as L:
        assert_close(L @ [1, 0, 0], J[:, 0])
        assert_close([1, 0, 0, 0] @ L, J[0])
        assert_close(L.matvec([1, 0, 0]), J[:, 0])
    assert_same(gradwire.vmap(hosted["cubic"])([1, 2]), gradwire.vmap(hosted["cubic"])(np.array([1.0, 2.0])))


def test_ragged_and_oversized_lists_are_refused(hosted):
    with pytest.raises(gradwire.ShapeError) as caught:
        hosted["identity"]([[1.0, 2.0], [3.0]])
    assert caught.value.argument == "x" and caught.value.map == "identity"
    with pytest.raises(gradwire.DTypeError) as caught:
        hosted["identity"]([2**63])
    assert caught.value.argument == "x" and caught.value.map == "identity"
    with pytest.raises(gradwire.DTypeError):
        hosted["identity"]([True, 2])


# Integers.


def test_integers_and_truth_values_stand_beside_what_is_differentiated(hosted):
    f = hosted["scaled"]
    for k, flag in ((np.int64(3), np.True_), (np.int8(3), True), (3, np.False_)):
        want = jitted(lambda x, k=k, flag=flag: maps.scaled(x, k, flag), X)
        assert_same(f(X, k, flag), want)
        assert_close(f.jacobian(X, k, flag), np.diag(3 * np.cos(X) if flag else np.ones(3)))
    jacobian = gradwire.jacfwd(f)(X, 3)
    assert_same(jacobian, f.jacobian(X, 3))


def test_an_integer_that_does_not_fit_is_refused_never_wrapped(hosted):
    assert hosted["product"](2**40, 1) == 2**40
    assert_same(hosted["total"](np.array([2**40, 1])), np.array(2**40 + 1))
    x = X.astype("f4")
    for ask in (
        lambda: hosted["product"](x, np.int64(2**40)),
        lambda: hosted["product"](x, 2**40),
        lambda: hosted["identity"](2**63),
        lambda: hosted["identity"](-(2**63) - 1),
        lambda: hosted["total"].using(precision="float32")(np.array([2**31])),
    ):
        with pytest.raises(gradwire.DTypeError) as caught:
            ask()
        assert caught.value.map and caught.value.argument and caught.value.expected and caught.value.got
    assert_same(hosted["product"](x, np.int64(2**20)), x * np.float32(2**20))
    assert_same(hosted["product"](2**40, x.astype("f8")), x.astype("f8") * 2**40)


# Static arguments.

KINDS = {"bool": 100.0, "int": 200.0, "float": 300.0, "str": 400.0, "tuple": 500.0, "none": 600.0}


def test_one_and_its_likes_are_different(hosted):
    f = hosted["power"]
    for order, kind in (
        (1, "int"),
        (1.0, "float"),
        (True, "bool"),
        ("a", "str"),
        ((9,), "tuple"),
        (None, "none"),
    ):
        assert_close(f(X, order), X + KINDS[kind])
        assert_close(f(X, order=order), X + KINDS[kind])
    assert_close(f(X), X**2 + 200)
    assert_close(f(X, np.int64(1)), X + 200)  # a NumPy scalar is the number it holds


def test_sequences_arrive_as_tuples(hosted):
    f = hosted["power"]
    want = f(X, (1, "b"))
    assert_close(want, X**2 + 500)
    assert_same(f(X, [1, "b"]), want)
    assert_close(f(X, [[1], (2.0, None), True]), X**3 + 500)
    assert_close(f(X, ()), np.ones(3) + 500)


def test_static_arguments_by_position_and_by_name(hosted):
    f = hosted["power"]
    assert_close(f(X, 3, flavour="spiced"), X**3 + 200.5)
    assert_close(f(X, flavour="spiced", order=3), X**3 + 200.5)
    assert_close(f(x=X, order=3), X**3 + 200)
    assert_close(f.jacobian(X, 3), np.diag(3 * X**2))
    assert_close(f.jacobian(X, order=3, flavour="spiced"), np.diag(3 * X**2))
    assert_close(f.jvp(X, V, order=3)[1], 3 * X**2 * V)
    assert_close(f.vjp((X, 3), V, flavour="plain")[1][0], 3 * X**2 * V)
    with f.linearize(X, order=3) as J:
        assert_close(J @ V, 3 * X**2 * V)


def test_static_arguments_are_bound_before_any_transform(hosted):
    f = hosted["power"]
    xs = np.stack([X, 2 * X])
    assert_close(gradwire.vmap(f)(xs, 3), xs**3 + 200)
    assert_close(gradwire.vmap(f, in_axes=(0, None))(xs, 3), xs**3 + 200)
    assert_close(gradwire.vmap(f)(xs, order=3), xs**3 + 200)
    assert_close(gradwire.vmap(gradwire.jacfwd(f))(xs, 3, flavour="spiced")[1], np.diag(3 * (2 * X) ** 2))


@pytest.mark.parametrize("value", [np.nan, (1, np.nan), X, {"a": 1}, 1j, b"b", object(), {1}], ids=repr)
def test_other_static_values_are_refused(hosted, value):
    with pytest.raises(gradwire.ArgumentError, match="static") as caught:
        hosted["power"](X, value)
    assert caught.value.argument == "order" and caught.value.map == "power"
