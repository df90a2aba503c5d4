"""Sparsity patterns: found in a traced function, and coloured. The one module that knows asdex.

asdex follows, through every operation of a function, which entries of its arguments each entry
of its value depends on; what it finds holds at every point. It is pure Python, slow and of no
bounded memory where a function is dense: it works in a thread of its own, and is stopped when
it takes too long or too much.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire._errors import NotDifferentiable
from gradwire._sparse import Pattern

SECONDS = 120.0
"""How long the search for a pattern may take."""

MANY = 16
"""Colours from which a colouring that makes use of symmetry is tried."""

HUBS = (1, 2, 4, 8, 16, 32, 64)
"""How many columns may be computed alone, so that the others need not heed their rows."""


class Undetected(Exception):
    """No pattern was found; the message says why. ``for_now``: another time one might be."""

    def __init__(self, reason: str, *, for_now: bool = False) -> None:
        super().__init__(reason)
        self.for_now = for_now


def available() -> bool:
    """Whether the extra ``gradwire[sparse]`` is installed."""
    return importlib.util.find_spec("asdex") is not None


def check_available(map: str) -> None:
    """Refuse what cannot be done without asdex.

    Raises:
        NotDifferentiable: naming the extra.
    """
    if not available():
        raise NotDifferentiable(
            "Sparse Jacobians and Hessians need the extra gradwire[sparse] where maps are computed: "
            "pip install 'gradwire[sparse]' there, or ask without sparse.",
            map=map,
            argument="sparse",
            expected="gradwire[sparse] installed",
            got="no asdex",
        )


# Detection.


def detect(
    function: Callable[..., Any],
    differentiated: Sequence[Any],
    others: Sequence[Any],
    settings: Callable[[], AbstractContextManager[Any]] = nullcontext,
    *,
    seconds: float = SECONDS,
    most_bytes: int | None = None,
) -> Pattern:
    """The pattern of the Jacobian of ``function(*differentiated, *others)`` in ``differentiated``.

    Args:
        function: gives a list of arrays; its rows and columns are those of all of them, ravelled in
            C order, one after the other.
        differentiated, others: arrays or numbers, of which only shapes and dtypes matter.
        settings: JAX's settings to trace under.
        seconds, most_bytes: when to give up; bytes by default a quarter of this machine's memory.

    Raises:
        Undetected: it does not know an operation, or gave up.
    """
    if not differentiated:
        raise Undetected("nothing is differentiated")
    argnums = tuple(range(len(differentiated)))

    def search() -> Pattern:
        asdex = _asdex()
        with settings():
            found = asdex.jacobian_sparsity(function, *differentiated, *others, argnums=argnums)
        counts = np.bincount(found.rows, minlength=found.m)
        return Pattern.of(found.shape, np.concatenate([[0], np.cumsum(counts)]), found.cols)

    with _one_at_a_time:
        return _bounded(search, seconds, most_bytes or _physical_memory() // 4)


def _asdex() -> Any:
    """asdex. It takes a class from where JAX 0.12 no longer has it, and is shown where it is."""
    from jax._src import core
    from jax.extend.core import ClosedJaxpr

    moved = not hasattr(core, "ClosedJaxpr")
    if moved:
        core.ClosedJaxpr = ClosedJaxpr  # type: ignore[attr-defined, misc, unused-ignore]
    try:
        import asdex
    finally:
        if moved:
            del core.ClosedJaxpr  # type: ignore[attr-defined, misc, unused-ignore]
    return asdex


_one_at_a_time = threading.Lock()


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Millions of small sets are made and none of them is a cycle: looking for some doubles the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Stopped(BaseException):
    """Raised in the thread that searches when it is to end."""


def _bounded(search: Callable[[], Pattern], seconds: float, most_bytes: int) -> Pattern:
    """``search()`` in a thread of its own, which is ended as by Ctrl-C when it exceeds a bound."""
    outcome: list[Pattern | BaseException] = []

    def work() -> None:
        try:
            outcome.append(search())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="gradwire-sparsity", daemon=True)
    began, held, reason = time.monotonic(), _resident_memory(), ""
    with _without_collecting():
        thread.start()
        while thread.is_alive():
            thread.join(0.05)
            if reason:
                continue
            if time.monotonic() - began > seconds:
                reason = f"the search for it took more than {seconds:g} s"
            elif _resident_memory() - held > most_bytes:
                reason = f"the search for it needed more than {most_bytes >> 20} MiB"
            if reason and thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped)
                )
    found = outcome[0] if outcome else _Stopped()
    if isinstance(found, Pattern):
        return found
    if isinstance(found, _Stopped):
        raise Undetected(reason, for_now=True) from None
    if isinstance(found, NotImplementedError):
        primitive = re.search(r"primitive '([^']*)'", str(found))
        raise Undetected(
            f"no rule for {primitive[1]}" if primitive else "no rule for an operation"
        ) from found
    raise Undetected(f"the search for it failed ({type(found).__name__})") from found


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def _resident_memory() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Colouring.


@dataclass(frozen=True, eq=False)
class Colouring:
    """Which columns (or rows) of a matrix are computed together, and where its entries are then.

    Attributes:
        axis: ``"columns"`` or ``"rows"``: what has the colours.
        colours: of each, int32; -1 is not computed.
        count: how many there are.
        where: of each entry of the pattern, its place in the ravelled compressed matrix, of shape
            (count, rows) for columns and (count, columns) for rows.
    """

    axis: str
    colours: np.ndarray
    count: int
    where: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.colours.nbytes + self.where.nbytes


def colour(pattern: Pattern, axis: str, *, symmetric: bool = False) -> Colouring:
    """A colouring of the columns or rows of ``pattern``: no two of one colour meet in any row (column).

    With ``symmetric`` an entry may also be read from its mirror image, where that saves colours.
    """
    rows, columns = rows_of(pattern), pattern.indices
    height, width = pattern.shape
    if axis == "rows":
        colours, count = _greedy(columns, rows, width, height)
        return Colouring(axis, colours, count, colours[rows] * np.int64(width) + columns)
    colours, count = _greedy(rows, columns, height, width)
    found = Colouring(axis, colours, count, colours[columns] * np.int64(height) + rows)
    if symmetric:
        for hubs in HUBS:
            if found.count >= MANY and hubs < min(found.count, width):
                found = min(found, _around_hubs(pattern, rows, hubs), key=lambda tried: tried.count)
    return found


def _around_hubs(pattern: Pattern, rows: np.ndarray, hubs: int) -> Colouring:
    """The fullest columns each alone. Their rows are known from their columns: the others may meet there."""
    columns, n = pattern.indices, pattern.shape[0]
    alone = np.argsort(-np.bincount(columns, minlength=n), kind="stable")[:hubs]
    is_hub = np.zeros(n, np.bool_)
    is_hub[alone] = True
    rest = ~(is_hub[rows] | is_hub[columns])
    colours, count = _greedy(rows[rest], columns[rest], n, n)
    colours[alone] = np.arange(count, count + hubs)
    mirrored = is_hub[rows] & ~is_hub[columns]
    of, at = np.where(mirrored, rows, columns), np.where(mirrored, columns, rows)
    return Colouring("columns", colours, count + hubs, colours[of] * np.int64(n) + at)


def rows_of(pattern: Pattern) -> np.ndarray:
    """The row of each entry."""
    return np.repeat(np.arange(pattern.shape[0], dtype=pattern.indices.dtype), np.diff(pattern.indptr))


def _greedy(meets: np.ndarray, coloured: np.ndarray, lines: int, total: int) -> tuple[np.ndarray, int]:
    """Colours for ``total`` vertices of which entry k joins ``coloured[k]`` with the line ``meets[k]``.

    The fullest first; each takes the first colour that none of its lines has yet. A line's
    colours are the bits of one integer.
    """
    counts = np.bincount(coloured, minlength=total)
    met = meets[np.argsort(coloured, kind="stable")].tolist()
    ends = np.cumsum(counts)
    begins, stops = (ends - counts).tolist(), ends.tolist()
    taken = [0] * lines
    colours = np.full(total, -1, np.int32)
    count = 0
    for vertex in np.argsort(-counts, kind="stable").tolist():
        mine = met[begins[vertex] : stops[vertex]]
        if not mine:
            break  # the rest is empty as well
        used = 0
        for line in mine:
            used |= taken[line]
        bit = ~used & (used + 1)
        for line in mine:
            taken[line] |= bit
        colours[vertex] = bit.bit_length() - 1
        count = max(count, bit.bit_length())
    return colours, count
