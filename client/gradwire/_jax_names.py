"""JAX's names, on maps: `gradwire.grad`, `vmap`, `jvp`, …

They take a `Map` or a `RemoteMap` (or what another of them returned), compose to any
order, and send one request when the result is called. Options of JAX that a remote map
cannot honour (``allow_int``, ``axis_name``, …) raise TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gradwire._errors import ArgumentError
from gradwire._linear import LinearOperator
from gradwire._operator import Answer, Argnums, Call, OperatorBase
from gradwire._transforms import Transform, checked_argnums

F = TypeVar("F", bound=OperatorBase)


def _map(f: F, name: str) -> F:
    if not isinstance(f, OperatorBase):
        raise ArgumentError(
            f"gradwire.{name} transforms a Map or a RemoteMap. "
            "Host a plain function with gradwire_service.Map.",
            argument="f",
            expected="Map or RemoteMap",
            got=type(f).__name__,
        )
    return f


def _derivative(f: F, name: str, argnums: Argnums, holomorphic: bool, has_aux: bool) -> F:
    transform = Transform(name, argnums=checked_argnums(argnums), holomorphic=holomorphic, has_aux=has_aux)
    return _map(f, name)._transformed(transform)


def grad(f: F, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The map that gives the gradient of the scalar map ``f``. As `jax.grad`."""
    return _derivative(f, "grad", argnums, holomorphic, has_aux)


def value_and_grad(f: F, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The map that gives ``(value, gradient)`` of the scalar map ``f``. As `jax.value_and_grad`."""
    return _derivative(f, "value_and_grad", argnums, holomorphic, has_aux)


def jacfwd(f: F, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The map that gives the Jacobian of ``f``, column by column. As `jax.jacfwd`."""
    return _derivative(f, "jacfwd", argnums, holomorphic, has_aux)


def jacrev(f: F, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The map that gives the Jacobian of ``f``, row by row. As `jax.jacrev`."""
    return _derivative(f, "jacrev", argnums, holomorphic, has_aux)


def jacobian(f: F, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The map that gives the Jacobian of ``f``, by the mode that its sizes favour."""
    return _derivative(f, "jacobian", argnums, holomorphic, has_aux)


def hessian(f: F, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The map that gives the Hessian of ``f``. As `jax.hessian`."""
    return _derivative(f, "hessian", argnums, holomorphic, has_aux)


def vmap(f: F, in_axes: Any = 0, out_axes: Any = 0) -> F:
    """The map that applies ``f`` along an axis of its arguments. As `jax.vmap`.

    ``in_axes`` has one entry for each positional argument; a static argument's entry is
    not looked at. Keyword arrays are mapped over their first axis, as in JAX.
    """
    if type(in_axes) is list:
        in_axes = tuple(in_axes)
    transform = Transform("vmap", in_axes=in_axes, out_axes=out_axes)
    transform.fields()  # refuses axes that are no axes where the caller wrote them
    return _map(f, "vmap")._transformed(transform)


def jit(f: F) -> F:
    """``f`` itself: the service always compiles."""
    return _map(f, "jit")


def jvp(f: OperatorBase, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """``(value, tangent_out)`` (and aux): one request. As `jax.jvp`.

    ``tangents`` has one entry for each primal: None for a zero, and for integers.
    """
    _map(f, "jvp")
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise ArgumentError(
                f"{name} is a tuple or list with one entry an argument.",
                map=f.name,
                argument=name,
                expected="tuple or list",
                got=type(given).__name__,
            )
    if len(primals) != len(tangents):
        raise ArgumentError(
            "There is one tangent for each primal (None for a zero, and for integers).",
            map=f.name,
            argument="tangents",
            expected=str(len(primals)),
            got=str(len(tangents)),
        )
    given = tuple(position for position, tangent in enumerate(tangents) if tangent is not None)
    argnums = given or None
    chosen = tuple(tangents[position] for position in given)
    if not given:
        # Every tangent is zero: the default argnums know which arguments can have one at all.
        positions = f._positions(f._call("jvp", tuple(primals), {}, default=None))
        chosen = (None,) * len(positions)
    return f._jvp(tuple(primals), chosen, argnums, {}, has_aux)


def vjp(f: OperatorBase, *primals: Any, has_aux: bool = False) -> Any:
    """``(value, pull)`` (and aux), evaluated at once. As `jax.vjp`.

    ``pull(cotangent)`` gives a tuple with one cotangent for each primal (None for integer
    and static ones). It holds a linearization, which the service frees when it has
    not been used for a while, and the client makes anew if it is used again.
    """

    def made(operator: LinearOperator, positions: tuple[int, ...]) -> Callable[[Any], tuple[Any, ...]]:
        def pull(cotangent: Any) -> tuple[Any, ...]:
            found = operator.vjp(cotangent)
            answered = dict(zip(positions, (found,) if operator._domain.bare else found, strict=True))
            return tuple(answered.get(position) for position in range(len(primals)))

        return pull

    return _linearized(_map(f, "vjp"), primals, has_aux, made)


def linearize(f: OperatorBase, *primals: Any, has_aux: bool = False) -> Any:
    """``(value, push)`` (and aux), evaluated at once. As `jax.linearize`.

    ``push(*tangents)`` takes one tangent for each primal (None for a zero, and for
    integers). It holds a linearization, which the service frees when it has not been used for
    a while, and the client makes anew if it is used again.
    """

    def made(operator: LinearOperator, positions: tuple[int, ...]) -> Callable[..., Any]:
        def push(*tangents: Any) -> Any:
            if len(tangents) != len(primals):
                raise ArgumentError(
                    "There is one tangent for each primal (None for a zero, and for integers).",
                    map=f.name,
                    argument="tangents",
                    expected=str(len(primals)),
                    got=str(len(tangents)),
                )
            chosen = tuple(tangents[position] for position in positions)
            return operator.jvp(chosen[0] if operator._domain.bare else chosen)

        return push

    return _linearized(_map(f, "linearize"), primals, has_aux, made)


def _linearized(
    f: OperatorBase,
    primals: tuple[Any, ...],
    has_aux: bool,
    made: Callable[[LinearOperator, tuple[int, ...]], Callable[..., Any]],
) -> Any:
    def read(operator: LinearOperator, answer: Answer, call: Call) -> Any:
        function = made(operator, f._positions(call))
        if has_aux:
            return operator.value, function, f._export(answer("aux"), call)
        return operator.value, function

    return f._linearize(primals, None, {}, read, has_aux)
