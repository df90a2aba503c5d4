"""Sparse Jacobians and Hessians: many columns (or rows) at once where the pattern allows it.

A query's pattern is found and coloured once, and tried on random vectors, at two points, before
it is believed. Where there is none to be had, every column has a colour of its own: the
dense matrix, a block at a time, of which only what is not zero is kept.

A Hessian is the Jacobian of the gradient.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import accumulate, cycle, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradwire._errors import AnswerTooLarge, MapFailed, NotDifferentiable
from gradwire._sparse import Csr, Pattern
from gradwire._trees import Tree, is_inexact, is_number, leaves, rebuild
from gradwire_service.differentiation import Inputs, in_argnums, inexact, transformed
from gradwire_service.engine.compiled import Compiled, at, signature_key, specs_of, traced
from gradwire_service.engine.compiled import compile as compile_trace
from gradwire_service.engine.devices import Device
from gradwire_service.engine.execution import Engine, answered, on_host, run
from gradwire_service.policy import Precision
from gradwire_service.query import Asked
from gradwire_service.sparse import Colouring, Undetected, check_available, colour, detect, rows_of

LINES = 256
"""Columns (or rows) computed at once, where memory allows."""

BLOCK_BYTES = 64 << 20
"""Most bytes of what is computed at once."""

HELD = 64
"""Plans kept."""

HELD_BYTES = 512 << 20
"""Bytes of all plans kept."""


# The functions that are traced.

Split = Callable[[Inputs], tuple[Callable[[list[Any]], list[Any]], Tree, Tree]]


def split_of(asked: Asked) -> Split:
    """From inputs to (function from leaves to leaves, differentiated arguments, shapes of the value).

    Leaves that have no derivative are None in both trees.
    """
    query = asked.query
    options = query.options
    fun = transformed(asked.declaration.bound(asked.statics), query.transforms)

    def split(inputs: Inputs) -> tuple[Callable[[list[Any]], list[Any]], Tree, Tree]:
        inner, dynamic = in_argnums(fun, options.argnums, inputs.args, inputs.kwargs, options.listed)
        if query.operation == "hessian":
            _check_scalar(jax.eval_shape(inner, dynamic))
            inner = jax.grad(inner)
        value = jax.eval_shape(lambda dynamic: inexact(inner(dynamic)), dynamic)

        def flat(given: list[Any]) -> list[Any]:
            return list(leaves(inexact(inner(rebuild(dynamic, iter(given))))))

        return flat, dynamic, value

    return split


def _check_scalar(value: Tree) -> None:
    if getattr(value, "shape", None) != ():
        raise NotDifferentiable(
            "A sparse Hessian is that of a scalar map. Of a vector map, ask for the sparse Jacobian of its "
            "gradient or Jacobian: gradwire.jacobian(f).jacobian(x, sparse=True).",
            argument="sparse",
            expected="a scalar value",
            got=f"shape {value.shape}" if hasattr(value, "shape") else f"a {type(value).__name__}",
        )


def _pieces(vector: Any, like: Sequence[Any]) -> list[Any]:
    """A flat vector as arrays of the shapes and dtypes of ``like``."""
    sizes = [math.prod(jnp.shape(leaf)) for leaf in like]
    return [
        vector[start:stop].reshape(jnp.shape(leaf)).astype(jnp.result_type(leaf))
        for leaf, (start, stop) in zip(like, pairwise(accumulate(sizes, initial=0)), strict=True)
    ]


def _joined(arrays: Sequence[Any]) -> Any:
    return jnp.concatenate([array.ravel() for array in arrays]) if arrays else jnp.zeros(0)


def _products(split: Split, inputs: Inputs, axis: str) -> Callable[[Any], Any]:
    """The Jacobian (for columns) or its transpose (for rows) times a flat vector."""
    flat, dynamic, value = split(inputs)
    given = list(leaves(dynamic))
    if axis == "columns":
        return lambda vector: _joined(jax.jvp(flat, (given,), (_pieces(vector, given),))[1])
    _, pull = jax.vjp(flat, given)
    return lambda vector: _joined(pull(_pieces(vector, list(leaves(value))))[0])


def compressed(split: Split, axis: str, size: int) -> Callable[..., Any]:
    """The weighted sum of all columns (rows) of one colour, for ``size`` colours from ``start``.

    The function of (inputs, colours, weights, start) gives an array of shape (size, …).
    """

    def of(inputs: Inputs, colours: Any, weights: Any, start: Any) -> Any:
        product = _products(split, inputs, axis)

        def total(colour: Any) -> Any:
            return product(jnp.where(colours == colour, weights, 0))

        return jax.vmap(total)(start + jnp.arange(size, dtype=jnp.int32))

    return of


# What is known of a query.


@dataclass(frozen=True, eq=False)
class Layout:
    """The matrix of a query: one block for each leaf of the value and each of the arguments.

    Attributes:
        tree: from the blocks, in the order of rows and then columns, to the answer's pytree.
        row_ends, column_ends: where each leaf of the value (of the arguments) begins and ends.
        dtypes: of each block, by axis, before the policy's.
        computed: dtype of a compressed matrix, by axis.
    """

    tree: Callable[[Iterator[Any]], Tree]
    row_ends: tuple[int, ...]
    column_ends: tuple[int, ...]
    dtypes: dict[str, list[np.dtype[Any]]]

    @property
    def shape(self) -> tuple[int, int]:
        return self.row_ends[-1], self.column_ends[-1]


@dataclass(frozen=True, eq=False)
class Block:
    """One block of the matrix: its pattern, and which of all the values are its."""

    pattern: Pattern
    own: Any


RETRY = 600.0
"""Seconds after which a search that had to be given up is made again."""


@dataclass(frozen=True, eq=False)
class Plan:
    """How a query is answered.

    Attributes:
        layout: of its matrix.
        colouring: what is computed together.
        blocks: the patterns of the answer; None where there are none to rely on.
        ones: the weight of each column (or row).
        size: colours computed at once.
        compiled: computes them.
        fallback: why there is no pattern, or None.
        until: when a pattern is looked for anew (of `time.monotonic`).
    """

    layout: Layout
    colouring: Colouring
    blocks: tuple[Block, ...] | None
    ones: np.ndarray
    size: int
    compiled: Compiled
    fallback: str | None = None
    until: float = math.inf

    @property
    def nbytes(self) -> int:
        return self.colouring.nbytes + sum(block.pattern.nbytes for block in self.blocks or ())


@dataclass(frozen=True, eq=False)
class HandPlan:
    """How a query of a map with derivatives by hand is answered: by its dense Jacobian."""

    compiled: Compiled
    fallback: str = "its derivatives are written by hand"
    nbytes: int = 0
    until: float = math.inf


class SparseQueries:
    """Plans for sparse queries, made once each and kept in a bounded LRU. Blocking; safe among threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: OrderedDict[Hashable, Plan | HandPlan] = OrderedDict()
        self._making: dict[Hashable, Future[Plan | HandPlan]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def key(self, asked: Asked, device: Device) -> Hashable:
        return "sparse", asked.query, device.name, asked.declaration, signature_key(asked.inputs)

    def cached(self, key: Hashable) -> Plan | HandPlan | None:
        """The plan for ``key``, if there is one. Never blocks."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            if time.monotonic() > found.until:
                self._bytes -= self._held.pop(key).nbytes
                return None
            self._held.move_to_end(key)
            return found

    def plan(self, asked: Asked, device: Device) -> Plan | HandPlan:
        """The plan for ``asked``; made here the first time, or waited for where another thread makes it.

        Raises:
            NotDifferentiable: there is no such derivative, or the extra ``gradwire[sparse]`` is missing.
            AnswerTooLarge: the matrix has too many entries.
        """
        key = self.key(asked, device)
        with self._lock:
            making = self._making.get(key)
            mine = making is None and key not in self._held
            if mine:
                making = self._making[key] = Future()
        if not mine:
            return self.cached(key) or (making.result() if making else self.plan(asked, device))
        assert making is not None
        try:
            made = self._make(asked, device)
        except BaseException as error:
            with self._lock:
                del self._making[key]
            making.set_exception(error)
            raise
        with self._lock:
            self._held[key] = made
            self._bytes += made.nbytes
            while (len(self._held) > HELD or self._bytes > HELD_BYTES) and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1].nbytes
            del self._making[key]
        making.set_result(made)
        return made

    def _make(self, asked: Asked, device: Device) -> Plan | HandPlan:
        check_available(asked.query.map)
        if asked.declaration.hand is not None:
            return HandPlan(self._engine.compile(asked, device))
        return _Planner(self._engine, asked, device).plan()

    def begin(self, plan: Plan | HandPlan, asked: Asked, device: Device) -> Computation | HandComputation:
        """The answer to ``asked``, in parts: each of ``parts`` on the device, then ``finish``."""
        if isinstance(plan, HandPlan):
            return HandComputation(self._engine, plan, asked, device)
        return Computation(self._engine, plan, asked, device)


class Computation:
    """One sparse matrix, computed in parts: each of `parts` on the device, then `finish` once.

    Raises:
        AnswerTooLarge: dense blocks hold more than may be answered.
    """

    def __init__(self, engine: Engine, plan: Plan, asked: Asked, device: Device) -> None:
        self._most = engine.answer_bytes
        self._plan = plan
        self._asked = asked
        self._device = device
        self._done: list[np.ndarray] = []
        self._found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._bytes = 0

    @property
    def parts(self) -> list[Callable[[], None]]:
        starts = range(0, self._plan.colouring.count, self._plan.size)
        return [lambda start=start: self._part(start) for start in starts]  # type: ignore[misc]

    def _part(self, start: int) -> None:
        plan, query = self._plan, self._asked.query
        if not self._done and not self._found and plan.size < plan.colouring.count:
            self._asked = replace(
                self._asked, inputs=_placed(self._asked.inputs, self._device, query.precision)
            )
        given = (self._asked.inputs, plan.colouring.colours, plan.ones, np.int32(start))
        made = np.asarray(run(plan.compiled, given, query.precision, self._device, query.map))
        made = made[: plan.colouring.count - start]
        if plan.blocks is None:
            self._keep_entries(made, start)
        else:
            self._done.append(made)

    def _keep_entries(self, made: np.ndarray, start: int) -> None:
        """What is not zero in dense columns (or rows)."""
        lines, others = np.nonzero(made)
        values = made[lines, others]
        self._bytes += values.nbytes + others.nbytes // 2
        if self._most is not None and self._bytes > self._most:
            raise too_large(self._asked.query.map, self._bytes, self._most)
        lines += start
        entry = (others, lines) if self._plan.colouring.axis == "columns" else (lines, others)
        self._found.append((*entry, values))

    def finish(self) -> Tree:
        """The answer: a pytree of `Csr`."""
        plan = self._plan
        blocks = plan.blocks
        if blocks is not None:
            values = self._values()
        else:
            pattern, values = self._entries()
            blocks = blocks_of(pattern, plan.layout)
        precision = self._asked.query.precision
        made = []
        for block, dtype in zip(blocks, plan.layout.dtypes[plan.colouring.axis], strict=True):
            own = values[block.own]
            if dtype.kind != "c" and own.dtype.kind == "c":
                own = own.real  # it shared a matrix with a complex block
            with np.errstate(over="ignore"):
                made.append(Csr(block.pattern, own.astype(dtype).astype(answered(dtype, precision))))
        return plan.layout.tree(iter(made))

    def matrix(self) -> tuple[Pattern, np.ndarray]:
        """The whole matrix, as computed; for a plan whose only block is all of it."""
        return (
            self._entries() if self._plan.blocks is None else (self._plan.blocks[0].pattern, self._values())
        )

    def _values(self) -> np.ndarray:
        """The values of all entries, in the order of the pattern."""
        if not self._done:
            return np.zeros(len(self._plan.colouring.where))
        whole = self._done[0] if len(self._done) == 1 else np.concatenate(self._done)
        values: np.ndarray = whole.ravel()[self._plan.colouring.where]
        return values

    def _entries(self) -> tuple[Pattern, np.ndarray]:
        """The pattern and values of what was not zero."""
        rows, columns, values = (
            (np.concatenate(part) for part in zip(*self._found, strict=True))
            if self._found
            else (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        )
        order = np.lexsort((columns, rows))
        height = self._plan.layout.shape[0]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=height))])
        return Pattern.of(self._plan.layout.shape, indptr, columns[order]), values[order]


class HandComputation:
    """The dense Jacobian of a map with derivatives by hand, made sparse."""

    def __init__(self, engine: Engine, plan: HandPlan, asked: Asked, device: Device) -> None:
        self._engine = engine
        self._plan = plan
        self._asked = asked
        self._device = device
        self._dense: Tree = None

    @property
    def parts(self) -> list[Callable[[], None]]:
        return [self._part]

    def _part(self) -> None:
        fields = self._engine.run(self._asked, self._plan.compiled, self._device)
        self._dense = on_host(fields["jacobian"], self._asked.query.precision)

    def finish(self) -> Tree:
        """The answer: a pytree of `Csr`."""
        args, positions = self._asked.inputs.args, self._asked.query.options.positions
        ranks = cycle([np.ndim(leaf) for position in positions for leaf in leaves(inexact(args[position]))])

        def block(dense: np.ndarray) -> Csr:
            split = dense.ndim - next(ranks)
            shape = math.prod(dense.shape[:split]), math.prod(dense.shape[split:])
            flat = dense.reshape(shape)
            rows, columns = np.nonzero(flat)
            indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
            return Csr(Pattern.of(shape, indptr, columns), flat[rows, columns])

        return rebuild(self._dense, iter([block(dense) for dense in leaves(self._dense)]))


def _placed(inputs: Inputs, device: Device, precision: Precision) -> Inputs:
    """Host arrays on the device, once for all parts."""
    with at(precision):
        placed: Inputs = jax.tree_util.tree_map(
            lambda leaf: jax.device_put(leaf, device.handle) if isinstance(leaf, np.ndarray) else leaf, inputs
        )
        return placed


def too_large(map: str, size: int, most: int) -> AnswerTooLarge:
    return AnswerTooLarge(
        "The sparse matrix would be larger than this service sends. Ask for products (jvp, vjp) or in parts.",
        map=map,
        expected=f"at most {most} bytes",
        got=f"{size} bytes or more",
    )


def blocks_of(pattern: Pattern, layout: Layout) -> tuple[Block, ...]:
    """The blocks of a matrix with ``pattern``."""
    rows = list(pairwise(layout.row_ends))
    columns = list(pairwise(layout.column_ends))
    if len(rows) == len(columns) == 1:
        return (Block(pattern, slice(None)),)
    of_entry = rows_of(pattern)
    blocks = []
    for top, bottom in rows:
        first, last = pattern.indptr[top], pattern.indptr[bottom]
        for left, right in columns:
            inside = (pattern.indices[first:last] >= left) & (pattern.indices[first:last] < right)
            own = first + np.flatnonzero(inside)
            counts = np.bincount(of_entry[own] - top, minlength=bottom - top)
            indptr = np.concatenate([[0], np.cumsum(counts)])
            shape = (bottom - top, right - left)
            blocks.append(Block(Pattern.of(shape, indptr, pattern.indices[own] - left), own))
    return tuple(blocks)


# Making a plan.


def traceable(leaf: Any) -> Any:
    """An argument for the search: zeros of its shape, a number as the array it will be."""
    if is_number(leaf):
        return np.asarray(leaf)
    return np.zeros(leaf.shape, leaf.dtype)


class _Planner:
    """Makes the plan of one query."""

    def __init__(self, engine: Engine, asked: Asked, device: Device) -> None:
        self.engine = engine
        self.asked = asked
        self.device = device
        self.query = asked.query
        self.split = split_of(asked)

    def plan(self) -> Plan:
        self.read_shapes()
        try:
            pattern = self.detect()
        except Undetected as undetected:
            plan = self.by_dense_blocks(str(undetected))
            # A machine that was busy, or full, will not always be.
            return replace(plan, until=time.monotonic() + RETRY) if undetected.for_now else plan
        self.check_size(pattern)
        plan = self.first_that_works(
            sorted(
                (self.coloured(pattern, axis) for axis in self.axes),
                key=lambda colouring: colouring.count,
            ),
            blocks_of(pattern, self.layout),
        )
        wrong = self.what_is_wrong(replace(plan, blocks=(Block(pattern, slice(None)),)))
        return self.by_dense_blocks(wrong) if wrong else plan

    def coloured(self, pattern: Pattern, axis: str) -> Colouring:
        return colour(pattern, axis, symmetric=self.query.operation == "hessian")

    def by_dense_blocks(self, reason: str) -> Plan:
        sizes = {"columns": self.layout.shape[1], "rows": self.layout.shape[0]}
        colourings = [
            Colouring(axis, np.arange(sizes[axis], dtype=np.int32), sizes[axis], np.zeros(0, np.int64))
            for axis in sorted(self.axes, key=sizes.__getitem__)
        ]
        return replace(self.first_that_works(colourings, None), fallback=reason)

    # What the function looks like.

    def read_shapes(self) -> None:
        """Trace it once: its layout, and by which axes complex numbers (and ``mode``) let it be computed."""
        query = self.query

        def shapes(inputs: Inputs) -> tuple[Tree, Tree]:
            flat, dynamic, value = self.split(inputs)
            return dynamic, rebuild(value, iter(flat(list(leaves(dynamic)))))

        trace = traced(shapes, (specs_of(self.asked.inputs, query.precision),), query.precision, query.map)
        self.dynamic, self.value = trace.out_info
        into, out = list(leaves(self.dynamic)), list(leaves(self.value))

        def ends(found: list[Any]) -> tuple[int, ...]:
            return tuple(accumulate((math.prod(leaf.shape) for leaf in found), initial=0))

        def tree(blocks: Iterator[Any]) -> Tree:
            return rebuild(self.value, iter([rebuild(self.dynamic, blocks) for _ in out]))

        self.layout = Layout(
            tree,
            ends(out),
            ends(into),
            {
                "columns": [np.dtype(leaf.dtype) for leaf in out for _ in into],
                "rows": [np.dtype(leaf.dtype) for _ in out for leaf in into],
            },
        )
        self.axes = ["columns", "rows"]
        self.complex_in, self.complex_out = (
            any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in found) for found in (into, out)
        )
        if not query.options.holomorphic:
            real = {"columns": not self.complex_in, "rows": not self.complex_out}
            self.axes = [axis for axis in self.axes if real[axis]]
            if not self.axes:
                raise NotDifferentiable(
                    "A map from complex to complex arrays has a Jacobian only where it is holomorphic: say "
                    "holomorphic=True if it is; jvp and vjp always work.",
                    map=query.map,
                    argument="holomorphic",
                )
        if query.options.mode != "auto":
            only = {"fwd": "columns", "rev": "rows"}[query.options.mode]
            if only not in self.axes:
                raise NotDifferentiable(
                    f"Complex numbers allow no mode {query.options.mode!r} here.",
                    map=query.map,
                    argument="mode",
                    expected='mode="auto"',
                    got=query.options.mode,
                )
            self.axes = [only]

    def detect(self) -> Pattern:
        query = self.query
        inputs, structure = jax.tree_util.tree_flatten(self.asked.inputs)
        into = list(leaves(self.dynamic))

        def flat(*given: Any) -> list[Any]:
            function, _, _ = self.split(jax.tree_util.tree_unflatten(structure, given[len(into) :]))
            return function(list(given[: len(into)]))

        return detect(
            flat,
            [np.zeros(leaf.shape, leaf.dtype) for leaf in into],
            # Numbers as arrays too: the pattern must hold for every value, as an executable does.
            [traceable(leaf) for leaf in inputs],
            lambda: at(query.precision),
        )

    def check_size(self, pattern: Pattern) -> None:
        most = self.engine.answer_bytes
        widest = max((dtype.itemsize for dtype in self.layout.dtypes[self.axes[0]]), default=0)
        size = pattern.nbytes + len(pattern.indices) * widest
        if most is not None and size > most:
            raise too_large(self.query.map, size, most)

    # Compiling.

    def first_that_works(self, colourings: list[Colouring], blocks: tuple[Block, ...] | None) -> Plan:
        """The plan by the first colouring whose mode of differentiation exists."""
        for colouring in colourings:
            try:
                ones: np.ndarray = np.ones(len(colouring.colours), self.weight_dtype(colouring.axis))
                size, compiled = self.compiled(colouring, ones)
                return Plan(self.layout, colouring, blocks, ones, size, compiled)
            except NotDifferentiable:
                if colouring is colourings[-1]:
                    raise
        raise AssertionError("the last one either works or raises")

    def weight_dtype(self, axis: str) -> type:
        whole = self.complex_in if axis == "columns" else self.complex_out
        if self.query.precision.x64:
            return np.complex128 if whole else np.float64
        return np.complex64 if whole else np.float32

    def compiled(self, colouring: Colouring, ones: np.ndarray) -> tuple[int, Compiled]:
        query, axis = self.query, colouring.axis
        height, width = self.layout.shape
        across = height if axis == "columns" else width
        widest = max((dtype.itemsize for dtype in self.layout.dtypes[axis]), default=1)
        size = max(1, min(LINES, colouring.count, BLOCK_BYTES // max(1, across * widest)))

        def make() -> Compiled:
            given = (self.asked.inputs, colouring.colours, ones, np.int32(0))
            specs = specs_of(given, query.precision, self.device.sharding)
            trace = traced(compressed(self.split, axis, size), specs, query.precision, query.map)
            return compile_trace(trace, answer_bytes=None, memory=self.device.memory, map=query.map)

        key = ("compressed", self.asked.query, self.device.name, self.asked.declaration, axis, size)
        return size, self.engine.compiled.get_or_make((key, signature_key(self.asked.inputs)), make)

    # Trying it out.

    def what_is_wrong(self, plan: Plan) -> str | None:
        """Why the pattern of ``plan`` (one block: all of it) cannot be relied on, or None.

        At the point asked for and at one near it, the matrix times a random vector must be what
        differentiation alone makes of that vector.
        """
        axis, vector = plan.colouring.axis, self.random_vector(plan.ones)
        as_one = (np.zeros_like(plan.colouring.colours), vector, np.int32(0))
        never: np.ndarray | None = None
        for inputs in (self.asked.inputs, self.nearby()):
            try:
                computation = Computation(self.engine, plan, replace(self.asked, inputs=inputs), self.device)
                for part in computation.parts:
                    part()
                pattern, values = computation.matrix()
                given = (inputs, *as_one)
                exact = np.asarray(
                    run(plan.compiled, given, self.query.precision, self.device, self.query.map)
                )[0]
            except MapFailed:
                if inputs is self.asked.inputs:
                    raise
                continue  # the point nearby is not one of the map's
            scale = times(pattern, np.abs(_wide(values)), np.abs(vector), axis)
            if not agree(times(pattern, values, vector, axis), exact, scale):
                return "the pattern found for it does not hold"
            zero = values == 0
            never = zero if never is None else never & zero
        height, width = self.layout.shape
        if min(height, width) > 1 and len(plan.colouring.where) == height * width and bool(np.any(never)):
            return "an operation in it is not seen through: every entry might differ from zero"
        return None

    def random_vector(self, ones: np.ndarray) -> np.ndarray:
        random = np.random.default_rng(0)
        vector = random.standard_normal(len(ones))
        if ones.dtype.kind == "c":
            vector = vector + 1j * random.standard_normal(len(ones))
        return vector.astype(ones.dtype)

    def nearby(self) -> Inputs:
        """The inputs with every differentiated number moved a little."""
        random = np.random.default_rng(1)

        def moved(leaf: Any) -> Any:
            if is_number(leaf):
                return type(leaf)(leaf + 0.01 * max(1.0, abs(leaf)) * random.standard_normal())
            if not is_inexact(leaf.dtype) or getattr(leaf, "weak_type", False):
                return leaf
            array = np.asarray(leaf)
            with np.errstate(all="ignore"):
                scale = np.abs(array) + (np.mean(np.abs(array)) if array.size else 0)
                return (array + 0.01 * scale * random.standard_normal(array.shape)).astype(array.dtype)

        positions = self.query.options.positions
        args = tuple(
            jax.tree_util.tree_map(moved, arg) if position in positions else arg
            for position, arg in enumerate(self.asked.inputs.args)
        )
        return replace(self.asked.inputs, args=args)


def times(pattern: Pattern, values: np.ndarray, vector: np.ndarray, axis: str) -> np.ndarray:
    """The matrix (for columns) or its transpose (for rows) times a vector, in double precision."""
    rows = rows_of(pattern)
    into, out, size = (
        (pattern.indices, rows, pattern.shape[0])
        if axis == "columns"
        else (rows, pattern.indices, pattern.shape[1])
    )
    with np.errstate(all="ignore"):
        terms = _wide(values) * vector[into]
        if terms.dtype.kind == "c":
            return np.bincount(out, terms.real, size) + 1j * np.bincount(out, terms.imag, size)
        return np.bincount(out, terms, size)


def agree(found: np.ndarray, exact: np.ndarray, scale: np.ndarray) -> bool:
    """Whether ``found`` is ``exact`` up to the rounding of the latter's dtype.

    Entry by entry, against ``scale`` (the size of what was summed up in each); finite at the same places.
    """
    finite = np.isfinite(found)
    if not np.array_equal(finite, np.isfinite(exact)):
        return False
    rounding = float(jnp.finfo(exact.dtype).eps)  # type: ignore[no-untyped-call]
    scale = np.where(np.isfinite(scale), scale, 0)
    allowed = rounding**0.5 * scale + rounding**0.75 * np.max(scale, initial=0)
    return bool(np.all(np.abs(found - _wide(exact))[finite] <= allowed[finite]))


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
