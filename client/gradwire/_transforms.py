"""Transforms as values: what `gradwire.grad`, `gradwire.vmap`, … add to a map. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError, WireError

_DERIVATIVE = frozenset({"argnums", "holomorphic", "has_aux"})

TRANSFORMS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian"), _DERIVATIVE),
    "vmap": frozenset({"in_axes", "out_axes"}),
    "real_pairs": frozenset({"argnums"}),
}
"""Every transform there is, and the options it has."""

SCALAR_OPERATIONS = frozenset({"grad", "value_and_grad", "hvp"})
"""Operations that only a scalar map has."""


@dataclass(frozen=True)
class Transform:
    """One transform with its options, as JAX names them.

    Attributes:
        name: one of `TRANSFORMS`.
        argnums: positions it differentiates in: an int, or a tuple in that order (real_pairs:
            which arguments are complex).
        in_axes: which axis of each argument vmap maps: an int, None, or a tuple with one entry
            an argument, in which pytrees of ints and None are taken too.
        out_axes: where the mapped axis stands in the value.
        holomorphic: whether the map is promised to be holomorphic.
        has_aux: whether the map returns ``(value, aux)``.
    """

    name: str
    argnums: int | tuple[int, ...] = 0
    in_axes: Any = 0
    out_axes: Any = 0
    holomorphic: bool = False
    has_aux: bool = False

    def __hash__(self) -> int:
        # Axes may be lists and dicts; they take part in equality alone.
        return hash((self.name, self.argnums, self.holomorphic, self.has_aux))

    @property
    def differentiates(self) -> bool:
        """Whether it takes a derivative."""
        return TRANSFORMS[self.name] is _DERIVATIVE

    def fields(self) -> dict[str, Any]:
        """As one entry of a request's ``transforms``."""
        if self.name == "vmap":
            return {"name": "vmap", "in_axes": _written(self.in_axes), "out_axes": _written(self.out_axes)}
        fields: dict[str, Any] = {
            "name": self.name,
            "argnums": self.argnums if isinstance(self.argnums, int) else list(self.argnums),
        }
        if self.holomorphic:
            fields["holomorphic"] = True
        if self.has_aux:
            fields["has_aux"] = True
        return fields

    @classmethod
    def from_fields(cls, fields: Any) -> Transform:
        """The transform that one entry of ``transforms`` describes.

        Raises:
            WireError: an entry that is no transform.
            ArgumentError: an unknown transform, or options it does not have.
        """
        if not isinstance(fields, Mapping) or type(fields.get("name")) is not str:
            raise WireError(
                "Each transform is a map with a name.", argument="transforms", expected='{"name": …}'
            )
        name = fields["name"]
        if name not in TRANSFORMS:
            raise ArgumentError(
                "Unknown transform.",
                argument="transforms",
                expected=", ".join(TRANSFORMS),
                got=repr(name[:64]),
            )
        options = {key: value for key, value in fields.items() if key != "name" and value is not None}
        known = TRANSFORMS[name]
        if name == "vmap":
            # None is a meaningful axis specification, so an explicit null is kept.
            options.update({key: None for key in known if key in fields and fields[key] is None})
        unknown = sorted(set(options) - known)
        if unknown:
            raise ArgumentError(
                f"The transform {name} has no option {unknown[0][:64]!r}.",
                argument="transforms",
                expected=", ".join(sorted(known)),
                got=unknown[0][:64],
            )
        for flag in ("holomorphic", "has_aux"):
            if type(options.get(flag, False)) is not bool:
                raise ArgumentError(
                    f"{flag} is true or false.",
                    argument="transforms",
                    expected="bool",
                    got=type(options[flag]).__name__,
                )
        if "argnums" in options:
            options["argnums"] = read_argnums(options["argnums"])
        for axes in ("in_axes", "out_axes"):
            if axes in options:
                read = _read(options[axes], 0)
                options[axes] = tuple(read) if type(read) is list else read
        return cls(name, **options)


def read_argnums(value: Any) -> int | tuple[int, ...]:
    """argnums as they came in a message: an int, a list of ints, or ``{"tuple": […]}``."""
    if type(value) is int:
        return value
    if type(value) is dict and set(value) == {"tuple"}:
        value = value["tuple"]
    if type(value) in (list, tuple) and len(value) <= 1024 and all(type(entry) is int for entry in value):
        return tuple(value)
    raise ArgumentError(
        "argnums is an integer or a list of integers.",
        argument="argnums",
        expected="int or list of int",
        got=type(value).__name__,
    )


def is_position(value: Any) -> bool:
    """Whether ``value`` is an integer of Python or NumPy (a truth value is none)."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def checked_argnums(argnums: Any) -> int | tuple[int, ...]:
    """argnums as a caller gave them: an int, or a non-empty sequence of different ints.

    Raises:
        ArgumentError: anything else.
    """
    if is_position(argnums):
        return int(argnums)
    if isinstance(argnums, list | tuple) and argnums and all(map(is_position, argnums)):
        found = tuple(map(int, argnums))
        if len(set(found)) == len(found):
            return found
    raise ArgumentError(
        "argnums is an integer or a non-empty sequence of different integers.",
        argument="argnums",
        expected="int or sequence of int",
        got=repr(argnums) if isinstance(argnums, list | tuple | bool) else type(argnums).__name__,
    )


def _written(axes: Any) -> Any:
    """Axis specifications for a message: lists stand for tuples at the top, ``{"tuple": …}`` below."""
    if type(axes) is tuple:
        return [_written_below(entry) for entry in axes]
    return _written_below(axes)


def _written_below(axes: Any) -> Any:
    kind = type(axes)
    if kind is tuple:
        return {"tuple": [_written_below(entry) for entry in axes]}
    if kind is list:
        return [_written_below(entry) for entry in axes]
    if kind is dict:
        return {"dict": {key: _written_below(value) for key, value in axes.items()}}
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return axes
    raise ArgumentError(
        "vmap's axes are integers, None, or tuples, lists and dicts of these.",
        argument="in_axes",
        expected="int or None",
        got=kind.__name__,
    )


def _read(axes: Any, depth: int) -> Any:
    if depth > 16:
        raise ArgumentError(
            "vmap's axes are nested too deep.", argument="transforms", expected="at most 16 levels"
        )
    if axes is None or type(axes) is int:
        return axes
    if type(axes) is list:
        return [_read(entry, depth + 1) for entry in axes]
    if type(axes) is dict and set(axes) == {"tuple"} and type(axes["tuple"]) is list:
        return tuple(_read(entry, depth + 1) for entry in axes["tuple"])
    if type(axes) is dict:
        inner = axes["dict"] if set(axes) == {"dict"} and type(axes["dict"]) is dict else axes
        return {key: _read(value, depth + 1) for key, value in inner.items()}
    raise ArgumentError(
        "vmap's axes are integers, null, or lists and maps of these.",
        argument="transforms",
        expected="int or null",
        got=type(axes).__name__,
    )


def operations_after(operations: tuple[str, ...], transforms: tuple[Transform, ...]) -> tuple[str, ...]:
    """The operations a transformed map has, given those of the map itself.

    A derivative or a mapped map is no longer scalar, so grad, value_and_grad and hvp go;
    whoever knows better (the gradient of a map of one number is a number) may still ask.
    """
    if not transforms:
        return operations
    return tuple(name for name in operations if name not in SCALAR_OPERATIONS)
