"""Pytrees without JAX: tuples, lists, str-keyed dicts and None, down to leaves.

The rules are the contract's: nested lists that hold only Python numbers are one
array; any other list, tuple or str-keyed dict is a pytree and comes back as the
same kind; None is an empty subtree; other containers raise TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError, DTypeError, ShapeError
from gradwire.wire import Bare

Tree = Any
"""A pytree: a leaf, or tuples, lists and dicts of pytrees, or None."""

_CONTAINERS = (tuple, list, dict)
_FOREIGN_CONTAINERS = (tuple, list, Mapping, set, frozenset)
_NUMBERS = (bool, int, float, complex)


def is_number(value: Any) -> bool:
    """Whether ``value`` is a plain Python number (NumPy scalars are arrays)."""
    return type(value) in _NUMBERS


@lru_cache(maxsize=256)
def is_inexact(dtype: Any) -> bool:
    """Whether ``dtype`` is floating or complex (bfloat16 and float8 too): can be differentiated."""
    dtype = np.dtype(dtype)
    return dtype.kind in "fc" or dtype.name.startswith(("bfloat16", "float8"))


def tree_map(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """``tree`` with every leaf replaced by ``function(leaf)``."""
    if tree is None:
        return None
    kind = type(tree)
    if kind is tuple:
        return tuple([tree_map(function, child) for child in tree])
    if kind is list:
        return [tree_map(function, child) for child in tree]
    if kind is dict:
        return {key: tree_map(function, child) for key, child in tree.items()}
    return function(tree)


def leaves(tree: Tree) -> Iterator[Any]:
    """The leaves of ``tree``; dicts in the order of their sorted keys, as in JAX."""
    kind = type(tree)
    if kind is tuple or kind is list:
        for child in tree:
            yield from leaves(child)
    elif kind is dict:
        for key in sorted(tree):
            yield from leaves(tree[key])
    elif tree is not None:
        yield tree


def rebuild(tree: Tree, values: Iterator[Any]) -> Tree:
    """A tree of the structure of ``tree`` whose leaves are taken from ``values``, in `leaves` order."""
    kind = type(tree)
    if kind is tuple:
        return tuple([rebuild(child, values) for child in tree])
    if kind is list:
        return [rebuild(child, values) for child in tree]
    if kind is dict:
        made = {key: rebuild(tree[key], values) for key in sorted(tree)}
        return {key: made[key] for key in tree}
    return None if tree is None else next(values)


def normalized(value: Any, *, argument: str) -> Tree:
    """``value`` as a pytree: number lists made arrays, foreign containers refused.

    Raises:
        ArgumentError: a container that is not a tuple, list or str-keyed dict, or
            something that is neither an array nor a number.
        ShapeError: a ragged list of numbers.
    """
    kind = type(value)
    if value is None or kind in _NUMBERS:
        return value
    if kind is list:
        if _holds_only_numbers(value):
            return _number_array(value, argument)
        return [normalized(child, argument=argument) for child in value]
    if kind is tuple:
        return tuple([normalized(child, argument=argument) for child in value])
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise ArgumentError(
                    "The keys of a dict argument must be text.",
                    argument=argument,
                    expected="str keys",
                    got=f"a key of type {type(key).__name__}",
                )
        return {key: normalized(child, argument=argument) for key, child in value.items()}
    if isinstance(value, _FOREIGN_CONTAINERS):
        raise ArgumentError(
            "Only tuples, lists and dicts with text keys are pytrees here; convert it first.",
            argument=argument,
            expected="tuple, list, dict or an array",
            got=kind.__name__,
        )
    return value


def _holds_only_numbers(value: list[Any]) -> bool:
    """Whether the nested list holds at least one number, or nothing, and nothing else."""
    for child in value:
        if type(child) is list:
            if not _holds_only_numbers(child):
                return False
        elif type(child) not in _NUMBERS:
            return False
    return True


def _number_array(value: list[Any], argument: str) -> np.ndarray:
    try:
        array = np.array(value)
    except ValueError:
        raise ShapeError(
            "A list of numbers must be rectangular.",
            argument=argument,
            expected="rows of one length",
            got="a ragged list",
        ) from None
    kinds = {bool if k is bool else int for k in _number_types(value)}
    if array.dtype == object or array.dtype.kind == "u":
        raise DTypeError(
            "A list of integers must fit in int64.",
            argument=argument,
            expected="int64",
            got="a larger integer",
        )
    if len(kinds) > 1:
        raise DTypeError(
            "A list holds either truth values or numbers.",
            argument=argument,
            expected="bool or numbers",
            got="both in one list",
        )
    if array.dtype.kind == "i":
        return array.astype(np.int64, copy=False).view(Bare)
    return array


def _number_types(value: list[Any]) -> set[type]:
    found: set[type] = set()
    for child in value:
        found |= _number_types(child) if type(child) is list else {type(child)}
    return found
