"""Pytrees in, pytrees out: tuples, lists, dicts and None, and what becomes of integers in them."""

from __future__ import annotations

import collections

import jax
import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, jitted

import gradwire

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.25])
PARAMS = {"w": np.arange(6.0).reshape(2, 3) / 7, "b": np.array([0.1, -0.2]), "steps": np.int64(5)}

TREES = {
    "tuple": (X, Y),
    "list": [X, Y],
    "dict": {"b": X, "a": Y},
    "nested": {"left": (X, [Y, {"deep": X}]), "right": [Y]},
    "with None": (X, None, [None, Y]),
    "empty ones": {"none": [], "a": X, "b": {}, "c": ()},
    "reserved names": {"nd": X, "tuple": Y, "re": {"ref": X, "csr": Y}, "dict": [Y]},
}


@pytest.mark.parametrize("kind", TREES)
def test_a_pytree_comes_back_as_the_same_kind(hosted, kind):
    tree = TREES[kind]
    if kind == "empty ones":
        tree = {**tree, "none": None}
    assert_same(hosted["identity"](tree), tree)


@pytest.mark.parametrize("kind", [kind for kind in TREES if kind != "empty ones"])
def test_gradients_have_the_structure_of_the_argument(hosted, kind):
    tree = TREES[kind]
    want = jitted(jax.grad(maps.energy_of), tree)
    assert_same(hosted["energy_of"].grad(tree), want)
    assert_close(hosted["energy_of"].jvp((tree,), (tree,))[1], sum(map(np.vdot, flat(tree), flat(want))))


def flat(tree):
    return [leaf.ravel() for leaf in jax.tree_util.tree_leaves(tree)]


def test_every_operation_keeps_the_structure(hosted):
    f, tree = hosted["energy_of"], TREES["nested"]
    want = f.grad(tree)
    assert_same(f.vjp(tree, 1.0)[1], want)
    assert_same(f.vjp((tree,), 1.0)[1], (want,))
    assert_same(f.jacobian(tree), want)
    # ∇f is linear here: the Hessian times the point is the gradient.
    assert_same(f.hvp(tree, tree), want)
    assert_same(f.hvp((tree,), (tree,)), (want,))
    with f.linearize(tree) as J:
        assert_same(J.vjp(1.0), want)
        assert_same(J.todense(), want)
        assert_close(J @ tree, f.jvp(tree, tree)[1])
        assert_close(J.matvec(np.concatenate(flat(tree))), np.atleast_1d(J @ tree))
        assert_close(J.rmatvec(np.ones(1)), np.concatenate(flat(want)))


def test_a_hessian_nests_the_argument_twice(hosted):
    tree = {"a": X, "b": [Y]}
    assert_same(hosted["energy_of"].hessian(tree), jitted(jax.hessian(maps.energy_of), tree))


def test_a_value_may_be_a_pytree(hosted):
    got = hosted["network"](PARAMS, X)
    assert_same(got, jitted(maps.network, PARAMS, X))
    assert type(got["parts"]) is tuple and type(got["parts"][1]) is list


def test_a_jacobian_nests_the_argument_in_the_value(hosted):
    def of(params, x):
        value = maps.network({**params, "steps": 5}, x)
        return {"out": value["out"], "parts": value["parts"]}

    floats = {key: PARAMS[key] for key in ("w", "b")}
    want = jitted(jax.jacrev(of, argnums=(0, 1)), floats, X)
    got = hosted["network"].jacobian(PARAMS, X, argnums=(0, 1), mode="rev")
    assert_close_trees(got["out"][0]["w"], want["out"][0]["w"])
    assert_close_trees(got["parts"][1][0][1], want["parts"][1][0][1])
    assert got["steps"] is None  # an integer has no derivative,
    assert got["out"][0]["steps"] is None  # nor is there one in its direction


def assert_close_trees(got, want):
    jax.tree_util.tree_map(assert_close, got, want)


def test_integer_leaves_have_no_tangent(hosted):
    f = hosted["network"]
    ones = {"w": np.ones((2, 3)), "b": np.ones(2), "steps": None}
    value, tangent = f.jvp((PARAMS, X), (ones, X))
    assert tangent["steps"] is None and value["steps"] == 6
    cotangent = {"out": np.ones(2), "parts": (1.0, [X]), "steps": None}
    _, (back, of_x) = f.vjp((PARAMS, X), cotangent)
    assert back["steps"] is None and back["w"].shape == (2, 3)
    inner = np.sum(np.ones(2) * tangent["out"]) + tangent["parts"][0] + X @ tangent["parts"][1][0]
    assert_close(np.sum(back["w"]) + np.sum(back["b"]) + of_x @ X, inner)
    with f.linearize(PARAMS, X) as J:
        assert J.shape == (2 + 1 + 3, 6 + 2 + 3)
        assert_close_trees(J.jvp((ones, X))["out"], tangent["out"])
        assert J.vjp(cotangent)[0]["steps"] is None
        assert J.matmat(np.eye(11)).shape == (6, 11)
        assert_close(J.rmatmat(np.eye(6)).T, J.matmat(np.eye(11)))


def test_a_tangent_of_an_integer_leaf_is_refused(hosted):
    ones = {"w": np.ones((2, 3)), "b": np.ones(2), "steps": np.int64(1)}
    with pytest.raises(gradwire.ArgumentError) as caught:
        hosted["network"].jvp((PARAMS, X), (ones, X))
    assert caught.value.argument == "tangents[0]['steps']"


@pytest.mark.parametrize(
    "tangents",
    [[X, Y], (X,), (X, Y, X), {"a": X, "b": Y}, (X, (Y,)), X],
    ids=["list for tuple", "too few", "too many", "dict", "deeper", "array"],
)
def test_a_tangent_has_the_structure_of_its_argument(hosted, tangents):
    with pytest.raises(gradwire.ArgumentError, match="structure") as caught:
        hosted["energy_of"].jvp(((X, Y),), (tangents,))
    assert caught.value.map == "energy_of" and caught.value.argument.startswith("tangents")
    with pytest.raises(gradwire.ArgumentError):
        hosted["point"].vjp(X, (X, X, X))


def test_none_inside_a_tangent_is_zero(hosted):
    tree = {"a": X, "b": [Y, X]}
    got = hosted["energy_of"].jvp(tree, {"a": None, "b": [Y, None]})
    assert_close(got[1], 4 * Y @ Y)


def test_a_stack_of_pytrees(hosted):
    tree = {"a": X, "b": [Y]}
    stack = {"a": np.stack([X, 2 * X, 0 * X]), "b": [np.stack([Y, Y, Y])]}
    _, out = hosted["energy_of"].jvp(tree, stack)
    assert_close(out, np.array([1, 2, 0]) * 2 * (X @ X) + 4 * Y @ Y)


def test_named_tuples_of_a_value_come_as_tuples(hosted):
    value = hosted["point"](X)
    assert type(value) is tuple
    assert_same(value, (jitted(maps.point, X).x, [jitted(maps.point, X).y[0], None]))
    jacobian = hosted["point"].jacobian(X)
    assert_close(jacobian[0], np.diag(-np.sin(X)))
    assert jacobian[1][1] is None


@pytest.mark.parametrize(
    "foreign",
    [maps.Point(X, X), collections.OrderedDict(a=X), {1: X}, {"a": {b"b": X}}, {1.0, 2.0}, frozenset([1.0]),
     [X, {2.0}], collections.deque([1.0])],
    ids=["namedtuple", "OrderedDict", "int keys", "bytes keys", "set", "frozenset", "set inside", "deque"],
)  # fmt: skip
def test_other_containers_raise_type_error(hosted, foreign):
    for ask in (
        lambda: hosted["energy_of"](foreign),
        lambda: hosted["energy_of"].jvp((X,), (foreign,)),
        lambda: hosted["energy_of"].vjp(X, foreign),
    ):
        with pytest.raises(TypeError) as caught:
            ask()
        assert isinstance(caught.value, gradwire.GradwireError)
        assert caught.value.map == "energy_of" and caught.value.argument


@pytest.mark.parametrize(
    "thing", ["text", b"bytes", object(), range(3), np.array(["a"]), np.array([None]),
              np.array(["2020"], "M8[D]"),
              np.zeros(2, "g") if np.dtype("g").itemsize > 8 else np.array([None]),
              np.zeros(2, [("a", "f8")]), np.ones((1, 1)).view(np.matrix), np.ma.masked_array([1.0], [True])],
    ids=["str", "bytes", "object", "range", "text array", "objects", "dates", "long double", "records",
         "matrix", "masked"],
)  # fmt: skip
def test_what_is_no_array_is_refused_by_name(hosted, thing):
    for ask in (lambda: hosted["energy_of"](thing), lambda: hosted["energy_of"].grad({"a": [thing]})):
        with pytest.raises(TypeError) as caught:
            ask()
        assert isinstance(caught.value, gradwire.GradwireError)
        assert caught.value.argument == "tree" and caught.value.map == "energy_of"


def test_vmap_maps_leaves(hosted):
    tree = {"a": np.stack([X, 2 * X]), "b": [np.stack([Y, Y])]}
    assert_close(gradwire.vmap(hosted["energy_of"])(tree), jitted(jax.vmap(maps.energy_of), tree))
