"""A signature judges a call as Python would."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from gradwire._errors import ArgumentError
from gradwire._signature import Parameter, Signature

KINDS = {kind: kind.name.lower() for kind in inspect._ParameterKind}


@pytest.mark.parametrize(
    "function",
    [
        lambda: 0,
        lambda x: 0,
        lambda x, y=1: 0,
        lambda x, /, y: 0,
        lambda x=1, y=2: 0,
        lambda *xs: 0,
        lambda x, *xs: 0,
        lambda x, *, y: 0,
        lambda x, *, y=1: 0,
        lambda *xs, y: 0,
        lambda x, **more: 0,
        lambda x, /, y=1, *xs, z=2, **more: 0,
    ],
)
def test_a_call_is_refused_where_python_refuses_it(function: Callable[..., Any]) -> None:
    declared = inspect.signature(function)
    signature = Signature(
        tuple(
            Parameter(
                p.name,
                KINDS[p.kind],
                required=p.default is p.empty,
                default=None if p.default is p.empty else 0,
            )
            for p in declared.parameters.values()
        )
    )
    for args in ((), (1,), (1, 2), (1, 2, 3)):
        for kwargs in ({}, {"y": 1}, {"z": 1}, {"x": 1}):
            try:
                declared.bind(*args, **kwargs)
            except TypeError:
                with pytest.raises(ArgumentError):
                    signature.bind(args, kwargs, map="f")
            else:
                signature.bind(args, kwargs, map="f")
