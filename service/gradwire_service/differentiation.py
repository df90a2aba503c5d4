"""Pure functions of functions: every transform and every operation, in two tables.

No state, no arrays of its own, no HTTP. `TRANSFORMS` turns a function and a
`gradwire._transforms.Transform` into another function; `OPERATIONS` turns a function into
one of `Inputs` that gives the fields of the answer.

Integer and boolean leaves inside a differentiated pytree have no derivative: they are
closed over, and stand as None in tangents, cotangents and gradients. So do such leaves
of a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradwire._errors import ArgumentError, DTypeError, GradwireError, NotDifferentiable, ShapeError
from gradwire._signature import describe_leaf
from gradwire._transforms import Transform
from gradwire._trees import Tree, leaves, rebuild, tree_map
from gradwire_service.failures import message_of, shown

Function = Callable[..., Any]


@dataclass(frozen=True)
class Options:
    """How an operation is asked for.

    Attributes:
        argnums: positions differentiated in; an int gives bare derivatives, a tuple tuples.
        mode: ``"auto"``, ``"fwd"`` or ``"rev"``, for a Jacobian.
        holomorphic: whether the map is promised to be holomorphic.
        has_aux: whether the map returns ``(value, aux)``.
        listed: whether derivatives in several arguments come as lists, not tuples.
    """

    argnums: int | tuple[int, ...] = 0
    mode: str = "auto"
    holomorphic: bool = False
    has_aux: bool = False
    listed: bool = False

    @property
    def positions(self) -> tuple[int, ...]:
        return (self.argnums,) if isinstance(self.argnums, int) else self.argnums

    def formed(self, entries: tuple[Tree, ...]) -> Tree:
        """One entry for each position, in the form of ``argnums``: bare, a list or a tuple."""
        if isinstance(self.argnums, int):
            return entries[0]
        return list(entries) if self.listed else entries


@dataclass(frozen=True)
class Inputs:
    """The arrays of one request: pytrees whose leaves are arrays."""

    args: tuple[Tree, ...]
    kwargs: dict[str, Tree]
    tangents: tuple[Tree, ...] | None = None
    cotangent: Tree = None


jax.tree_util.register_dataclass(
    Inputs, data_fields=["args", "kwargs", "tangents", "cotangent"], meta_fields=[]
)


# Splitting off what can be differentiated.


def inexact(tree: Tree) -> Tree:
    """``tree`` with None in place of every leaf that is not floating or complex."""
    return tree_map(lambda leaf: leaf if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) else None, tree)


def _merged(dynamic: Tree, original: Tree) -> Tree:
    """``original`` with its floating and complex leaves taken from ``dynamic``."""
    if dynamic is None:
        return original
    kind = type(original)
    if kind in (tuple, list):
        return kind([_merged(d, o) for d, o in zip(dynamic, original, strict=True)])
    if kind is dict:
        return {key: _merged(dynamic[key], original[key]) for key in original}
    return dynamic


def in_argnums(
    fun: Function,
    argnums: int | tuple[int, ...],
    args: tuple[Tree, ...],
    kwargs: dict[str, Tree],
    listed: bool = False,
) -> tuple[Function, Tree]:
    """``fun`` as a function of its differentiable leaves in ``argnums`` alone, and those leaves."""
    positions = (argnums,) if isinstance(argnums, int) else argnums
    dynamic = (list if listed else tuple)(inexact(args[position]) for position in positions)

    def inner(dynamic: Tree) -> Any:
        chosen = (dynamic,) if isinstance(argnums, int) else dynamic
        given = list(args)
        for position, part in zip(positions, chosen, strict=True):
            given[position] = _merged(part, args[position])
        return fun(*given, **kwargs)

    return inner, dynamic[0] if isinstance(argnums, int) else dynamic


def _differentiable_value(fun: Function, has_aux: bool) -> Function:
    """``fun`` giving ``(differentiable leaves of the value, (value, aux))``."""

    def inner(dynamic: Tree) -> Any:
        value, aux = fun(dynamic) if has_aux else (fun(dynamic), None)
        return inexact(value), (value, aux)

    return inner


# Transforms.


def _differentiating(derivative: Callable[..., Function]) -> Callable[[Function, Transform], Function]:
    """A transform from JAX's own, restricted to the differentiable leaves."""

    def transform(fun: Function, asked: Transform) -> Function:
        def transformed(*args: Any, **kwargs: Any) -> Any:
            inner, dynamic = in_argnums(fun, asked.argnums, args, kwargs)
            return derivative(inner, has_aux=asked.has_aux, holomorphic=asked.holomorphic)(dynamic)

        return transformed

    return transform


def _of_inexact_value(derivative: Callable[..., Function]) -> Callable[..., Function]:
    """``derivative`` of the differentiable leaves of the value alone."""

    def made(fun: Function, *, has_aux: bool, holomorphic: bool) -> Function:
        def value(dynamic: Tree) -> Any:
            if has_aux:
                found, aux = fun(dynamic)
                return inexact(found), aux
            return inexact(fun(dynamic))

        return derivative(value, has_aux=has_aux, holomorphic=holomorphic)

    return made


jacfwd = _of_inexact_value(jax.jacfwd)
jacrev = _of_inexact_value(jax.jacrev)
hessian = _of_inexact_value(jax.hessian)


def jacobian(fun: Function, *, has_aux: bool, holomorphic: bool, mode: str = "auto") -> Function:
    """The Jacobian of ``fun`` in its one argument, in the mode asked for.

    ``"auto"``: forward where the argument is no larger than the value, else reverse; and
    only a mode that exists: forward alone for R→C and loops of unknown length, reverse
    alone for C→R and hand-written reverse rules.
    """

    def made(dynamic: Tree) -> Any:
        derivatives = {"fwd": jacfwd, "rev": jacrev}
        if mode != "auto":
            return derivatives[mode](fun, has_aux=has_aux, holomorphic=holomorphic)(dynamic)
        order = _modes(fun, dynamic, has_aux=has_aux, holomorphic=holomorphic)
        try:
            return derivatives[order[0]](fun, has_aux=has_aux, holomorphic=holomorphic)(dynamic)
        except Exception as error:
            if len(order) == 1 or not is_not_differentiable(error):
                raise
            return derivatives[order[1]](fun, has_aux=has_aux, holomorphic=holomorphic)(dynamic)

    return made


def _modes(fun: Function, dynamic: Tree, *, has_aux: bool, holomorphic: bool) -> list[str]:
    """The modes that complex numbers allow, the cheaper one first."""
    value = jax.eval_shape(lambda d: inexact(fun(d)[0] if has_aux else fun(d)), dynamic)
    ins, outs = list(leaves(dynamic)), list(leaves(value))
    size_in = sum(math.prod(jnp.shape(leaf)) for leaf in ins)
    size_out = sum(math.prod(leaf.shape) for leaf in outs)
    order = ["fwd", "rev"] if size_in <= size_out else ["rev", "fwd"]
    if holomorphic:
        return order
    complex_in = any(jnp.issubdtype(jnp.result_type(leaf), jnp.complexfloating) for leaf in ins)
    complex_out = any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in outs)
    allowed = [mode for mode in order if not (complex_in if mode == "fwd" else complex_out)]
    if not allowed:
        raise NotDifferentiable(
            "A map from complex to complex arrays has a Jacobian only where it is holomorphic: say "
            "holomorphic=True if it is; jvp and vjp always work.",
            argument="holomorphic",
            expected="real arguments or a real value",
            got="complex to complex",
        )
    return allowed


def _vmap(fun: Function, asked: Transform) -> Function:
    def mapped(*args: Any, **kwargs: Any) -> Any:
        # Here, not when it is composed: JAX looks at the axes at once.
        return jax.vmap(fun, in_axes=asked.in_axes, out_axes=asked.out_axes)(*args, **kwargs)

    return mapped


def _real_pairs(fun: Function, asked: Transform) -> Function:
    """``fun`` with complex arrays as real ones: a last axis of two, the real and the imaginary part.

    Both on the way in (the arguments in argnums) and on the way out (what is complex of the value).
    """
    positions = (asked.argnums,) if isinstance(asked.argnums, int) else asked.argnums

    def joined(leaf: Any) -> Any:
        if jnp.ndim(leaf) == 0 or jnp.shape(leaf)[-1] != 2 or not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ShapeError(
                "A complex array as real pairs is a floating array whose last axis has length 2.",
                expected="(…, 2)",
                got=describe_leaf(leaf),
            )
        return jax.lax.complex(leaf[..., 0], leaf[..., 1])

    def split(leaf: Any) -> Any:
        return jnp.stack([leaf.real, leaf.imag], axis=-1) if jnp.iscomplexobj(leaf) else leaf

    def transformed(*args: Any, **kwargs: Any) -> Any:
        given = [tree_map(joined, arg) if i in positions else arg for i, arg in enumerate(args)]
        return tree_map(split, fun(*given, **kwargs))

    return transformed


TRANSFORMS: dict[str, Callable[[Function, Transform], Function]] = {
    "grad": _differentiating(jax.grad),
    "value_and_grad": _differentiating(jax.value_and_grad),
    "jacfwd": _differentiating(jacfwd),
    "jacrev": _differentiating(jacrev),
    "jacobian": _differentiating(jacobian),
    "hessian": _differentiating(hessian),
    "vmap": _vmap,
    "real_pairs": _real_pairs,
}


def transformed(fun: Function, transforms: tuple[Transform, ...]) -> Function:
    """``fun`` under ``transforms``, innermost first."""
    for transform in transforms:
        fun = TRANSFORMS[transform.name](fun, transform)
    return fun


# Tangents and cotangents.


def vectors(given: Tree, like: Tree, *, argument: str, xp: Any = jnp) -> tuple[Tree, tuple[int, ...]]:
    """(Co)tangents in the dtypes of ``like``, and their stack dimensions.

    ``given`` has the structure of ``like``; each leaf has the shape of its counterpart,
    after stack dimensions that are the same for every leaf. None stands for zeros. ``xp``: whose
    arrays they are (jax.numpy, or numpy).

    Raises:
        ArgumentError: another structure.
        ShapeError: another shape, or stack dimensions that disagree.
        DTypeError: complex where real is wanted.
    """
    stacks: dict[tuple[int, ...], None] = {}

    def walk(given: Tree, like: Tree, path: str) -> Tree:
        if given is None:
            return None
        kind = type(like)
        if like is None or (kind in (tuple, list, dict)) != (type(given) in (tuple, list, dict)):
            raise _mismatch(
                path, "None (it has no derivative)" if like is None else _kind(like), _kind(given)
            )
        if kind in (tuple, list, dict):
            same = type(given) is kind and (
                set(given) == set(like) if kind is dict else len(given) == len(like)
            )
            if not same:
                raise _mismatch(path, _kind(like), _kind(given))
            if kind is dict:
                return {key: walk(given[key], like[key], f"{path}[{key!r}]") for key in like}
            return kind(
                [walk(g, e, f"{path}[{i}]") for i, (g, e) in enumerate(zip(given, like, strict=True))]
            )
        want, shape = xp.shape(like), xp.shape(given)
        split = len(shape) - len(want)
        if split < 0 or shape[split:] != want:
            raise ShapeError(
                f"{path} must have the shape of what it is taken at, after any stack dimensions.",
                argument=path,
                expected=f"(…, {', '.join(map(str, want))})" if want else "(…)",
                got=str(shape),
            )
        stacks[shape[:split]] = None
        dtype = xp.result_type(like)
        if xp.iscomplexobj(given) and not np.issubdtype(dtype, np.complexfloating):
            raise DTypeError(
                f"{path} belongs to something real; a complex one has no meaning there.",
                argument=path,
                expected=str(dtype),
                got=describe_leaf(given),
            )
        return xp.asarray(given).astype(dtype)

    made = walk(given, like, argument)
    if len(stacks) > 1:
        raise ShapeError(
            "Stack dimensions are the same for every leaf.",
            argument=argument,
            expected=f"all {next(iter(stacks))}",
            got=", ".join(str(stack) for stack in stacks),
        )
    return made, next(iter(stacks), ())


def _kind(tree: Tree) -> str:
    kind = type(tree)
    if kind in (tuple, list):
        return f"a {kind.__name__} of {len(tree)}"
    if kind is dict:
        return f"a dict with the keys {', '.join(sorted(tree)[:16])}"
    return "None" if tree is None else "an array"


def _mismatch(path: str, expected: str, got: str) -> ArgumentError:
    return ArgumentError(
        f"{path} must have the structure of what it is taken at.", argument=path, expected=expected, got=got
    )


def _zeros_filled(tree: Tree, like: Tree) -> Tree:
    """``tree`` with zeros for every leaf that was left out."""
    if tree is None:
        return tree_map(jnp.zeros_like, like)
    kind = type(like)
    if kind in (tuple, list):
        return kind([_zeros_filled(t, e) for t, e in zip(tree, like, strict=True)])
    if kind is dict:
        return {key: _zeros_filled(tree[key], like[key]) for key in like}
    return tree


def stacked(linear: Function, given: Tree, like: Tree, *, argument: str) -> Tree:
    """``linear`` at ``given``, once for each entry of its stack dimensions."""
    made, stack = vectors(given, like, argument=argument)
    if not stack:
        return linear(_zeros_filled(made, like))
    flat = tree_map(lambda leaf: leaf.reshape(math.prod(stack), *leaf.shape[len(stack) :]), made)
    answer = jax.vmap(lambda vector: linear(_zeros_filled(vector, like)))(flat)
    return tree_map(lambda leaf: leaf.reshape(*stack, *leaf.shape[1:]), answer)


# Operations: from a function and its inputs to the fields of the answer.


def _with_aux(answer: dict[str, Any], aux: Any, options: Options) -> dict[str, Any]:
    return {**answer, "aux": aux} if options.has_aux else answer


def _evaluate(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    value = fun(*inputs.args, **inputs.kwargs)
    return {"value": value[0], "aux": value[1]} if options.has_aux else {"value": value}


def _derivative(field: str, derivative: Callable[..., Function]) -> Operation:
    def operation(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
        inner, dynamic = in_argnums(fun, options.argnums, inputs.args, inputs.kwargs, options.listed)
        made = derivative(inner, has_aux=options.has_aux, holomorphic=options.holomorphic)(dynamic)
        answer, aux = made if options.has_aux else (made, None)
        return _with_aux({field: answer}, aux, options)

    return operation


def _jacobian(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    def derivative(inner: Function, **asked: Any) -> Function:
        return jacobian(inner, mode=options.mode, **asked)

    return _derivative("jacobian", derivative)(fun, inputs, options)


def _value_and_grad(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    inner, dynamic = in_argnums(fun, options.argnums, inputs.args, inputs.kwargs, options.listed)
    value, gradient = jax.value_and_grad(inner, has_aux=options.has_aux, holomorphic=options.holomorphic)(
        dynamic
    )
    value, aux = value if options.has_aux else (value, None)
    return _with_aux({"value": value, "gradient": gradient}, aux, options)


def _jvp(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    inner, dynamic = in_argnums(fun, options.positions, inputs.args, inputs.kwargs)
    split = _differentiable_value(inner, options.has_aux)
    made, stack = vectors(inputs.tangents, dynamic, argument="tangents")
    if not stack:
        _, tangent, (value, aux) = jax.jvp(split, (dynamic,), (_zeros_filled(made, dynamic),), has_aux=True)
        return _with_aux({"value": value, "tangent": tangent}, aux, options)
    value, aux = split(dynamic)[1]

    def push(tangents: Tree) -> Tree:
        return jax.jvp(split, (dynamic,), (tangents,), has_aux=True)[1]

    tangent = stacked(push, inputs.tangents, dynamic, argument="tangents")
    return _with_aux({"value": value, "tangent": tangent}, aux, options)


def _vjp(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    inner, dynamic = in_argnums(fun, options.positions, inputs.args, inputs.kwargs)
    like, pull, (value, aux) = jax.vjp(_differentiable_value(inner, options.has_aux), dynamic, has_aux=True)
    cotangents = stacked(lambda w: pull(w)[0], inputs.cotangent, like, argument="cotangent")
    return _with_aux({"value": value, "cotangents": cotangents}, aux, options)


def _hvp(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    inner, dynamic = in_argnums(fun, options.positions, inputs.args, inputs.kwargs)
    gradient = jax.grad(inner, has_aux=options.has_aux)

    def push(tangents: Tree) -> Tree:
        if options.has_aux:
            return jax.jvp(gradient, (dynamic,), (tangents,), has_aux=True)[1]
        return jax.jvp(gradient, (dynamic,), (tangents,))[1]

    product = stacked(push, inputs.tangents, dynamic, argument="tangents")
    aux = inner(dynamic)[1] if options.has_aux else None
    return _with_aux({"product": options.formed(product)}, aux, options)


def _linearize(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    inner, dynamic = in_argnums(fun, options.positions, inputs.args, inputs.kwargs)
    _, linear, (value, aux) = jax.linearize(
        _differentiable_value(inner, options.has_aux), dynamic, has_aux=True
    )
    return _with_aux({"value": value, "linear": linear, "primals": dynamic}, aux, options)


def push(linear: Function, primals: Tree, tangents: Tree) -> Tree:
    """A linearization times tangents (stacks too)."""
    return stacked(linear, tangents, primals, argument="tangents")


def pull(linear: Function, primals: Tree, cotangent: Tree) -> Tree:
    """A linearization's transpose times a cotangent (stacks too): a tuple of cotangents."""
    value = jax.eval_shape(linear, primals)
    transpose = jax.linear_transpose(linear, primals)
    return stacked(lambda w: transpose(w)[0], cotangent, value, argument="cotangent")


def dense(linear: Function, primals: tuple[Tree, ...], options: Options) -> Tree:
    """A linearization's matrix, as `jacobian` lays it out.

    For complex to complex it is that of a complex-linear map: whoever asks checks that it is one.
    """
    given = options.formed(primals)
    complex_in = any(jnp.iscomplexobj(leaf) for leaf in leaves(given))
    value = jax.eval_shape(linear, primals)
    complex_out = any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in leaves(value))

    def of(dynamic: Tree) -> Tree:
        return linear((dynamic,) if isinstance(options.argnums, int) else tuple(dynamic))

    return jacobian(of, has_aux=False, holomorphic=complex_in and complex_out)(
        tree_map(jnp.zeros_like, given)
    )


def one_hot_rows(linear: Function, primals: Tree, start: Any, size: int) -> Any:
    """Rows ``start`` to ``start + size`` of a linearization's matrix, one array in and one out.

    Returns:
        An array of shape (size, argument.size), in C order.
    """
    (value,) = leaves(jax.eval_shape(linear, primals))
    transpose = jax.linear_transpose(linear, primals)

    def row(index: Any) -> Any:
        hot = (jnp.arange(math.prod(value.shape)) == index).astype(value.dtype).reshape(value.shape)
        (found,) = leaves(transpose(rebuild(jax.eval_shape(linear, primals), iter([hot]))))
        return found.ravel()

    return jax.vmap(row)(start + jnp.arange(size, dtype=jnp.int32))


def one_hot_columns(linear: Function, primals: Tree, start: Any, size: int) -> Any:
    """Columns ``start`` to ``start + size``, as `one_hot_rows`.

    Returns:
        An array of shape (value.size, size), in C order.
    """
    (argument,) = leaves(primals)

    def column(index: Any) -> Any:
        hot = (jnp.arange(argument.size) == index).astype(argument.dtype).reshape(argument.shape)
        (found,) = leaves(linear(rebuild(primals, iter([hot]))))
        return found.ravel()

    return jax.vmap(column, out_axes=1)(start + jnp.arange(size, dtype=jnp.int32))


Operation = Callable[[Function, Inputs, Options], dict[str, Any]]

OPERATIONS: dict[str, Operation] = {
    "evaluate": _evaluate,
    "jacobian": _jacobian,
    "jvp": _jvp,
    "vjp": _vjp,
    "grad": _derivative("gradient", jax.grad),
    "value_and_grad": _value_and_grad,
    "hessian": _derivative("hessian", hessian),
    "hvp": _hvp,
    "linearize": _linearize,
    "eval_shape": _evaluate,
}
"""Every operation. ``linearize`` also gives what is kept; ``eval_shape`` is never run, only traced."""


# JAX's own errors, told apart.

_NO_DERIVATIVE = (
    "Reverse-mode differentiation does not work",
    "can't apply forward-mode",
    "do not support JVP",
    "requires real-valued",
    "requires real- or complex-valued",
    "only defined for scalar-output",
    "requires inputs with complex dtype",
    "requires outputs with complex dtype",
    "requires real-valued outputs",
    "Differentiation rule for",
    "Transpose rule",
    "transpose rule",
)


_HINTS = {
    "Reverse-mode differentiation does not work": " Here jvp, and jacobian by columns, do.",
    "can't apply forward-mode": " Here vjp, grad, and jacobian by rows do.",
    "only defined for scalar-output": " For other values there are jacobian, jvp and vjp.",
}
"""What there is instead."""


def is_not_differentiable(error: BaseException) -> bool:
    """Whether JAX (or we) said with ``error`` that a derivative does not exist."""
    if isinstance(error, GradwireError):
        return isinstance(error, NotDifferentiable)
    text = message_of(error)
    return any(phrase in text for phrase in _NO_DERIVATIVE)


def translated(error: Exception) -> GradwireError:
    """The Gradwire error for an exception that JAX raised outside the map's own code."""
    text = " ".join(shown(message_of(error)).split())
    if is_not_differentiable(error):
        hint = next((hint for phrase, hint in _HINTS.items() if phrase in text), "")
        return NotDifferentiable(text + hint)
    if "out of bounds" in text:
        return ArgumentError(text, argument="out_axes")
    if "vmap" in text and ("in_axes" in text or "out_axes" in text) and "inconsistent" not in text:
        return ArgumentError(text, argument="in_axes")
    if "vmap" in text:
        return ShapeError(text)
    return NotDifferentiable(f"{type(error).__name__}: {text}")
