"""``python -m benchmarks.soak [N]``: N requests, nearly all of another shape, and where the memory stands.

Mixes the operations, linearizations, resident arrays and coalesced calls. Prints the service's
resident memory as it goes; fails where it still grows after the first quarter.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import gradwire
from benchmarks.servers import gradwire_service

COMPILED = 16
GROWTH = 64 << 20
"""Bytes that the last three quarters may add: allocators keep some of what they are given back."""


def resident_memory(pid: int) -> int:
    """Bytes of memory that a process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def works(lab: gradwire.Service) -> list[Callable[[np.ndarray], object]]:
    """What is asked in turn, of a vector."""
    wave, joined, total = lab["wave"], lab["joined"], lab["total"]
    pool = ThreadPoolExecutor(4)

    def linearized(x: np.ndarray) -> None:
        with wave.linearize(x) as linear:
            linear.jvp(x)
            linear.vjp(x)

    def resident(x: np.ndarray) -> None:
        with lab.put(x) as held:
            total(held, x)

    return [
        wave,
        lambda x: wave.jvp(x, x),
        lambda x: wave.vjp((x,), x),
        lambda x: wave.jacobian(x[: 1 + len(x) % 300]),
        lambda x: gradwire.vmap(wave)(np.stack([x, x])),
        linearized,
        resident,
        lambda x: list(pool.map(joined, [x[:200]] * 4)),
    ]


def soak(requests: int) -> list[int]:
    """Ask so many things; the service's resident memory after each twentieth of them, in bytes."""
    levels = []
    with gradwire_service("--compiled-queries", str(COMPILED)) as server, gradwire.connect(server.url) as lab:
        ask, began = works(lab), time.perf_counter()
        for number in range(requests):
            ask[number % len(ask)](np.linspace(0.0, 1.0, 2 + number % 4096))
            if (number + 1) % max(1, requests // 20) == 0:
                levels.append(resident_memory(server.pid))
                seconds, mib = time.perf_counter() - began, levels[-1] >> 20
                print(f"{number + 1:8d} requests  {seconds:7.1f} s  {mib:5d} MiB", flush=True)
    return levels


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("requests", nargs="?", type=int, default=10_000, help="how many")
    levels = soak(parser.parse_args(arguments).requests)
    growth = levels[-1] - levels[len(levels) // 4]
    print(f"{growth / (1 << 20):+.1f} MiB since the first quarter.")
    return 0 if growth < GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
