"""What a map declares: its function, name, version and signature; and that function, bound for tracing."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradwire._errors import ArgumentError, GradwireError, MapFailed, NotDifferentiable
from gradwire._signature import Signature
from gradwire._trees import Tree, tree_map
from gradwire_service.byhand import Given, Hand, operations
from gradwire_service.differentiation import is_not_differentiable
from gradwire_service.failures import is_ours_to_end, message_of, told
from gradwire_service.policy import Policy
from gradwire_service.signature import ShapeCheck, array_annotation

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""What JAX raises in code that it cannot trace."""

VERSION = re.compile(r"[A-Za-z0-9._+-]{1,32}")


@dataclass(frozen=True, eq=False)
class Declaration:
    """What a `Map` declares, once and for all; compared by identity.

    Attributes:
        fun: the function.
        name, version: what it is hosted under.
        signature: its parameters.
        annotations: jaxtyping's array annotation of each parameter that has one.
        precision, device: defaults for its queries, or None.
        coalesce: whether concurrent requests may be joined by vmap.
        example: positional arguments to warm up and check with, or None.
        hand: derivatives by hand; None: JAX traces the function.
        declared_return: the return annotation.
    """

    fun: Callable[..., Any]
    name: str
    version: str
    doc: str | None
    signature: Signature
    annotations: Mapping[str, Any]
    precision: Policy | None
    device: str | None
    coalesce: bool
    example: tuple[Any, ...] | None
    hand: Hand | None = None
    declared_return: Any = None
    warned: set[str] = field(default_factory=set)

    @cached_property
    def check_shapes(self) -> ShapeCheck:
        return ShapeCheck(self.annotations, self.name, array_annotation(self.declared_return))

    @cached_property
    def declared(self) -> inspect.Signature:
        return inspect.signature(self.fun)

    def default_argnums(self, args: tuple[Tree, ...]) -> tuple[int, ...] | None:
        """The positions that are differentiated where nobody says which; None where there are none."""
        try:
            return self.signature.differentiated(None, args, map=self.name)
        except NotDifferentiable:
            return None

    def given(self, statics: Mapping[int | str, Any]) -> Given:
        """The function of a map with derivatives by hand."""
        assert self.hand is not None

        def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.check_shapes(_named(self.declared.bind(*args, **kwargs)))

        return Given(self.name, self.fun, self.hand, statics, check)

    @cached_property
    def hand_operations(self) -> tuple[str, ...]:
        """The operations of a map with derivatives by hand; its example tells whether it is scalar."""
        assert self.hand is not None
        scalar: bool | None = None
        if self.signature.returns is not None:
            scalar = self.signature.returns["shape"] == ""
        elif self.example is not None:
            static: dict[int | str, Any] = {
                i: arg for i, arg in enumerate(self.example) if self.signature.at(i).static
            }
            args = tuple(None if i in static else arg for i, arg in enumerate(self.example))
            with suppress(GradwireError):
                value = self.given(static).value(tree_map(np.asarray, args), {})
                scalar = isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "fc"
        return operations(self.hand, scalar=scalar)

    def bound(self, statics: Mapping[int | str, Any]) -> Callable[..., Any]:
        """The function of its array arguments alone.

        Static arguments given by position stand there as None; those given by keyword are left out.
        Shapes are checked, and an exception of the map's own becomes `MapFailed`.
        """
        by_position = {key: value for key, value in statics.items() if isinstance(key, int)}
        by_name = {key: value for key, value in statics.items() if isinstance(key, str)}

        def fun(*args: Any, **kwargs: Any) -> Any:
            given = tuple(by_position.get(position, arg) for position, arg in enumerate(args))
            arguments = self.declared.bind(*given, **kwargs, **by_name)
            self.check_shapes(_named(arguments))
            try:
                value = plain(self.fun(*arguments.args, **arguments.kwargs), self.name)
            except GradwireError:
                raise
            except BaseException as error:
                if is_ours_to_end(error) or is_not_differentiable(error):
                    raise
                if isinstance(error, UNTRACEABLE) or "concrete value" in message_of(error):
                    raise MapFailed(
                        f"{self.name} cannot be traced by JAX ({type(error).__name__}): it needs a number "
                        "while only shapes are known. A parameter that sets a length or a branch is "
                        "static: name it in static_argnames, or use jnp.where and jax.lax; NumPy code "
                        'needs arrays="numpy".',
                        map=self.name,
                    ) from error
                raise MapFailed(f"{self.name} raised {told(error)}", map=self.name) from error
            self.check_shapes.returned(_named(arguments), value)
            return value

        return fun


def _named(arguments: inspect.BoundArguments) -> Iterator[tuple[str, Any]]:
    """Parameter names and arguments, one by one; those of *args and **kwargs under their parameter's name."""
    for name, value in arguments.arguments.items():
        kind = arguments.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, entry) for entry in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from ((name, entry) for entry in value.values())
        else:
            yield name, value


def plain(value: Any, map: str) -> Tree:
    """A map's value as a plain pytree of arrays: named tuples become tuples.

    Raises:
        MapFailed: a value that is neither an array nor a tuple, list or str-keyed dict of arrays.
    """
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple([plain(child, map) for child in value])
    if type(value) is list:
        return [plain(child, map) for child in value]
    if isinstance(value, dict):
        if not all(type(key) is str for key in value):
            raise MapFailed(f"{map} returned a dict with keys that are not text.", map=map)
        return {key: plain(child, map) for key, child in value.items()}
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        raise MapFailed(
            f"{map} returned a {type(value).__name__}; maps return arrays, and tuples, lists and "
            "dicts of arrays.",
            map=map,
        ) from None


def name_of(fun: Any, name: str | None) -> str:
    if name is None:
        name = getattr(fun, "__name__", None)
        if name is None or name == "<lambda>":
            raise ArgumentError(
                "A callable instance or a lambda has no name of its own: give name=.",
                argument="name",
                expected="name=…",
                got=type(fun).__name__,
            )
    if not NAME.fullmatch(name):
        raise ArgumentError(
            "That name cannot be hosted.", argument="name", expected=NAME.pattern, got=repr(name[:80])
        )
    return name


def version_of(fun: Any, version: str | None, map: str) -> str:
    if version is None:
        return hashlib.sha256(_source(fun).encode()).hexdigest()[:12]
    if not VERSION.fullmatch(version):
        raise ArgumentError(
            "That version cannot be hosted.",
            map=map,
            argument="version",
            expected=VERSION.pattern,
            got=repr(version[:80]),
        )
    return version


def _source(fun: Any) -> str:
    """The text of the module that defines ``fun``: what a map calls belongs to its version."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    target = inspect.unwrap(fun if inspect.isroutine(fun) else type(fun))
    try:
        module = inspect.getmodule(target)
        if module is not None:
            return f"{target.__qualname__}\n{inspect.getsource(module)}"
        return inspect.getsource(target)
    except (OSError, TypeError):
        code = getattr(target, "__code__", None)
        return f"{getattr(target, '__qualname__', target)!r} {code.co_code.hex() if code else ''}"
