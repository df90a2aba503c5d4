"""argnums: which arguments are differentiated, and what form that gives to everything."""

from __future__ import annotations

import jax
import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, jitted, of_suite

import gradwire

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.25])
V = np.array([1.0, -0.5, 0.25])
U = np.array([-1.0, 2.0])
W = np.arange(6.0).reshape(3, 2)

# What is asked, and the positions it stands for: bare for one, a tuple in that order for a sequence.
FORMS = [(0, 0), (1, 1), (-1, 1), (-2, 0), ((0,), (0,)), ((0, 1), (0, 1)), ((1, 0), (1, 0)),
         ([1, -2], (1, 0)),
         (np.int64(1), 1), ((np.int32(1), 0), (1, 0))]  # fmt: skip
FORM_NAMES = [f"{type(asked).__name__} {asked}" for asked, _ in FORMS]


@pytest.mark.parametrize(("argnums", "meant"), FORMS, ids=FORM_NAMES)
def test_an_int_is_bare_and_a_sequence_a_tuple_in_that_order(hosted, argnums, meant):
    f = hosted["outer"]
    many = isinstance(meant, tuple)
    positions = meant if many else (meant,)

    assert_same(f.jacobian(X, Y, argnums=argnums), of_suite(jax.jacfwd, "outer", meant)(X, Y))
    tangents = tuple((V, U)[p] for p in positions)
    every = tuple((V, U)[p] if p in positions else None for p in (0, 1))
    got = f.jvp((X, Y), tangents if many else tangents[0], argnums=argnums)
    assert_same(got, f.jvp((X, Y), every))
    _, both = f.vjp((X, Y), W)
    want = tuple(both[p] for p in positions)
    assert_close_trees(f.vjp((X, Y), W, argnums=argnums)[1], want if many else want[0])
    with f.linearize(X, Y, argnums=argnums) as J:
        assert J.shape == (6, sum((3, 2)[p] for p in positions))
        assert_close(J @ (tangents if many else tangents[0]), got[1])
        assert_close_trees(J.T @ W, want if many else want[0])
        assert_close_trees(J.todense(), f.jacobian(X, Y, argnums=argnums))


@pytest.mark.parametrize(("argnums", "meant"), FORMS, ids=FORM_NAMES)
def test_scalar_maps_too(hosted, argnums, meant):
    f, y = hosted["blend"], X + 1
    many = isinstance(meant, tuple)
    assert_same(f.grad(X, y, argnums=argnums), of_suite(jax.grad, "blend", meant)(X, y))
    assert_same(f.value_and_grad(X, y, argnums=argnums), of_suite(jax.value_and_grad, "blend", meant)(X, y))
    H = f.hessian(X, y, argnums=argnums)
    assert_close_trees(H, of_suite(jax.hessian, "blend", meant)(X, y))
    tangents = (V, 2 * V)[: len(meant)] if many else V
    product = f.hvp((X, y), tangents, argnums=argnums)
    if many:
        want = tuple(sum(block @ v for block, v in zip(row, tangents, strict=True)) for row in H)
        assert_close_trees(product, want)
    else:
        assert_close(product, H @ V)


def assert_close_trees(got, want):
    assert isinstance(got, tuple) == isinstance(want, tuple)
    if not isinstance(want, tuple):
        got, want = (got,), (want,)
    for g, w in zip(got, want, strict=True):
        if isinstance(w, tuple):
            assert_close_trees(g, w)
        else:
            assert_close(g, w)


def test_none_is_every_differentiable_argument(hosted):
    f = hosted["outer"]
    _, (a, b) = f.vjp((X, Y), W)
    assert a.shape == (3,) and b.shape == (2,)
    with f.linearize(X, Y) as J:
        assert J.shape == (6, 5)
        assert_close(J @ (V, U), f.jvp((X, Y), (V, U))[1])
    with hosted["bend"].linearize(X) as J:
        assert J.shape == (4, 3)
        assert_close(J @ V, hosted["bend"].jvp(X, V)[1])


def test_none_leaves_integers_and_static_arguments_out(hosted):
    k = np.int64(3)
    value, tangent = hosted["scaled"].jvp((X, k), (V,))
    assert_same((value, tangent), jitted(lambda x, v: jax.jvp(lambda x: maps.scaled(x, k), (x,), (v,)), X, V))
    _, cotangents = hosted["scaled"].vjp((X, k, True), V)
    assert type(cotangents) is tuple and len(cotangents) == 1
    assert_close(cotangents[0], 3 * np.cos(X) * V)
    with hosted["scaled"].linearize(X, k) as J:
        assert_close(J @ V, 3 * np.cos(X) * V)  # one differentiable argument: bare
    with hosted["power"].linearize(X, 3) as J:
        assert_close(J @ V, 3 * X**2 * V)
    assert_close(hosted["power"].jvp((X, 3), (V,))[1], 3 * X**2 * V)


def test_bare_primals_are_answered_bare(hosted):
    _, cotangent = hosted["bend"].vjp(X, np.ones(4))
    assert isinstance(cotangent, np.ndarray)
    _, (cotangent_in_tuple,) = hosted["bend"].vjp((X,), np.ones(4))
    assert_same(cotangent, cotangent_in_tuple)
    _, (asked_as_sequence,) = hosted["bend"].vjp(X, np.ones(4), argnums=(0,))
    assert_same(cotangent, asked_as_sequence)
    assert_same(hosted["bend"].vjp((X,), np.ones(4), argnums=0)[1], cotangent)
    assert_same(hosted["valley"].hvp(X, V), hosted["valley"].hvp((X,), (V,))[0])


def test_only_a_tuple_is_a_sequence_of_primals(hosted):
    tree = [X, Y]
    _, tangent = hosted["energy_of"].jvp(tree, [V, U])
    assert_close(tangent, 2 * X @ V + 4 * Y @ U)
    _, cotangent = hosted["energy_of"].vjp(tree, 1.0)
    assert_same(cotangent, [2 * X, 4 * Y])


def test_arguments_of_a_variadic_map_count_as_they_come(hosted):
    f = hosted["gathered"]
    assert_close(f.grad(X, Y, V, argnums=-1), 9 * V**2)
    a, b = f.grad(X, Y, V, argnums=(2, 0))
    assert_close(a, 9 * V**2)
    assert_close(b, 3 * X**2)
    _, cotangents = f.vjp((X, Y, V), 1.0)
    assert len(cotangents) == 3
    with pytest.raises(gradwire.ArgumentError):
        f.grad(X, argnums=1)


REFUSED = [(), [], (0, 0), (0, -2), 2, -3, (0, 5), True, (True,), "0", 1.0, (0.0,)]


@pytest.mark.parametrize("argnums", REFUSED, ids=repr)
@pytest.mark.parametrize(
    "operation", ["jacobian", "grad", "value_and_grad", "hessian", "jvp", "vjp", "hvp", "linearize"]
)
def test_what_names_no_argument_is_refused(hosted, operation, argnums):
    f = hosted["blend"]
    ask = {
        "jvp": lambda: f.jvp((X, X), (X, X), argnums=argnums),
        "vjp": lambda: f.vjp((X, X), 1.0, argnums=argnums),
        "hvp": lambda: f.hvp((X, X), (X, X), argnums=argnums),
    }.get(operation, lambda: getattr(f, operation)(X, X, argnums=argnums))
    with pytest.raises(gradwire.ArgumentError) as caught:
        ask()
    assert caught.value.map == "blend" and caught.value.argument == "argnums"
    assert caught.value.expected and caught.value.got


@pytest.mark.parametrize("argnums", [r for r in REFUSED if r not in (2, -3, (0, 5), (0, -2))], ids=repr)
@pytest.mark.parametrize("transform", ["grad", "jacfwd", "hessian"])
def test_transforms_refuse_it_where_it_is_written(hosted, transform, argnums):
    with pytest.raises(gradwire.ArgumentError):
        getattr(gradwire, transform)(hosted["blend"], argnums=argnums)


@pytest.mark.parametrize("argnums", [2, -3, (0, 5), (0, -2)], ids=repr)
def test_transforms_refuse_what_the_signature_lacks_when_called(hosted, argnums):
    with pytest.raises(gradwire.ArgumentError) as caught:
        gradwire.grad(hosted["blend"], argnums=argnums)(X, X)
    assert caught.value.map == "blend" and caught.value.argument == "argnums"


def test_integer_arguments_cannot_be_named(hosted):
    with pytest.raises(gradwire.NotDifferentiable) as caught:
        hosted["scaled"].jacobian(X, np.int64(2), argnums=1)
    assert caught.value.map == "scaled" and caught.value.argument == "k" and caught.value.got == "int64[]"
    with pytest.raises(gradwire.NotDifferentiable):
        hosted["scaled"].jvp((X, np.int64(2)), (V, V), argnums=(0, 1))
    with pytest.raises(gradwire.NotDifferentiable):
        gradwire.jacfwd(hosted["scaled"], argnums=2)(X, np.int64(2), np.True_)


def test_static_arguments_cannot_be_named(hosted):
    with pytest.raises(gradwire.ArgumentError, match="static") as caught:
        hosted["power"].jacobian(X, 2, argnums=1)
    assert caught.value.argument == "order"
    with pytest.raises(gradwire.ArgumentError, match="static"):
        gradwire.jacfwd(hosted["power"], argnums=1)(X, 2)


def test_what_is_given_by_keyword_is_never_differentiated(hosted):
    with pytest.raises(gradwire.ArgumentError, match="by position") as caught:
        hosted["outer"].jacobian(X, b=Y, argnums=1)
    assert caught.value.argument == "b"
    with pytest.raises(gradwire.ArgumentError, match="by position"):
        hosted["outer"].jacobian(a=X, b=Y)
    with pytest.raises(gradwire.ArgumentError, match="by position"):
        hosted["defaulted"].jacobian(X, argnums=1)
    _, cotangents = hosted["outer"].vjp((X,), W, b=Y)
    assert len(cotangents) == 1
    assert_close(hosted["shifted"].jacobian(X, by=X), np.diag(2 * X))
