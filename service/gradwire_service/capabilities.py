"""Which operations a map really has, found out by tracing them (nothing is compiled or run).

Arguments are the map's ``example``; without one they are made up from the declared
signature (`sample_arguments`), or tried in a few likely shapes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from gradwire._errors import GradwireError, NotDifferentiable
from gradwire._operator import Call, import_leaf
from gradwire._signature import Parameter, describe_leaf
from gradwire._trees import Tree, leaves, normalized, tree_map
from gradwire.wire import ArraySpec
from gradwire_service.declaration import Declaration
from gradwire_service.differentiation import OPERATIONS
from gradwire_service.engine.compiled import function_of, specs_of, traced
from gradwire_service.policy import Policy
from gradwire_service.query import ask

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
"""Lengths of named dimensions, one after the other: small, and different, so that no two are confused."""

_DTYPES = {
    "Float": "float64", "Inexact": "float64", "Num": "float64", "Real": "float64", "Shaped": "float64",
    "Complex": "complex128", "Int": "int64", "Integer": "int64", "UInt": "uint64", "Bool": "bool",
    "BFloat16": "bfloat16",
}  # fmt: skip


@lru_cache(maxsize=4096)
def operations(declaration: Declaration) -> tuple[str, ...]:
    """The names of the operations that succeed on ``declaration``'s map, in the table's order."""
    args = next(working_arguments(declaration), None)
    if args is None:
        # Nothing to try it on: all that is known is that it can be asked.
        return tuple(OPERATIONS)
    return tuple(name for name in OPERATIONS if _succeeds(declaration, name, args))


def working_arguments(declaration: Declaration) -> Iterator[tuple[Tree, ...]]:
    """Arguments at which the map can be evaluated, likeliest first."""
    for args in _candidates(declaration):
        if _succeeds(declaration, "evaluate", args):
            yield args


def _candidates(declaration: Declaration) -> Iterator[tuple[Tree, ...]]:
    if declaration.example is not None:
        yield tuple(
            example_argument(arg, declaration, position) for position, arg in enumerate(declaration.example)
        )
        return
    shapes: tuple[tuple[int, ...], ...] = ((3,), (), (3, 3), (4, 4, 4))
    for shape, dtype in itertools.product(shapes, ("float64", "complex128", "int64")):
        args = sample_arguments(declaration, undeclared=ArraySpec(shape, np.dtype(dtype)))
        if args is not None:
            yield args


def example_argument(arg: Any, declaration: Declaration, position: int) -> Tree:
    """One argument of ``example=``, as a call would import it."""
    parameter = declaration.signature.at(position)
    if parameter.static:
        return arg
    return tree_map(
        lambda leaf: leaf if isinstance(leaf, jax.Array) else import_leaf(leaf, parameter.name),
        normalized(arg, argument=parameter.name),
    )


def sample_arguments(
    declaration: Declaration, undeclared: ArraySpec = ArraySpec((3,), np.dtype("float64"))
) -> tuple[Tree, ...] | None:
    """Specs for the required positional arguments: named dimensions are different primes, the same name
    the same prime. None where a required argument cannot be made up (static, or keyword-only)."""
    named: dict[str, int] = {}
    primes = iter(PRIMES)

    def length(dimension: str) -> int:
        if dimension.isdigit():
            return int(dimension)
        if dimension not in named:
            named[dimension] = next(primes, 2)
        return named[dimension]

    def spec(parameter: Parameter) -> ArraySpec:
        if parameter.shape is None or parameter.dtype is None:
            return undeclared
        shape = []
        for part in parameter.shape.split():
            part = re.sub(r"^[#?]|^\w+=", "", part)
            if part == "..." or part.startswith("*"):
                continue
            if re.search(r"[^\w]", part) and not part.isidentifier():
                shape.append(int(eval(part, {"__builtins__": {}}, _Dimensions(length))))
            else:
                shape.append(length(part))
        return ArraySpec(tuple(shape), np.dtype(_DTYPES.get(parameter.dtype, parameter.dtype.lower())))

    args = []
    for parameter in declaration.signature.parameters:
        if parameter.kind == "var_positional":
            args.append(spec(parameter))
        elif not parameter.required:
            if parameter.positional and not parameter.static:
                continue
        elif parameter.static or not parameter.positional:
            return None
        else:
            args.append(spec(parameter))
    return tuple(args)


class _Dimensions(dict[str, int]):
    """Names in a dimension expression (``n+1``), each with its length."""

    def __init__(self, length: Any) -> None:
        super().__init__()
        self._length = length

    def __missing__(self, name: str) -> int:
        found: int = self._length(name)
        return found


def _succeeds(declaration: Declaration, operation: str, args: tuple[Tree, ...]) -> bool:
    """Whether ``operation`` can be traced at ``args``: holomorphic or not, whichever works."""
    return any(_traces(declaration, operation, args, holomorphic) for holomorphic in (False, True))


def _traces(declaration: Declaration, operation: str, args: tuple[Tree, ...], holomorphic: bool) -> bool:
    argnums: Any = None
    try:
        if operation not in ("evaluate", "eval_shape"):
            argnums = declaration.signature.differentiated(None, args, map=declaration.name)
        call = Call(operation, args, {}, argnums=argnums, holomorphic=holomorphic)
        if operation in ("jvp", "hvp"):
            call = Call(operation, args, {}, argnums=argnums, tangents=(None,) * len(argnums))
        asked = ask(declaration, call, (), policy=Policy(), owner="anonymous")
        precision = asked.query.precision
        lowered = traced(
            function_of(asked), (specs_of(asked.inputs, precision),), precision, declaration.name
        )
        return lowered is not None
    except GradwireError:
        return False
