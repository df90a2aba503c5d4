"""Derivatives by hand: maps that JAX cannot trace, and everything that can be built from what they give.

A `Function` has a value, and perhaps products with its Jacobian (jvp) and its transpose
(vjp). `Given` is what the author of a map wrote; `Mapped` is vmap of a function, by a loop;
`Derived` is what another transform makes of one: it has a value and no derivative. All
arrays here are NumPy's; `Given` converts to what the author's code takes.
"""

from gradwire_service.byhand.functions import ARRAYS, Function, Given, Hand
from gradwire_service.byhand.operations import Linear, executable, operations, transformed

__all__ = ["ARRAYS", "Function", "Given", "Hand", "Linear", "executable", "operations", "transformed"]
