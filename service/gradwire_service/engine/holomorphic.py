"""Whether a map that is asked for as holomorphic is one: the Cauchy–Riemann equations, on a random vector.

JAX takes ``holomorphic=True`` on trust, and answers a map that is not with numbers that mean
nothing. A derivative J is complex-linear exactly where J(iv) = i J(v).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gradwire._errors import NotDifferentiable
from gradwire._trees import Tree, is_inexact, leaves, tree_map
from gradwire_service.differentiation import Inputs, Options
from gradwire_service.query import Asked


def promised(asked: Asked) -> bool:
    """Whether the query takes a map for holomorphic."""
    query = asked.query
    return query.options.holomorphic or any(transform.holomorphic for transform in query.transforms)


def questions(asked: Asked) -> Iterator[Asked]:
    """The products to take before ``asked`` is answered: one for each promise in it; see `answered`."""
    query, inputs = asked.query, asked.inputs
    if query.options.holomorphic:
        yield _question(asked, len(query.transforms), query.options.argnums, inputs.args, inputs.kwargs)
    args, kwargs = inputs.args, inputs.kwargs
    for index in reversed(range(len(query.transforms))):
        transform = query.transforms[index]
        if transform.name == "vmap":
            # What is inside sees one row: the first will do.
            args = tuple(
                _first(arg, axis) for arg, axis in zip(args, _axes(transform.in_axes, len(args)), strict=True)
            )
            kwargs = {key: _first(value, 0) for key, value in kwargs.items()}
        elif transform.holomorphic:
            yield _question(asked, index, transform.argnums, args, kwargs)


def evaluated(question: Asked) -> Asked:
    """The value at the point of ``question``, which `transposed` takes."""
    inputs = replace(question.inputs, tangents=None)
    return replace(question, query=replace(question.query, operation="evaluate"), inputs=inputs)


def transposed(question: Asked, value: Tree) -> Asked | None:
    """``question`` for a map without forward mode: J is complex-linear where its transpose is.

    None for a value that is not all complex, of which the transpose does not tell.
    """
    if not all(map(np.iscomplexobj, leaves(value))):
        return None
    inputs = replace(question.inputs, tangents=None, cotangent=pairs(value))
    return replace(question, query=replace(question.query, operation="vjp"), inputs=inputs)


def answered(asked: Asked, fields: dict[str, Any]) -> None:
    """Refuse if the products say that the map is not holomorphic.

    Raises:
        NotDifferentiable: J(iv) is not i J(v), beyond rounding.
    """
    for leaf in leaves(fields["tangent" if "tangent" in fields else "cotangents"]):
        check_complex_linear(np.asarray(leaf), asked.query.map)


def check_complex_linear(pair: np.ndarray, map: str) -> None:
    """Refuse the pair J(v), J(iv) of a derivative that is not complex-linear."""
    if not np.iscomplexobj(pair):
        return
    once, turned = pair
    scale = np.linalg.norm(once) + np.linalg.norm(turned)
    if np.linalg.norm(turned - 1j * once) > np.sqrt(np.finfo(once.dtype).eps) * scale:
        raise NotDifferentiable(
            "The map is not holomorphic here (Cauchy and Riemann: J(iv) is not i J(v)), so its derivative is "
            'no complex matrix. jvp and vjp are right all the same; using(complex_as="real_pairs") is real.',
            map=map,
            argument="holomorphic",
            expected="a holomorphic map",
            got="one that is not",
        )


def pairs(primals: Tree) -> Tree:
    """Random v and iv, stacked, for each differentiable leaf of ``primals`` (0 where it is real)."""
    random = np.random.default_rng(0)

    def pair(leaf: Any) -> np.ndarray | None:
        dtype = np.dtype(leaf.dtype)
        if not is_inexact(dtype):
            return None
        if dtype.kind != "c":
            # What is real is left where it is: the promise is about what is complex.
            return np.zeros((2, *leaf.shape), dtype)
        v = random.standard_normal(leaf.shape) + 1j * random.standard_normal(leaf.shape)
        return np.stack([v, 1j * v]).astype(dtype)

    return tree_map(pair, primals)


def _question(
    asked: Asked, within: int, argnums: int | tuple[int, ...], args: tuple[Tree, ...], kwargs: dict[str, Tree]
) -> Asked:
    positions = (argnums,) if isinstance(argnums, int) else argnums
    tangents = tuple(pairs(tree_map(_array, args[position])) for position in positions)
    transforms = asked.query.transforms
    has_aux = transforms[within].has_aux if within < len(transforms) else asked.query.options.has_aux
    options = Options(argnums=positions, has_aux=has_aux)
    query = replace(asked.query, transforms=transforms[:within], operation="jvp", options=options)
    return replace(asked, query=query, inputs=Inputs(args, kwargs, tangents=tangents))


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def _axes(axes: Any, count: int) -> list[Any]:
    return list(axes) if isinstance(axes, tuple) else [axes] * count


def _first_of(array: np.ndarray, axis: int) -> np.ndarray:
    # Where there is no row, the map is tried at zero.
    if array.shape[axis] == 0:
        return np.zeros(np.delete(array.shape, axis), array.dtype)
    row: np.ndarray = np.take(array, 0, axis=axis)
    return row


def _first(tree: Tree, axes: Any) -> Tree:
    """The first row of ``tree`` along ``axes``: an int, None, or a tree of these."""
    if axes is None or tree is None:
        return tree
    if isinstance(axes, int):
        return tree_map(lambda leaf: _first_of(np.asarray(leaf), axes), tree)
    kind = type(tree)
    if kind is dict:
        return {key: _first(tree[key], axes[key]) for key in tree}
    return kind(_first(t, a) for t, a in zip(tree, axes, strict=True))
