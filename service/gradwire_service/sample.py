"""Made-up arguments for a declared signature: small distinct primes for its dimensions, random values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from gradwire._errors import ArgumentError
from gradwire._signature import Parameter, Signature

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)

DTYPES: dict[str, Any] = {
    **dict.fromkeys(("Float", "Inexact", "Num", "Real", "Shaped", "Float64"), np.float64),
    **{"Float32": np.float32, "Float16": np.float16, "BFloat16": ml_dtypes.bfloat16},
    **{"Complex": np.complex128, "Complex128": np.complex128, "Complex64": np.complex64},
    **dict.fromkeys(("Int", "Integer", "Int64"), np.int64),
    **{"Int32": np.int32, "Int16": np.int16, "Int8": np.int8},
    **{"UInt": np.uint64, "UInt64": np.uint64, "UInt32": np.uint32, "UInt16": np.uint16, "UInt8": np.uint8},
    "Bool": np.bool_,
}
"""The dtype to make for each of jaxtyping's dtype classes."""


def arguments_for(
    signature: Signature, rng: np.random.Generator, *, positive: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for every required parameter.

    Args:
        signature: as declared.
        rng: where random values come from.
        positive: floating values in [0.5, 1.5) instead of normally distributed ones.

    Raises:
        ArgumentError: a required parameter is static, or its shape or dtype is not declared.
    """
    dimensions = Dimensions()
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in signature.parameters:
        if parameter.kind in ("var_positional", "var_keyword") or not parameter.required:
            continue
        value = _array(parameter, dimensions, rng, positive)
        if parameter.kind == "keyword_only":
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def _array(
    parameter: Parameter, dimensions: Dimensions, rng: np.random.Generator, positive: bool
) -> np.ndarray:
    if parameter.static or parameter.shape is None or parameter.dtype not in DTYPES:
        raise ArgumentError(
            f"{parameter.name} cannot be made up: annotate it with jaxtyping, or give the map example=.",
            argument=parameter.name,
        )
    shape = dimensions.sizes(parameter.shape)
    dtype = np.dtype(DTYPES[parameter.dtype])
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)

    def drawn() -> np.ndarray:
        return rng.uniform(0.5, 1.5, shape) if positive else rng.standard_normal(shape)

    return np.asarray(drawn() + 1j * drawn() if dtype.kind == "c" else drawn()).astype(dtype)


class Dimensions:
    """Sizes of named dimensions: the next prime for each new name."""

    def __init__(self) -> None:
        self.named: dict[str, int] = {}
        self.primes: Iterator[int] = iter(PRIMES * 4)

    def sizes(self, text: str) -> tuple[int, ...]:
        """The shape for a shape as jaxtyping writes it: ``"n 3 n+1 *batch"``.

        Any number of dimensions (``*batch``, ``...``) is taken as none.

        Raises:
            ArgumentError: a dimension that is no name, number or sum and product of these.
        """
        return tuple(size for token in text.split() if (size := self._size(token)) is not None)

    def _size(self, token: str) -> int | None:
        expression = token.lstrip("#?_*")  # jaxtyping's marks: broadcasting, per leaf, anonymous, any number
        marks = token[: len(token) - len(expression)]
        if token == "..." or "*" in marks:
            return None
        if "_" in marks:
            return next(self.primes)
        expression = expression.rpartition("=")[2]
        try:
            tree = ast.parse(expression, mode="eval")
        except SyntaxError:
            raise _unknown(token) from None
        return self._evaluate(tree.body, token)

    def _evaluate(self, node: ast.expr, token: str) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                if name not in self.named:
                    self.named[name] = next(self.primes)
                return self.named[name]
            case ast.BinOp(left, operator, right):
                a, b = self._evaluate(left, token), self._evaluate(right, token)
                match operator:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.FloorDiv():
                        return a // b
        raise _unknown(token)


def _unknown(token: str) -> ArgumentError:
    return ArgumentError(
        f"The dimension {token!r} cannot be made up; give the map example=.",
        expected="a name, a number, or a sum or product of these",
        got=token,
    )
