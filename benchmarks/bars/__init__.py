"""The bars: one entry for each row of the page. A bar is a function of the run's `Session`."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bars import bounded, concurrent, health, jacobians, products, repeated, vjp
from benchmarks.results import Section
from benchmarks.session import Session

BARS: dict[str, Callable[[Session], Section]] = {
    "small": vjp.small,
    "thousand": vjp.thousand,
    "large": vjp.large,
    "dense": jacobians.dense,
    "linearized": products.linearized,
    "stacked": products.stacked,
    "concurrent": concurrent.concurrent,
    "repeated": repeated.repeated,
    "huge": jacobians.huge,
    "memory": bounded.memory,
    "health": health.health,
}
"""By the names that ``make bench ONLY=…`` takes."""
