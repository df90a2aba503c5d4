"""Maps answered in this process: what makes a `Map` the local operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from gradwire import kinds
from gradwire._blocks import Filling
from gradwire._errors import NotDifferentiable
from gradwire._operator import Answer, Call, Options, import_leaf
from gradwire._reports import CostReport, Explanation
from gradwire._transforms import Transform
from gradwire._trees import Tree, leaves
from gradwire_service.declaration import Declaration
from gradwire_service.diagnostics import cost, explain
from gradwire_service.engine import holomorphic
from gradwire_service.engine.blocks import plan
from gradwire_service.engine.compiled import function_of
from gradwire_service.engine.devices import Device
from gradwire_service.engine.execution import LINEAR, Engine, Linearization, on_host
from gradwire_service.engine.sparse import SparseQueries
from gradwire_service.policy import Policy, Precision
from gradwire_service.query import Asked, ask

_hosting: ContextVar[Engine | None] = ContextVar("hosting", default=None)


def engine() -> Engine:
    """The engine of local maps: this process's own, or where `on` says so a service's."""
    return _hosting.get() or _own()


@lru_cache(maxsize=1)
def _own() -> Engine:
    return Engine(compiled_queries=4096)


@contextmanager
def on(hosting: Engine) -> Iterator[None]:
    """Let local maps in here answer on the engine of a service that hosts them."""
    token = _hosting.set(hosting)
    try:
        yield
    finally:
        _hosting.reset(token)


@lru_cache(maxsize=1)
def sparse_queries() -> SparseQueries:
    """What is known of the sparse queries of local maps."""
    return SparseQueries(engine())


def answer(
    declaration: Declaration,
    call: Call,
    transforms: tuple[Transform, ...],
    options: Options,
    warn: Callable[[Call, str, set[str]], None],
) -> Answer:
    """Answer ``call`` here and now; on JAX's tracers it is traced into the computation around it."""
    policy = declaration.precision or Policy()
    if options.precision is not None:
        policy = Policy.parse(options.precision)
    given = leaves((call.args, call.kwargs, call.tangents, call.cotangent))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in given):
        if declaration.hand is not None:
            raise NotDifferentiable(
                "A map with derivatives by hand cannot be traced by JAX: call it outside of jit, grad, vmap.",
                map=declaration.name,
                expected="concrete arrays",
                got="a JAX tracer",
            )
        if call.sparse:
            raise NotDifferentiable(
                "A sparse matrix is no array that JAX can trace: call it outside of jit, grad, vmap.",
                map=declaration.name,
                argument="sparse",
                expected="concrete arrays",
                got="a JAX tracer",
            )
        return _inlined(ask(declaration, call, transforms, policy=Policy(), owner="local"))
    asked = ask(declaration, call, transforms, policy=policy, owner="local")
    precision = asked.query.precision
    if precision.lossy:
        warn(call, precision.computed_in, declaration.warned)
    if call.operation == "eval_shape":
        shapes = engine().shapes(asked)
        return lambda name: shapes
    keeps = call.operation == "linearize"
    if keeps or call.like[0].name == "jax":
        # What is kept (or answered as JAX's own array) must not share the caller's memory.
        asked = _owned(asked)
    device = engine().devices.choose(options.device or declaration.device)
    compiled = None if call.sparse else engine().compile(asked, device)
    if holomorphic.promised(asked):
        engine().check_promises(asked, device)
    if compiled is None:
        return _sparse(asked, device)
    fields = engine().run(asked, compiled, device)
    if keeps:
        kept = engine().linearization(asked, compiled, device, fields)
        fields["linearization"] = LocalHandle(kept)
    return lambda name: fields[name] if name == "linearization" else _delivered(fields[name], precision)


def _sparse(asked: Asked, device: Device) -> Answer:
    plan = sparse_queries().plan(asked, device)
    computation = sparse_queries().begin(plan, asked, device)
    for part in computation.parts:
        part()
    fields = {asked.query.operation: computation.finish(), "meta": {"dense_fallback": plan.fallback}}
    return lambda name: fields[name]


def fill(
    declaration: Declaration,
    call: Call,
    transforms: tuple[Transform, ...],
    options: Options,
    filling: Filling,
) -> None:
    """A local map's Jacobian, block by block."""
    policy = declaration.precision or Policy()
    if options.precision is not None:
        policy = Policy.parse(options.precision)
    asked = _owned(
        ask(declaration, replace(call, operation="linearize"), transforms, policy=policy, owner="local")
    )
    device = engine().devices.choose(options.device or declaration.device)
    compiled = engine().compile(asked, device)
    engine().check_promises(asked, device)
    kept = engine().linearization(asked, compiled, device, engine().run(asked, compiled, device))
    planned = plan(engine(), kept, holomorphic=call.holomorphic, mode=call.mode)
    filling.begin(planned.dtype, planned.shape)
    for start in planned.starts:
        filling.put(planned.axis, start, planned.block(start))
    filling.end({})


def report(
    declaration: Declaration, call: Call, transforms: tuple[Transform, ...], options: Options
) -> CostReport | Explanation:
    """What a local map says of itself."""
    policy, why = declaration.precision or Policy(), "the map's" if declaration.precision else "the default"
    if options.precision is not None:
        policy, why = Policy.parse(options.precision), "asked for"

    def admit(asked: Call) -> Asked:
        return ask(declaration, asked, transforms, policy=policy, owner="local")

    wanted = options.device or declaration.device
    device = engine().devices.choose(wanted)
    if call.argnums is None:
        call = replace(call, argnums=declaration.default_argnums(call.args))
    if call.operation == "cost":
        return cost(engine(), declaration, call, admit, device)
    placed = "asked for" if options.device else "the map's" if wanted else "the least busy"
    reasons = {"device": placed, "precision": f"{why}: {policy}"}
    return explain(engine(), declaration, call, admit, device, reasons)


def _owned(asked: Asked) -> Asked:
    copied = jax.tree_util.tree_map(
        lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, asked.inputs
    )
    return replace(asked, inputs=copied)


def _delivered(tree: Tree, precision: Precision) -> Tree:
    """JAX arrays stay on their device unless the policy answers in another dtype."""
    return tree if precision.output is None else on_host(tree, precision)


def _inlined(asked: Asked) -> Answer:
    if asked.query.operation == "linearize":
        fields = function_of(asked)(asked.inputs)
        fields["linearization"] = TracedHandle(fields["linear"], fields["primals"], asked)
        return lambda name: fields[name]
    fields = function_of(asked)(asked.inputs)
    return lambda name: fields[name]


def import_local(leaf: Any, argument: str) -> Any:
    """A caller's array as it goes into a local `Call`: JAX's own stay as they are, tracers too."""
    if isinstance(leaf, jax.Array) and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return import_leaf(leaf, argument)


class LocalHandle:
    """A linearization of a local map."""

    def __init__(self, kept: Linearization) -> None:
        self._kept: Linearization | None = kept

    def import_leaf(self, leaf: Any, argument: str) -> Any:
        return import_local(leaf, argument)

    def export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        return export(leaf, kind, like)

    def perform(self, operation: str, payload: Any, read: Callable[[Any], Any]) -> Any:
        if self._kept is None:
            raise ValueError("this LinearOperator is closed")
        if operation == "dense":
            engine().check_complex_linear(self._kept)
        compiled, payload = engine().compile_linear(self._kept, operation, payload)
        made = engine().run_linear(self._kept, compiled, payload)
        return read(_delivered(made, self._kept.asked.query.precision))

    def close(self) -> None:
        self._kept = None


class TracedHandle(LocalHandle):
    """A linearization inside somebody's trace."""

    def __init__(self, linear: Any, primals: Any, asked: Asked) -> None:
        self._linear = linear
        self._primals = primals
        self._options = asked.query.options

    def perform(self, operation: str, payload: Any, read: Callable[[Any], Any]) -> Any:
        given = self._options if operation == "dense" else tuple(payload) if operation == "jvp" else payload
        return read(LINEAR[operation](self._linear, self._primals, given))


def export(leaf: Any, kind: kinds.Kind, like: Any) -> Any:
    """A local answer's array in the caller's kind; JAX arrays stay as they are."""
    if isinstance(leaf, jax.core.Tracer) or (kind.name == "jax" and isinstance(leaf, jax.Array)):
        return leaf
    return kind.from_numpy(np.array(leaf), like)
