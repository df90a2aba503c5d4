"""Medians of competitors that take turns, so that the machine's noise hits them all alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping

Timed = Callable[[int], list[float]]
"""Does so many calls, one after the other, and gives the seconds that each took."""

_TURN_SECONDS = 0.01
_TURN_CALLS = 16
_LEAST_CALLS = 3


def timed(call: Callable[[], object]) -> Timed:
    """``call`` with a clock around it. What it returns is dropped within its time."""

    def calls(number: int) -> list[float]:
        durations = []
        for _ in range(number):
            began = time.perf_counter()
            call()
            durations.append(time.perf_counter() - began)
        return durations

    return calls


def interleaved(
    competitors: Mapping[str, Timed], seconds: float, *, least: int = _LEAST_CALLS
) -> dict[str, float]:
    """Median seconds of one call of each competitor, A B C A B C … for about ``seconds`` in all.

    Each is called before, where what is compiled or connected is done. A turn is a few calls of
    a fast competitor and one of a slow one; a competitor that has had more than its share of the
    time sits out, but each is called at least ``least`` times.
    """
    spent = dict.fromkeys(competitors, 0.0)
    durations: dict[str, list[float]] = {name: [] for name in competitors}
    turn: dict[str, int] = {}
    for name, calls in competitors.items():
        first = calls(1)[0]
        # The first call compiles. Of one that takes long anyway, it is enough to begin with.
        second = calls(1)[0] if first < 2 else first
        turn[name] = min(_TURN_CALLS, max(1, int(_TURN_SECONDS / second)))
    while sum(spent.values()) < seconds or any(len(found) < least for found in durations.values()):
        share = sum(spent.values()) / len(spent)
        for name, calls in competitors.items():
            if spent[name] > share and len(durations[name]) >= least:
                continue
            found = calls(turn[name])
            durations[name] += found
            spent[name] += sum(found)
    return {name: statistics.median(found) for name, found in durations.items()}


def progress(text: str) -> None:
    """One line of where the run is."""
    print(f"  {text}", file=sys.stderr, flush=True)
