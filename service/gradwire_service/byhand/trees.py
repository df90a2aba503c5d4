"""Trees of NumPy arrays: their differentiable leaves, their stacks and rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradwire._errors import MapFailed, ShapeError
from gradwire._trees import Tree, is_inexact, leaves, rebuild, tree_map
from gradwire_service import differentiation


def vectors(given: Tree, like: Tree, *, argument: str) -> tuple[Tree, tuple[int, ...]]:
    """As `differentiation.vectors`, in NumPy arrays."""
    return differentiation.vectors(given, like, argument=argument, xp=np)


def inexact(tree: Tree) -> Tree:
    def leaf(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return array if is_inexact(array.dtype) else None

    return tree_map(leaf, tree)


def zeros(tree: Tree) -> Tree:
    return tree_map(lambda leaf: np.zeros_like(leaf), inexact(tree))


def cast(leaf: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if np.iscomplexobj(leaf) and dtype.kind != "c":
        raise MapFailed(
            "A derivative by hand is complex where its counterpart is real.",
            expected=str(dtype),
            got=str(leaf.dtype),
        )
    return leaf.astype(dtype, copy=False)


def moved(tree: Tree, by: Tree, step: float) -> Tree:
    if by is None:
        return tree
    kind = type(tree)
    if kind in (tuple, list):
        return kind(moved(t, b, step) for t, b in zip(tree, by, strict=True))
    if kind is dict:
        return {key: moved(tree[key], by[key], step) for key in tree}
    return (np.asarray(tree) + step * by).astype(np.asarray(tree).dtype)


def filled(tree: Tree, like: Tree) -> Tree:
    """``tree`` with zeros for what was left out."""
    if tree is None:
        return zeros(like)
    kind = type(like)
    if kind in (tuple, list):
        return kind(filled(t, e) for t, e in zip(tree, like, strict=True))
    if kind is dict:
        return {key: filled(tree[key], like[key]) for key in like}
    return tree


def placed_at(positions: tuple[int, ...], parts: Any, count: int) -> tuple[Tree, ...]:
    placed: list[Tree] = [None] * count
    for position, part in zip(positions, parts, strict=True):
        placed[position] = part
    return tuple(placed)


def entries(given: Tree, stack: tuple[int, ...]) -> Iterator[Tree]:
    """Each vector of a stack; the one vector itself where there is no stack."""
    if not stack:
        yield given
        return
    flat = tree_map(lambda leaf: leaf.reshape(math.prod(stack), *leaf.shape[len(stack) :]), given)
    for i in range(math.prod(stack)):
        yield row_of(flat, 0, i)


def restacked(found: list[Tree], stack: tuple[int, ...], like: Tree) -> Tree:
    if not stack:
        return found[0]
    if not found:
        return tree_map(lambda leaf: np.zeros((*stack, *leaf.shape), leaf.dtype), like)
    return tree_map(lambda leaf: leaf.reshape(*stack, *leaf.shape[1:]), stacked(found, 0))


def row_of(tree: Tree, axis: int | None, i: int) -> Tree:
    return tree if axis is None else tree_map(lambda leaf: np.take(np.asarray(leaf), i, axis=axis), tree)


def stacked(trees: list[Tree], axis: int) -> Tree:
    columns = zip(*(list(leaves(tree)) for tree in trees), strict=True)
    return rebuild(trees[0], iter([np.stack(column, axis=axis) for column in columns]))


def summed(trees: list[Tree]) -> Tree:
    columns = zip(*(list(leaves(tree)) for tree in trees), strict=True)
    return rebuild(trees[0], iter([np.sum(column, axis=0) for column in columns]))


def indices(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every index of an array of that shape; none where it is empty, however long it is otherwise."""
    for number in range(math.prod(shape)):
        yield tuple(int(i) for i in np.unravel_index(number, shape))


MOST_ROWS = 1 << 16
"""Rows that a loop over a stack or a mapped axis goes through: each is a call of the author's code."""


def check_rows(count: int, name: str) -> None:
    """Refuse a loop that would go on for too long."""
    if count > MOST_ROWS:
        raise ShapeError(
            "A map with derivatives by hand is called once for each row: these are too many.",
            map=name,
            expected=f"at most {MOST_ROWS} rows",
            got=str(count),
        )
