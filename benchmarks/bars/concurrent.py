"""Many clients at once, from a load generator in C so that Python clients do not hide the service."""

from __future__ import annotations

import statistics

import numpy as np

from benchmarks import load
from benchmarks.load import Load
from benchmarks.measure import progress
from benchmarks.results import Bar, Figure, Section
from benchmarks.session import Session

_CLIENTS = 32
_ROUNDS = 3
_WARM_ROUNDS = 20
_LIMITS = {512: 1.5, 2048: 2.3}
_IDLE = 1.1
"""Times the latency without coalescing that counts as unchanged: the noise of this measurement."""


def concurrent(session: Session) -> Section:
    """A x, with concurrent requests joined and without."""
    section = Section(f"{_CLIENTS} concurrent clients of A x, float64, joined (coalesce=True) and alone")
    try:
        for n, limit in _LIMITS.items():
            _measure(session, section, n, limit)
    except load.NoCompiler as error:
        section.bars.append(Bar(f"{_CLIENTS} clients", None, "at least", 1.5, reason=str(error)))
    return section


def _warm(port: int, request: bytes) -> None:
    """Until nothing is left to compile: a request of one row, and as many as will be joined."""
    load.run(port, request, connections=1, seconds=0.5)
    before = 0.0
    for _ in range(_WARM_ROUNDS):
        rate = load.run(port, request, connections=_CLIENTS, seconds=1.0).rate
        if 0 < rate < 1.2 * before:
            return
        before = rate


def _measure(session: Session, section: Section, n: int, limit: float) -> None:
    port = session.service.port
    x = np.random.default_rng(0).standard_normal(n)
    requests = {name: load.evaluate(name, x) for name in ("alone", "joined")}
    for request in requests.values():
        _warm(port, request)
    busy: dict[str, list[Load]] = {name: [] for name in requests}
    idle: dict[str, list[Load]] = {name: [] for name in requests}
    for _ in range(_ROUNDS):
        for name, request in requests.items():
            busy[name].append(load.run(port, request, connections=_CLIENTS, seconds=1.5))
            idle[name].append(load.run(port, request, connections=1, seconds=0.5))
    refused = sum(found.others for runs in busy.values() for found in runs)
    if refused:
        section.notes.append(f"n = {n}: {refused} answers were not 200.")
    rate = {name: statistics.median(found.rate for found in runs) for name, runs in busy.items()}
    latency = {name: statistics.median(found.median_ms for found in runs) for name, runs in idle.items()}
    for name in requests:
        p99 = statistics.median(found.p99_ms for found in busy[name])
        section.figures += [
            Figure(f"n = {n}, {name}: answers a second", rate[name], "/s"),
            Figure(f"n = {n}, {name}: 99th percentile of {_CLIENTS} clients", p99),
            Figure(f"n = {n}, {name}: one client, latency", latency[name]),
        ]
    what = f"{_CLIENTS} clients of a {n} × {n} product"
    section.bars += [
        Bar(f"{what}: throughput, joined against alone", rate["joined"] / rate["alone"], "at least", limit),
        Bar(
            f"one client of a {n} × {n} product: latency, joined against alone",
            latency["joined"] / latency["alone"],
            "at most",
            _IDLE,
        ),
    ]
    progress(f"n = {n}: {rate['joined']:.0f} joined, {rate['alone']:.0f} alone a second")
