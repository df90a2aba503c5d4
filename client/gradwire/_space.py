"""Space: the vectors that a linear operator takes or gives, as trees and as flat arrays."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError, ShapeError
from gradwire._signature import describe_leaf, is_differentiable
from gradwire._trees import Tree, is_number, leaves, tree_map
from gradwire.wire import ArraySpec


@dataclass(frozen=True)
class Space:
    """The vectors an operator takes or gives: one tree of array specs for each argument (or the value).

    ``bare``: there is exactly one, and it is written without a tuple around it.
    Leaves that have no derivative are None. ``dtypes`` are those of the arrays: a Python
    number has none of its own, except that it may be complex.
    """

    like: tuple[Tree, ...]
    bare: bool
    dtypes: frozenset[np.dtype[Any]]

    @classmethod
    def of(cls, trees: Sequence[Tree], *, bare: bool) -> Space:
        dtypes: set[np.dtype[Any]] = set()

        def spec(leaf: Any) -> ArraySpec | None:
            if not is_differentiable(leaf, bare=True):
                return None
            if is_number(leaf):
                if type(leaf) is complex:
                    dtypes.add(np.dtype(np.complex64))
                return ArraySpec((), np.dtype(complex if type(leaf) is complex else float))
            dtype = np.dtype(leaf.dtype)
            made = ArraySpec(tuple(leaf.shape), dtype if dtype.kind != "i" else np.dtype(float))
            dtypes.add(made.dtype)
            return made

        like = tuple(tree_map(spec, tree) for tree in trees)
        return cls(like, bare, frozenset(dtypes))

    @property
    def specs(self) -> list[ArraySpec]:
        return list(leaves(self.like))

    @property
    def size(self) -> int:
        return sum(math.prod(spec.shape) for spec in self.specs)

    def split(self, vector: Any, *, name: str) -> tuple[Tree, ...]:
        """One tree for each argument, from a vector as a caller writes it."""
        if self.bare:
            return (vector,)
        if type(vector) is not tuple or len(vector) != len(self.like):
            raise ArgumentError(
                f"{name} has one entry for each differentiated argument; flat vectors go through matvec.",
                argument=name,
                expected=f"a tuple of {len(self.like)}",
                got=f"a tuple of {len(vector)}" if type(vector) is tuple else type(vector).__name__,
            )
        return vector

    def check_exact(self, trees: tuple[Tree, ...], *, name: str) -> None:
        """Refuse anything but one vector in the space's own shape."""
        for tree, like in zip(trees, self.like, strict=True):
            if tree is None:
                continue
            got, want = list(leaves(tree)), list(leaves(like))
            shapes = [tuple(getattr(leaf, "shape", ())) for leaf in got]
            if shapes != [spec.shape for spec in want]:
                raise ShapeError(
                    "The @ operator takes exactly one vector, in the shape of its array: flat vectors "
                    "go through matvec and rmatvec, columns through matmat, stacks through jvp and vjp.",
                    argument=name,
                    expected=", ".join(describe_leaf(spec) for spec in want),
                    got=", ".join(describe_leaf(leaf) for leaf in got),
                )

    def unflatten(self, flat: np.ndarray, *, stacked: bool, name: str) -> tuple[Tree, ...]:
        """Trees from a flat vector of shape (size,), or from columns of shape (size, k) as a stack of k."""
        if flat.ndim != (2 if stacked else 1) or flat.shape[0] != self.size:
            raise ShapeError(
                f"{name} has the wrong shape.",
                argument=name,
                expected=f"({self.size}, k)" if stacked else f"({self.size},)",
                got=str(flat.shape),
            )
        rows = flat.T if stacked else flat
        offset = 0

        def take(spec: ArraySpec) -> np.ndarray:
            nonlocal offset
            size = math.prod(spec.shape)
            piece = rows[..., offset : offset + size]
            offset += size
            if np.iscomplexobj(piece) and spec.dtype.kind != "c" and not piece.imag.any():
                piece = piece.real  # a flat vector has one dtype for real and complex arrays together
            return np.ascontiguousarray(piece).reshape(piece.shape[:-1] + spec.shape)

        return tuple(tree_map(take, _sorted(tree)) for tree in self.like)

    def flatten(self, trees: Sequence[Tree], *, stacked: bool) -> np.ndarray:
        """The inverse of `unflatten`."""
        lead = 1 if stacked else 0

        def flat_of(leaf: Any) -> np.ndarray:
            shape = np.shape(leaf)
            return np.asarray(leaf).reshape(*shape[:lead], math.prod(shape[lead:]))

        parts = [flat_of(leaf) for leaf in leaves(tuple(trees))]
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        return flat.T if stacked else flat


def _sorted(tree: Tree) -> Tree:
    """``tree`` with its dicts in the order in which `leaves` reads them."""
    kind = type(tree)
    if kind is dict:
        return {key: _sorted(tree[key]) for key in sorted(tree)}
    if kind in (list, tuple):
        return kind(_sorted(child) for child in tree)
    return tree


def conjugated(leaf: Any) -> Any:
    """The complex conjugate of one array or number; a real array as it is."""
    return leaf if not is_number(leaf) and leaf.dtype.kind != "c" else host(leaf).conjugate()


def host(leaf: Any) -> Any:
    """An array in host memory, to reckon with; numbers and JAX's tracers as they are.

    JAX's own arithmetic on a 64-bit array narrows it where the caller's x64 mode is off.
    """
    jax = sys.modules.get("jax")
    if is_number(leaf) or (jax is not None and isinstance(leaf, jax.core.Tracer)):
        return leaf
    return np.asarray(leaf)
