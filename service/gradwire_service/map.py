"""Map: a function declared for hosting; itself the local operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax

from gradwire import kinds
from gradwire._errors import ArgumentError
from gradwire._linear import Handle
from gradwire._operator import Answer, Call, OperatorBase, Options, T, import_leaf
from gradwire_service import capabilities
from gradwire_service.declaration import Declaration, name_of, version_of
from gradwire_service.engine.local import answer, export
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
        example: Sequence[Any] | None = None,
    ) -> None:
        if arrays != "jax" or jvp is not None or vjp is not None:
            raise NotImplementedError(
                "derivatives by hand (jvp=, vjp=, arrays=) are not there yet; "
                "wrap the code with jax.pure_callback and jax.custom_jvp or jax.custom_vjp"
            )
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
            example=None
            if example is None
            else tuple(example)
            if isinstance(example, tuple | list)
            else (example,),
        )
        super().__init__(
            name=name, version=version, signature=signature, doc=inspect.getdoc(fun), options=Options()
        )

    def _perform(self, call: Call, read: Callable[[Answer], T]) -> T:
        return read(answer(self._declaration, call, self._transforms, self._options, self._warn_of_precision))

    def _handle(self, call: Call, answer: Answer) -> Handle:
        handle: Handle = answer("linearization")
        return handle

    def _base_operations(self) -> tuple[str, ...]:
        return capabilities.operations(self._declaration)

    def _import_leaf(self, leaf: Any, argument: str) -> Any:
        return leaf if isinstance(leaf, jax.Array) else import_leaf(leaf, argument)

    def _export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        return export(leaf, kind, like)
