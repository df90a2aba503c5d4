"""What can be built from a value, a jvp and a vjp: every operation, and the derivative transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gradwire._errors import NotDifferentiable
from gradwire._signature import describe_leaf
from gradwire._transforms import Transform
from gradwire._trees import Tree, leaves, rebuild, tree_map
from gradwire.wire import ArraySpec
from gradwire_service.byhand.functions import Function, Hand, Mapped, RealPairs
from gradwire_service.byhand.trees import (
    check_rows,
    entries,
    filled,
    indices,
    inexact,
    moved,
    placed_at,
    restacked,
    vectors,
)
from gradwire_service.differentiation import Inputs, Options


class Derived(Function):
    """What a derivative transform makes of a function: its value is that derivative."""

    def __init__(self, fun: Function, transform: Transform) -> None:
        self.name = fun.name
        self._fun = fun
        self._transform = transform

    def value(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> Tree:
        asked = self._transform
        if asked.has_aux:
            raise NotDifferentiable(
                "Maps with derivatives by hand have no aux.", map=self.name, argument="has_aux"
            )
        if asked.name == "hessian":
            raise self._without("second derivative")
        mode = {"jacfwd": "fwd", "jacrev": "rev"}.get(asked.name, "auto")
        options = Options(argnums=asked.argnums, mode=mode, holomorphic=asked.holomorphic)
        operation = asked.name if asked.name in ("grad", "value_and_grad") else "jacobian"
        found = OPERATIONS[operation](self._fun, Inputs(args, dict(kwargs)), options)
        return tuple(found.values()) if operation == "value_and_grad" else next(iter(found.values()))

    def _without(self, what: str) -> NotDifferentiable:
        return NotDifferentiable(
            f"{self.name} has first derivatives by hand; there is no second one.",
            map=self.name,
            expected="one derivative",
            got="a derivative of a derivative",
        )


def transformed(fun: Function, transforms: tuple[Transform, ...]) -> Function:
    """``fun`` under ``transforms``, innermost first."""
    for transform in transforms:
        fun = {"vmap": Mapped, "real_pairs": RealPairs}.get(transform.name, Derived)(fun, transform)
    return fun


# Operations: from a function and its inputs to the fields of the answer, as in `differentiation`.


def _evaluate(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    return {"value": fun.value(inputs.args, inputs.kwargs)}


def _jvp(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    like = tuple(inexact(inputs.args[position]) for position in options.positions)
    given, stack = vectors(inputs.tangents, like, argument="tangents")
    check_rows(math.prod(stack), fun.name)
    value = None
    found = []
    for vector in entries(given, stack):
        value, tangent = fun.jvp(
            inputs.args, inputs.kwargs, placed_at(options.positions, vector, len(inputs.args))
        )
        found.append(tangent)
    if value is None:
        value = fun.value(inputs.args, inputs.kwargs)
    return {"value": value, "tangent": restacked(found, stack, inexact(value))}


def _vjp(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    # What of the cotangent's shape is a stack, only the value can tell.
    value = fun.value(inputs.args, inputs.kwargs)
    given, stack = vectors(inputs.cotangent, inexact(value), argument="cotangent")
    check_rows(math.prod(stack), fun.name)
    found = []
    for vector in entries(given, stack):
        value, cotangents = fun.vjp(inputs.args, inputs.kwargs, filled(vector, inexact(value)))
        found.append(tuple(cotangents[position] for position in options.positions))
    like = tuple(inexact(inputs.args[position]) for position in options.positions)
    return {"value": value, "cotangents": restacked(found, stack, like)}


def _jacobian(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    value = fun.value(inputs.args, inputs.kwargs)
    like = tuple(inexact(inputs.args[position]) for position in options.positions)
    outs, ins = list(leaves(inexact(value))), list(leaves(like))
    blocks = (_columns if _mode(fun, ins, outs, options) == "fwd" else _rows)(
        fun, inputs, options, value, like
    )

    def entry(row: int) -> Any:
        made = rebuild(like, iter([blocks[row][column] for column in range(len(ins))]))
        if isinstance(options.argnums, int):
            return made[0]
        return list(made) if options.listed else made

    return {"jacobian": rebuild(inexact(value), iter([entry(row) for row in range(len(outs))]))}


def _mode(fun: Function, ins: list[np.ndarray], outs: list[np.ndarray], options: Options) -> str:
    """The mode to take a Jacobian in: by size, of those that exist for this function and its dtypes."""
    smaller_in = sum(leaf.size for leaf in ins) <= sum(leaf.size for leaf in outs)
    exists = {"fwd": fun.has_jvp, "rev": fun.has_vjp}
    real = {"fwd": not any(map(np.iscomplexobj, ins)), "rev": not any(map(np.iscomplexobj, outs))}
    for mode in ("fwd", "rev") if smaller_in else ("rev", "fwd"):
        if options.mode in ("auto", mode) and exists[mode] and (real[mode] or options.holomorphic):
            return mode
    have = ", ".join(f"{name}" for name, there in (("jvp", fun.has_jvp), ("vjp", fun.has_vjp)) if there)
    raise NotDifferentiable(
        f"{fun.name} has no Jacobian in this mode: by columns (fwd) it takes a jvp and real arguments, "
        "by rows (rev) a vjp and a real value, or the promise holomorphic=True.",
        map=fun.name,
        got=f"by hand: {have or 'nothing'}; mode {options.mode}",
    )


def _columns(
    fun: Function, inputs: Inputs, options: Options, value: Tree, like: Tree
) -> list[list[np.ndarray]]:
    outs, ins = list(leaves(inexact(value))), list(leaves(like))
    blocks = [[np.empty((*out.shape, *into.shape), out.dtype) for into in ins] for out in outs]
    for column, into in enumerate(ins):
        for index in indices(into.shape):
            hot = [np.zeros(leaf.shape, leaf.dtype) for leaf in ins]
            hot[column][index] = 1
            tangents = placed_at(options.positions, rebuild(like, iter(hot)), len(inputs.args))
            for row, found in enumerate(leaves(fun.jvp(inputs.args, inputs.kwargs, tangents)[1])):
                place: Any = (..., *index)
                blocks[row][column][place] = found
    return blocks


def _rows(fun: Function, inputs: Inputs, options: Options, value: Tree, like: Tree) -> list[list[np.ndarray]]:
    outs, ins = list(leaves(inexact(value))), list(leaves(like))
    blocks = [[np.empty((*out.shape, *into.shape), into.dtype) for into in ins] for out in outs]
    for row, out in enumerate(outs):
        for index in indices(out.shape):
            hot = [np.zeros(leaf.shape, leaf.dtype) for leaf in outs]
            hot[row][index] = 1
            found = fun.vjp(inputs.args, inputs.kwargs, rebuild(inexact(value), iter(hot)))[1]
            chosen = tuple(found[position] for position in options.positions)
            for column, part in enumerate(leaves(chosen)):
                blocks[row][column][index] = part
    return blocks


def _value_and_grad(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    value = fun.value(inputs.args, inputs.kwargs)
    if not isinstance(value, np.ndarray) or value.shape != () or value.dtype.kind not in "fc":
        raise NotDifferentiable(
            "Only a map whose value is one floating number has a gradient.",
            map=fun.name,
            expected="a value of shape ()",
            got=describe_leaf(value) if isinstance(value, np.ndarray) else "a pytree",
        )
    return {"value": value, "gradient": _jacobian(fun, inputs, options)["jacobian"]}


def _grad(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    return {"gradient": _value_and_grad(fun, inputs, options)["gradient"]}


def _hvp(fun: Function, inputs: Inputs, options: Options) -> dict[str, Any]:
    """A central difference of gradients along the tangents: (∇f(x + hv) − ∇f(x − hv)) / 2h."""
    like = tuple(inexact(inputs.args[position]) for position in options.positions)
    given, stack = vectors(inputs.tangents, like, argument="tangents")
    every = Options(argnums=options.positions)

    def gradient(step: float, vector: Tree) -> Tree:
        args = list(inputs.args)
        for position, tangent in zip(options.positions, vector, strict=True):
            args[position] = moved(args[position], tangent, step)
        return _grad(fun, Inputs(tuple(args), inputs.kwargs), every)["gradient"]

    found = []
    for vector in entries(given, stack):
        vector = filled(vector, like)
        step = _step(like, vector)
        ahead, behind = leaves(gradient(step, vector)), leaves(gradient(-step, vector))
        differences = [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]
        found.append(rebuild(like, iter(differences)))
    product = restacked(found, stack, like)
    return {"product": product[0] if isinstance(options.argnums, int) else product}


def _step(like: Tree, vector: Tree) -> float:
    """The step that balances rounding against truncation: the cube root of the rounding unit."""
    parts = list(leaves(like))
    eps = max(np.finfo(leaf.dtype).eps for leaf in parts)
    scale = max([1.0, *(float(np.max(np.abs(leaf), initial=0.0)) for leaf in parts)])
    length = max((float(np.max(np.abs(leaf), initial=0.0)) for leaf in leaves(vector)), default=0.0)
    return float(eps ** (1 / 3)) * scale / (length or 1.0)


OPERATIONS: dict[str, Callable[[Function, Inputs, Options], dict[str, Any]]] = {
    "evaluate": _evaluate,
    "jacobian": _jacobian,
    "jvp": _jvp,
    "vjp": _vjp,
    "grad": _grad,
    "value_and_grad": _value_and_grad,
    "hvp": _hvp,
}
"""Every operation that can be built from a value, a jvp and a vjp."""


def operations(hand: Hand, *, scalar: bool | None) -> tuple[str, ...]:
    """The operations of a map with these derivatives; ``scalar``: whether its value is (None: not known)."""
    either = hand.jvp is not None or hand.vjp is not None
    have = {
        "evaluate": True,
        "jacobian": either,
        "jvp": hand.jvp is not None,
        "vjp": hand.vjp is not None,
        "grad": either and scalar is not False,
        "value_and_grad": either and scalar is not False,
        "hvp": either and scalar is not False and hand.hvp is not None,
        "linearize": either,
    }
    return tuple(name for name, there in have.items() if there)


class Linear:
    """The derivative of a function at one point: what a linearization keeps of a map by hand.

    ``outputs``: the shapes and dtypes of the value's differentiable leaves.
    """

    def __init__(self, fun: Function, inputs: Inputs, options: Options, outputs: Tree) -> None:
        self.fun = fun
        self.inputs = inputs
        self.options = options
        self.outputs = outputs

    @property
    def nbytes(self) -> int:
        """Bytes of the point."""
        return sum(leaf.nbytes for leaf in leaves((self.inputs.args, self.inputs.kwargs)))

    def perform(self, operation: str, payload: Any) -> Any:
        """``jvp`` of tangents, ``vjp`` of a cotangent, ``dense``."""
        inputs = Inputs(self.inputs.args, self.inputs.kwargs)
        if operation == "jvp":
            inputs = Inputs(inputs.args, inputs.kwargs, tangents=tuple(payload))
            return _jvp(self.fun, inputs, self.options)["tangent"]
        if operation == "vjp":
            inputs = Inputs(inputs.args, inputs.kwargs, cotangent=payload)
            return _vjp(self.fun, inputs, self.options)["cotangents"]
        # As for traced maps: whoever asks for the matrix checks that it is complex-linear.
        options = replace(self.options, holomorphic=self.complex_to_complex)
        return _jacobian(self.fun, inputs, options)["jacobian"]

    @property
    def complex_to_complex(self) -> bool:
        chosen = [inexact(self.inputs.args[position]) for position in self.options.positions]
        return all(leaf.dtype.kind == "c" for leaf in leaves((chosen, self.outputs)))


def executable(
    fun: Function, operation: str, options: Options, has: tuple[str, ...]
) -> Callable[[Inputs], dict[str, Any]]:
    """What answers ``operation``: in place of what JAX would compile.

    Raises:
        NotDifferentiable: the map does not have it.
    """
    if operation not in has:
        raise NotDifferentiable(
            f"{fun.name} has derivatives by hand, from which {operation} cannot be had.",
            map=fun.name,
            expected=", ".join(has),
            got=operation,
        )

    def run(inputs: Inputs) -> dict[str, Any]:
        inputs = Inputs(
            *(
                tree_map(np.asarray, tree)
                for tree in (inputs.args, inputs.kwargs, inputs.tangents, inputs.cotangent)
            )
        )
        if operation != "linearize":
            return OPERATIONS[operation](fun, inputs, options)
        primals = tuple(inexact(inputs.args[position]) for position in options.positions)
        value = fun.value(inputs.args, inputs.kwargs)
        outputs = tree_map(lambda leaf: ArraySpec(leaf.shape, leaf.dtype), inexact(value))
        return {"value": value, "linear": Linear(fun, inputs, options, outputs), "primals": primals}

    return run
