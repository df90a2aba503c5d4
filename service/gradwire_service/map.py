"""Map: a function declared for hosting; itself the local operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire import kinds
from gradwire._blocks import Filling
from gradwire._errors import ArgumentError, GradwireError
from gradwire._linear import Handle
from gradwire._operator import Answer, Call, OperatorBase, Options, T
from gradwire._reports import REPORTS, Report
from gradwire_service import capabilities, operators
from gradwire_service.byhand import ARRAYS, Hand
from gradwire_service.declaration import Declaration, name_of, version_of
from gradwire_service.engine import local
from gradwire_service.engine.local import answer, export, import_local
from gradwire_service.policy import Policy
from gradwire_service.signature import annotations_of, array_annotation, signature_of


class Map(OperatorBase):
    """A pure function from arrays (or pytrees of arrays) to arrays, to be hosted.

    As a decorator, with `functools.partial` for options, or called::

        @Map
        def norm(x: Float[Array, "n"]) -> Float[Array, ""]: ...

    It is the local operator too: everything of `gradwire.Operator` works on it in this
    process, on NumPy, CuPy, JAX and PyTorch arrays; on JAX's tracers it is traced through,
    so that maps may call each other.

    Args:
        fun: the function. jaxtyping annotations are its declared signature.
        name: what it is hosted under; ``fun.__name__`` where not given (callable instances
            and lambdas must give one). Letters, digits, ``_`` and ``-``, 64 at most.
        version: of the function; a hash of its source where not given.
        precision: a policy for its queries, such as ``"float32"``.
        device: where its queries run, such as ``"gpu"`` or ``"cpu:1"``.
        static_argnames: parameters that are plain data: bound before any transform.
        arrays: whose arrays a function that JAX cannot trace takes and gives: ``"numpy"`` or
            ``"cupy"`` (``"jax"``: JAX's, traced unless jvp or vjp is given).
        jvp: ``jvp(primals, tangents) -> (value, tangent)``, by hand: a tangent for each
            positional argument, zeros where it is not differentiated.
        vjp: ``vjp(primals, cotangent) -> (value, cotangents)``, by hand: a cotangent for each
            positional argument (None for a zero), JAX's transpose, without a conjugation.
        hvp: ``"central"`` to allow Hessian products of a map by hand, by central differences.
        coalesce: whether concurrent calls may be joined into one by vmap.
        example: positional arguments for warm-up and ``gradwire check``.

    Raises:
        ArgumentError: a name, version or parameter that cannot be used.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        *,
        name: str | None = None,
        version: str | None = None,
        precision: str | None = None,
        device: str | None = None,
        static_argnames: Sequence[str] = (),
        coalesce: bool = False,
        arrays: str = "jax",
        jvp: Callable[..., Any] | None = None,
        vjp: Callable[..., Any] | None = None,
        hvp: str | None = None,
        example: Any = None,
    ) -> None:
        if not callable(fun):
            raise ArgumentError("A Map is made of a function.", argument="fun", got=type(fun).__name__)
        if isinstance(static_argnames, str):
            static_argnames = (static_argnames,)
        name = name_of(fun, name)
        declared = annotations_of(fun)
        signature = signature_of(declared, tuple(static_argnames), map=name)
        version = version_of(fun, version, name)
        self._declaration = Declaration(
            fun=fun,
            name=name,
            version=version,
            doc=inspect.getdoc(fun),
            signature=signature,
            annotations={
                parameter: array_annotation(declared.parameters[parameter].annotation)
                for parameter in declared.parameters
                if array_annotation(declared.parameters[parameter].annotation)
            },
            precision=None if precision is None else Policy.parse(precision),
            device=device,
            coalesce=coalesce,
            example=_example(example),
            declared_return=declared.return_annotation,
            hand=_hand(name, arrays, jvp, vjp, hvp),
        )
        super().__init__(
            name=name, version=version, signature=signature, doc=inspect.getdoc(fun), options=Options()
        )

    def _perform(self, call: Call, read: Callable[[Answer], T]) -> T:
        try:
            if call.operation in REPORTS:
                fields = self._reported(call).fields()
                return read(lambda name: fields)
            return read(
                answer(self._declaration, call, self._transforms, self._options, self._warn_of_precision)
            )
        except GradwireError as error:
            error.map = error.map or self.name
            raise

    def _fill(self, call: Call, filling: Filling, read: Callable[[np.ndarray], T]) -> T:
        local.fill(self._declaration, call, self._transforms, self._options, filling)
        assert filling.out is not None
        return read(filling.out)

    def _reported(self, call: Call) -> Report:
        if call.operation == "check":
            from gradwire_service.check import check_map  # which checks Maps, and so comes after them

            return check_map(self, at=(call.args, call.kwargs))
        return local.report(self._declaration, call, self._transforms, self._options)

    def _handle(self, call: Call, answer: Answer) -> Handle:
        handle: Handle = answer("linearization")
        return handle

    def _base_operations(self) -> tuple[str, ...]:
        return capabilities.operations(self._declaration)

    def _import_leaf(self, leaf: Any, argument: str) -> Any:
        return import_local(leaf, argument)

    def _export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        return export(leaf, kind, like)

    @classmethod
    def from_linear_operator(cls, op: Any, **options: Any) -> Map:
        """A linear operator of SciPy's kind (``shape``, ``matvec``, ``rmatvec``), or a matrix, as a Map."""
        return cls(**{**operators.linear(op), **options})

    @classmethod
    def from_pylops(cls, op: Any, **options: Any) -> Map:
        """A PyLops operator as a Map, on arrays of its ``dims``."""
        return cls(**{**operators.linear(op), **options})

    @classmethod
    def from_pyxu(cls, op: Any, **options: Any) -> Map:
        """A Pyxu LinOp, DiffFunc or DiffMap as a Map, on real arrays of its ``dim_shape``."""
        return cls(**{**operators.pyxu(op), **options})


def _example(example: Any) -> tuple[Any, ...] | None:
    """The positional arguments in ``example=``: a sequence of them, or one array or number."""
    if example is None:
        return None
    return tuple(example) if isinstance(example, tuple | list) else (example,)


def _hand(
    name: str,
    arrays: str,
    jvp: Callable[..., Any] | None,
    vjp: Callable[..., Any] | None,
    hvp: str | None,
) -> Hand | None:
    if arrays not in ARRAYS:
        raise ArgumentError(
            "There are no such arrays.",
            map=name,
            argument="arrays",
            expected=", ".join(ARRAYS),
            got=repr(arrays),
        )
    if hvp not in (None, "central"):
        raise ArgumentError(
            "Hessian products by hand are central differences.",
            map=name,
            argument="hvp",
            expected='"central"',
            got=repr(hvp),
        )
    if arrays == "jax" and jvp is None and vjp is None:
        if hvp is not None:
            raise ArgumentError("JAX differentiates this map: it needs no hvp.", map=name, argument="hvp")
        return None
    return Hand(arrays, jvp, vjp, hvp)
