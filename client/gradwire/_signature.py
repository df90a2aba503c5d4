"""A map's declared signature: what it takes, what it returns, which positions argnums count."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError, NotDifferentiable
from gradwire._trees import Tree, is_inexact, is_number, leaves
from gradwire.wire import Bare

KINDS = {
    "positional_only": inspect.Parameter.POSITIONAL_ONLY,
    "positional_or_keyword": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "var_positional": inspect.Parameter.VAR_POSITIONAL,
    "keyword_only": inspect.Parameter.KEYWORD_ONLY,
    "var_keyword": inspect.Parameter.VAR_KEYWORD,
}

FLOATING = frozenset(
    {"Float", "Inexact", "Complex", "Float16", "Float32", "Float64", "BFloat16", "Complex64", "Complex128"}
)
"""Declared dtype classes (jaxtyping's names) that take a bare integer as a floating number."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a map.

    Attributes:
        name: as declared.
        kind: positional_only, positional_or_keyword, var_positional, keyword_only or var_keyword.
        shape: the declared shape as jaxtyping writes it (``"h w"``), or None where anything is taken.
        dtype: the declared dtype class (``"Float"``), or None where anything is taken.
        static: bound before any transform; never mapped, never differentiated.
        required: whether a call must give it.
        default: what it is when not given, if that is plain data; else None.
    """

    name: str
    kind: str = "positional_or_keyword"
    shape: str | None = None
    dtype: str | None = None
    static: bool = False
    required: bool = True
    default: Any = None

    @property
    def positional(self) -> bool:
        return self.kind in ("positional_only", "positional_or_keyword", "var_positional")

    @property
    def variadic(self) -> bool:
        return self.kind in ("var_positional", "var_keyword")

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATING

    def describe(self) -> dict[str, Any]:
        """As in ``GET /v1/maps/{name}``."""
        return {
            "name": self.name,
            "kind": self.kind,
            "shape": self.shape,
            "dtype": self.dtype,
            "static": self.static,
            "required": self.required,
            "default": self.default,
        }

    def __str__(self) -> str:
        star = {"var_positional": "*", "var_keyword": "**"}.get(self.kind, "")
        text = star + self.name
        if self.dtype is not None:
            text += f': {self.dtype}[Array, "{self.shape or ""}"]'
        elif self.static:
            text += ": static"
        if not self.required and not star:
            text += f" = {self.default!r}" if self.default is not None else " = …"
        return text


@dataclass(frozen=True)
class Signature:
    """The parameters of a map, in order, and what it declares to return."""

    parameters: tuple[Parameter, ...]
    returns: Mapping[str, str | None] | None = None

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Signature:
        """The signature in a map's description, as ``GET /v1/maps/{name}`` gives it."""
        known = set(Parameter.__dataclass_fields__)
        parameters = tuple(
            Parameter(**{key: value for key, value in entry.items() if key in known})
            for entry in description["parameters"]
        )
        return cls(parameters, description.get("returns"))

    def __str__(self) -> str:
        returns = self.returns or {}
        arrow = f' -> {returns["dtype"]}[Array, "{returns["shape"] or ""}"]' if returns.get("dtype") else ""
        parts: list[str] = []
        starred = False
        for index, parameter in enumerate(self.parameters):
            if parameter.kind == "var_positional":
                starred = True
            if parameter.kind == "keyword_only" and not starred:
                parts.append("*")
                starred = True
            parts.append(str(parameter))
            following = self.parameters[index + 1 :][:1]
            if parameter.kind == "positional_only" and not (
                following and following[0].kind == "positional_only"
            ):
                parts.append("/")
        return f"({', '.join(parts)}){arrow}"

    @cached_property
    def _inspect(self) -> inspect.Signature:
        return inspect.Signature(
            [
                inspect.Parameter(
                    p.name,
                    KINDS[p.kind],
                    default=inspect.Parameter.empty if p.required or p.variadic else p.default,
                )
                for p in self.parameters
            ]
        )

    @cached_property
    def _positional(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.positional)

    @cached_property
    def _enough(self) -> range:
        """How many positional arguments make a call that has no others: known once, not bound each time."""
        parameters = self._inspect.parameters.values()
        needed = [
            p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if any(p.kind is p.KEYWORD_ONLY for p in needed):
            return range(0)
        return range(len(needed), sys.maxsize if self._variadic else len(self._positional) + 1)

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    def at(self, position: int) -> Parameter:
        """The parameter that the positional argument number ``position`` belongs to."""
        positional = self._positional
        if position < len(positional):
            return positional[position]
        return positional[-1]

    def named(self, name: str) -> Parameter | None:
        """The parameter that the keyword ``name`` belongs to, or None."""
        found = self._by_name.get(name)
        if found is not None and not found.variadic:
            return found
        return next((p for p in self.parameters if p.kind == "var_keyword"), None)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, map: str) -> None:
        """Check that a call gives every required argument once, and none that is unknown.

        Raises:
            ArgumentError: naming the argument, the map and its signature.
        """
        if not kwargs and len(args) in self._enough:
            return
        try:
            self._inspect.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [name[:64] for name in kwargs if self.named(name) is None]
            text = str(error)[:200]
            raise ArgumentError(
                f"{text[:1].upper()}{text[1:]}. The signature is {map}{self}.",
                map=map,
                argument=unknown[0] if unknown else None,
                expected=f"{map}{self}",
                got=f"{len(args)} positional arguments"
                + (f" and {', '.join(sorted(kwargs))[:200]} by keyword" if kwargs else ""),
            ) from None

    def positions(self, argnums: int | Sequence[int], args: Sequence[Any], *, map: str) -> tuple[int, ...]:
        """``argnums`` as positions of the arguments given, none negative.

        Raises:
            ArgumentError: argnums that are empty, repeated, no integers, out of range,
                static, or not given by position.
        """
        wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        count = len(args) if self._variadic else len(self._positional)
        if not wanted:
            raise ArgumentError(
                "argnums names no argument.",
                map=map,
                argument="argnums",
                expected="one position or more",
                got="()",
            )
        found: list[int] = []
        for number in wanted:
            if not -count <= number < count:
                raise ArgumentError(
                    f"argnums counts the positional parameters of {map}{self}.",
                    map=map,
                    argument="argnums",
                    expected=f"{-count} to {count - 1}" if count else "no argnums: nothing is positional",
                    got=str(number),
                )
            position = number % count
            parameter = self.at(position)
            if position in found:
                raise ArgumentError(
                    "argnums names an argument twice.",
                    map=map,
                    argument="argnums",
                    expected="different positions",
                    got=str(list(wanted)),
                )
            if parameter.static:
                raise ArgumentError(
                    f"{parameter.name} is static: it cannot be differentiated.",
                    map=map,
                    argument=parameter.name,
                    expected="argnums of array arguments",
                    got=str(number),
                )
            if position >= len(args):
                raise ArgumentError(
                    f"{parameter.name} is differentiated: give it by position, not by keyword or default.",
                    map=map,
                    argument=parameter.name,
                    expected=f"at least {position + 1} positional arguments",
                    got=str(len(args)),
                )
            found.append(position)
        return tuple(found)

    @cached_property
    def _variadic(self) -> bool:
        return any(p.kind == "var_positional" for p in self.parameters)

    def differentiated(
        self, argnums: int | Sequence[int] | None, args: Sequence[Tree], *, map: str
    ) -> tuple[int, ...]:
        """The positions a derivative is taken in: ``argnums``, or for None the default.

        The default is every positional, non-static argument with a floating or complex
        leaf (a bare integer counts where it is declared floating).

        Raises:
            ArgumentError: as `positions`.
            NotDifferentiable: an argument with no floating or complex leaf; or no such
                argument at all.
        """
        if argnums is None:
            found = tuple(
                position
                for position, arg in enumerate(args)
                if not self.at(position).static
                and any(is_differentiable(leaf, bare=self.at(position).floating) for leaf in leaves(arg))
            )
            if not found:
                raise NotDifferentiable(
                    "No positional argument has a floating or complex leaf.",
                    map=map,
                    expected="a floating or complex array",
                    got=", ".join(describe_leaf(leaf) for arg in args for leaf in leaves(arg)) or "no arrays",
                )
            return found
        found = self.positions(argnums, args, map=map)
        for position in found:
            if not any(is_differentiable(leaf, bare=True) for leaf in leaves(args[position])):
                raise NotDifferentiable(
                    "Only floating and complex arrays can be differentiated; convert it first.",
                    map=map,
                    argument=self.at(position).name,
                    expected="a floating or complex array",
                    got=", ".join(describe_leaf(leaf) for leaf in leaves(args[position])) or "no arrays",
                )
        return found


def is_differentiable(leaf: Any, *, bare: bool) -> bool:
    """Whether ``leaf`` has a derivative; ``bare`` says whether bare integers count (they become floating)."""
    if is_number(leaf):
        return type(leaf) in (float, complex) or (bare and type(leaf) is int)
    if isinstance(leaf, Bare):
        return bare
    return is_inexact(leaf.dtype)


def describe_leaf(leaf: Any) -> str:
    """``float32[3,4]`` for an array, the type's name for anything else. Never its contents."""
    dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
    if dtype is None or shape is None:
        return type(leaf).__name__
    return f"{getattr(dtype, 'name', dtype)}[{','.join(map(str, shape))}]"


def static_value(value: Any, *, argument: str, map: str) -> Any:
    """A static argument in its canonical form: plain data, sequences as tuples.

    Raises:
        ArgumentError: anything but null, bool, int, float (not NaN), str and sequences of these.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and not math.isnan(value):
        return value
    if type(value) in (list, tuple):
        return tuple([static_value(child, argument=argument, map=map) for child in value])
    if type(value) is dict and set(value) == {"tuple"} and type(value["tuple"]) is list:
        return static_value(value["tuple"], argument=argument, map=map)
    raise ArgumentError(
        f"{argument} is a static argument.",
        map=map,
        argument=argument,
        expected="None, bool, int, float (not NaN), str, or a sequence of these",
        got="NaN" if type(value) is float else type(value).__name__,
    )
