"""Made-up arguments fit the declared signature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jaxtyping import Array, Bool, Complex64, Float, Float32, Int, Key

from gradwire._errors import ArgumentError
from gradwire_service import Map
from gradwire_service.sample import Dimensions, arguments_for


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("", ()),
        ("n m", (2, 3)),
        ("n n m", (2, 2, 3)),
        ("3 n 4", (3, 2, 4)),
        ("n n+1 2*n n-1 (n+1)*m", (2, 3, 4, 1, 9)),
        ("_ _ n", (2, 3, 5)),
        ("*batch n ...", (2,)),
        ("#n ?m rows=4", (2, 3, 4)),
    ],
)
def test_dimensions_are_small_distinct_primes(text: str, sizes: tuple[int, ...]) -> None:
    assert Dimensions().sizes(text) == sizes


def test_a_name_has_one_size_throughout() -> None:
    dimensions = Dimensions()
    assert dimensions.sizes("h w") == (2, 3)
    assert dimensions.sizes("w c") == (3, 5)


@pytest.mark.parametrize("text", ["n/2", "f(n)", "'n'", "n+", "n.real"])
def test_other_dimensions_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="example="):
        Dimensions().sizes(text)


def made(fun: Any, *, static: tuple[str, ...] = (), **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return arguments_for(Map(fun, static_argnames=static).signature, np.random.default_rng(0), **options)


def test_arguments_have_the_declared_dtypes_and_shapes_and_defaults_stay() -> None:
    def f(
        x: Float[Array, "n"],
        y: Float32[Array, "n m"],
        z: Complex64[Array, ""],
        i: Int[Array, "m"],
        order: int = 2,
        *more: Any,
        mask: Bool[Array, "n"],
        **rest: Any,
    ) -> Any: ...

    args, kwargs = made(f, static=("order",))
    assert [(a.dtype.name, a.shape) for a in args] == [
        *(("float64", (2,)), ("float32", (2, 3)), ("complex64", ()), ("int64", (3,)))
    ]
    assert kwargs["mask"].dtype == bool and kwargs["mask"].shape == (2,)
    assert list(kwargs) == ["mask"]


def test_positive_values_are_positive() -> None:
    def f(x: Float[Array, "n m"]) -> Any: ...

    assert (made(f, positive=True)[0][0] > 0).all()


def test_what_is_not_declared_cannot_be_made_up() -> None:
    def unannotated(x: Any) -> Any: ...
    def static(x: Float[Array, "n"], order: int) -> Any: ...
    def key(k: Key[Array, ""]) -> Any: ...

    for fun, names in ((unannotated, ()), (static, ("order",)), (key, ())):
        with pytest.raises(ArgumentError, match="example="):
            made(fun, static=names)
