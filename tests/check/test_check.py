"""`gradwire check` lets right derivatives pass and finds wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Complex, Float, Int

from gradwire import CheckReport
from gradwire_service import Map
from gradwire_service.check import STEPS, check_map, taylor


def outcome(report: CheckReport, derivative: str) -> set[str]:
    return {finding.outcome for finding in report.findings if finding.derivative == derivative}


def with_jvp(value: Callable[[Any], Any], rule: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """``value`` with the derivative ``rule(x, tangent)``, right or wrong."""
    function = jax.custom_jvp(value)
    function.defjvp(lambda primals, tangents: (value(primals[0]), rule(primals[0], tangents[0])))
    return function


def with_vjp(value: Callable[[Any], Any], rule: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """``value`` with the transposed derivative ``rule(x, cotangent)``, right or wrong."""
    function = jax.custom_vjp(value)
    function.defvjp(lambda x: (value(x), x), lambda x, w: (rule(x, w),))
    return function


# Maps that are right.


@Map
def rosenbrock(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@Map
def linear(a: Float[Array, "m n"], x: Float[Array, "n"]) -> Float[Array, "m"]:
    return a @ x


@Map
def spectrum(x: Complex[Array, "n"]) -> Complex[Array, "n"]:
    product: Array = jnp.fft.fft(x) * jnp.conj(x)
    return product


@Map
def wave(phase: Float[Array, "n"]) -> Complex[Array, "n"]:
    return jnp.exp(1j * phase)


@Map
def energy(z: Complex[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.abs(z) ** 4)


@Map
def logarithm(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.log(x) + jnp.sqrt(x)


@Map
def gathered(x: Float[Array, "n"], index: Int[Array, "k"]) -> Float[Array, "k"]:
    return jnp.sin(x)[index]


@Map
def kinked(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jax.nn.relu(x) + jnp.abs(y) * jnp.where(x > 100.0, x, 0.0)


@Map
def coarse(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.cumsum(jnp.sin(x.astype(jnp.float32)))


@Map
def offset(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 1e8 + jnp.sin(x)


@Map
def constant(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.ones(())


@Map
def looped(x: Float[Array, "n"]) -> Float[Array, "n"]:
    _, y = jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1]) + x), (0, x))
    return jnp.asarray(y)


@Map
def by_hand(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(with_vjp(jnp.sin, lambda x, w: w * jnp.cos(x))(x))


tree = Map(
    lambda p, q: {"sum": jnp.tanh(p["w"] @ q[0]) + p["b"], "count": p["n"] + 1, "norm": jnp.sum(q[0] ** 2)},
    name="tree",
    example=(
        {"w": np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]), "b": np.float32(0.5), "n": np.arange(2)},
        [np.array([1.0, -1.0])],
    ),
)
small = Map(lambda x: jnp.sum(x**3), name="small", example=(np.array([1e-9, 2e-9]),))
large = Map(lambda x: jnp.sum(jnp.sqrt(x)), name="large", example=(np.array([1e12, 3e12]),))
single = Map(lambda x: jnp.sum(jnp.sin(x)), name="single", example=(np.linspace(0, 1, 5, dtype=np.float32),))
number = Map(lambda x: jnp.sin(x), name="number", example=(0.7,))

RIGHT = (
    *(rosenbrock, linear, spectrum, wave, energy, logarithm, gathered, kinked, coarse, offset, constant),
    *(looped, by_hand, tree, small, large, single, number),
)


@pytest.mark.parametrize("map", RIGHT, ids=lambda map: map.name)
def test_right_derivatives_pass(map: Map) -> None:
    report = check_map(map)
    assert report.unchecked is None and report.ok, f"\n{report}"
    assert {"jvp", "vjp"} & {finding.derivative for finding in report.findings if finding.outcome == "ok"}


def test_every_derivative_of_a_scalar_map_is_tested() -> None:
    report = check_map(rosenbrock)
    assert [finding.derivative for finding in report.findings] == [
        *("jvp", "vjp", "grad", "value_and_grad", "jacobian", "linearize", "hvp", "hessian")
    ]
    assert {finding.outcome for finding in report.findings} == {"ok"}


def test_every_differentiable_argument_is_tested() -> None:
    assert {finding.argument for finding in check_map(linear).findings} == {"a", "x"}
    assert {finding.argument for finding in check_map(gathered).findings} == {"x"}
    assert {finding.argument for finding in check_map(tree).findings} == {"p", "q"}


# Maps that are wrong.


@pytest.mark.parametrize("factor", [-1.0, 1.0001])
def test_a_wrong_custom_jvp_is_found(factor: float) -> None:
    wrong = with_jvp(jnp.sin, lambda x, t: factor * jnp.cos(x) * t)
    report = check_map(Map(lambda x: wrong(x), name="wrong", example=(np.array([0.3, 0.5, 0.7]),)))
    assert not report.ok
    assert outcome(report, "jvp") == {"FAILED"}


@pytest.mark.parametrize("factor", [-1.0, 1.0001])
def test_a_wrong_custom_vjp_is_found(factor: float) -> None:
    wrong = with_vjp(jnp.sin, lambda x, w: factor * jnp.cos(x) * w)
    report = check_map(Map(lambda x: jnp.sum(wrong(x)), name="wrong", example=(np.array([0.3, 0.5, 0.7]),)))
    assert not report.ok
    assert outcome(report, "vjp") == {"FAILED"} and outcome(report, "grad") == {"FAILED"}


def test_a_derivative_that_is_wrong_in_one_argument_of_two_is_found_there() -> None:
    wrong = with_jvp(jnp.sin, lambda x, t: 1.001 * jnp.cos(x) * t)
    map = Map(lambda a, b: 1e4 * jnp.sin(a) + wrong(b), name="wrong", example=(np.ones(3), np.ones(3)))
    failed = {(f.derivative, f.argument) for f in check_map(map).findings if f.outcome == "FAILED"}
    assert failed == {("jvp", "b")}


def test_a_wrong_derivative_of_one_element_among_many_is_found() -> None:
    factors = jnp.ones(1000).at[17].set(2.0)
    wrong = with_jvp(jnp.sin, lambda x, t: factors * jnp.cos(x) * t)
    assert outcome(check_map(Map(wrong, name="wrong", example=(np.linspace(-1, 1, 1000),))), "jvp") == {
        "FAILED"
    }


def test_a_wrong_second_derivative_is_found_where_the_first_is_right() -> None:
    wrong = with_jvp(jnp.sin, lambda x, t: jax.lax.stop_gradient(jnp.cos(x)) * t)
    report = check_map(Map(lambda x: jnp.sum(wrong(x)), name="wrong", example=(np.array([0.3, 0.5]),)))
    assert outcome(report, "jvp") == outcome(report, "grad") == {"ok"}
    assert outcome(report, "hvp") == outcome(report, "hessian") == {"FAILED"}


def test_a_transpose_that_is_not_one_is_found() -> None:
    def product(x: Any) -> Any:
        return jax.custom_derivatives.linear_call(lambda _, x: 3.0 * x, lambda _, w: 2.0 * w, (), x)

    report = check_map(Map(lambda x: product(jnp.sin(x)), name="wrong", example=(np.array([0.3, 0.5]),)))
    assert outcome(report, "jvp") == {"ok"}
    assert outcome(report, "vjp") == {"FAILED"}


def test_a_conjugate_in_the_wrong_place_is_found() -> None:
    wrong = with_jvp(lambda z: z * z, lambda z, t: 2 * jnp.conj(z) * t)
    assert not check_map(Map(wrong, name="wrong", example=(np.array([0.3 + 1j, 0.5 - 2j]),))).ok


def test_a_derivative_where_the_value_is_a_staircase_is_found() -> None:
    through = with_jvp(lambda x: jnp.round(x), lambda x, t: t)
    assert outcome(check_map(Map(through, name="wrong", example=(np.array([0.1, 5.2]),))), "jvp") == {
        "FAILED"
    }


def test_a_wrong_derivative_of_a_map_in_float32_is_found() -> None:
    wrong = with_jvp(jnp.sin, lambda x, t: 1.05 * jnp.cos(x) * t)
    map = Map(
        lambda x: wrong(x.astype(jnp.float32)).astype(x.dtype), name="wrong", example=(np.linspace(0, 1, 5),)
    )
    assert outcome(check_map(map), "jvp") == {"FAILED"}


def test_a_rule_that_raises_is_a_failure_and_the_rest_is_tested() -> None:
    def broken(x: Any, t: Any) -> Any:
        raise ZeroDivisionError("in the rule")

    report = check_map(Map(with_jvp(jnp.sin, broken), name="broken", example=(np.ones(2),)))
    assert not report.ok
    assert any("in the rule" in finding.why for finding in report.findings)


# Maps that cannot be checked.


def test_a_map_without_example_or_signature_is_skipped_with_the_way_to_go() -> None:
    report = check_map(Map(lambda x: x, name="unknown"))
    assert report.ok and report.unchecked is not None and "example=" in report.unchecked


def test_a_map_that_refuses_made_up_arguments_is_skipped_with_its_reason() -> None:
    def picky(x: Float[Array, "n"]) -> Float[Array, "n"]:
        if x.shape[0] % 2 or x.shape[0] < 8:
            raise ValueError("an even size of 8 or more")
        return x

    report = check_map(Map(picky))
    assert report.ok and report.unchecked is not None and "an even size" in report.unchecked
    assert check_map(Map(picky, example=(np.ones(8),))).unchecked is None


def test_a_map_that_fails_at_its_own_example_has_failed() -> None:
    def failing(x: Float[Array, "n"]) -> Float[Array, "n"]:
        raise ValueError("no")

    report = check_map(Map(failing, example=(np.ones(2),)))
    assert not report.ok and report.failed is not None and "no" in report.failed
    assert not check_map(Map(lambda x: jnp.log(x), name="nan", example=(-np.ones(2),))).ok


def test_a_map_of_integers_alone_has_nothing_to_check() -> None:
    report = check_map(Map(lambda n: n + 1, name="count", example=(np.arange(3),)))
    assert report.ok and report.unchecked is not None


# The Taylor test itself.


def along(f: Callable[[float], float]) -> list[np.ndarray]:
    return [np.array([f(h)]) for h in STEPS]


@pytest.mark.parametrize("error", [1.0, 1e-1, 1e-3])
def test_a_wrong_slope_cannot_hide_behind_higher_terms(error: float) -> None:
    for scale in (1.0, 1e2, 1e4, 1e6):
        for sign in (-1, 1):
            values = along(lambda h, scale=scale, sign=sign: h + sign * scale * h**2 + scale * h**4)  # type: ignore[misc]
            assert taylor(values, np.zeros(1), np.array([1.0])).outcome == "ok"
            assert taylor(values, np.zeros(1), np.array([1.0 + error])).outcome == "FAILED"


def test_a_slope_of_a_value_that_does_not_move_is_wrong() -> None:
    assert taylor(along(lambda h: 0.0), np.zeros(1), np.ones(1)).outcome == "FAILED"
    assert taylor(along(lambda h: 0.0), np.zeros(1), np.zeros(1)).outcome == "ok"
    assert taylor(along(lambda h: h), np.zeros(1), np.zeros(1)).outcome == "FAILED"


def test_a_value_that_leaves_its_domain_at_large_steps_is_tested_at_small_ones() -> None:
    values = along(lambda h: float(np.log(1e-3 - h)) if h < 1e-3 else np.nan)
    start = np.array([np.log(1e-3)])
    assert taylor(values, start, np.array([-1e3])).outcome == "ok"
    assert taylor(values, start, np.array([-1.1e3])).outcome == "FAILED"
