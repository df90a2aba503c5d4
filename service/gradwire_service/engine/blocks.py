"""Large Jacobians, a block of rows or columns at a time, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradwire._errors import NotDifferentiable, WireError
from gradwire._trees import leaves
from gradwire_service.differentiation import one_hot_columns, one_hot_rows
from gradwire_service.engine.compiled import Compiled, specs_of, traced
from gradwire_service.engine.compiled import compile as compile_trace
from gradwire_service.engine.execution import Engine, Linearization, on_host, run

ROWS = 256
"""Rows (or columns) in a block, where memory allows."""

BLOCK_BYTES = 64 << 20
"""Most bytes of a block."""

FUNCTIONS = {"rows": one_hot_rows, "columns": one_hot_columns}


@dataclass(frozen=True)
class Blocks:
    """How a Jacobian is taken apart.

    Attributes:
        kept: the derivative.
        axis: ``"rows"`` (of the ravelled value) or ``"columns"`` (of the ravelled argument).
        shape: of the whole Jacobian: value.shape + argument.shape.
        dtype: of the answer.
        total, size: how many rows or columns there are, and are in a block.
        compiled: gives the block that begins at a row or column.
    """

    kept: Linearization
    axis: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    total: int
    size: int
    compiled: Compiled

    @property
    def starts(self) -> Iterator[int]:
        return iter(range(0, self.total, self.size))

    def block(self, start: int) -> np.ndarray:
        """Rows ``start …`` as an array (k, columns), or columns ``start …`` as one of (rows, k)."""
        # The last block begins earlier, so that every one has the same shape; what was sent is cut off.
        begin = min(start, self.total - self.size)
        kept, query = self.kept, self.kept.asked.query
        made = run(
            self.compiled,
            (kept.linear, kept.primals, np.int32(begin)),
            query.precision,
            kept.device,
            query.map,
        )
        block: np.ndarray = on_host(made, query.precision)
        if begin == start:
            return block
        skipped = start - begin
        return block[skipped:] if self.axis == "rows" else np.ascontiguousarray(block[:, skipped:])


def plan(engine: Engine, kept: Linearization, *, holomorphic: bool, mode: str = "auto") -> Blocks:
    """How to take apart the Jacobian of ``kept``; compiles what gives a block.

    Raises:
        WireError: ``not-acceptable``: more than one array in or out.
        NotDifferentiable: there is no such Jacobian, or not in that mode.
    """
    query = kept.asked.query
    if kept.asked.declaration.hand is not None:
        raise WireError(
            "The Jacobian of a map with derivatives by hand does not come in blocks.",
            kind="not-acceptable",
            map=query.map,
            expected="another Accept",
        )
    if holomorphic:
        engine.check_complex_linear(kept)
    ins, value = list(leaves(kept.primals)), jax.eval_shape(kept.linear, kept.primals)
    outs = list(leaves(value))
    if len(ins) != 1 or len(outs) != 1 or not isinstance(query.options.argnums, int):
        raise WireError(
            "A Jacobian comes in blocks where one array goes in and one comes out.",
            kind="not-acceptable",
            map=query.map,
            expected="one array in, one out",
            got=f"{len(ins)} in, {len(outs)} out",
        )
    into, out = ins[0], outs[0]
    sizes = {"rows": math.prod(out.shape), "columns": math.prod(into.shape)}
    order = ["columns", "rows"] if sizes["columns"] <= sizes["rows"] else ["rows", "columns"]
    if not holomorphic:
        # As for a whole Jacobian: columns (forward) for real arguments, rows (reverse) for real values.
        real = {
            "columns": not jnp.iscomplexobj(into),
            "rows": not jnp.issubdtype(out.dtype, jnp.complexfloating),
        }
        order = [axis for axis in order if real[axis]]
    if mode != "auto":
        order = [axis for axis in order if axis == {"fwd": "columns", "rev": "rows"}[mode]]
    if not order:
        raise NotDifferentiable(
            "A map from complex to complex arrays has a Jacobian only where it is holomorphic: say "
            "holomorphic=True if it is.",
            map=query.map,
        )
    for axis in order:
        try:
            return _planned(engine, kept, axis, sizes, tuple(out.shape) + tuple(into.shape), out.dtype)
        except NotDifferentiable:
            if axis == order[-1]:
                raise
    raise AssertionError("the last axis either works or raises")


def block_size(total: int, row_bytes: int) -> int:
    """How many of ``total`` rows (or columns) of that many bytes go into a block."""
    return max(1, min(ROWS, total, BLOCK_BYTES // max(1, row_bytes)))


def _planned(
    engine: Engine, kept: Linearization, axis: str, sizes: dict[str, int], shape: tuple[int, ...], dtype: Any
) -> Blocks:
    query = kept.asked.query
    total = sizes[axis]
    across = sizes["columns" if axis == "rows" else "rows"]
    size = block_size(total, across * dtype.itemsize)
    function = FUNCTIONS[axis]

    def of(linear: Any, primals: Any, start: Any) -> Any:
        return function(linear, primals, start, size)

    key = ("block", query.owner, kept.generation, axis, size)

    def make() -> Compiled:
        specs = specs_of((kept.linear, kept.primals, np.int32(0)), query.precision, kept.device.sharding)
        trace = traced(of, specs, query.precision, query.map)
        return compile_trace(trace, answer_bytes=None, memory=kept.device.memory, map=query.map)

    compiled = engine.compiled.get_or_make(key, make)
    answered = on_host(np.empty(0, compiled.shapes.dtype), query.precision).dtype
    return Blocks(kept, axis, shape, answered, total, size, compiled)
