"""Array kinds: what goes in comes out.

`KINDS` lists them in the order that decides where kinds mix. A new kind is a module
here and an entry there. No library is imported before an array of it comes along.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from gradwire.kinds import cupy, jax, numpy, torch
from gradwire.kinds._kind import Kind
from gradwire.kinds.dask import is_dask, lazy, refuse_dask

__all__ = ["KINDS", "Kind", "is_dask", "kind_of", "lazy", "leading", "refuse_dask"]

KINDS: tuple[Kind, ...] = (jax.KIND, torch.KIND, cupy.KIND, numpy.KIND)
"""Every kind; where an answer could be of several, the first of these that was given."""


@lru_cache(maxsize=1024)
def _kind_of_type(cls: Any) -> Kind | None:
    return next((kind for kind in KINDS if kind.owns(cls)), None)


def kind_of(x: Any) -> Kind | None:
    """The kind of the array ``x``, or None where it is none (a Python number, text, a Dask array, …)."""
    cls: Any = type(x)
    return _kind_of_type(cls)


def leading(leaves: Iterable[Any]) -> tuple[Kind, Any]:
    """The kind that decides among ``leaves``, and the first array of that kind.

    Without any array: NumPy and None.
    """
    best, first = len(KINDS), None
    for leaf in leaves:
        kind = kind_of(leaf)
        if kind is not None and (rank := KINDS.index(kind)) < best:
            best, first = rank, leaf
    return (KINDS[best], first) if best < len(KINDS) else (numpy.KIND, None)
