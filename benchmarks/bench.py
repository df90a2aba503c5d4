"""Median milliseconds for one VJP of x · sin x in float64, over loopback and in process.

The service runs in a process of its own. Each figure is the median of repeated calls after a first
one that compiles; quiet machines only. The map is cheap, so that the time is the service's own.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

import gradwire
from gradwire_service import Map
from gradwire_service.demo import serving

Vector = NDArray[np.float64]

SIZES = (1, 1_000, 1_000_000)
SECONDS = 3.0


def wave(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """x · sin x, elementwise."""
    return jnp.sin(x) * x


hosted = Map(wave)


def median_ms(call: Callable[[], object], seconds: float) -> float:
    """Median duration of ``call``, repeated for ``seconds`` but at least five times."""
    call()
    durations: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(durations) < 5:
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return 1e3 * statistics.median(durations)


def over_http(lab: gradwire.Service, x: Vector, w: Vector) -> Callable[[], object]:
    """One remote VJP, from NumPy to NumPy."""
    remote = lab["wave"]
    return lambda: remote.vjp(x, w)


def in_process(x: Vector, w: Vector) -> Callable[[], object]:
    """The computation alone: jax.jit, from NumPy to NumPy."""
    pull = jax.jit(lambda x, w: jax.vjp(wave, x)[1](w)[0])
    return lambda: np.asarray(pull(x, w))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print(f"{'n':>9} {'remote':>9} {'local':>9}   median ms for one VJP")
    with serving(Path(__file__)) as url, gradwire.connect(url) as lab:
        for n in SIZES:
            x, w = np.random.default_rng(0).standard_normal((2, n))
            print(f"  n = {n}", end="\r", file=sys.stderr, flush=True)
            remote, local = (median_ms(call, SECONDS) for call in (over_http(lab, x, w), in_process(x, w)))
            print(f"{n:>9} {remote:>9.3f} {local:>9.3f}", flush=True)


if __name__ == "__main__":
    main()
