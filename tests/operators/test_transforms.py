"""JAX's names: they compose to any order, answer as JAX does, and send one request."""

from __future__ import annotations

import functools

import jax
import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, jitted

import gradwire

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.25])
V = np.array([1.0, -0.5, 0.25])
W = np.array([0.5, 2.0, -1.0, 0.75])
XS = np.stack([X, 2 * X, X - 1, X[::-1]])
A, B = np.float64(0.7), np.float64(-1.3)


# Each is built of the same names twice: of gradwire's, on a map, and of JAX's, on the function.
COMPOSED = {
    "grad": ("valley", lambda g, f: g.grad(f), (X,)),
    "value_and_grad": ("valley", lambda g, f: g.value_and_grad(f), (X,)),
    "jacfwd": ("bend", lambda g, f: g.jacfwd(f), (X,)),
    "jacrev": ("bend", lambda g, f: g.jacrev(f), (X,)),
    "jacobian by size": ("bend", lambda g, f: g.jacobian(f) if g is gradwire else jax.jacfwd(f), (X,)),
    "hessian": ("valley", lambda g, f: g.hessian(f), (X,)),
    "jit": ("valley", lambda g, f: g.jit(g.grad(g.jit(f))), (X,)),
    "grad, 2 times": ("cubic", lambda g, f: g.grad(g.grad(f)), (A,)),
    "grad, 3 times": ("cubic", lambda g, f: g.grad(g.grad(g.grad(f))), (A,)),
    "grad, 4 times": ("cubic", lambda g, f: g.grad(g.grad(g.grad(g.grad(f)))), (A,)),
    "jacfwd, 5 times": ("cubic", lambda g, f: g.jacfwd(g.jacfwd(g.jacfwd(g.jacfwd(g.jacfwd(f))))), (A,)),
    "hessian of hessian": ("valley", lambda g, f: g.hessian(g.hessian(f)), (X,)),
    "forward over reverse": ("valley", lambda g, f: g.jacfwd(g.jacrev(g.grad(f))), (X,)),
    "reverse over forward": ("bend", lambda g, f: g.jacrev(g.jacfwd(f)), (X,)),
    "mixed partial": ("blend", lambda g, f: g.grad(g.grad(f, 0), 1), (A, B)),
    "mixed partials of fourth order": (
        "blend", lambda g, f: g.grad(g.grad(g.grad(g.grad(f, 1), 0), 1), 0), (A, B)),
    "several at once": ("blend", lambda g, f: g.jacfwd(g.grad(f, (0, 1)), (1, 0)), (X, X)),
    "value_and_grad of value_and_grad": (
        "cubic", lambda g, f: g.jacfwd(g.value_and_grad(f)), (A,)),
    "vmap": ("valley", lambda g, f: g.vmap(f), (XS,)),
    "vmap of vmap": ("cubic", lambda g, f: g.vmap(g.vmap(f)), (XS,)),
    "vmap of grad": ("valley", lambda g, f: g.vmap(g.grad(f)), (XS,)),
    "vmap of hessian": ("valley", lambda g, f: g.vmap(g.hessian(f)), (XS,)),
    "jacfwd of vmap": ("valley", lambda g, f: g.jacfwd(g.vmap(f)), (XS,)),
    "vmap of value_and_grad": ("valley", lambda g, f: g.vmap(g.value_and_grad(f)), (XS,)),
    "vmap of grad of grad": (
        "blend", lambda g, f: g.vmap(g.grad(g.grad(f)), in_axes=(0, None)), (X, B)),
    "over one of two": ("blend", lambda g, f: g.vmap(f, in_axes=(None, 0)), (X, XS)),
    "over another axis": ("valley", lambda g, f: g.vmap(f, in_axes=1), (XS.T.copy(),)),
    "from the end": ("bend", lambda g, f: g.vmap(f, in_axes=-1, out_axes=-1), (XS.T.copy(),)),
    "to another axis": ("bend", lambda g, f: g.vmap(f, out_axes=1), (XS,)),
    "two axes": ("outer", lambda g, f: g.vmap(g.vmap(f, (0, None)), (None, 0)), (XS, np.stack([Y, -Y]))),
    "axes in a list": ("outer", lambda g, f: g.vmap(f, in_axes=[0, None]), (XS, Y)),
    "axes of a pytree": (
        "energy_of", lambda g, f: g.vmap(f, in_axes=({"a": 0, "b": [None, 1]},)),
        ({"a": XS, "b": [Y, XS.T.copy()]},)),
    "axes of a whole pytree": ("energy_of", lambda g, f: g.vmap(f, in_axes=(0,)),
        ({"a": XS, "b": [XS, XS]},)),
    "axes of a value": (
        "point",
        lambda g, f: g.vmap(f, out_axes=(tuple if g is gradwire else maps.Point._make)((1, [0, None]))),
        (XS,)),
    "with aux": ("with_aux", lambda g, f: g.grad(f, has_aux=True), (X,)),
    "value_and_grad with aux": ("with_aux", lambda g, f: g.value_and_grad(f, has_aux=True), (X,)),
    "jacrev with aux": ("with_aux", lambda g, f: g.jacrev(f, has_aux=True), (X,)),
    "hessian with aux": ("with_aux", lambda g, f: g.hessian(f, has_aux=True), (X,)),
    "vmap of grad with aux": ("with_aux", lambda g, f: g.vmap(g.grad(f, has_aux=True)), (XS,)),
    "grad of grad with aux": (
        "with_aux", lambda g, f: g.jacfwd(g.grad(f, has_aux=True), has_aux=True), (X,)),
    "holomorphic": ("holomorphic", lambda g, f: g.jacfwd(f, holomorphic=True), (X + 1j,)),
    "holomorphic Hessian": (
        "holomorphic_sum", lambda g, f: g.jacfwd(g.grad(f, holomorphic=True), holomorphic=True), (X + 1j,)),
    "of pytrees": ("energy_of", lambda g, f: g.hessian(f), ({"a": X, "b": [Y]},)),
}  # fmt: skip


@functools.cache
def composed(name):
    hosted_name, compose, args = COMPOSED[name]
    want = jitted(compose(jax, getattr(maps, hosted_name)), *args)
    return hosted_name, compose, args, want


@pytest.mark.parametrize("name", COMPOSED)
def test_every_composition_is_jaxs(hosted, name):
    hosted_name, compose, args, want = composed(name)
    got = compose(gradwire, hosted[hosted_name])(*args)
    want = tuple(want) if isinstance(want, maps.Point) else want
    if "vmap" in name or "axes" in name or "axis" in name:
        # Mapping may change the order of a sum, so not bit for bit in all of JAX's versions.
        jax.tree_util.tree_map(lambda g, w: assert_close(g, w), got, want)
    else:
        assert_same(got, want)


@pytest.mark.parametrize("name", ["grad, 4 times", "hessian of hessian", "vmap of grad of grad",
                                  "hessian with aux",
                                  "mixed partials of fourth order", "jit", "two axes"])  # fmt: skip
def test_a_composition_sends_one_request_when_called(counted, name):
    hosted_name, compose, args = COMPOSED[name]
    f = counted[hosted_name]
    composed = compose(gradwire, f)
    assert counted.requests == []  # composing is free
    composed(*args)
    assert counted.requests == [f"POST /v1/maps/{hosted_name}/evaluate"]


def test_methods_of_a_transformed_map_send_one_request_too(counted):
    f = gradwire.vmap(gradwire.grad(counted["valley"]))
    for ask in (
        lambda: f.jacobian(XS),
        lambda: f.jvp(XS, XS),
        lambda: f.vjp((XS,), XS),
        lambda: f.eval_shape(XS),
        lambda: gradwire.jvp(f, (XS,), (XS,)),
        lambda: f.hessian(XS[:1]),
    ):
        counted.requests.clear()
        ask()
        assert len(counted.requests) == 1


def test_transforms_leave_the_map_as_it_is(hosted):
    f = hosted["valley"]
    gradwire.grad(f)
    gradwire.vmap(f)
    assert_same(f(X), jitted(maps.valley, X))
    assert gradwire.jit(f) is f


def test_operations_of_a_transformed_map(hosted):
    f = gradwire.grad(hosted["valley"])
    assert_same(f.jacobian(X), hosted["valley"].hessian(X))
    assert_same(f.jvp(X, V), (hosted["valley"].grad(X), hosted["valley"].hvp(X, V)))
    assert f.eval_shape(X) == gradwire.ArraySpec((3,), np.dtype("f8"))
    assert_same(gradwire.grad(hosted["cubic"]).grad(A), hosted["cubic"].hessian(A))
    assert "grad" not in f.operations and "jacobian" in f.operations


def test_vmaps_jacobian_is_of_the_whole_and_not_one_per_row(hosted):
    f = hosted["bend"]
    whole = gradwire.vmap(f).jacobian(XS)
    assert whole.shape == (4, 4, 4, 3)
    assert_close(whole, jitted(jax.jacfwd(jax.vmap(maps.bend)), XS))
    rows = gradwire.vmap(gradwire.jacobian(f))(XS)
    assert rows.shape == (4, 4, 3)
    assert_close(rows, jitted(jax.vmap(jax.jacfwd(maps.bend)), XS))
    for k, row in enumerate(rows):
        assert_close(whole[k, :, k], row)
        assert not whole[k, :, np.arange(4) != k].any()


def test_keyword_arrays_are_mapped_over_their_first_axis(hosted):
    got = gradwire.vmap(hosted["shifted"])(XS, by=2 * XS)
    assert_close(got, XS**2 + 2 * XS)


def test_declared_shapes_are_those_of_the_innermost_map(hosted):
    with pytest.raises(gradwire.ShapeError) as caught:
        hosted["valley"](XS)
    assert caught.value.argument == "x" and caught.value.expected == 'Float[Array, "n"]'
    assert gradwire.vmap(hosted["valley"])(XS).shape == (4,)
    with pytest.raises(gradwire.ShapeError) as caught:
        gradwire.vmap(hosted["valley"])(XS[None])
    assert caught.value.got == "(4, 3)"


def test_axes_that_do_not_fit_are_refused(hosted):
    for error, ask in (
        (gradwire.ArgumentError, lambda: gradwire.vmap(hosted["outer"], in_axes=(0,))(XS, Y)),
        (gradwire.ArgumentError, lambda: gradwire.vmap(hosted["outer"], in_axes=None)(X, Y)),
        (gradwire.ArgumentError, lambda: gradwire.vmap(hosted["bend"], out_axes=5)(XS)),
        (gradwire.ArgumentError, lambda: gradwire.vmap(hosted["bend"], in_axes="0")),
        (gradwire.ArgumentError, lambda: gradwire.vmap(hosted["bend"], in_axes=True)),
        (gradwire.ShapeError, lambda: gradwire.vmap(hosted["outer"])(XS, XS[:2])),
        (gradwire.ShapeError, lambda: gradwire.vmap(hosted["cubic"])(A)),
        (gradwire.ShapeError, lambda: gradwire.vmap(hosted["bend"], in_axes=2)(XS)),
    ):
        with pytest.raises(error):
            ask()


# jvp, vjp and linearize, as JAX has them.


def test_jvp_is_one_request_and_jaxs(hosted, counted):
    want = jitted(lambda x, y, v, w: jax.jvp(maps.outer, (x, y), (v, w)), X, Y, V, Y)
    assert_same(gradwire.jvp(hosted["outer"], (X, Y), (V, Y)), want)
    assert_same(gradwire.jvp(hosted["outer"], [X, Y], [V, Y]), want)
    assert_same(
        gradwire.jvp(hosted["outer"], (X, Y), (None, Y))[1], hosted["outer"].jvp((X, Y), Y, argnums=1)[1]
    )
    assert_same(gradwire.jvp(hosted["outer"], (X, Y), (None, None))[1], np.zeros((3, 2)))
    assert_close(gradwire.jvp(hosted["scaled"], (X, 3), (V, None))[1], 3 * np.cos(X) * V)
    value, tangent, aux = gradwire.jvp(hosted["with_aux"], (X,), (V,), has_aux=True)
    assert_close(value, X @ X)
    assert_close(tangent, 2 * X @ V)
    assert_same(aux, hosted["with_aux"](X)[1])
    f = counted["outer"]
    gradwire.jvp(f, (X, Y), (V, Y))
    assert counted.requests == ["POST /v1/maps/outer/jvp"]


def test_vjp_evaluates_at_once_and_gives_a_function(hosted):
    value, pull = gradwire.vjp(hosted["outer"], X, Y)
    w = np.arange(6.0).reshape(3, 2)
    assert_same(value, jitted(maps.outer, X, Y))
    cotangents = pull(w)
    assert type(cotangents) is tuple
    for got, want in zip(cotangents, hosted["outer"].vjp((X, Y), w)[1], strict=True):
        assert_close(got, want)
    (alone,) = gradwire.vjp(hosted["bend"], X)[1](W)
    assert_close(alone, hosted["bend"].vjp(X, W)[1])
    _, pull = gradwire.vjp(hosted["scaled"], X, 3)
    cotangents = pull(V)
    assert_close(cotangents[0], 3 * np.cos(X) * V)
    assert cotangents[1] is None  # one for each primal; an integer's is None
    value, pull, aux = gradwire.vjp(hosted["with_aux"], X, has_aux=True)
    assert_close(pull(1.0)[0], 2 * X)
    assert_close(value, X @ X)
    assert_same(aux, hosted["with_aux"](X)[1])


def test_linearize_evaluates_at_once_and_gives_a_function(hosted):
    value, push = gradwire.linearize(hosted["outer"], X, Y)
    assert_same(value, jitted(maps.outer, X, Y))
    assert_close(push(V, Y), hosted["outer"].jvp((X, Y), (V, Y))[1])
    assert_close(push(V, None), hosted["outer"].jvp((X, Y), (V, None))[1])
    _, push = gradwire.linearize(hosted["bend"], X)
    assert_close(push(V), hosted["bend"].jvp(X, V)[1])
    _, push = gradwire.linearize(hosted["scaled"], X, 3)
    assert_close(push(V, None), 3 * np.cos(X) * V)
    _, push, aux = gradwire.linearize(hosted["with_aux"], X, has_aux=True)
    assert_close(push(V), 2 * X @ V)
    assert_same(aux, hosted["with_aux"](X)[1])
    with pytest.raises(gradwire.ArgumentError):
        push(V, V)


def test_vjp_and_linearize_send_one_request_for_each_evaluation(counted):
    f = counted["outer"]
    _, pull = gradwire.vjp(f, X, Y)
    assert counted.requests == ["POST /v1/maps/outer/linearize"]
    pull(np.ones((3, 2)))
    assert len(counted.requests) == 2


def test_of_transformed_maps(hosted):
    f = gradwire.vmap(gradwire.grad(hosted["valley"]))
    value, pull = gradwire.vjp(f, XS)
    assert_close(value, np.stack([hosted["valley"].grad(x) for x in XS]))
    (cotangent,) = pull(XS)
    assert_close(cotangent, np.stack([hosted["valley"].hvp(x, x) for x in XS]))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda f: gradwire.jvp(f, X, V),
        lambda f: gradwire.jvp(f, (X,), V),
        lambda f: gradwire.jvp(f, (X,), (V, V)),
        lambda f: gradwire.jvp(f, (), ()),
        lambda f: gradwire.vjp(f),
        lambda f: gradwire.vjp(f, X, X),
        lambda f: gradwire.grad(f, allow_int=True),
        lambda f: gradwire.grad(f, reduce_axes=()),
        lambda f: gradwire.vmap(f, axis_name="i"),
        lambda f: gradwire.vmap(f, axis_size=4),
        lambda f: gradwire.vmap(f, spmd_axis_name="i"),
        lambda f: gradwire.jit(f, donate_argnums=0),
        lambda f: gradwire.vjp(f, X, reduce_axes=()),
        lambda f: gradwire.grad(lambda x: x),
        lambda f: gradwire.jit(np.sin),
        lambda f: gradwire.linearize(np.sin, X),
    ],
)
def test_what_cannot_be_honoured_raises_type_error(hosted, wrong):
    with pytest.raises(TypeError):
        wrong(hosted["valley"])


def test_too_many_transforms_are_refused(lab):
    f = lab["cubic"]
    for _ in range(17):
        f = gradwire.jacfwd(f)
    with pytest.raises(gradwire.ArgumentError, match="Too many transforms"):
        f(A)
