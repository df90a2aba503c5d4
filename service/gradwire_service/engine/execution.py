"""Running executables: arguments to the device once, answers back, JAX's errors as ours."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gradwire._errors import GradwireError, NotDifferentiable
from gradwire._trees import Tree, is_inexact, leaves, tree_map
from gradwire.wire import ArraySpec
from gradwire_service import byhand, differentiation
from gradwire_service.engine import holomorphic
from gradwire_service.engine.compiled import (
    Compiled,
    CompiledQueries,
    at,
    check_answer,
    compile,
    compile_key,
    function_of,
    nbytes,
    signature_key,
    specs_of,
    told_by_runtime,
    traced,
)
from gradwire_service.engine.devices import Device, Devices
from gradwire_service.policy import Precision, cast_dtype
from gradwire_service.query import Asked, vector

LINEAR: dict[str, Callable[..., Any]] = {
    "jvp": differentiation.push,
    "vjp": differentiation.pull,
    "dense": differentiation.dense,
}
"""What a linearization answers."""


@dataclass(frozen=True)
class Linearization:
    """A map's derivative at one point, on its device.

    Attributes:
        asked: the query that made it.
        device: where it is.
        linear: the linear function, a pytree of residuals.
        primals: the differentiated arguments.
        generation: of the executable that made it.
    """

    asked: Asked
    device: Device
    linear: Any
    primals: Any
    generation: int

    @property
    def nbytes(self) -> int:
        if isinstance(self.linear, byhand.Linear):
            return self.linear.nbytes
        return nbytes((self.linear, self.primals))


class Engine:
    """Answers admitted queries on this host's devices. Blocking, and safe among threads."""

    def __init__(
        self, devices: Devices | None = None, *, compiled_queries: int = 256, answer_bytes: int | None = None
    ) -> None:
        self.devices = devices or Devices()
        self.compiled = CompiledQueries(compiled_queries)
        self.answer_bytes = answer_bytes

    # Queries.

    def shapes(self, asked: Asked) -> Tree:
        """The value's shapes and dtypes: traced, never compiled or run."""
        if asked.declaration.hand is not None:
            raise NotDifferentiable(
                "A map with derivatives by hand cannot tell the shape of its value without computing it.",
                map=asked.query.map,
                expected=", ".join(asked.declaration.hand_operations),
                got="eval_shape",
            )
        trace = self.trace(asked)
        precision = asked.query.precision

        def described(leaf: Any) -> ArraySpec:
            return ArraySpec(tuple(leaf.shape), answered(np.dtype(leaf.dtype), precision))

        return tree_map(described, trace.out_info["value"])

    def trace(self, asked: Asked) -> Any:
        """Trace ``asked``, as far as to know that it can be answered."""
        specs = specs_of(asked.inputs, asked.query.precision)
        return traced(function_of(asked), (specs,), asked.query.precision, asked.query.map)

    def cached(self, asked: Asked, device: Device) -> Compiled | None:
        """The executable for ``asked``, if there is one. Never blocks."""
        return self.compiled.get(compile_key(asked, device))

    def compile(self, asked: Asked, device: Device) -> Compiled:
        """The executable for ``asked`` on ``device``; traced and compiled the first time."""
        precision, name = asked.query.precision, asked.query.map

        def make() -> Compiled:
            if asked.declaration.hand is not None:
                return Compiled(byhand_of(asked))
            specs = specs_of(asked.inputs, precision, device.sharding)
            trace = traced(function_of(asked), (specs,), precision, name)
            return compile(trace, answer_bytes=self.answer_bytes, memory=device.memory, map=name)

        return self.compiled.get_or_make(compile_key(asked, device), make)

    def run(self, asked: Asked, compiled: Compiled, device: Device) -> dict[str, Any]:
        """The fields of the answer, as arrays on ``device``, ready."""
        fields: dict[str, Any] = run(
            compiled, (asked.inputs,), asked.query.precision, device, asked.query.map
        )
        if asked.declaration.hand is not None:
            # What JAX tells before it computes anything is only known now.
            check_answer(fields, self.answer_bytes, asked.query.map)
        return fields

    def check_promises(self, asked: Asked, device: Device) -> None:
        """Refuse a query that takes a map for holomorphic which is not, at its point.

        Raises:
            NotDifferentiable: it is not.
        """
        for question in holomorphic.questions(asked):
            try:
                fields = self._products(question, device)
            except NotDifferentiable:
                continue  # there is no derivative, which whoever answers ``asked`` says better
            if fields is not None:
                holomorphic.answered(question, fields)

    def _products(self, question: Asked, device: Device) -> dict[str, Any] | None:
        """The products that `holomorphic` asks for: forward, or of the transpose where only that exists."""

        def answer(asked: Asked) -> dict[str, Any]:
            return self.run(asked, self.compile(asked, device), device)

        try:
            return answer(question)
        except NotDifferentiable:
            transposed = holomorphic.transposed(question, answer(holomorphic.evaluated(question))["value"])
            return None if transposed is None else answer(transposed)

    # Linearizations.

    def linearization(
        self, asked: Asked, compiled: Compiled, device: Device, fields: dict[str, Any]
    ) -> Linearization:
        """What a ``linearize`` query's answer keeps; takes it out of ``fields``."""
        return Linearization(asked, device, fields.pop("linear"), fields.pop("primals"), compiled.generation)

    def compile_linear(self, kept: Linearization, operation: str, payload: Tree) -> tuple[Compiled, Tree]:
        """The executable for a product with ``kept``, and the payload as it goes into it."""
        payload, key, make = self.ask_linear(kept, operation, payload)
        return self.compiled.get_or_make(key, make), payload

    def ask_linear(
        self, kept: Linearization, operation: str, payload: Tree
    ) -> tuple[Tree, Hashable, Callable[[], Compiled]]:
        """A product with ``kept``, admitted: its payload, its key, and what makes its executable."""
        precision, name = kept.asked.query.precision, kept.asked.query.map
        argument = {"jvp": "tangents", "vjp": "cotangent"}.get(operation)
        options = kept.asked.query.options
        if argument is not None:
            payload = vector(payload, precision, argument, name)
            if operation == "jvp":
                payload = tuple(payload)
        function = LINEAR[operation]

        def of(linear: Any, primals: Any, payload: Any) -> Any:
            return function(linear, primals, options if operation == "dense" else payload)

        key = (kept.asked.query.owner, kept.generation, operation, signature_key(payload))

        def make() -> Compiled:
            if isinstance(kept.linear, byhand.Linear):
                return Compiled(lambda linear, primals, payload: linear.perform(operation, payload))
            specs = specs_of((kept.linear, kept.primals, payload), precision, kept.device.sharding)
            trace = traced(of, specs, precision, name)
            memory = kept.device.memory
            return compile(trace, answer_bytes=self.answer_bytes, memory=memory, map=name)

        return payload, key, make

    def run_linear(self, kept: Linearization, compiled: Compiled, payload: Tree) -> Tree:
        """A product with ``kept``, as arrays on its device, ready."""
        query = kept.asked.query
        return run(compiled, (kept.linear, kept.primals, payload), query.precision, kept.device, query.map)

    def check_complex_linear(self, kept: Linearization) -> None:
        """Refuse the matrix of a derivative from complex to complex that is not complex-linear.

        Raises:
            NotDifferentiable: the map is not holomorphic at this point.
        """
        if not any(map(np.iscomplexobj, leaves(kept.primals))):
            return
        operation, vectors = "jvp", list(holomorphic.pairs(kept.primals))
        if isinstance(kept.linear, byhand.Linear) and not kept.linear.fun.has_jvp:
            if not kept.linear.complex_to_complex:
                return
            operation, vectors = "vjp", holomorphic.pairs(kept.linear.outputs)
        compiled, payload = self.compile_linear(kept, operation, vectors)
        for leaf in leaves(self.run_linear(kept, compiled, payload)):
            holomorphic.check_complex_linear(np.asarray(leaf), kept.asked.query.map)


def byhand_of(asked: Asked) -> Callable[[Any], dict[str, Any]]:
    """What answers a query of a map with derivatives by hand."""
    query = asked.query
    fun = byhand.transformed(asked.declaration.given(asked.statics), query.transforms)
    # Whether a transformed map is scalar is only known once it is computed.
    hand = asked.declaration.hand
    assert hand is not None
    has = byhand.operations(hand, scalar=None) if query.transforms else asked.declaration.hand_operations
    return byhand.executable(fun, query.operation, query.options, has)


def run(compiled: Compiled, inputs: tuple[Any, ...], precision: Precision, device: Device, map: str) -> Any:
    """Run an executable on ``device`` and wait for it.

    Raises:
        OutOfMemory: the device has not enough memory; it goes on.
        MapFailed: code of the map that runs on the host (a callback) raised.
    """
    try:
        with at(precision):
            placed = jax.tree_util.tree_map(lambda leaf: placeable(leaf, device), inputs)
            return jax.block_until_ready(compiled.executable(*placed))
    except GradwireError:
        raise
    except jax.errors.JaxRuntimeError as error:
        raise told_by_runtime(error, device.name, map) from error


def placeable(leaf: Any, device: Device) -> Any:
    """A leaf as the executable places it on its device, once: host arrays and numbers go as they are."""
    if isinstance(leaf, jax.Array) and leaf.sharding != device.sharding:
        return jax.device_put(leaf, device.handle)
    return leaf


def answered(dtype: np.dtype[Any], precision: Precision) -> np.dtype[Any]:
    """The dtype in which the policy answers what was computed in ``dtype``."""
    if precision.output is None or not is_inexact(dtype):
        return dtype
    return cast_dtype(dtype, precision.output)


def on_host(tree: Any, precision: Precision) -> Any:
    """Arrays of an answer in host memory, in the dtype of the policy. May share the device's memory."""

    def read(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        with np.errstate(over="ignore"):
            return array.astype(answered(array.dtype, precision), copy=False)

    return tree_map(read, tree)
