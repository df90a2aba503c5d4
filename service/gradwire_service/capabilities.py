"""Which operations a map really has, found out by tracing them (nothing is compiled or run).

Arguments are the map's ``example``; without one they are made up from the declared
signature (`sample_specs`), or tried in a few likely shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from gradwire._errors import ArgumentError, GradwireError, NotDifferentiable
from gradwire._operator import Call, import_leaf
from gradwire._trees import Tree, normalized, tree_map
from gradwire.wire import ArraySpec
from gradwire_service.declaration import Declaration
from gradwire_service.differentiation import OPERATIONS
from gradwire_service.engine.compiled import function_of, specs_of, traced
from gradwire_service.policy import Policy
from gradwire_service.query import ask
from gradwire_service.sample import DTYPES, Dimensions

Arguments = tuple[tuple[Tree, ...], dict[str, Tree]]
"""Positional and keyword arguments, or specs of them."""


@lru_cache(maxsize=4096)
def operations(declaration: Declaration) -> tuple[str, ...]:
    """The names of the operations that succeed on ``declaration``'s map, in the table's order.

    Where arguments are not declared: that succeed at some arguments.
    """
    if declaration.hand is not None:
        return declaration.hand_operations
    working = list(working_arguments(declaration))
    if not working:
        # Nothing to try it on: all that is known is that it can be asked.
        return tuple(OPERATIONS)
    return tuple(
        name for name in OPERATIONS if any(_succeeds(declaration, name, arguments) for arguments in working)
    )


def working_arguments(declaration: Declaration) -> Iterator[Arguments]:
    """Arguments at which the map can be evaluated, likeliest first."""
    for arguments in _candidates(declaration):
        if _succeeds(declaration, "evaluate", arguments):
            yield arguments


def _candidates(declaration: Declaration) -> Iterator[Arguments]:
    if declaration.example is not None:
        args = tuple(example_argument(arg, declaration, i) for i, arg in enumerate(declaration.example))
        yield args, {}
        return
    shapes: tuple[tuple[int, ...], ...] = ((3,), (), (3, 3), (4, 4, 4))
    tried: list[Arguments] = []
    for shape, dtype in itertools.product(shapes, ("float64", "complex128", "int64")):
        arguments = sample_specs(declaration, undeclared=ArraySpec(shape, np.dtype(dtype)))
        if arguments is None or arguments in tried:
            # Everything is declared, or something cannot be made up: there is no more to try.
            return
        tried.append(arguments)
        yield arguments


def example_argument(arg: Any, declaration: Declaration, position: int) -> Tree:
    """One argument of ``example=``, as a call would import it."""
    parameter = declaration.signature.at(position)
    if parameter.static:
        return arg
    return tree_map(
        lambda leaf: leaf if isinstance(leaf, jax.Array) else import_leaf(leaf, parameter.name),
        normalized(arg, argument=parameter.name),
    )


def sample_specs(
    declaration: Declaration, undeclared: ArraySpec
) -> tuple[tuple[Tree, ...], dict[str, Tree]] | None:
    """Specs for the required arguments, positional and by keyword, after the declared signature.

    ``undeclared`` stands for those that declare nothing. None where one cannot be made up.
    """
    dimensions = Dimensions()
    args: list[Tree] = []
    kwargs: dict[str, Tree] = {}
    for parameter in declaration.signature.parameters:
        if parameter.kind == "var_keyword" or (not parameter.required and parameter.kind != "var_positional"):
            continue
        if parameter.static:
            return None
        spec = undeclared
        if parameter.shape is not None and parameter.dtype in DTYPES:
            try:
                spec = ArraySpec(dimensions.sizes(parameter.shape), np.dtype(DTYPES[parameter.dtype]))
            except ArgumentError:
                return None
        if parameter.kind == "keyword_only":
            kwargs[parameter.name] = spec
        else:
            args.append(spec)
    return tuple(args), kwargs


def _succeeds(declaration: Declaration, operation: str, arguments: Arguments) -> bool:
    """Whether ``operation`` can be traced at ``arguments``: in some of them, holomorphic or not."""
    args, kwargs = arguments
    try:
        asked: list[Any] = [None]
        if operation not in ("evaluate", "eval_shape"):
            every = declaration.signature.differentiated(None, args, map=declaration.name)
            asked = [every, *((position,) for position in every if len(every) > 1)]
    except NotDifferentiable:
        return False
    return any(
        _traces(declaration, Call(operation, args, kwargs, argnums=argnums, holomorphic=holomorphic))
        for argnums, holomorphic in itertools.product(asked, (False, True))
    )


def _traces(declaration: Declaration, call: Call) -> bool:
    if call.operation in ("jvp", "hvp") and isinstance(call.argnums, tuple):
        call = replace(call, tangents=(None,) * len(call.argnums))
    try:
        asked = ask(declaration, call, (), policy=Policy(), owner="anonymous")
        precision = asked.query.precision
        traced(function_of(asked), (specs_of(asked.inputs, precision),), precision, declaration.name)
    except GradwireError:
        return False
    return True
