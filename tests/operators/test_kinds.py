"""What goes in comes out: NumPy, JAX, PyTorch and Dask arrays, alone and mixed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, jitted

import gradwire

X = np.array([0.3, -1.2, 2.5], "f4")
V = np.array([1.0, -0.5, 0.25], "f4")
W = np.array([0.5, 2.0, -1.0, 0.75], "f4")


def as_jax(a):
    return jnp.asarray(a)


def as_torch(a):
    torch = pytest.importorskip("torch")
    return torch.tensor(np.asarray(a))


def type_of(kind):
    if kind is as_jax:
        return jax.Array
    if kind is as_torch:
        return pytest.importorskip("torch").Tensor
    return np.ndarray


KINDS = [
    pytest.param(as_jax, id="jax"),
    pytest.param(as_torch, id="torch"),
    pytest.param(np.asarray, id="numpy"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_answers_in_kind(hosted, kind):
    f, g, x, v, w = hosted["bend"], hosted["valley"], kind(X), kind(V), kind(W)
    with f.linearize(x) as J:
        answers = {
            "value": f(x), "jacobian": f.jacobian(x), "jvp": f.jvp(x, v), "vjp": f.vjp(x, w),
            "grad": g.grad(x),
            "value_and_grad": g.value_and_grad(x), "hessian": g.hessian(x), "hvp": g.hvp(x, v),
            "J.value": J.value,
            "J.jvp": J.jvp(v), "J.vjp": J.vjp(w), "J @ v": J @ v, "J.T @ w": J.T @ w, "J.H @ w": J.H @ w,
            "w @ J": w @ J, "todense": J.todense(), "matvec": J.matvec(v), "rmatvec": J.rmatvec(w),
            "matmat": J.matmat(kind(np.eye(3, dtype="f4"))),
            "vmap": gradwire.vmap(gradwire.grad(g))(kind(X[None])),
        }  # fmt: skip
        of_numpy = {
            "value": f(X), "jacobian": f.jacobian(X), "grad": g.grad(X), "hessian": g.hessian(X),
            "jvp": f.jvp(X, V), "vjp": f.vjp(X, W), "todense": J.todense(),
        }  # fmt: skip
    for name, answer in answers.items():
        for leaf in jax.tree_util.tree_leaves(answer):
            assert isinstance(leaf, type_of(kind)), name
            assert str(leaf.dtype).endswith("float32"), name
    for name, want in of_numpy.items():
        got = jax.tree_util.tree_map(np.asarray, answers[name])
        assert_same(got, jax.tree_util.tree_map(np.asarray, want))


@pytest.mark.parametrize("kind", KINDS)
def test_pytrees_answer_in_kind(hosted, kind):
    tree = {"a": kind(X), "b": [kind(V)]}
    g = hosted["energy_of"].grad(tree)
    assert isinstance(g["a"], type_of(kind)) and isinstance(g["b"][0], type_of(kind))
    assert_close(np.asarray(g["a"]), 2 * X, rtol=1e-6)


def test_float64_comes_back_to_jax_whatever_its_setting(hosted):
    with jax.enable_x64(True):
        x = jnp.asarray(X, dtype="f8")
    assert hosted["valley"](x).dtype == np.float64
    assert hosted["valley"](jnp.asarray(X)).dtype == np.float32


def test_where_kinds_mix_the_first_of_jax_torch_numpy_decides(hosted):
    f = hosted["outer"]
    assert isinstance(f(X, as_jax(V)), jax.Array)
    assert isinstance(f.jvp((X, X), (as_jax(V), V))[1], jax.Array)
    torch = pytest.importorskip("torch")
    assert isinstance(f(as_torch(X), V), torch.Tensor)
    assert isinstance(f(as_torch(X), as_jax(V)), jax.Array)
    assert isinstance(hosted["shifted"](X, by=as_torch(V)), torch.Tensor)
    with hosted["bend"].linearize(X) as J:
        assert isinstance(J @ as_jax(V), jax.Array)
        assert isinstance(J @ V, np.ndarray)


def test_torch_results_are_writable_and_share_nothing(hosted):
    torch = pytest.importorskip("torch")
    x = as_torch(X)
    y = hosted["identity"](x)
    y += 1
    assert torch.equal(x, as_torch(X))
    J = hosted["bend"].linearize(x)
    before = J.jvp(as_torch(V)).clone()
    x += 100
    assert torch.equal(J.jvp(as_torch(V)), before)


def test_a_tensor_that_requires_grad_is_refused(hosted):
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    for ask in (
        lambda: hosted["valley"](x),
        lambda: hosted["valley"].grad(x),
        lambda: hosted["bend"].jvp(X, x),
    ):
        with pytest.raises(gradwire.ArgumentError, match=r"gradwire\.interop\.torch") as caught:
            ask()
        assert caught.value.map in ("valley", "bend") and caught.value.argument in ("x", "tangents")
    assert hosted["valley"](x.detach()).dtype == torch.float32


def test_a_typed_prng_key_is_refused(hosted):
    with pytest.raises(gradwire.DTypeError, match="key_data") as caught:
        hosted["identity"](jax.random.key(0))
    assert caught.value.argument == "x"
    assert hosted["identity"](jax.random.key_data(jax.random.key(0))).dtype == np.uint32


# Inside JAX.


def test_a_tracer_is_refused_by_a_remote_map(lab):
    f = lab["valley"]
    for trace in (jax.jit, jax.grad, jax.vmap):
        with pytest.raises(gradwire.ArgumentError, match=r"gradwire\.interop\.jax") as caught:
            trace(f)(jnp.asarray(X[None] if trace is jax.vmap else X))
        assert caught.value.map == "valley" and caught.value.argument == "x"


def test_a_local_map_is_traced_through():
    f, x = maps.HOSTED["valley"], jnp.asarray(X)
    with jax.default_matmul_precision("highest"):
        want = jitted(maps.valley, X, x64=False)
        assert_same(np.asarray(jax.jit(f)(x)), want)
        assert_close(jax.grad(f)(x), jitted(jax.grad(maps.valley), X, x64=False), rtol=1e-6)
        assert_close(jax.hessian(f)(x), jitted(jax.hessian(maps.valley), X, x64=False), rtol=1e-6)
        assert_close(jax.vmap(f)(x[None]), want[None], rtol=1e-6)


def test_every_operation_of_a_local_map_is_traced_through():
    f, g = maps.HOSTED["bend"], maps.HOSTED["valley"]

    def everything(x, v, w):
        J = f.linearize(x)
        return (
            f.jacobian(x), f.jvp(x, v), f.vjp(x, w), g.grad(x), g.hessian(x), g.hvp(x, v), J @ v, J.T @ w,
            J.todense(), J.value, gradwire.vmap(gradwire.grad(g))(x[None]), maps.HOSTED["power"](x, order=3),
        )  # fmt: skip

    got = jax.jit(everything)(jnp.asarray(X), jnp.asarray(V), jnp.asarray(W))
    for g_leaf, w_leaf in zip(
        jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(everything(X, V, W)), strict=True
    ):
        np.testing.assert_allclose(g_leaf, w_leaf, rtol=1e-5)


def test_local_maps_may_call_each_other():
    from gradwire_service import Map

    inner = maps.HOSTED["valley"]
    outer = Map(lambda x: inner(x) + inner.grad(x) @ x, name="outer")
    x = X.astype("f8")
    assert_close(outer(x), inner(x) + inner.grad(x) @ x)
    assert_close(outer.grad(x), inner.grad(x) + inner.hessian(x) @ x + inner.grad(x))


# Dask.


@pytest.fixture
def array():
    return pytest.importorskip("dask.array").from_array(X, chunks=2)


def test_a_dask_array_is_evaluated_when_computed_in_one_request(counted, array):
    f = counted["bend"]
    y = f(array)
    assert type(y).__module__.startswith("dask.array")
    assert y.shape == (4,) and y.dtype == np.float32
    assert counted.requests == ["POST /v1/maps/bend/eval_shape"]
    counted.requests.clear()
    assert_same(y.compute(), jitted(maps.bend, X, x64=False))
    assert counted.requests == ["POST /v1/maps/bend/evaluate"]


def test_lazy_values_of_every_form(hosted, array):
    assert_same(hosted["bend"](array).compute(), jitted(maps.bend, X, x64=False))
    assert_same(hosted["outer"](array, b=V).compute(), hosted["outer"](X, V))
    assert_same(hosted["outer"](X, b=array).compute(), hosted["outer"](X, X))
    lazy = hosted["point"](array)
    assert type(lazy) is tuple and lazy[1][1] is None
    assert_same(lazy[0].compute(), hosted["point"](X)[0])
    in_tree = hosted["energy_of"]({"a": array, "b": [V]})
    assert_same(in_tree.compute(), hosted["energy_of"]({"a": X, "b": [V]}))


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, x: f.jacobian(x),
        lambda f, x: f.grad(x),
        lambda f, x: f.value_and_grad(x),
        lambda f, x: f.hessian(x),
        lambda f, x: f.jvp(x, x),
        lambda f, x: f.jvp(X, x),
        lambda f, x: f.vjp(x, 1.0),
        lambda f, x: f.vjp(X, x),
        lambda f, x: f.hvp(x, x),
        lambda f, x: f.hvp(X, x),
        lambda f, x: f.linearize(x),
        lambda f, x: f.linearize(X).jvp(x),
        lambda f, x: f.linearize(X) @ x,
        lambda f, x: gradwire.vjp(f, x),
        lambda f, x: gradwire.grad(f)(x),
        lambda f, x: gradwire.vmap(gradwire.grad(f))(x),
    ],
)
def test_every_derivative_of_a_dask_array_says_how_to_go_on(hosted, array, derivative):
    with pytest.raises(NotImplementedError, match=r"compute\(\).*map_blocks"):
        derivative(hosted["valley"], array)
