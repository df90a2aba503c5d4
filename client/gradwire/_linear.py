"""LinearOperator: a map's derivative at one point as the linear map it is, and what is composed of such."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from gradwire import kinds
from gradwire._errors import DTypeError, GradwireError, NotDifferentiable, ShapeError
from gradwire._signature import describe_leaf
from gradwire._space import Space, conjugated, host
from gradwire._trees import Tree, is_number, leaves, normalized, rebuild, tree_map
from gradwire.wire import ArraySpec

Reader = Callable[[Any], Any]
Like = tuple[kinds.Kind, Any]


class Handle(Protocol):
    """A linearization where it is kept: on the service, or in this process.

    ``perform`` answers through ``read``: at once, or (for an async client) as an awaitable.
    """

    def import_leaf(self, leaf: Any, argument: str) -> Any: ...
    def export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any: ...
    def perform(self, operation: str, payload: Any, read: Reader) -> Any:
        """``jvp`` takes a list of tangents, ``vjp`` a cotangent, ``dense`` nothing."""

    def close(self) -> Any: ...


class LinearOperator:
    """A linear map between arrays (or pytrees of arrays), known by its products.

    ``f.linearize(x)`` gives the derivative of ``f`` at ``x``: ``J @ v`` is the Jacobian times a
    tangent, ``J.T @ w`` its transpose (JAX's, without a conjugation) times a cotangent, and
    ``J.H @ w = conj(J.T @ conj(w))`` the adjoint. ``jvp`` and ``vjp`` take stacks too.
    SciPy's solvers take it as it is.

    Operators compose: ``A + B``, ``A - B``, ``A @ B``, ``2 * A``, ``-A``, ``A / 2``, ``A.gram()``.

    Attributes:
        value: of a derivative: the map's value at the point, in the kind of the arguments.
        shape: ``(value.size, total size of the differentiated arguments)``.
        dtype: the dtype that holds both sides.
    """

    __array_ufunc__ = None  # so that ``ndarray @ J`` asks J
    value: Any

    def __init__(self, domain: Space, codomain: Space, like: Like, map: str) -> None:
        self._domain, self._codomain, self._like, self._map = domain, codomain, like, map
        self.shape = (codomain.size, domain.size)
        self.dtype = np.result_type(*(domain.dtypes | codomain.dtypes or {np.dtype(float)}))

    def __repr__(self) -> str:
        return f"<LinearOperator {self.shape[0]}×{self.shape[1]}, {self.dtype}>"

    # What a subclass gives.

    def _forward(self, trees: tuple[Tree, ...], read: Reader) -> Any:
        """``read`` of the operator times ``trees`` (one for each part of the domain; stacks too)."""
        raise NotImplementedError

    def _export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        """An array of an answer, as the caller gets it."""
        raise NotImplementedError

    def _import_leaf(self, leaf: Any) -> Any:
        """A caller's array, as it is reckoned with."""
        raise NotImplementedError

    @property
    def T(self) -> LinearOperator:
        """The transpose: JAX's vjp."""
        raise NotImplementedError

    @property
    def H(self) -> LinearOperator:
        """The adjoint: the conjugate of the transpose."""
        raise NotImplementedError

    def todense(self) -> Any:
        """The matrix as `Operator.jacobian` lays it out, of shape codomain.shape + domain.shape."""
        into, out = self._one(self._domain), self._one(self._codomain)
        columns = self.matmat(np.eye(self.shape[1], dtype=into.dtype))
        made = np.ascontiguousarray(columns).reshape(out.shape + into.shape)
        return self._export_leaf(made, *self._like)

    def close(self) -> Any:
        """Free what is kept for it. Closing twice does nothing."""
        raise NotImplementedError

    # Applying it.

    def jvp(self, tangents: Any) -> Any:
        """The operator times ``tangents``: in the arguments' shapes, or with stack dimensions in front."""
        return self._apply(tangents, name="tangents", exact=False)

    def vjp(self, cotangent: Any) -> Any:
        """The operator's transpose times ``cotangent``, which may have stack dimensions in front."""
        return self.T._apply(cotangent, name="cotangent", exact=False)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, LinearOperator):
            return _product(self, other)
        return self._apply(other, name="tangents", exact=True)

    def __rmatmul__(self, vector: Any) -> Any:
        return self.T._apply(vector, name="cotangent", exact=True)

    def _apply(self, vector: Any, *, name: str, exact: bool) -> Any:
        def read(answer: tuple[Tree, ...]) -> Any:
            made = tree_map(lambda leaf: self._export_leaf(leaf, kind, sample), answer)
            return made[0] if self._codomain.bare else made

        try:
            trees = tuple(normalized(tree, argument=name) for tree in self._domain.split(vector, name=name))
            kinds.refuse_dask(leaves(trees), "linearize")
            kind, sample = kinds.leading(leaves(trees))
            if sample is None:
                kind, sample = self._like
            if exact:
                self._domain.check_exact(trees, name=name)
            return self._forward(trees, read)
        except GradwireError as error:
            error.map = error.map or self._map
            raise

    # Flat vectors and columns, as SciPy has them.

    def matvec(self, x: Any) -> Any:
        """The operator times a flat vector of shape (shape[1],) (or (shape[1], 1))."""
        return self._flat(x, stacked=False)

    def rmatvec(self, x: Any) -> Any:
        """The adjoint times a flat vector of shape (shape[0],) (or (shape[0], 1))."""
        return self.H._flat(x, stacked=False)

    def matmat(self, X: Any) -> Any:
        """The operator times columns, shape (shape[1], k), in one request."""
        return self._flat(X, stacked=True)

    def rmatmat(self, X: Any) -> Any:
        """The adjoint times columns, shape (shape[0], k), in one request."""
        return self.H._flat(X, stacked=True)

    def _flat(self, x: Any, *, stacked: bool) -> Any:
        kinds.refuse_dask([x], "linearize")
        kind, sample = kinds.leading([x])
        flat = np.asarray(kind.to_numpy(x) if sample is not None else x)
        column = not stacked and flat.ndim == 2 and flat.shape[1] == 1

        def read(answer: tuple[Tree, ...]) -> Any:
            made = np.ascontiguousarray(self._codomain.flatten(tree_map(np.asarray, answer), stacked=stacked))
            return kind.from_numpy(made[:, None] if column else made, sample)

        try:
            trees = self._domain.unflatten(flat[:, 0] if column else flat, stacked=stacked, name="x")
            return self._forward(trees, read)
        except GradwireError as error:
            error.map = error.map or self._map
            raise

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

    # Composing operators.

    def __add__(self, other: Any) -> LinearOperator:
        return _Sum(self, other) if isinstance(other, LinearOperator) else NotImplemented

    def __sub__(self, other: Any) -> LinearOperator:
        return _Sum(self, -1 * other) if isinstance(other, LinearOperator) else NotImplemented

    def __mul__(self, factor: Any) -> LinearOperator:
        factor = factor.item() if isinstance(factor, np.generic) else factor
        return _Scaled(factor, self) if is_number(factor) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> LinearOperator:
        return (
            self * (1 / divisor) if is_number(divisor) or isinstance(divisor, np.generic) else NotImplemented
        )

    def __neg__(self) -> LinearOperator:
        return -1 * self

    def gram(self) -> LinearOperator:
        """``A.H @ A``: Gauss and Newton's approximation of a Hessian, A being the residuals' derivative."""
        return self.H @ self  # type: ignore[no-any-return]

    # Asking about it.

    def norm(self, *, rtol: float = 1e-3, most: int = 100, seed: int = 0) -> float:
        """An estimate of the largest singular value, from below, by power iteration on ``A.H A``.

        Args:
            rtol: the relative change at which it stops.
            most: the number of products (each way) at which it stops anyway.
            seed: of the random vector it starts from.
        """
        v = self._random(self._domain, np.random.default_rng(seed))
        found = 0.0
        for _ in range(most):
            length = float(np.linalg.norm(v))
            if length == 0.0:
                return 0.0
            w = self.matvec(v / length)
            before, found = found, float(np.linalg.norm(w))
            if abs(found - before) <= rtol * found:
                break
            v = self.rmatvec(w)
        return found

    def dottest(self, *, rtol: float | None = None, seed: int = 0) -> bool:
        """Whether ``Re <A v, w> = Re <v, A.H w>`` for random vectors: that both products belong together.

        Args:
            rtol: relative to |A v| |w|; by default the square root of the dtype's rounding unit.
            seed: of the random vectors.
        """
        random = np.random.default_rng(seed)
        v, w = self._random(self._domain, random), self._random(self._codomain, random)
        forward, adjoint = self.matvec(v), self.rmatvec(w)
        # Between real arrays, and where a map is not holomorphic, only the real parts are an adjoint's;
        # for random complex vectors they tell as much.
        error = abs((np.vdot(w, forward) - np.vdot(adjoint, v)).real)
        if rtol is None:
            rtol = float(np.sqrt(np.finfo(self.dtype).eps))
        return bool(error <= rtol * np.linalg.norm(forward) * np.linalg.norm(w))

    @staticmethod
    def _random(space: Space, random: np.random.Generator) -> np.ndarray:
        parts = []
        for spec in space.specs:
            size = math.prod(spec.shape)
            drawn = random.standard_normal(size)
            if spec.dtype.kind == "c":
                drawn = drawn + 1j * random.standard_normal(size)
            parts.append(drawn.astype(spec.dtype))
        return np.concatenate(parts)

    @staticmethod
    def _one(space: Space) -> ArraySpec:
        """The one array that ``space`` is.

        Raises:
            NotDifferentiable: it is several, or a pytree.
        """
        if space.bare and isinstance(space.like[0], ArraySpec):
            return space.like[0]
        raise NotDifferentiable(
            "The matrix of a composed or transposed operator is laid out for one array each."
        )

    def __enter__(self) -> LinearOperator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a LinearOperator is not a sequence; J.todense() gives its entries")


class Jacobian(LinearOperator):
    """The derivative of a map at one point, or its transpose, conjugate or adjoint: views of one handle."""

    def __init__(
        self,
        handle: Handle,
        *,
        value: Any,
        inputs: Space,
        outputs: Space,
        like: Like,
        map: str,
        transposed: bool = False,
        conjugate: bool = False,
    ) -> None:
        super().__init__(*((outputs, inputs) if transposed else (inputs, outputs)), like, map)
        self._handle = handle
        self.value = value
        self._transposed = transposed
        self._conjugate = conjugate

    def _view(self, *, transposed: bool, conjugate: bool) -> LinearOperator:
        inputs, outputs = self._domain, self._codomain
        if self._transposed:
            inputs, outputs = outputs, inputs
        return Jacobian(
            self._handle,
            value=self.value,
            inputs=inputs,
            outputs=outputs,
            like=self._like,
            map=self._map,
            transposed=transposed,
            conjugate=conjugate,
        )

    @property
    def T(self) -> LinearOperator:
        return self._view(transposed=not self._transposed, conjugate=self._conjugate)

    @property
    def H(self) -> LinearOperator:
        return self._view(transposed=not self._transposed, conjugate=not self._conjugate)

    def _forward(self, trees: tuple[Tree, ...], read: Reader) -> Any:
        name = "cotangent" if self._transposed else "tangents"

        def imported(leaf: Any) -> Any:
            leaf = self._handle.import_leaf(leaf, name)
            return conjugated(leaf) if self._conjugate else leaf

        sent = [tree_map(imported, tree) for tree in trees]

        def received(answer: Any) -> Any:
            answer = tuple(answer) if self._transposed else (answer,)
            return read(tree_map(conjugated, answer) if self._conjugate else answer)

        if self._transposed:
            return self._handle.perform("vjp", sent[0], received)
        return self._handle.perform("jvp", sent, received)

    def _export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        return self._handle.export_leaf(leaf, kind, like)

    def _import_leaf(self, leaf: Any) -> Any:
        return self._handle.import_leaf(leaf, "tangents")

    def todense(self) -> Any:
        """The Jacobian as `Operator.jacobian` lays it out (of a transposed view of one array: transposed)."""

        def read(tree: Tree) -> Any:
            if self._transposed:
                into, out = self._one(self._codomain), self._one(self._domain)
                array, split = np.asarray(tree), len(out.shape)
                assert array.shape == out.shape + into.shape
                tree = np.ascontiguousarray(array.transpose([*range(split, array.ndim), *range(split)]))
            made = tree_map(conjugated, tree) if self._conjugate else tree
            return tree_map(lambda leaf: self._export_leaf(leaf, *self._like), made)

        return self._handle.perform("dense", None, read)

    def close(self) -> Any:
        """Free the linearization where it is kept. Closing twice does nothing."""
        return self._handle.close()


class _Composed(LinearOperator):
    """An operator made of others."""

    def __init__(self, *parts: LinearOperator) -> None:
        super().__init__(parts[-1]._domain, parts[0]._codomain, parts[-1]._like, parts[0]._map)
        self._parts = parts

    def _export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        return self._parts[0]._export_leaf(leaf, kind, like)

    def _import_leaf(self, leaf: Any) -> Any:
        return self._parts[-1]._import_leaf(leaf)

    def close(self) -> None:
        for part in self._parts:
            part.close()


class _Sum(_Composed):
    def __init__(self, left: LinearOperator, right: LinearOperator) -> None:
        for mine, other in ((left._domain, right._domain), (left._codomain, right._codomain)):
            _check_same(mine, other, "Operators are added between the same arrays.")
        super().__init__(left, right)
        self.dtype = np.result_type(left.dtype, right.dtype)

    @property
    def T(self) -> LinearOperator:
        return _Sum(self._parts[0].T, self._parts[1].T)

    @property
    def H(self) -> LinearOperator:
        return _Sum(self._parts[0].H, self._parts[1].H)

    def _forward(self, trees: tuple[Tree, ...], read: Reader) -> Any:
        left, right = self._parts

        def add(one: tuple[Tree, ...], other: tuple[Tree, ...]) -> tuple[Tree, ...]:
            added = [host(a) + host(b) for a, b in zip(leaves(one), leaves(other), strict=True)]
            return rebuild(one, iter(added))  # type: ignore[no-any-return]

        return left._forward(trees, lambda one: right._forward(trees, lambda other: read(add(one, other))))


class _Product(_Composed):
    def __init__(self, left: LinearOperator, right: LinearOperator) -> None:
        _check_same(left._domain, right._codomain, "The right operator gives what the left one takes.")
        super().__init__(left, right)

    @property
    def T(self) -> LinearOperator:
        return _Product(self._parts[1].T, self._parts[0].T)

    @property
    def H(self) -> LinearOperator:
        return _Product(self._parts[1].H, self._parts[0].H)

    def _forward(self, trees: tuple[Tree, ...], read: Reader) -> Any:
        left, right = self._parts
        return right._forward(trees, lambda between: left._forward(between, read))


class _Scaled(_Composed):
    """A factor times an operator: of what it gives, or (its transpose) of what it is given.

    The two differ for a complex factor and an operator that is only real-linear, such as the
    derivative of a map that is not holomorphic.
    """

    def __init__(self, factor: Any, part: LinearOperator, *, first: bool = False) -> None:
        specs = [*part._domain.specs, *part._codomain.specs]
        if type(factor) is complex and not all(spec.dtype.kind == "c" for spec in specs):
            raise DTypeError(
                "A complex factor takes an operator between complex arrays; multiply the answer instead.",
                map=part._map,
                argument="factor",
                expected="a real factor",
                got="complex",
            )
        super().__init__(part)
        self._factor = factor
        self._first = first

    @property
    def T(self) -> LinearOperator:
        return _Scaled(self._factor, self._parts[0].T, first=not self._first)

    @property
    def H(self) -> LinearOperator:
        return _Scaled(self._factor.conjugate(), self._parts[0].H, first=not self._first)

    def _forward(self, trees: tuple[Tree, ...], read: Reader) -> Any:
        def scaled(leaf: Any) -> Any:
            return self._factor * host(leaf)

        if self._first:
            return self._parts[0]._forward(tree_map(scaled, tree_map(self._import_leaf, trees)), read)
        return self._parts[0]._forward(trees, lambda answer: read(tree_map(scaled, answer)))


def _product(left: LinearOperator, right: LinearOperator) -> LinearOperator:
    """``left @ right``; real factors go outside, and complex ones of the left operator's answer."""
    factor: Any = 1
    while isinstance(left, _Scaled) and (not left._first or type(left._factor) is not complex):
        factor, left = factor * left._factor, left._parts[0]
    while isinstance(right, _Scaled) and type(right._factor) is not complex:
        factor, right = factor * right._factor, right._parts[0]
    made = _Product(left, right)
    return made if type(factor) is int and factor == 1 else _Scaled(factor, made)


def _check_same(one: Space, other: Space, why: str) -> None:
    if [spec.shape for spec in one.specs] != [spec.shape for spec in other.specs]:
        raise ShapeError(
            why,
            expected=", ".join(map(describe_leaf, one.specs)),
            got=", ".join(map(describe_leaf, other.specs)),
        )
