"""A large argument that comes again does not cross again."""

from __future__ import annotations

import time

import numpy as np

import gradwire
from benchmarks.measure import interleaved, timed
from benchmarks.proxy import CountingProxy
from benchmarks.results import Bar, Figure, Section
from benchmarks.session import Session

_COUNT = 1_000_000


def repeated(session: Session) -> Section:
    """The bytes of two calls with the same 8 MB argument, counted by a proxy between client and service."""
    section = Section("The same 8 MB argument twice")
    x = np.random.default_rng(1).standard_normal(_COUNT)
    with CountingProxy(session.service.port) as proxy:
        crossed = _crossed(proxy, x)
        with gradwire.connect(f"http://127.0.0.1:{proxy.port}") as lab:
            f = lab["wave"]
            with lab.put(x + 1) as there:
                before = proxy.sent
                f(there)
                section.figures.append(Figure("lab.put: bytes of a call", proxy.sent - before, "B"))
    section.figures += [Figure(f"bytes of call {i}", bytes_, "B") for i, bytes_ in enumerate(crossed, 1)]
    section.bars.append(
        Bar(
            "a repeated 8 MB argument, second call: part of its bytes that crosses",
            crossed[1] / x.nbytes,
            "at most",
            0.001,
        )
    )
    f = session.lab["wave"]
    fresh = x.copy()

    def other() -> None:
        fresh[0] += 1e-6
        f(fresh)

    section.times(
        interleaved({"a call with it": timed(lambda: f(x)), "a call with other numbers": timed(other)}, 3.0)
    )
    return section


def _crossed(proxy: CountingProxy, x: np.ndarray) -> list[int]:
    found = []
    with gradwire.connect(f"http://127.0.0.1:{proxy.port}") as lab:
        f = lab["wave"]
        for _ in range(3):
            before = proxy.sent
            f(x)
            # The proxy's thread may count a little later than the answer comes.
            time.sleep(0.05)
            found.append(proxy.sent - before)
    return found
