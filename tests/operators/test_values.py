"""Evaluating: what may be given, and what comes back."""

from __future__ import annotations

import maps
import numpy as np
import pytest
from oracle import assert_close, assert_same, jitted

import gradwire

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.25])


def test_a_value_is_what_jit_gives_bit_for_bit(hosted):
    assert_same(hosted["valley"](X), jitted(maps.valley, X))
    assert_same(hosted["bend"](X), jitted(maps.bend, X))
    assert_same(hosted["outer"](X, Y), jitted(maps.outer, X, Y))
    matrix = np.random.default_rng(0).standard_normal((4, 3))
    assert_same(hosted["affine"](X, matrix), jitted(maps.affine, X, matrix))


def test_float32_is_computed_in_float32_bit_for_bit(hosted):
    x, matrix = X.astype("f4"), np.random.default_rng(0).standard_normal((4, 3)).astype("f4")
    assert_same(hosted["valley"](x), jitted(maps.valley, x, x64=False))
    assert_same(hosted["affine"](x, matrix), jitted(maps.affine, x, matrix, x64=False))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
     "float16", "float32", "float64", "complex64", "complex128"],
)  # fmt: skip
def test_every_dtype_goes_and_comes_back(hosted, dtype):
    x = np.array([0, 1, 1]).astype(dtype)
    assert_same(hosted["identity"](x), x)


def test_apply_is_calling(hosted):
    assert_same(hosted["valley"].apply(X), hosted["valley"](X))
    assert_same(hosted["outer"].apply(X, b=Y), hosted["outer"](X, Y))


def test_arguments_are_given_by_position_or_by_name(hosted):
    want = jitted(maps.outer, X, Y)
    assert_same(hosted["outer"](X, b=Y), want)
    assert_same(hosted["outer"](b=Y, a=X), want)
    assert_same(hosted["shifted"](X, by=X), jitted(lambda x: maps.shifted(x, by=x), X))


def test_defaults_stand_where_nothing_is_given(hosted):
    assert_same(hosted["defaulted"](X), jitted(maps.defaulted, X))
    assert_same(hosted["defaulted"](X, scale=2.0), jitted(maps.defaulted, X, 2.0))
    assert_same(hosted["defaulted"].jacobian(X), np.diag(6 * X))


def test_any_number_of_arguments(hosted):
    for n in range(3):
        others = [np.full(2, k + 0.5) for k in range(n)]
        assert_same(hosted["gathered"](X, *others), jitted(maps.gathered, X, *others))


def test_any_names(hosted):
    weights = {"left": np.float64(2.0), "right": np.float64(0.5)}
    assert_same(hosted["labelled"](X, **weights), jitted(lambda x, w: maps.labelled(x, **w), X, weights))
    assert_same(hosted["labelled"].jacobian(X, **weights), np.diag(np.full(3, 2.5)))


# Memory.

LAYOUTS = {
    "C order": lambda a: a,
    "Fortran order": np.asfortranarray,
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "negative strides": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout(hosted, layout):
    a = LAYOUTS[layout](np.random.default_rng(1).standard_normal((3, 2)))
    plain = np.array(a, dtype="=f8", order="C")
    assert_same(hosted["fold"](a), jitted(maps.fold, plain))
    value, tangent = hosted["fold"].jvp(a, a)
    assert_same((value, tangent), hosted["fold"].jvp(plain, plain))
    assert_same(hosted["fold"].jacobian(a), hosted["fold"].jacobian(plain))


def test_read_only_arrays_are_taken_and_left_alone(hosted):
    x = X.copy()
    x.flags.writeable = False
    found = hosted["identity"](x)
    assert_same(found, X)
    assert found.flags.writeable and not np.shares_memory(found, x)
    with hosted["bend"].linearize(x) as J:
        assert_close(J.jvp(x), hosted["bend"].jvp(X, X)[1])


@pytest.mark.parametrize("name", ["valley", "bend", "identity"])
def test_empty_arrays(hosted, name):
    empty = np.empty(0)
    f, plain = hosted[name], getattr(maps, name)
    value = np.asarray(jitted(plain, empty))
    assert_same(f(empty), value)
    assert_same(f.jacobian(empty), np.empty((*value.shape, 0)))
    got, tangent = f.jvp(empty, empty)
    assert_same((got, tangent), (value, np.zeros_like(value)))
    assert_same(f.vjp(empty, np.ones_like(value))[1], empty)
    assert_same(f.linearize(empty).todense(), np.empty((*value.shape, 0)))


def test_zero_dimensional_arrays(hosted):
    x = np.array(0.7)
    f = hosted["cubic"]
    assert_same(f(x), jitted(maps.cubic, x))
    for derivative in (f.grad(x), f.jacobian(x), f.hessian(x), f.hvp(x, x), f.vjp(x, 1.0)[1]):
        assert isinstance(derivative, np.ndarray) and derivative.shape == ()
    assert f.grad(x) == pytest.approx(3 * 0.7**2 * np.sin(0.7) + 0.7**3 * np.cos(0.7), rel=1e-14)


def test_numpy_scalars_are_arrays(hosted):
    assert_same(hosted["cubic"](np.float32(0.7)), jitted(maps.cubic, np.float32(0.7), x64=False))


# Results are the caller's own.


def arrays_in(tree):
    if isinstance(tree, np.ndarray):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [a for child in tree or () for a in arrays_in(child)]


def test_results_are_writable_and_share_memory_with_nothing(hosted):
    x, w = X.copy(), np.ones(4)
    f = hosted["bend"]
    with f.linearize(x) as J:
        found = [
            hosted["identity"](x), f(x), f.jacobian(x), f.jvp(x, x), f.vjp(x, w), f.hessian(x), J.value,
            J.jvp(x), J.vjp(w), J @ x, J.T @ w, J.todense(), J.matvec(x), J.rmatmat(w[:, None]),
            hosted["with_aux"](x),
            hosted["valley"].value_and_grad(x), hosted["identity"]((x, [x, {"a": x}])),
        ]  # fmt: skip
        arrays = arrays_in([*found, f(x), J.jvp(x)])
        for i, a in enumerate(arrays):
            assert a.flags.writeable
            assert not np.shares_memory(a, x) and not np.shares_memory(a, w)
            assert not any(np.shares_memory(a, other) for other in arrays[:i])
        before = J.jvp(x).copy()
        for a in arrays:
            a.fill(7)
        assert_same(J.jvp(x), before)
        assert_same(f(x), jitted(maps.bend, X))


def test_changing_the_input_afterwards_changes_no_derivative(hosted):
    # Aligned to 64 bytes, JAX would take the memory as it is.
    memory = np.empty(64 * 9, np.uint8)
    start = -memory.ctypes.data % 64
    x = memory[start : start + 64 * 8].view(np.float64)[:64]
    x[:] = np.linspace(-1, 1, 64)
    v = np.cos(np.arange(64.0))
    J = hosted["bend"].linearize(x)
    value, before = J.value.copy(), J.jvp(v)
    x[:] = 100.0
    assert_same(J.value, value)
    assert_same(J.jvp(v), before)
    assert_same(J.vjp(np.ones(65)), hosted["bend"].linearize(np.linspace(-1, 1, 64)).vjp(np.ones(65)))


# Shapes without values.


def test_eval_shape_gives_shapes_and_dtypes(hosted):
    spec = hosted["outer"].eval_shape(X, Y.astype("f4"))
    assert spec == gradwire.ArraySpec((3, 2), np.dtype("f8"))
    shapes = hosted["network"].eval_shape(*maps.EXAMPLES["network"])
    assert shapes == {
        "out": gradwire.ArraySpec((2,), np.dtype("f8")),
        "parts": (gradwire.ArraySpec((), np.dtype("f8")), [gradwire.ArraySpec((3,), np.dtype("f8"))]),
        "steps": gradwire.ArraySpec((), np.dtype("i8")),
    }


def test_eval_shape_takes_arrays_too_large_to_exist(hosted):
    huge = gradwire.ArraySpec((1 << 20, 1 << 20), np.dtype("f4"))
    assert hosted["fold"].eval_shape(huge) == gradwire.ArraySpec((1 << 20,), np.dtype("f4"))
    of_jacobian = gradwire.jacobian(hosted["fold"]).eval_shape(gradwire.ArraySpec((5, 4), np.dtype("f4")))
    assert of_jacobian == gradwire.ArraySpec((4, 5, 4), np.dtype("f4"))


def test_eval_shape_of_a_policy(hosted):
    f = hosted["bend"].using(precision="compute=float64,output=float32")
    assert f.eval_shape(X) == gradwire.ArraySpec((4,), np.dtype("f4"))
    assert f(X).dtype == np.float32


# Options.


def test_using_gives_the_same_map_with_an_option(hosted):
    f = hosted["valley"]
    with pytest.warns(gradwire.PrecisionWarning, match=r"valley was computed in float32.*float64"):
        assert_same(f.using(precision="float32")(X), jitted(maps.valley, X.astype("f4"), x64=False))
    narrow = f.using(precision="float32")
    assert_same(narrow.grad(X.astype("f4")), f.grad(X.astype("f4")))
    assert_same(f(X), jitted(maps.valley, X))
    wide = f.using(precision="float64")
    assert_same(wide(X.astype("f4")), jitted(maps.valley, X.astype("f4").astype("f8")))
    assert_same(narrow.using(device="cpu").using(precision="input")(X), jitted(maps.valley, X))
    assert_same(gradwire.grad(f).using(timeout=30.0)(X), gradwire.grad(f.using(timeout=30.0))(X))


@pytest.mark.parametrize(
    "precision", ["float8", "compute=float31", "quick", "compute=float32,compute=float64"]
)
def test_a_policy_that_is_none_is_refused(hosted, precision):
    with pytest.raises(gradwire.ArgumentError) as caught:
        hosted["valley"].using(precision=precision)(X)
    assert caught.value.argument == "precision"


def test_a_device_that_is_not_there_is_refused(hosted):
    with pytest.raises(gradwire.ArgumentError) as caught:
        hosted["valley"].using(device="gpu:7")(X)
    assert caught.value.argument == "device"
