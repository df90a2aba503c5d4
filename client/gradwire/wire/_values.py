"""The nouns of the wire format: limits, marks, and what a message is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Limits:
    """What one message may ask for. Everything is checked before memory is taken for it.

    Attributes:
        body_bytes: bytes of a whole message.
        depth: containers inside each other.
        objects: lists, maps and their items; the numbers of long lists of numbers excepted.
        rank: dimensions of an array.
        elements: elements of one array (zero dimensions counted as one).
    """

    body_bytes: int = 1 << 30
    depth: int = 64
    objects: int = 1_000_000
    rank: int = 32
    elements: int = 1 << 31


DEFAULT_LIMITS = Limits()


class Bare(np.ndarray[Any, np.dtype[Any]]):
    """An int64 array that came as, or is to be sent as, a bare (nested) list of integers.

    Make one with ``array.view(Bare)``. Such integers become floating where the
    map declares or differentiates them so; those of an ordinary array do not.
    """


@dataclass(frozen=True)
class Ref:
    """A resident array, named by the SHA-256 of its canonical form (64 hex digits)."""

    sha256: str


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array without its data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Tree:
    """Marks a pytree among plain fields: `Codec.encode` writes it by the tree grammar.

    Leaves: arrays, NumPy scalars, `Bare`, `Ref`, `ArraySpec`, bool, int, float,
    complex, str. Nodes: list, tuple, dict with str keys, None.
    """

    value: Any
