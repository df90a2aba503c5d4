"""What a map says of itself: what its operations cost, and how it would be differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gradwire._errors import GradwireError
from gradwire._operator import Call
from gradwire._reports import Cost, CostReport, Explanation
from gradwire._trees import Tree, is_inexact, is_number, leaves, tree_map
from gradwire.wire import ArraySpec
from gradwire_service import capabilities
from gradwire_service.declaration import Declaration
from gradwire_service.engine.blocks import block_size
from gradwire_service.engine.devices import Device
from gradwire_service.engine.execution import Engine
from gradwire_service.query import Asked

Admit = Callable[[Call], Asked]
"""Admits a call as a query of the map at hand, with the transforms and the policy that were asked for."""


def cost(engine: Engine, declaration: Declaration, call: Call, admit: Admit, device: Device) -> CostReport:
    """What each operation takes: compiled for these shapes (and kept for later), not run."""
    found: dict[str, Cost] = {}
    for operation in capabilities.operations(declaration):
        if operation in ("eval_shape", "linearize"):
            continue
        try:
            compiled = engine.compile(admit(_completed(engine, call, operation, admit)), device)
        except GradwireError:
            continue
        found[operation] = _cost(compiled.executable)
    return CostReport(declaration.name, device.name, found)


def explain(
    engine: Engine,
    declaration: Declaration,
    call: Call,
    admit: Admit,
    device: Device,
    reasons: dict[str, str],
) -> Explanation:
    """Which device, precision, mode and blocks would be used for these shapes, and why. Nothing is compiled.

    ``reasons``: why this device and this policy, as whoever chose them knows.
    """
    asked = admit(replace(call, operation="evaluate"))
    precision = asked.query.precision
    computed = f"computed in {precision.computed_in}"
    if precision.output is not None:
        computed += f", answered in {precision.output}"
    choices = {
        "device": (device.name, reasons["device"]),
        "precision": (computed, reasons["precision"]),
        "matmul": (precision.matmul, "matrix products; highest allows no TF32"),
        "x64": ("on" if precision.x64 else "off", "JAX's 64-bit mode follows the computation's precision"),
    }
    if precision.lossy:
        choices["lossy"] = ("yes", "the computation is below the precision of the arrays")
    choices |= _derivatives(engine, declaration, call, admit)
    return Explanation(declaration.name, choices)


def _derivatives(
    engine: Engine, declaration: Declaration, call: Call, admit: Admit
) -> dict[str, tuple[str, str]]:
    try:
        positions = declaration.signature.differentiated(call.argnums, call.args, map=declaration.name)
    except GradwireError as error:
        return {"derivatives": ("none", error.detail)}
    operations = capabilities.operations(declaration)
    choices = {"operations": (", ".join(operations), "found out by tracing, or given by hand")}
    if declaration.hand is not None:
        given = [name for name in ("jvp", "vjp") if getattr(declaration.hand, name) is not None]
        return choices | {"derivatives": ("by hand", f"from {' and '.join(given) or 'nothing'}")}
    value = engine.shapes(admit(replace(call, operation="eval_shape")))
    size_out = _size(value)
    size_in = sum(_size(call.args[position]) for position in positions)
    names = ", ".join(declaration.signature.at(position).name for position in positions)
    smaller, larger = ("fwd", "rev") if size_in <= size_out else ("rev", "fwd")
    for mode in (smaller, larger):
        try:
            wanted = Call("jacobian", call.args, call.kwargs, argnums=positions, mode=mode)  # type: ignore[arg-type]
            engine.trace(admit(wanted))
        except GradwireError:
            continue
        why = f"{size_in} numbers in ({names}), {size_out} out"
        if mode != smaller:
            why += f"; {smaller} would be cheaper, but does not exist here"
        choices["jacobian"] = (mode, why)
        rows, across = (size_in, size_out) if mode == "fwd" else (size_out, size_in)
        kind = "columns" if mode == "fwd" else "rows"
        arrays = [*leaves(value), *(leaf for position in positions for leaf in leaves(call.args[position]))]
        if len(arrays) == 2:
            size = block_size(rows, across * arrays[0].dtype.itemsize)
            choices["blocks"] = (f"{size} of {rows} {kind}", "in a block of the stream for large Jacobians")
        else:
            choices["blocks"] = (
                "none",
                "a Jacobian comes in blocks where one array goes in and one comes out",
            )
        break
    else:
        choices["jacobian"] = ("none", "neither mode exists; complex to complex needs holomorphic=True")
    return choices


def _completed(engine: Engine, call: Call, operation: str, admit: Admit) -> Call:
    """``call`` as that operation, with specs for the tangents or the cotangent that it takes."""
    if operation == "evaluate":
        return replace(call, operation=operation, argnums=None)
    asked = replace(call, operation=operation)
    if operation == "vjp":
        value = engine.shapes(admit(replace(call, operation="eval_shape")))
        return replace(asked, cotangent=_vector(value))
    if operation in ("jvp", "hvp"):
        positions = (call.argnums,) if isinstance(call.argnums, int) else call.argnums or ()
        return replace(asked, tangents=tuple(_vector(call.args[position]) for position in positions))
    return asked


def _vector(tree: Tree) -> Tree:
    """Specs of a (co)tangent for ``tree``."""

    def spec(leaf: Any) -> ArraySpec | None:
        if is_number(leaf):
            return ArraySpec((), np.dtype(complex if type(leaf) is complex else float))
        return ArraySpec(tuple(leaf.shape), np.dtype(leaf.dtype)) if is_inexact(leaf.dtype) else None

    return tree_map(spec, tree)


def _cost(executable: Any) -> Cost:
    if not hasattr(executable, "cost_analysis"):
        return Cost(None, None, 0, 0, 0)
    analysis = executable.cost_analysis() or {}
    memory = executable.memory_analysis()
    sizes = (
        (memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes)
        if memory is not None
        else (0, 0, 0)
    )
    return Cost(analysis.get("flops"), analysis.get("bytes accessed"), *sizes)


def _size(tree: Tree) -> int:
    return sum(
        1 if is_number(leaf) else int(np.prod(leaf.shape, dtype=np.int64))
        for leaf in leaves(tree)
        if is_number(leaf) or is_inexact(leaf.dtype)
    )
