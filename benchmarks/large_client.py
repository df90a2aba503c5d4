"""A client without JAX whose memory is measured; prints one line of JSON.

``python -m benchmarks.large_client TASK URL SERVICE_PID …``
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import gradwire
from benchmarks.floor import Floor
from benchmarks.memory import MIB, forget_peak, peak, resident

_SETTLE = 1.0
"""Seconds after which memory that is given back is back."""


class Watch:
    """What this process and the service use above where they were, in MiB."""

    def __init__(self, service: int) -> None:
        self._pids = {"service": service, "client": os.getpid()}
        gc.collect()
        time.sleep(_SETTLE)
        self._idle = {name: resident(pid) for name, pid in self._pids.items()}

    def during(self, call: Callable[[], object]) -> dict[str, float]:
        """The peaks while ``call`` runs; what it answers is dropped."""
        for pid in self._pids.values():
            forget_peak(pid)
        call()
        return {name: (peak(pid) - self._idle[name]) / MIB for name, pid in self._pids.items()}

    def now(self) -> dict[str, float]:
        """What is held after a while."""
        gc.collect()
        time.sleep(_SETTLE)
        return {name: (resident(pid) - self._idle[name]) / MIB for name, pid in self._pids.items()}


def jacobian(url: str, service: int, n: int, floor_port: int) -> dict[str, float]:
    """The Jacobian of `neighbours` into one array, in turns with as many bytes over plain TCP."""
    with gradwire.connect(url) as lab:
        f = lab["neighbours"]
        small = np.ones(16, np.float32)
        f.using(out=np.empty((16, 16), np.float32)).jacobian(small)
        x = np.random.default_rng(0).standard_normal(n, np.float32)
        out = np.zeros((n, n), np.float32)
        out[...] = 1  # its pages are there
        watch = Watch(service)
        floor = Floor(floor_port)
        ours, raw = [], []
        peaks: dict[str, float] = {}
        for _ in range(2):
            began = time.perf_counter()
            found = watch.during(lambda: f.using(out=out).jacobian(x))
            ours.append(time.perf_counter() - began)
            peaks = {name: max(found[name], peaks.get(name, 0.0)) for name in found}
            _check_jacobian(out, x)
            began = time.perf_counter()
            floor.exchange(x.data.cast("B"), out.data.cast("B"))
            raw.append(time.perf_counter() - began)
    return {
        "ours": statistics.median(ours),
        "floor": statistics.median(raw),
        "service MiB": peaks["service"],
        "client MiB": peaks["client"],
    }


def _check_jacobian(out: np.ndarray, x: np.ndarray) -> None:
    i = np.arange(x.size)
    np.testing.assert_allclose(out[i, i], np.cos(x) * np.roll(x, 1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out[i, i - 1], np.sin(x), rtol=1e-4, atol=1e-6)
    assert np.count_nonzero(out[7]) <= 2


def total(url: str, service: int) -> dict[str, float]:
    """256 MiB in, 128 MiB out, twice."""
    n = 128 * MIB // 8
    with gradwire.connect(url) as lab:
        f = lab["total"]
        f(np.ones(8), np.ones(8))
        x, y = np.random.default_rng(0).standard_normal((2, n))
        watch = Watch(service)
        first = watch.during(lambda: f(x, y))
        after = watch.now()
        second = watch.during(lambda: f(x, y))
    return {
        **{f"{name}, first request": value for name, value in first.items()},
        **{f"{name}, afterwards": value for name, value in after.items()},
        **{f"{name}, second request": value for name, value in second.items()},
    }


def upload(url: str, service: int, seconds: float) -> dict[str, float]:
    """256 MiB in, again and again."""
    n = 128 * MIB // 8
    uploads = 0
    with gradwire.connect(url) as lab:
        f = lab["total"]
        x, y = np.ones((2, n))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            f(x, y)
            uploads += 1
    return {"uploads": uploads}


def main() -> None:
    task, url, service, *rest = sys.argv[1:]
    if task == "jacobian":
        told = jacobian(url, int(service), int(rest[0]), int(rest[1]))
    elif task == "total":
        told = total(url, int(service))
    else:
        told = upload(url, int(service), float(rest[0]))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
