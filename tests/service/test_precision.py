"""At which precision a query computes and answers: policies, their order, what the answers say of it."""

from __future__ import annotations

import itertools
import linecache
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hosted
import jax
import ml_dtypes
import numpy as np
import pytest
from running import Running, tree

import gradwire
from gradwire import wire
from gradwire._errors import ArgumentError
from gradwire_service.policy import BITS, MATMUL, Policy

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def arrays(dtype: Any, count: int = 3) -> np.ndarray:
    return np.arange(1, count + 1).astype(dtype)


# A policy's text.


@pytest.mark.parametrize(
    ("compute", "output", "matmul"), [*itertools.product(("input", *BITS), ("input", *BITS), MATMUL)]
)
def test_a_policy_reads_its_own_text(compute: str, output: str, matmul: str) -> None:
    policy = Policy(compute, output, matmul)
    assert Policy.parse(str(policy)) == policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("input", Policy()),
        ("float32", Policy("float32", "float32")),
        (" bfloat16 ", Policy("bfloat16", "bfloat16")),
        ("compute=float32,output=input,matmul=highest", Policy("float32", "input")),
        ("matmul=default", Policy(matmul="default")),
        ("output = float32 , compute = float64", Policy("float64", "float32")),
    ],
)
def test_a_policy_is_written_in_several_ways(text: str, policy: Policy) -> None:
    assert Policy.parse(text) == policy


@pytest.mark.parametrize(
    "text",
    [
        "", "float31", "complex64", "int32", "Float32", "double", "input,input", "compute=", "compute=int8",
        "compute=float32,compute=float32", "precision=float32", "matmul=fast", "compute=float32;output=input",
        "compute=float32,", "=", "float32" * 1000,
    ],
)  # fmt: skip
def test_a_text_that_is_no_policy_is_refused_as_one(service: Running, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Policy.parse(text)
    assert caught.value.argument == "precision"
    answer = service.post("/v1/maps/wave/evaluate", {"args": [[1.0]], "precision": text})
    assert (answer.kind, answer.fields["argument"]) == ("arguments", "precision")
    assert (
        "float64" in answer.fields["expected"]
        or "compute=" in answer.fields["expected"]
        or ("matmul" in answer.fields["expected"])
    )
    assert len(answer.body) < 2000


# What the input's precision is.


@pytest.mark.parametrize(
    ("dtype", "computed_in"),
    [
        ("float64", "float64"),
        ("float32", "float32"),
        ("float16", "float16"),
        (BFLOAT16, "bfloat16"),
        ("complex128", "float64"),
        ("complex64", "float32"),
        ("int64", "float64"),
        ("uint64", "float64"),
        ("int8", "float64"),
        ("bool", "float64"),
    ],
)
def test_by_default_a_map_computes_and_answers_as_its_input_is(
    service: Running, dtype: Any, computed_in: str
) -> None:
    answer = service.ask("same", "evaluate", arrays(dtype))
    value = tree(answer)
    assert value.dtype == dtype
    assert np.array_equal(value, arrays(dtype))
    assert answer.fields["meta"]["computed_in"] == computed_in
    assert answer.fields["meta"]["lossy"] is False


@pytest.mark.parametrize(
    ("args", "computed_in", "value_dtype"),
    [
        ((arrays("float32"), arrays("float64")), "float64", "float64"),
        ((arrays("float16"), arrays("float32")), "float32", "float32"),
        ((arrays(BFLOAT16), arrays("complex64")), "float32", "complex64"),
        ((arrays("float32"), arrays("int64")), "float32", "float32"),
        ((arrays("float32"), 2.0), "float32", "float32"),
        ((arrays("float16"), 2.0), "float16", "float16"),
        ((arrays("float32"), 2j), "float32", "complex64"),
        ((arrays("int32"), 2.5), "float64", "float64"),
    ],
)
def test_the_widest_array_decides_and_integers_and_numbers_never_do(
    service: Running, args: tuple[Any, Any], computed_in: str, value_dtype: str
) -> None:
    answer = service.ask("pair", "evaluate", {"a": args[0]}, args[1])
    assert answer.fields["meta"]["computed_in"] == computed_in
    assert tree(answer)["sum"].dtype == value_dtype


@pytest.mark.parametrize(
    ("number", "dtype"), [(3, "int64"), (3.5, "float64"), (2j, "complex128"), (True, "bool")]
)
def test_a_number_alone_is_64_bit(service: Running, number: Any, dtype: str) -> None:
    value = tree(service.ask("same", "evaluate", number))
    assert value.dtype == dtype
    assert value == number


# What a policy does.


@pytest.mark.parametrize(
    ("precision", "given", "answered", "computed_in", "lossy"),
    [
        ("float32", "float64", "float32", "float32", True),
        ("float32", "float32", "float32", "float32", False),
        ("float32", "complex128", "complex64", "float32", True),
        ("float16", "float32", "float16", "float16", True),
        ("bfloat16", "float64", BFLOAT16, "bfloat16", True),
        ("float64", "float32", "float64", "float64", False),
        ("float64", "complex64", "complex128", "float64", False),
        ("compute=float32,output=input", "float64", "float64", "float32", True),
        ("compute=float32,output=input", "complex128", "complex128", "float32", True),
        ("compute=float64,output=input", "float32", "float32", "float64", False),
        ("compute=float64,output=float32", "float64", "float32", "float64", False),
        ("output=float16", "float32", "float16", "float32", False),
        ("input", "float32", "float32", "float32", False),
    ],
)
@pytest.mark.parametrize("operation", ["evaluate", "jvp", "eval_shape"])
def test_a_policy_decides_in_what_is_computed_and_answered(
    service: Running, precision: str, given: str, answered: Any, computed_in: str, lossy: bool, operation: str
) -> None:
    x = arrays(given)
    fields = {"tangents": [x]} if operation == "jvp" else {}
    answer = service.ask("anything", operation, x, precision=precision, **fields)
    meta = answer.fields["meta"]
    assert (meta["computed_in"], meta["lossy"]) == (computed_in, lossy)
    if operation == "eval_shape":
        assert tree(answer, "shapes").dtype == answered
        return
    assert tree(answer).dtype == answered
    if operation == "jvp":
        assert tree(answer, "tangent").dtype == answered


def test_computing_in_less_rounds_as_much_as_it_says(service: Running, random: np.random.Generator) -> None:
    x = random.standard_normal(50)
    value = service.value("wave", x, precision="compute=float32,output=input")
    with jax.enable_x64(False):
        expected = np.asarray(jax.jit(hosted.wave)(x.astype("float32")))
    assert np.array_equal(value, expected.astype("float64"))


@pytest.mark.parametrize(
    ("map", "asked", "computed_in"),
    [
        ("wave", None, "float64"),
        ("in_single", None, "float32"),
        ("in_single", "float64", "float64"),
        ("in_single", "input", "float64"),
        ("in_half", None, "float16"),
        ("in_half", "bfloat16", "bfloat16"),
    ],
)
def test_the_request_goes_before_the_map_and_the_map_before_the_server(
    service: Running, map: str, asked: str | None, computed_in: str
) -> None:
    meta = service.ask(map, "evaluate", arrays("float64"), precision=asked).fields["meta"]
    assert meta["computed_in"] == computed_in


@pytest.mark.parametrize(
    ("map", "asked", "computed_in"),
    [("wave", None, "float32"), ("in_half", None, "float16"), ("wave", "float16", "float16")],
)
def test_the_server_decides_where_neither_request_nor_map_does(
    restricted: Running, map: str, asked: str | None, computed_in: str
) -> None:
    meta = restricted.ask(map, "evaluate", arrays("float64"), precision=asked).fields["meta"]
    assert meta["computed_in"] == computed_in


@pytest.mark.parametrize("asked", ["float64", "bfloat16", "input", "compute=float64,output=float32"])
def test_a_precision_that_the_server_forbids_is_refused_with_those_it_allows(
    restricted: Running, asked: str
) -> None:
    answer = restricted.ask("wave", "evaluate", arrays("float64"), precision=asked)
    assert answer.kind == "arguments"
    assert answer.fields["argument"] == "precision"
    assert answer.fields["expected"] == "float32 or float16"
    assert restricted.is_healthy()


def test_the_policies_of_a_map_are_those_the_server_allows(service: Running, restricted: Running) -> None:
    assert restricted.get("/v1/maps/wave").fields["policies"] == ["input", "float32", "float16"]
    assert service.get("/v1/maps/wave").fields["policies"] == ["input", *BITS]


def test_what_a_map_makes_itself_is_no_wider_than_the_computation(service: Running) -> None:
    for dtype in ("float32", "float64"):
        assert service.value("ramped", arrays(dtype)).dtype == dtype
    assert service.value("ramped", arrays("float64"), precision="float32").dtype == "float32"


# Integers.


@pytest.mark.parametrize(
    ("integers", "precision"),
    [
        (np.array([2**40]), "float32"),
        (np.array([2**31]), "float32"),
        (np.array([-(2**31) - 1]), "float16"),
        (np.array([2**32], "uint64"), "float32"),
        (2**40, "float32"),
        (np.array(2**40).view(wire.Bare), "float32"),
    ],
)
def test_an_integer_that_does_not_fit_is_refused_and_never_wrapped(
    service: Running, integers: Any, precision: str
) -> None:
    answer = service.ask("same", "evaluate", integers, precision=precision)
    assert (answer.kind, answer.fields["argument"]) == ("dtype", "x")
    assert "fit" in answer.fields["expected"]
    assert str(2**40) not in answer.body.decode("latin-1")


def test_beside_a_float32_array_integers_have_32_bits(service: Running) -> None:
    x = np.float32([1, 2])
    assert service.ask("pair", "evaluate", {"a": x}, np.array([2**40, 1])).kind == "dtype"
    value = service.value("pair", {"a": x}, np.array([2**31 - 1, -(2**31)]))
    assert value["parts"][1][0].dtype == "int32"
    assert np.array_equal(value["parts"][1][0], [2**31 - 1, -(2**31)])


def test_64_bit_integers_stay_whole_where_64_bits_are_computed(service: Running) -> None:
    large = np.array([2**63 - 1, -(2**63), 2**53 + 1])
    assert np.array_equal(service.value("same", large), large)
    unsigned = np.array([2**64 - 1, 2**63], "uint64")
    assert np.array_equal(service.value("same", unsigned), unsigned)


# Bit for bit.


def reference(x: np.ndarray, matmul: str) -> np.ndarray:
    """`hosted.product` of ``x`` with itself, by JAX alone."""
    with jax.enable_x64(x.dtype == np.float64), jax.default_matmul_precision(matmul):
        return np.asarray(jax.jit(hosted.product._declaration.fun)(x, x))


def test_float64_and_float32_requests_at_one_time_are_each_bit_for_bit_jax(
    service: Running, random: np.random.Generator
) -> None:
    double = random.standard_normal((40, 40))
    single = double.astype("float32")
    expected = {x.dtype: reference(x, "highest") for x in (double, single)}

    def ask(x: np.ndarray) -> bool:
        value = service.value("product", x, x)
        return value.dtype == x.dtype and np.array_equal(value, expected[x.dtype])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, [double, single] * 12))


def test_the_matmul_setting_reaches_the_compiled_code(service: Running, random: np.random.Generator) -> None:
    x = random.standard_normal((40, 40)).astype("float32")
    before = service.devices["compiled_queries"]
    by_setting = {matmul: service.value("product", x, x, precision=f"matmul={matmul}") for matmul in MATMUL}
    assert service.devices["compiled_queries"] >= min(before + len(MATMUL) - 1, 24)
    for matmul, value in by_setting.items():
        assert np.array_equal(value, reference(x, matmul)), matmul


def test_the_compiled_code_names_its_matmul_precision() -> None:
    from gradwire._operator import Call
    from gradwire_service.engine.compiled import function_of, specs_of, traced
    from gradwire_service.query import ask

    x = np.ones((3, 3), "float32")
    for matmul, written in {"highest": "HIGHEST", "high": "HIGH", "default": "DEFAULT"}.items():
        asked = ask(
            hosted.product._declaration,
            Call("evaluate", (x, x), {}),
            (),
            policy=Policy(matmul=matmul),
            owner="me",
        )
        precision = asked.query.precision
        lowered = traced(function_of(asked), (specs_of(asked.inputs, precision),), precision, "product")
        assert f"precision = [{written}, {written}]" in lowered.as_text() or written == "DEFAULT"


# The client's warning.


def warned(call: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return caught


OPERATIONS = {
    "__call__": lambda f, x: f(x),
    "apply": lambda f, x: f.apply(x),
    "jacobian": lambda f, x: f.jacobian(x),
    "jvp": lambda f, x: f.jvp(x, x),
    "vjp": lambda f, x: f.vjp((x,), x),
    "hessian": lambda f, x: f.hessian(x),
    "linearize": lambda f, x: f.linearize(x).close(),
    "eval_shape": lambda f, x: f.eval_shape(x),
    "gradwire.vmap": lambda f, x: gradwire.vmap(f)(x[None]),
    "gradwire.jvp": lambda f, x: gradwire.jvp(f, (x,), (x,)),
    "gradwire.vjp": lambda f, x: gradwire.vjp(f, x),
    "gradwire.linearize": lambda f, x: gradwire.linearize(f, x),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("place", ["remote", "local"])
def test_the_caller_is_warned_once_per_map_at_the_callers_own_line(
    service: Running, operation: str, place: str
) -> None:
    x = arrays("float64")
    with gradwire.connect(service.url) as lab:
        if place == "remote":
            f: Any = lab["in_single"]
        else:
            f = hosted.Map(hosted.in_single._declaration.fun, name="in_single", precision="float32")
        call = OPERATIONS[operation]
        (first,) = warned(lambda: call(f, x))
        assert warned(lambda: [other(f, x) for other in OPERATIONS.values()]) == []
    assert first.category is gradwire.PrecisionWarning
    assert "float32" in str(first.message)
    assert "float64" in str(first.message)
    assert "in_single" in str(first.message)
    assert first.filename == __file__
    assert linecache.getline(__file__, first.lineno).lstrip().startswith(f'"{operation}"')


def test_nobody_is_warned_where_nothing_is_lost(service: Running) -> None:
    with gradwire.connect(service.url) as lab:
        assert warned(lambda: lab["in_single"](arrays("float32"))) == []
        assert warned(lambda: lab["wave"](arrays("float64"))) == []
        assert warned(lambda: lab["wave"].using(precision="float64")(arrays("float32"))) == []


def test_every_map_is_warned_of_for_itself(service: Running) -> None:
    with gradwire.connect(service.url, precision="float32") as lab:
        x = arrays("float64")
        assert len(warned(lambda: [lab[name](x) for name in ("wave", "anything", "wave")])) == 2
