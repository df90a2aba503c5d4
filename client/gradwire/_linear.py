"""LinearOperator: a map's derivative at one point, as the linear map it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradwire import kinds
from gradwire._errors import ArgumentError, GradwireError, NotDifferentiable, ShapeError
from gradwire._signature import describe_leaf, is_differentiable
from gradwire._trees import Tree, is_number, leaves, normalized, tree_map
from gradwire.wire import ArraySpec

Reader = Callable[[Any], Any]


class Handle(Protocol):
    """A linearization where it is kept: on the service, or in this process.

    ``perform`` answers through ``read``: at once, or (for an async client) as an awaitable.
    """

    def import_leaf(self, leaf: Any, argument: str) -> Any: ...
    def export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any: ...
    def perform(self, operation: str, payload: Any, read: Reader) -> Any:
        """``jvp`` takes a list of tangents, ``vjp`` a cotangent, ``dense`` nothing."""

    def close(self) -> Any: ...


@dataclass(frozen=True)
class Space:
    """The vectors an operator takes or gives: one tree of array specs for each argument (or the value).

    ``bare``: there is exactly one, and it is written without a tuple around it.
    Leaves that have no derivative are None.
    """

    like: tuple[Tree, ...]
    bare: bool

    @classmethod
    def of(cls, trees: Sequence[Tree], *, bare: bool) -> Space:
        def spec(leaf: Any) -> ArraySpec | None:
            if not is_differentiable(leaf, bare=True):
                return None
            if is_number(leaf):
                return ArraySpec((), np.dtype(complex if type(leaf) is complex else float))
            dtype = np.dtype(leaf.dtype)
            return ArraySpec(tuple(leaf.shape), dtype if dtype.kind != "i" else np.dtype(float))

        return cls(tuple(tree_map(spec, tree) for tree in trees), bare)

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
                f"{name} has one entry for each differentiated argument.",
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
                    "The @ operator takes exactly one vector; stacks go through jvp and vjp, "
                    "columns through matmat.",
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
            return np.ascontiguousarray(piece).reshape(piece.shape[:-1] + spec.shape)

        return tuple(tree_map(take, _sorted(tree)) for tree in self.like)

    def flatten(self, trees: Sequence[Tree], *, stacked: bool) -> np.ndarray:
        """The inverse of `unflatten`."""
        lead = 1 if stacked else 0
        parts = [np.asarray(leaf).reshape(*np.shape(leaf)[:lead], -1) for leaf in leaves(tuple(trees))]
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
    """The complex conjugate of one array or number of any kind."""
    if is_number(leaf):
        return leaf.conjugate()
    if hasattr(leaf, "resolve_conj"):
        return leaf.conj().resolve_conj()
    return leaf.conj() if hasattr(leaf, "conj") else np.conj(leaf)


class LinearOperator:
    """The derivative of a map at one point, with shape (value.size, total size of the arguments).

    ``J @ v`` is the Jacobian times a tangent, ``J.T @ w`` its transpose (JAX's, without a
    conjugation) times a cotangent, and ``J.H @ w = conj(J.T @ conj(w))`` the adjoint.
    ``jvp`` and ``vjp`` take stacks too. SciPy's solvers take it as it is.

    Attributes:
        value: the map's value at the point, in the kind of the arguments.
        shape: ``(value.size, total size of the differentiated arguments)``.
        dtype: the dtype that holds both sides.
    """

    __array_ufunc__ = None  # so that ``ndarray @ J`` asks J

    def __init__(
        self,
        handle: Handle,
        *,
        value: Any,
        inputs: Space,
        outputs: Space,
        like: tuple[kinds.Kind, Any],
        map: str,
        transposed: bool = False,
        conjugate: bool = False,
    ) -> None:
        self._handle = handle
        self._map = map
        self.value = value
        self._inputs = inputs
        self._outputs = outputs
        self._like = like
        self._transposed = transposed
        self._conjugate = conjugate
        domain, codomain = (outputs, inputs) if transposed else (inputs, outputs)
        self._domain, self._codomain = domain, codomain
        self.shape = (codomain.size, domain.size)
        self.dtype = np.result_type(*(spec.dtype for spec in [*inputs.specs, *outputs.specs]))

    def __repr__(self) -> str:
        return f"<LinearOperator {self.shape[0]}×{self.shape[1]}, {self.dtype}>"

    # The four views of one derivative.

    def _view(self, *, transposed: bool, conjugate: bool) -> LinearOperator:
        return LinearOperator(
            self._handle,
            value=self.value,
            inputs=self._inputs,
            outputs=self._outputs,
            like=self._like,
            map=self._map,
            transposed=transposed,
            conjugate=conjugate,
        )

    @property
    def T(self) -> LinearOperator:
        """The transpose: JAX's vjp."""
        return self._view(transposed=not self._transposed, conjugate=self._conjugate)

    @property
    def H(self) -> LinearOperator:
        """The adjoint: the conjugate of the transpose."""
        return self._view(transposed=not self._transposed, conjugate=not self._conjugate)

    # Applying it.

    def jvp(self, tangents: Any) -> Any:
        """The operator times ``tangents``: in the arguments' shapes, or with stack dimensions in front."""
        return self._apply(tangents, transposed=self._transposed, exact=False)

    def vjp(self, cotangent: Any) -> Any:
        """The operator's transpose times ``cotangent``, which may have stack dimensions in front."""
        return self._apply(cotangent, transposed=not self._transposed, exact=False)

    def __matmul__(self, vector: Any) -> Any:
        return self._apply(vector, transposed=self._transposed, exact=True)

    def __rmatmul__(self, vector: Any) -> Any:
        return self._apply(vector, transposed=not self._transposed, exact=True)

    def _apply(self, vector: Any, *, transposed: bool, exact: bool) -> Any:
        name = "cotangent" if transposed else "tangents"
        domain, codomain = (self._outputs, self._inputs) if transposed else (self._inputs, self._outputs)
        try:
            trees = tuple(normalized(tree, argument=name) for tree in domain.split(vector, name=name))
            like = kinds.leading(leaves(trees))
            if exact:
                domain.check_exact(trees, name=name)
            read = self._reader(codomain, like if like[1] is not None else self._like)
            return self._send(transposed, trees, read)
        except GradwireError as error:
            error.map = error.map or self._map
            raise

    def _send(self, transposed: bool, trees: tuple[Tree, ...], read: Reader) -> Any:
        name = "cotangent" if transposed else "tangents"
        conjugate = self._conjugate

        def imported(leaf: Any) -> Any:
            leaf = self._handle.import_leaf(leaf, name)
            return conjugated(leaf) if conjugate else leaf

        sent = [tree_map(imported, tree) for tree in trees]

        def received(answer: Any) -> Any:
            answer = tuple(answer) if transposed else (answer,)
            return read(tree_map(conjugated, answer) if conjugate else answer)

        if transposed:
            return self._handle.perform("vjp", sent[0], received)
        return self._handle.perform("jvp", sent, received)

    def _reader(self, codomain: Space, like: tuple[kinds.Kind, Any]) -> Reader:
        kind, sample = like

        def read(trees: tuple[Tree, ...]) -> Any:
            made = tree_map(lambda leaf: self._handle.export_leaf(leaf, kind, sample), trees)
            return made[0] if codomain.bare else made

        return read

    # Flat vectors and columns, as SciPy has them.

    def matvec(self, x: Any) -> Any:
        """The operator times a flat vector of shape (shape[1],) (or (shape[1], 1))."""
        return self._flat(x, adjoint=False, stacked=False)

    def rmatvec(self, x: Any) -> Any:
        """The adjoint times a flat vector of shape (shape[0],) (or (shape[0], 1))."""
        return self._flat(x, adjoint=True, stacked=False)

    def matmat(self, X: Any) -> Any:
        """The operator times columns, shape (shape[1], k), in one request."""
        return self._flat(X, adjoint=False, stacked=True)

    def rmatmat(self, X: Any) -> Any:
        """The adjoint times columns, shape (shape[0], k), in one request."""
        return self._flat(X, adjoint=True, stacked=True)

    def _flat(self, x: Any, *, adjoint: bool, stacked: bool) -> Any:
        operator = self.H if adjoint else self
        kind, sample = kinds.leading([x])
        flat = np.asarray(kind.to_numpy(x) if sample is not None else x)
        column = not stacked and flat.ndim == 2 and flat.shape[1] == 1
        trees = operator._domain.unflatten(flat[:, 0] if column else flat, stacked=stacked, name="x")

        def read(answer: tuple[Tree, ...]) -> Any:
            made = np.ascontiguousarray(
                operator._codomain.flatten(tree_map(np.asarray, answer), stacked=stacked)
            )
            return kind.from_numpy(made[:, None] if column else made, sample)

        return operator._send(operator._transposed, trees, read)

    def todense(self) -> Any:
        """The Jacobian as `Operator.jacobian` lays it out (of a transposed view of one array: transposed)."""

        def read(tree: Tree) -> Any:
            if self._transposed:
                if not (self._inputs.bare and isinstance(self._outputs.like[0], ArraySpec)) or not isinstance(
                    self._inputs.like[0], ArraySpec
                ):
                    raise NotDifferentiable(
                        "A transposed dense Jacobian is laid out for one array in, one array out."
                    )
                split = len(self._outputs.like[0].shape)
                array = np.asarray(tree)
                tree = np.ascontiguousarray(array.transpose([*range(split, array.ndim), *range(split)]))
            made = tree_map(conjugated, tree) if self._conjugate else tree
            return tree_map(lambda leaf: self._handle.export_leaf(leaf, *self._like), made)

        return self._handle.perform("dense", None, read)

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.linalg.LinearOperator`` of this one."""
        from scipy.sparse.linalg import LinearOperator as SciPyOperator  # an extra; only here

        return SciPyOperator(
            shape=self.shape,
            dtype=self.dtype,
            matvec=self.matvec,
            rmatvec=self.rmatvec,
            matmat=self.matmat,
            rmatmat=self.rmatmat,
        )

    # It holds memory on the service until closed.

    def close(self) -> Any:
        """Free the linearization where it is kept. Closing twice does nothing."""
        return self._handle.close()

    def __enter__(self) -> LinearOperator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a LinearOperator is not a sequence; J.todense() gives its entries")
