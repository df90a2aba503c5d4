"""``python -m benchmarks.gpu``: the bars with the service on the GPU, and what only a GPU can tell.

Needs JAX with CUDA, CuPy and the service's own packages; no network and no peers. Under four minutes.
``--device cpu`` tries it out where there is no GPU; ``--quick`` leaves out the bars.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Several processes share the one GPU here: none may take most of its memory when it starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import ml_dtypes
import numpy as np

import gradwire
from benchmarks import bench, page
from benchmarks.bars import BARS
from benchmarks.machine import facts
from benchmarks.session import Session

_COUNT = 1_000_000
_CALLS = 15
_DTYPES: dict[str, Any] = {"float64": np.float64, "float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
_STAGES = ("decode", "queue", "compile", "compute", "encode")
_ZERO_COPY = Path(__file__).resolve().parent.parent / "tests" / "gpu" / "cupy_zero_copy.py"


def stages(lab: gradwire.Service, kinds: dict[str, Callable[[np.ndarray], Any]]) -> list[str]:
    """A VJP of x · sin x and a Jacobian of A tanh(x): time by stage, for each precision and array kind."""
    rows = []
    for name, dtype in _DTYPES.items():
        for kind, made in kinds.items():
            if kind == "CuPy" and name == "bfloat16":
                continue  # CuPy has no such dtype.
            x, w = np.random.default_rng(0).standard_normal((2, _COUNT)).astype(dtype)
            call = _vjp(lab["wave"], made(x), made(w))
            rows.append(_row(f"VJP, n = {_COUNT}", name, kind, lab, call))
        small = np.random.default_rng(0).standard_normal(1_000).astype(dtype)
        rows.append(_row("Jacobian 1000 × 1000", name, "NumPy", lab, partial(lab["dense"].jacobian, small)))
    head = ["what", "dtype", "arrays", "whole call", *_STAGES]
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *rows]


def _vjp(f: gradwire.Operator, x: Any, w: Any) -> Callable[[], object]:
    numbers = itertools.count()

    def call() -> object:
        # Other numbers in every call: an argument that repeats would not be sent again.
        x[0] = w[0] = next(numbers)
        return f.vjp(x, w)

    return call


def _row(what: str, dtype: str, kind: str, lab: gradwire.Service, call: Callable[[], object]) -> str:
    call()
    whole: list[float] = []
    told: dict[str, list[float]] = {stage: [] for stage in _STAGES}
    for _ in range(_CALLS):
        began = time.perf_counter()
        call()
        whole.append(time.perf_counter() - began)
        for stage in _STAGES:
            told[stage].append(lab.last_timing.get(stage, 0.0))
    cells = [f"{1e3 * statistics.median(found):.3g} ms" for found in (whole, *told.values())]
    return "| " + " | ".join([what, dtype, kind, *cells]) + " |"


def memory(lab: gradwire.Service) -> list[str]:
    """What the service's devices hold, and the most they held, where they report it."""
    devices = lab.request("GET", "/v1/devices", None).fields["devices"]
    return [
        "| "
        + " | ".join(f"{key} {value}" for key, value in device.items() if "memory" in key or key == "name")
        + " |"
        for device in devices
    ]


def array_kinds(device: str) -> dict[str, Callable[[np.ndarray], Any]]:
    """NumPy, and CuPy where it is."""
    kinds: dict[str, Callable[[np.ndarray], Any]] = {"NumPy": np.copy}
    if device == "gpu" and importlib.util.find_spec("cupy"):
        import cupy

        kinds["CuPy"] = cupy.asarray
    return kinds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--quick", action="store_true", help="without the bars")
    parser.add_argument("--only", default=",".join(BARS), help="the bars to measure")
    options = parser.parse_args()
    for name in ("fastapi", "uvicorn", "httpx", "msgpack", "msgpack_numpy", "jaxtyping"):
        if importlib.util.find_spec(name) is None:
            parser.error(f"{name} is missing here: bring an environment with 'gradwire[test]'")
    began = time.monotonic()
    with Session(device=options.device) as session:
        print("\n".join(f"{name}: {value}" for name, value in facts().items()), flush=True)
        print("\n## Time by stage\n")
        print("\n".join(stages(session.lab, array_kinds(options.device))), flush=True)
        print("\n## Zero-copy between CuPy and JAX\n", flush=True)
        if options.device == "gpu" and importlib.util.find_spec("cupy"):
            subprocess.run([sys.executable, str(_ZERO_COPY)], check=False)
        else:
            print("not measured: there is no CuPy on a GPU here")
        if not options.quick:
            print("\n## The bars\n", flush=True)
            sections = bench.measure([name for name in options.only.split(",") if name], session)
            print("\n" + page.bars_table(sections.values()))
        print("\n## Memory of the devices\n")
        print("\n".join(memory(session.lab)))
    print(f"\n{time.monotonic() - began:.0f} s on {jax.devices()[0].device_kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
