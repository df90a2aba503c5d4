"""Query: what is asked of a map, as a frozen value. And the admission of a call as one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from gradwire._errors import ArgumentError, DTypeError
from gradwire._operator import Call
from gradwire._signature import Parameter, static_value
from gradwire._transforms import Transform
from gradwire._trees import Tree, is_inexact, is_number, leaves, tree_map
from gradwire.wire import ArraySpec, Bare
from gradwire_service.declaration import Declaration
from gradwire_service.differentiation import OPERATIONS, Inputs, Options
from gradwire_service.policy import Policy, Precision, cast_dtype
from gradwire_service.signature import check_dtype, takes_anything

Statics = tuple[tuple[int | str, Any], ...]


@dataclass(frozen=True)
class Query:
    """A pure function of the request's arrays: equal queries on equal arrays have equal answers.

    Attributes:
        map, version, owner: whose and which map.
        statics: static arguments by position or name, each with its type (1, 1.0 and True differ).
        transforms: innermost first.
        operation, options: what is asked, and how.
        precision: at which precision it computes and answers.
    """

    map: str
    version: str
    owner: str
    statics: Statics
    transforms: tuple[Transform, ...]
    operation: str
    options: Options
    precision: Precision


@dataclass(frozen=True)
class Asked:
    """A call, admitted: its query, its arrays, and what the map is."""

    declaration: Declaration
    query: Query
    inputs: Inputs
    statics: dict[int | str, Any]


def ask(
    declaration: Declaration,
    call: Call,
    transforms: tuple[Transform, ...],
    *,
    policy: Policy,
    owner: str,
    listed: bool = False,
) -> Asked:
    """Admit ``call``: everything that can be said against it before tracing is said here.

    Raises:
        ArgumentError, DTypeError, NotDifferentiable: naming the map and the argument.
    """
    name, signature = declaration.name, declaration.signature
    if call.operation not in OPERATIONS:
        raise ArgumentError(
            "There is no such operation.", map=name, expected=", ".join(OPERATIONS), got=call.operation[:64]
        )
    if call.sparse and (call.operation not in ("jacobian", "hessian") or call.has_aux):
        raise ArgumentError(
            "Only a Jacobian and a Hessian can be sparse, and come without aux.",
            map=name,
            argument="sparse",
            expected="jacobian or hessian, without has_aux",
            got=f"{call.operation} with has_aux" if call.has_aux else call.operation,
        )
    signature.bind(call.args, call.kwargs, map=name)
    paired = {
        position
        for transform in transforms
        if transform.name == "real_pairs"
        for position in signature.positions(transform.argnums, call.args, map=name)
    }
    statics: dict[int | str, Any] = {}
    args: list[Tree] = []
    for position, arg in enumerate(call.args):
        parameter = signature.at(position)
        if parameter.static:
            statics[position] = static_value(arg, argument=parameter.name, map=name)
            args.append(None)
        else:
            args.append(_declared(arg, parameter, declaration, parameter.name, as_pairs=position in paired))
    kwargs: dict[str, Tree] = {}
    for key, arg in call.kwargs.items():
        parameter_ = signature.named(key)
        assert parameter_ is not None
        if parameter_.static:
            statics[key] = static_value(arg, argument=key, map=name)
        else:
            kwargs[key] = _declared(arg, parameter_, declaration, key)

    differentiated: set[int] = set()
    made = []
    for transform in transforms:
        if transform.name == "real_pairs":
            positions = signature.positions(transform.argnums, args, map=name)
            transform = replace(transform, argnums=positions)
        elif transform.differentiates:
            positions = signature.differentiated(transform.argnums, args, map=name)
            differentiated.update(positions)
            transform = replace(
                transform, argnums=positions[0] if isinstance(transform.argnums, int) else positions
            )
        made.append(transform)
    options = Options(
        argnums=0, mode=call.mode, holomorphic=call.holomorphic, has_aux=call.has_aux, listed=listed
    )
    if call.operation not in ("evaluate", "eval_shape"):
        positions = signature.differentiated(call.argnums, args, map=name)
        differentiated.update(positions)
        options = replace(options, argnums=positions[0] if isinstance(call.argnums, int) else positions)
    for position in differentiated:
        args[position] = tree_map(_floating, args[position])

    precision = policy.resolve(leaves((args, kwargs)))

    def cast(tree: Tree, argument: str) -> Tree:
        return tree_map(lambda leaf: _cast(leaf, precision, argument, name), tree)

    inputs = Inputs(
        args=tuple(cast(arg, signature.at(position).name) for position, arg in enumerate(args)),
        kwargs={key: cast(arg, key) for key, arg in kwargs.items()},
        tangents=_tangents(call, options, precision, declaration),
        cotangent=vector(call.cotangent, precision, "cotangent", name),
    )
    query = Query(
        map=name,
        version=declaration.version,
        owner=owner,
        statics=tuple(
            (key, _typed(value)) for key, value in sorted(statics.items(), key=lambda item: str(item[0]))
        ),
        transforms=tuple(made),
        operation=call.operation,
        options=options,
        precision=precision,
    )
    return Asked(declaration, query, inputs, statics)


def _tangents(
    call: Call, options: Options, precision: Precision, declaration: Declaration
) -> tuple[Tree, ...] | None:
    if call.tangents is None:
        if call.operation in ("jvp", "hvp"):
            raise ArgumentError(
                f"{call.operation} takes tangents: one for each differentiated argument.",
                map=declaration.name,
                argument="tangents",
                expected=f"a list of {len(options.positions)}",
                got="none",
            )
        return None
    if len(call.tangents) != len(options.positions):
        raise ArgumentError(
            "There is one tangent for each differentiated argument.",
            map=declaration.name,
            argument="tangents",
            expected=str(len(options.positions)),
            got=str(len(call.tangents)),
        )
    return tuple(vector(tangent, precision, "tangents", declaration.name) for tangent in call.tangents)


def vector(tree: Tree, precision: Precision, argument: str, map: str) -> Tree:
    """A tangent or cotangent as it goes to the device: never an integer."""
    return tree_map(lambda leaf: _cast(_host_floating(leaf), precision, argument, map), tree)


def _declared(
    tree: Tree, parameter: Parameter, declaration: Declaration, argument: str, *, as_pairs: bool = False
) -> Tree:
    """An argument as its declaration takes it; a bare integer becomes floating where declared so.

    ``as_pairs``: a complex argument comes as real pairs, whose dtype is not the declared one.
    """
    annotation = declaration.annotations.get(parameter.name)
    for leaf in leaves(tree):
        if isinstance(leaf, str) or (not is_number(leaf) and not hasattr(leaf, "dtype")):
            raise ArgumentError(
                f"{argument} takes arrays; only static arguments are text or plain data.",
                map=declaration.name,
                argument=argument,
                expected="an array or a number",
                got=type(leaf).__name__,
            )
    if annotation is None or takes_anything(annotation) or as_pairs:
        return tree

    def check(leaf: Any) -> Any:
        if isinstance(leaf, Bare) and parameter.floating:
            leaf = _floating(leaf)
        return check_dtype(leaf, annotation, argument=argument, map=declaration.name)

    return tree_map(check, tree)


def _floating(leaf: Any) -> Any:
    """Bare integers as floating numbers; everything else as it is."""
    if type(leaf) is int:
        return float(leaf)
    if isinstance(leaf, Bare):
        return np.asarray(leaf, dtype=np.float64)
    return leaf


def _host_floating(leaf: Any) -> Any:
    """A (co)tangent's leaf, never an integer: it is cast to its argument's dtype later."""
    if is_number(leaf):
        return float(leaf) if type(leaf) in (int, bool) else leaf
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biu":
        return np.asarray(leaf, dtype=np.float64)
    if not hasattr(leaf, "dtype"):
        raise DTypeError("A (co)tangent is made of numbers.", expected="numbers", got=type(leaf).__name__)
    return leaf


def _cast(leaf: Any, precision: Precision, argument: str, map: str) -> Any:
    """A leaf at the precision of the query; the device gets nothing that it would narrow in silence."""
    if is_number(leaf):
        if type(leaf) is int:
            _check_range(leaf, leaf, "int64" if precision.x64 else "int32", argument, map)
        return leaf
    if isinstance(leaf, ArraySpec):
        return ArraySpec(leaf.shape, _narrowed(leaf.dtype, precision))
    dtype = np.dtype(leaf.dtype)
    target = _narrowed(dtype, precision)
    if dtype == target:
        return np.asarray(leaf) if isinstance(leaf, Bare) else leaf
    if dtype.kind in "iu" and leaf.size and not isinstance(leaf, jax.core.Tracer):
        host = np.asarray(leaf)
        _check_range(int(host.min()), int(host.max()), target.name, argument, map)
    if isinstance(leaf, np.ndarray):
        with np.errstate(over="ignore"):
            return np.asarray(leaf).astype(target)
    # JAX's own cast knows 64 bit only where its x64 mode is on, whatever the caller's is.
    with jax.enable_x64(True):
        return leaf.astype(target)


def _narrowed(dtype: np.dtype[Any], precision: Precision) -> np.dtype[Any]:
    """The dtype in which an array of ``dtype`` enters the computation."""
    if is_inexact(dtype):
        if precision.cast is not None:
            return cast_dtype(dtype, precision.cast)
        return dtype if precision.x64 else np.dtype({"f8": "f4", "c16": "c8"}.get(dtype.str[1:], dtype))
    if dtype.kind in "iu" and dtype.itemsize == 8 and not precision.x64:
        return np.dtype(f"{dtype.kind}4")
    return dtype


def _check_range(low: int, high: int, target: str, argument: str, map: str) -> None:
    limits = np.iinfo(target)
    if low < limits.min or high > limits.max:
        raise DTypeError(
            f"{argument} holds integers that do not fit in {target}, and are not wrapped. A computation "
            'below 64 bit has 32-bit integers: ask for precision="compute=float64" to keep them.',
            map=map,
            argument=argument,
            expected=f"integers that fit in {target}",
            got="a larger one",
        )


def _typed(value: Any) -> Any:
    """A static value that is equal only to one of the same type (and sign of zero)."""
    if type(value) is tuple:
        return ("tuple", *(_typed(child) for child in value))
    return (type(value).__name__, repr(value))
