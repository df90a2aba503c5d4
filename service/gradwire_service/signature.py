"""From a function's jaxtyping annotations to its Signature, and the checks they ask for.

Dtypes are checked on what came (`check_dtype`); shapes inside the traced function
(`ShapeCheck`), where mapped and stack dimensions are already gone, so that the same check
is right under any nesting of transforms.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jaxtyping

from gradwire._errors import ArgumentError, DTypeError, MapFailed, ShapeError
from gradwire._signature import KINDS, Parameter, Signature, describe_leaf
from gradwire._trees import is_number

RESERVED = frozenset({"argnums", "mode", "sparse", "holomorphic"})
"""Parameter names that would collide with the operator interface."""

_PLAIN = (type(None), bool, int, float, str)
_KIND_NAMES = {kind: name for name, kind in KINDS.items()}


def annotations_of(fun: Callable[..., Any]) -> inspect.Signature:
    """``inspect.signature`` with annotations evaluated where they can be."""
    try:
        return inspect.signature(fun, eval_str=True)
    except (NameError, SyntaxError, TypeError, AttributeError):
        return inspect.signature(fun)


def signature_of(declared: inspect.Signature, static_argnames: Sequence[str], *, map: str) -> Signature:
    """The Signature of a function with that ``inspect.Signature``.

    Raises:
        ArgumentError: a reserved parameter name, or a static name that is no parameter.
    """
    names = list(declared.parameters)
    reserved = sorted(RESERVED & set(names))
    if reserved:
        raise ArgumentError(
            f"The parameter {reserved[0]!r} would hide an option of the operator interface; rename it.",
            map=map,
            argument=reserved[0],
            expected=f"no parameter named {', '.join(sorted(RESERVED))}",
        )
    for name in static_argnames:
        parameter = declared.parameters.get(name)
        if parameter is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ArgumentError(
                f"static_argnames names {name!r}, which is no parameter of it.",
                map=map,
                argument="static_argnames",
                expected=", ".join(names) or "no names: it has no parameters",
                got=name,
            )
    parameters = []
    for name, parameter in declared.parameters.items():
        array = array_annotation(parameter.annotation)
        default = parameter.default
        parameters.append(
            Parameter(
                name=name,
                kind=_KIND_NAMES[parameter.kind],
                shape=array.dim_str if array else None,
                dtype=array.dtype.__name__ if array else None,
                static=name in static_argnames,
                required=default is inspect.Parameter.empty
                and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD),
                default=default if type(default) in _PLAIN else None,
            )
        )
    array = array_annotation(declared.return_annotation)
    returns = {"shape": array.dim_str, "dtype": array.dtype.__name__} if array else None
    return Signature(tuple(parameters), returns)


def array_annotation(annotation: Any) -> Any:
    """``annotation`` if it is a jaxtyping array (``Float[Array, "n"]``), else None."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return annotation
    return None


def check_dtype(leaf: Any, annotation: Any, *, argument: str, map: str) -> Any:
    """``leaf``, as its declared dtype class takes it: Python numbers are converted, arrays must fit.

    Raises:
        DTypeError: an array or number of another class.
    """
    declared = annotation.dtype
    if is_number(leaf):
        order = [bool, int, float, complex]
        taken = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
        accepted = [taken[kind] for kind in _classes(annotation)] or order
        if type(leaf) in accepted:
            return leaf
        # A bare integer is taken as a floating number, a real one as a complex: never back.
        wider = [
            to for to in accepted if order.index(to) > order.index(type(leaf)) and type(leaf) is not bool
        ]
        if wider and wider[0] is not int:
            return wider[0](leaf)
    elif _fits(leaf.dtype, annotation):
        return leaf
    raise DTypeError(
        f"{argument} is declared {declared.__name__}.",
        map=map,
        argument=argument,
        expected=declared.__name__,
        got=describe_leaf(leaf),
    )


@lru_cache(maxsize=4096)
def _fits(dtype: Any, annotation: Any) -> bool:
    """Whether arrays of ``dtype`` are of the declared class."""
    return any(_matches(dtype, name) for name in _names(annotation))


def _names(annotation: Any) -> Sequence[Any]:
    dtypes = annotation.dtypes
    return dtypes if isinstance(dtypes, tuple | list) else ()


def _matches(dtype: Any, name: Any) -> bool:
    text = getattr(dtype, "name", str(dtype))
    return bool(name.match(text)) if hasattr(name, "match") else text == name


def _classes(annotation: Any) -> list[str]:
    """Of which kinds ("b", "i", "f", "c") the declared dtypes are, narrowest first."""
    text = " ".join(name for name in _names(annotation) if isinstance(name, str))
    found = []
    if "bool" in text:
        found.append("b")
    if "int" in text:
        found.append("i")
    if "float" in text:
        found.append("f")
    if "complex" in text:
        found.append("c")
    return found


def takes_anything(annotation: Any) -> bool:
    """Whether the annotation declares no dtype class (jaxtyping's Shaped)."""
    return not isinstance(annotation.dtypes, tuple | list)


class ShapeCheck:
    """The declared shapes of a map: ranks, and named dimensions that must agree."""

    def __init__(self, annotations: Mapping[str, Any], map: str, returns: Any = None) -> None:
        self._map = map
        self._returns = returns
        self._declared: dict[str, tuple[Any, Any]] = {
            name: (annotation, jaxtyping.Shaped[Any, annotation.dim_str])
            for name, annotation in annotations.items()
        }

    def __call__(self, arguments: Iterable[tuple[str, Any]]) -> None:
        """Check the arguments of one call of the innermost function, as pairs with their parameter's name.

        Raises:
            ShapeError: naming the argument, its declaration and what came.
        """
        if self._declared:
            with jaxtyping.jaxtyped("context"):
                self._check(arguments)

    def returned(self, arguments: Iterable[tuple[str, Any]], value: Any) -> None:
        """Check the value of such a call, if it is declared, against the dimensions of the arguments.

        Raises:
            MapFailed: the map does not return what it declares.
        """
        if self._returns is None:
            return
        with jaxtyping.jaxtyped("context"):
            self._check(arguments)
            one = not (isinstance(value, tuple | list | dict) or value is None)
            classes = _classes(self._returns)
            kind = {"u": "i", "V": "f"}.get(value.dtype.kind, value.dtype.kind) if one else ""
            shaped: Any = jaxtyping.Shaped[Any, self._returns.dim_str]
            fits = one and isinstance(jax.ShapeDtypeStruct(value.shape, "float32"), shaped)
            if not fits or (classes and kind not in classes):
                raise MapFailed(
                    f"{self._map} does not return what it declares.",
                    map=self._map,
                    expected=declaration(self._returns),
                    got=f"{value.dtype.name}{list(value.shape)}" if one else "a pytree",
                )

    def _check(self, arguments: Iterable[tuple[str, Any]]) -> None:
        agreed: list[str] = []
        for name, value in arguments:
            if name not in self._declared:
                continue
            annotation, shaped = self._declared[name]
            if isinstance(value, tuple | list | dict) or value is None:
                raise ShapeError(
                    f"{name} is declared as one array.",
                    map=self._map,
                    argument=name,
                    expected=declaration(annotation),
                    got="a pytree" if value is not None else "None",
                )
            shape = jax.numpy.shape(value)
            if not isinstance(jax.ShapeDtypeStruct(shape, "float32"), shaped):
                raise ShapeError(
                    f"{name} does not have the declared shape"
                    + (f" (with {'; '.join(agreed)})." if agreed else "."),
                    map=self._map,
                    argument=name,
                    expected=declaration(annotation),
                    got=str(tuple(shape)),
                )
            agreed.append(f"{name} of shape {tuple(shape)}")


def declaration(annotation: Any) -> str:
    """As a person writes it: ``Float[Array, "h w"]``."""
    return f'{annotation.dtype.__name__}[Array, "{annotation.dim_str}"]'
