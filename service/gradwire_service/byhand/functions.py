"""Functions with derivatives by hand, and vmap of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError, GradwireError, MapFailed, NotDifferentiable, ShapeError
from gradwire._signature import describe_leaf
from gradwire._transforms import Transform
from gradwire._trees import Tree, is_inexact, leaves, rebuild, tree_map
from gradwire_service.byhand.trees import cast, check_rows, filled, inexact, row_of, stacked, summed, zeros
from gradwire_service.failures import is_ours_to_end, told

Arrays = Callable[[np.ndarray], Any]


def _as_numpy(array: np.ndarray) -> Any:
    # What the author's code gets may be the caller's own memory: it is not to be written to.
    view = array.view()
    view.flags.writeable = False
    return view


def _as_jax(array: np.ndarray) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(array)


def _as_cupy(array: np.ndarray) -> Any:
    import cupy

    return cupy.asarray(array)


ARRAYS: dict[str, Arrays] = {"numpy": _as_numpy, "jax": _as_jax, "cupy": _as_cupy}
"""What a map's own code may be given: ``Map(arrays=…)``."""


@dataclass(frozen=True)
class Hand:
    """What the author of a map gives by hand.

    Attributes:
        arrays: a key of `ARRAYS`.
        jvp: ``jvp(primals, tangents) -> (value, tangent)``, or None.
        vjp: ``vjp(primals, cotangent) -> (value, cotangents)``, or None.
        hvp: ``"central"`` allows Hessian products by a central difference of gradients.
    """

    arrays: str
    jvp: Callable[..., Any] | None
    vjp: Callable[..., Any] | None
    hvp: str | None = None


class Function:
    """A function of trees of NumPy arrays, with the derivatives it has."""

    name: str
    has_jvp = False
    has_vjp = False

    def value(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> Tree:
        raise NotImplementedError

    def jvp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], tangents: tuple[Tree, ...]
    ) -> tuple[Tree, Tree]:
        """``(value, tangent)``; one tangent for each argument, None for a zero."""
        raise self._without("jvp")

    def vjp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], cotangent: Tree
    ) -> tuple[Tree, tuple[Tree, ...]]:
        """``(value, cotangents)``; one cotangent for each argument, None where it has no derivative."""
        raise self._without("vjp")

    def _without(self, what: str) -> NotDifferentiable:
        return NotDifferentiable(
            f"{self.name} has derivatives by hand, and no {what} among them.",
            map=self.name,
            expected=f"Map({what}=…)",
        )


class Given(Function):
    """What the author of a map wrote, with the shapes it gives checked."""

    def __init__(
        self,
        name: str,
        fun: Callable[..., Any],
        hand: Hand,
        statics: Mapping[int | str, Any],
        check: Callable[[tuple[Any, ...], dict[str, Any]], None],
    ) -> None:
        self.name = name
        self._check = check
        self._fun = fun
        self._hand = hand
        self._positional = {key: value for key, value in statics.items() if isinstance(key, int)}
        self._named = {key: value for key, value in statics.items() if isinstance(key, str)}
        self._convert = ARRAYS[hand.arrays]
        self.has_jvp = hand.jvp is not None
        self.has_vjp = hand.vjp is not None

    def value(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> Tree:
        return self._read(self._call(self._fun, "", *self._primals(args, kwargs), **self._keywords(kwargs)))

    def jvp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], tangents: tuple[Tree, ...]
    ) -> tuple[Tree, Tree]:
        if self._hand.jvp is None:
            raise self._without("jvp")
        whole = tuple(filled(tangent, inexact(arg)) for arg, tangent in zip(args, tangents, strict=True))
        given = (self._primals(args, kwargs), self._to(whole))
        value, tangent = self._pair(
            "jvp", self._call(self._hand.jvp, "jvp", *given, **self._keywords(kwargs))
        )
        return value, self._like(tangent, value, "jvp", "tangent", "the value")

    def vjp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], cotangent: Tree
    ) -> tuple[Tree, tuple[Tree, ...]]:
        if self._hand.vjp is None:
            raise self._without("vjp")
        given = (self._primals(args, kwargs), self._to(cotangent))
        raw = self._call(self._hand.vjp, "vjp", *given, **self._keywords(kwargs))
        if not isinstance(raw, tuple | list) or len(raw) != 2:
            raise self._wrong("vjp", "(value, cotangents)")
        value, cotangents = self._read(raw[0]), raw[1]
        if not isinstance(cotangents, tuple | list) and len(args) == 1:
            cotangents = (cotangents,)
        if not isinstance(cotangents, tuple | list) or len(cotangents) != len(args):
            raise self._wrong("vjp", f"one cotangent for each of {len(args)} arguments")
        checked = []
        for position, (arg, found) in enumerate(zip(args, cotangents, strict=True)):
            like = inexact(arg)
            found = zeros(like) if found is None else self._read(found)
            checked.append(self._like(found, like, "vjp", f"cotangent {position}", f"argument {position}"))
        return value, tuple(checked)

    def _primals(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> tuple[Any, ...]:
        given = tuple(self._positional.get(position, arg) for position, arg in enumerate(args))
        self._check(given, {**kwargs, **self._named})
        return tuple(
            arg if position in self._positional else self._to(arg) for position, arg in enumerate(given)
        )

    def _keywords(self, kwargs: Mapping[str, Tree]) -> dict[str, Any]:
        return {**{key: self._to(value) for key, value in kwargs.items()}, **self._named}

    def _to(self, tree: Tree) -> Any:
        return tree_map(lambda leaf: self._convert(np.asarray(leaf)), tree)

    def _call(self, function: Callable[..., Any], what: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except GradwireError:
            raise
        except BaseException as error:
            if is_ours_to_end(error):
                raise
            of = f"{self.name}'s {what}" if what else self.name
            raise MapFailed(f"{of} raised {told(error)}", map=self.name) from error

    def _pair(self, what: str, raw: Any) -> tuple[Tree, Tree]:
        if not isinstance(raw, tuple | list) or len(raw) != 2:
            raise self._wrong(what, "a pair")
        return self._read(raw[0]), self._read(raw[1])

    def _read(self, value: Any, depth: int = 64) -> Tree:
        if not depth:
            raise MapFailed(f"{self.name} returned something that is nested without end.", map=self.name)
        if value is None or isinstance(value, tuple | list | dict):
            if isinstance(value, dict):
                return {key: self._read(child, depth - 1) for key, child in value.items()}
            if value is None:
                return None
            # Named tuples become tuples, as those of traced maps do.
            made = [self._read(child, depth - 1) for child in value]
            return made if isinstance(value, list) else tuple(made)
        # CuPy's arrays have get(), and refuse to become NumPy's by themselves.
        array = np.asarray(value.get() if hasattr(value, "get") and hasattr(value, "device") else value)
        if array.dtype.kind not in "biufc" and not is_inexact(array.dtype):
            raise MapFailed(
                f"{self.name} returned a {type(value).__name__}; maps return arrays.", map=self.name
            )
        return array

    def _like(self, tree: Tree, like: Tree, what: str, part: str, of: str) -> Tree:
        """``tree``, if it has the structure and shapes of ``like``; in its dtypes."""
        got, want = list(leaves(tree)), list(leaves(inexact(like)))
        if [leaf.shape for leaf in got] != [leaf.shape for leaf in want]:
            raise MapFailed(
                f"{self.name}'s {what} returned a {part} that does not have the shape of {of}.",
                map=self.name,
                expected=", ".join(map(describe_leaf, want)),
                got=", ".join(map(describe_leaf, got)),
            )
        made = [cast(leaf, to.dtype) for leaf, to in zip(got, want, strict=True)]
        return rebuild(inexact(like), iter(made))

    def _wrong(self, what: str, expected: str) -> MapFailed:
        return MapFailed(
            f"{self.name}'s {what} did not return what it should.", map=self.name, expected=expected
        )


class Mapped(Function):
    """vmap of a function, by a loop; it has the derivatives that the function has."""

    def __init__(self, fun: Function, transform: Transform) -> None:
        self.name = fun.name
        self.has_jvp, self.has_vjp = fun.has_jvp, fun.has_vjp
        self._one = fun
        self._in_axes = transform.in_axes
        self._out_axes = transform.out_axes

    def value(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> Tree:
        return self._stacked([self._one.value(a, k) for a, k in self._rows(args, kwargs)])

    def jvp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], tangents: tuple[Tree, ...]
    ) -> tuple[Tree, Tree]:
        axes = self._axes(args)
        rows = [
            self._one.jvp(a, k, tuple(row_of(t, axis, i) for t, axis in zip(tangents, axes, strict=True)))
            for i, (a, k) in enumerate(self._rows(args, kwargs))
        ]
        return self._stacked([value for value, _ in rows]), self._stacked([tangent for _, tangent in rows])

    def vjp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], cotangent: Tree
    ) -> tuple[Tree, tuple[Tree, ...]]:
        rows = [
            self._one.vjp(a, k, row_of(cotangent, self._out_axes, i))
            for i, (a, k) in enumerate(self._rows(args, kwargs))
        ]
        cotangents = tuple(
            summed([found[position] for _, found in rows])
            if axis is None
            else stacked([f[position] for _, f in rows], axis)
            for position, axis in enumerate(self._axes(args))
        )
        return self._stacked([value for value, _ in rows]), cotangents

    def _axes(self, args: tuple[Tree, ...]) -> list[int | None]:
        axes = self._in_axes if isinstance(self._in_axes, tuple) else (self._in_axes,) * len(args)
        if len(axes) != len(args) or not all(axis is None or isinstance(axis, int) for axis in axes):
            raise ArgumentError(
                "vmap of a map with derivatives by hand takes one axis (or None) for each argument.",
                map=self.name,
                argument="in_axes",
                expected=f"{len(args)} entries",
                got=str(self._in_axes)[:100],
            )
        return list(axes)

    def _rows(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]
    ) -> Iterator[tuple[tuple[Tree, ...], dict[str, Tree]]]:
        axes = self._axes(args)
        try:
            sizes = {
                np.shape(leaf)[axis]
                for arg, axis in zip(args, axes, strict=True)
                if axis is not None
                for leaf in leaves(arg)
            }
            sizes |= {np.shape(leaf)[0] for value in kwargs.values() for leaf in leaves(value)}
        except IndexError:
            sizes = set()
        if len(sizes) != 1:
            raise ShapeError(
                "vmap needs one length of the mapped axes.",
                map=self.name,
                argument="in_axes",
                expected="the same length everywhere",
                got=", ".join(map(str, sorted(sizes))) or "an axis that is not there",
            )
        check_rows(size := sizes.pop(), self.name)
        for i in range(size):
            yield (
                tuple(row_of(arg, axis, i) for arg, axis in zip(args, axes, strict=True)),
                {key: row_of(value, 0, i) for key, value in kwargs.items()},
            )

    def _stacked(self, rows: list[Tree]) -> Tree:
        if not rows:
            raise ShapeError(
                "vmap over an axis of length 0 has no value.", map=self.name, expected="a longer axis"
            )
        if not isinstance(self._out_axes, int):
            raise ArgumentError(
                "vmap of a map with derivatives by hand takes one out_axes.",
                map=self.name,
                argument="out_axes",
                expected="an integer",
                got=str(self._out_axes)[:100],
            )
        return stacked(rows, self._out_axes)


class RealPairs(Function):
    """A function with complex arrays as real pairs, on both sides; with the derivatives it has.

    For real pairs a cotangent's inner product is real: it is the conjugate of the complex one.
    """

    def __init__(self, fun: Function, transform: Transform) -> None:
        self.name = fun.name
        self.has_jvp, self.has_vjp = fun.has_jvp, fun.has_vjp
        self._fun = fun
        self._positions = (
            (transform.argnums,) if isinstance(transform.argnums, int) else tuple(transform.argnums)
        )

    def value(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> Tree:
        return tree_map(_split, self._fun.value(self._joined(args), kwargs))

    def jvp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], tangents: tuple[Tree, ...]
    ) -> tuple[Tree, Tree]:
        value, tangent = self._fun.jvp(self._joined(args), kwargs, self._joined(tangents))
        return tree_map(_split, value), tree_map(_split, tangent)

    def vjp(
        self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree], cotangent: Tree
    ) -> tuple[Tree, tuple[Tree, ...]]:
        value = self._fun.value(self._joined(args), kwargs)
        parts = zip(leaves(cotangent), leaves(inexact(value)), strict=True)
        sent = [np.conj(_join(part)) if np.iscomplexobj(like) else part for part, like in parts]
        value, found = self._fun.vjp(self._joined(args), kwargs, rebuild(inexact(value), iter(sent)))
        cotangents = tuple(
            tree_map(lambda leaf: _split(np.conj(leaf)), part) if i in self._positions else part
            for i, part in enumerate(found)
        )
        return tree_map(_split, value), cotangents

    def _joined(self, args: tuple[Tree, ...]) -> tuple[Tree, ...]:
        return tuple(tree_map(_join, arg) if i in self._positions else arg for i, arg in enumerate(args))


def _join(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    if array.ndim == 0 or array.shape[-1] != 2 or array.dtype.kind != "f":
        raise ShapeError(
            "A complex array as real pairs is a floating array whose last axis has length 2.",
            expected="(…, 2)",
            got=describe_leaf(array),
        )
    # A product with 1j would make a NaN of an infinity.
    return np.ascontiguousarray(array).view(np.result_type(array.dtype, np.complex64))[..., 0]


def _split(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return np.stack([array.real, array.imag], axis=-1) if np.iscomplexobj(array) else array
