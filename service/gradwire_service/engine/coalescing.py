"""Concurrent calls of one query, joined by vmap into one run of the device.

Batches are powers of two, padded by repeating a row (zeros could give NaN, and a padded
row is thrown away). With a fixed bucket every run has that many rows, alone or not, so that
an answer does not depend on who else was calling.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gradwire._errors import GradwireError
from gradwire._trees import is_number
from gradwire_service.differentiation import Inputs
from gradwire_service.engine.compiled import Compiled, function_of, specs_of, traced
from gradwire_service.engine.compiled import compile as compile_trace
from gradwire_service.engine.devices import Device
from gradwire_service.engine.execution import Engine, on_host, run
from gradwire_service.query import Asked


@dataclass(eq=False)
class Row:
    """One call of a coalescing map, waiting for its device.

    Attributes:
        key: equal for calls that can be answered together.
        alone: answers this call by itself.
    """

    engine: Engine
    asked: Asked
    device: Device
    key: Hashable
    fixed: int | None
    prepare: Callable[[Hashable, Callable[[], Compiled]], None]
    alone: Callable[[], dict[str, Any]]

    def together(self, others: Sequence[Row]) -> list[Any]:
        """The answers of this row and ``others``: fields of host arrays, or exceptions."""
        rows = [self, *others]
        if len(rows) == 1 and self.fixed is None:
            return [self._by_itself()]
        size = self.fixed or 1 << (len(rows) - 1).bit_length()
        compiled = self.engine.compiled.get(self.batch_key(size))
        if compiled is None and self.fixed is None:
            self.prepare(self.batch_key(size), lambda: self.make(size))
        if compiled is None:
            return [row._by_itself() for row in rows]
        answers: list[Any] = []
        for start in range(0, len(rows), size):
            answers += self._joined(rows[start : start + size], size, compiled)
        return answers

    def _by_itself(self) -> Any:
        try:
            return self.alone()
        except GradwireError as error:
            return error

    def _joined(self, rows: list[Row], size: int, compiled: Compiled) -> list[Any]:
        padded = [row.asked.inputs for row in rows] + [rows[-1].asked.inputs] * (size - len(rows))
        precision, name = self.asked.query.precision, self.asked.query.map
        try:
            inputs = jax.tree_util.tree_map(_stacked, *padded)
            fields = on_host(run(compiled, (inputs,), precision, self.device, name), precision)
        except GradwireError:
            # One row's failure is not the others': each is asked again by itself.
            return [row._by_itself() for row in rows]
        return [jax.tree_util.tree_map(lambda leaf, i=i: leaf[i], fields) for i in range(len(rows))]

    def batch_key(self, size: int) -> Hashable:
        """The key of the executable for ``size`` rows."""
        return "coalesced", size, self.key

    def make(self, size: int) -> Compiled:
        """The executable for ``size`` rows."""
        precision, name = self.asked.query.precision, self.asked.query.map
        specs = specs_of(self.asked.inputs, precision, self.device.sharding)

        def rows_of(spec: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(
                (size, *spec.shape), spec.dtype, weak_type=spec.weak_type, sharding=spec.sharding
            )

        one = function_of(self.asked)

        def many(inputs: Inputs) -> dict[str, Any]:
            return jax.vmap(one)(inputs)

        trace = traced(many, (jax.tree_util.tree_map(rows_of, specs),), precision, name)
        return compile_trace(trace, answer_bytes=None, memory=self.device.memory, map=name)


def _stacked(*leaves: Any) -> np.ndarray:
    if is_number(leaves[0]):
        return np.array(leaves)
    return np.stack([np.asarray(leaf) for leaf in leaves])
