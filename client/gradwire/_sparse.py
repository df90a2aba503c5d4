"""Sparse answers: matrices in compressed sparse rows, on the wire and for the caller.

A matrix goes as ``{csr, shape, indptr, indices, values, pattern}``. Its pattern (all but the
values) has a name, and a service leaves out what the caller says it holds already: `Patterns`
is what one client holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from gradwire import wire
from gradwire._errors import WireError
from gradwire._trees import Tree

MOST_KNOWN = 64
"""Patterns that one request may name as known."""

HELD_BYTES = 256 << 20
"""Bytes of patterns that a client keeps."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a matrix may differ from zero.

    Attributes:
        shape: rows and columns.
        indptr: where each row begins in ``indices``, shape (rows + 1,).
        indices: the columns, in order within each row.
        name: the SHA-256 of the pattern, 64 hex digits.
    """

    shape: tuple[int, int]
    indptr: np.ndarray
    indices: np.ndarray
    name: str

    @classmethod
    def of(cls, shape: tuple[int, int], indptr: np.ndarray, indices: np.ndarray) -> Pattern:
        """The pattern with these arrays; they become int32 where everything fits, else int64."""
        fits = max(*shape, len(indices)) < 1 << 31
        dtype = np.int32 if fits else np.int64
        indptr, indices = indptr.astype(dtype, copy=False), indices.astype(dtype, copy=False)
        digest = sha256()
        for array in (np.array(shape, np.int64), indptr, indices):
            for piece in wire.canonical(array):
                digest.update(piece)
        return cls(shape, indptr, indices, digest.hexdigest())

    @property
    def nbytes(self) -> int:
        return self.indptr.nbytes + self.indices.nbytes


@dataclass(frozen=True, eq=False)
class Csr:
    """A sparse matrix: a leaf of an answer."""

    pattern: Pattern
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.pattern.nbytes + self.values.nbytes

    def place(self, entry: int) -> tuple[int, int]:
        """The row and column of one of the values."""
        row = int(np.searchsorted(self.pattern.indptr, entry, side="right")) - 1
        return row, int(self.pattern.indices[entry])

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` that shares memory with nothing; of 16-bit values as float32."""
        pattern = self.pattern
        narrow = self.values.dtype.itemsize < 4
        values = self.values.astype(np.float32) if narrow else self.values.copy()
        made = scipy_sparse().csr_array(
            (values, pattern.indices.copy(), pattern.indptr.copy()), shape=pattern.shape
        )
        made.has_sorted_indices = True
        return made


def scipy_sparse() -> Any:
    """``scipy.sparse``, which sparse answers are made with.

    Raises:
        ImportError: SciPy is not installed.
    """
    try:
        import scipy.sparse
    except ImportError:
        raise ImportError(
            "sparse=True answers scipy.sparse arrays: pip install scipy (the extra gradwire[sparse] has it)"
        ) from None
    return scipy.sparse


class Patterns:
    """The patterns that one client holds of one service, by map. Bounded; safe among threads."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], Pattern] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, map: str) -> dict[str, Pattern]:
        """Patterns that came from ``map``, by name; the latest, as many as a request may name."""
        with self._lock:
            found = [(key[1], pattern) for key, pattern in self._held.items() if key[0] == map]
        return dict(found[-MOST_KNOWN:])

    def keep(self, map: str, pattern: Pattern) -> None:
        key = (map, pattern.name)
        with self._lock:
            if key not in self._held:
                # Not views: they would keep the whole answer they came in.
                own = Pattern(pattern.shape, pattern.indptr.copy(), pattern.indices.copy(), pattern.name)
                self._held[key] = own
                self._bytes += pattern.nbytes
            self._held.move_to_end(key)
            while self._bytes > HELD_BYTES and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1].nbytes


# On the wire.


def to_fields(tree: Tree, known: Collection[str] = ()) -> Any:
    """A pytree of `Csr` as a field to encode; patterns in ``known`` go by name alone."""
    if isinstance(tree, Csr):
        pattern = tree.pattern
        fields: dict[str, Any] = {"csr": True, "shape": list(pattern.shape)}
        if pattern.name not in known:
            fields |= {"indptr": wire.Tree(pattern.indptr), "indices": wire.Tree(pattern.indices)}
        return fields | {"values": wire.Tree(tree.values), "pattern": pattern.name}
    if type(tree) is dict:
        # Always literal: a key of the caller's may be one that means something on the wire.
        return {"dict": {key: to_fields(child, known) for key, child in tree.items()}}
    if type(tree) is tuple:
        return {"tuple": [to_fields(child, known) for child in tree]}
    return None if tree is None else [to_fields(child, known) for child in tree]


def from_fields(raw: Any, message: wire.Message, known: Mapping[str, Pattern]) -> Tree:
    """The pytree of `Csr` that a field of ``message`` stands for; ``known`` are the patterns that were named.

    Raises:
        WireError: it stands for none.
    """
    if raw is None:
        return None
    if type(raw) is list:
        return [from_fields(child, message, known) for child in raw]
    if type(raw) is dict:
        if raw.get("csr") is True:
            return _matrix(raw, message, known)
        if type(raw.get("tuple")) is list:
            return tuple(from_fields(child, message, known) for child in raw["tuple"])
        if type(raw.get("dict")) is dict:
            return {key: from_fields(child, message, known) for key, child in raw["dict"].items()}
    raise WireError("A sparse answer holds something that is no sparse matrix.", got=type(raw).__name__)


def _matrix(raw: dict[str, Any], message: wire.Message, known: Mapping[str, Pattern]) -> Csr:
    try:
        name, (rows, columns) = str(raw["pattern"]), raw["shape"]
        values = np.asarray(message.tree(raw["values"]))
        if "indptr" in raw:
            indptr, indices = (np.asarray(message.tree(raw[part])) for part in ("indptr", "indices"))
            pattern = Pattern((int(rows), int(columns)), indptr, indices, name)
        else:
            pattern = known[name]
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(
            "A sparse matrix of the answer is incomplete.",
            expected="shape, indptr, indices, values and pattern",
            got=", ".join(sorted(raw))[:200],
        ) from error
    pattern_ok = (
        len(pattern.indptr) == pattern.shape[0] + 1
        and len(pattern.indices) == len(values)
        and pattern.indptr[0] == 0
        and pattern.indptr[-1] == len(values)
        and bool((np.diff(pattern.indptr) >= 0).all())
        and (not len(values) or 0 <= pattern.indices.min() <= pattern.indices.max() < pattern.shape[1])
    )
    if not pattern_ok:
        raise WireError(
            "A sparse matrix of the answer does not fit its pattern.", got=f"{len(values)} values"
        )
    return Csr(pattern, values)
