"""Measure which dtypes cross between CuPy and JAX on one GPU without a copy; print the table.

    python tests/gpu/cupy_zero_copy.py

Needs an NVIDIA GPU, CuPy and JAX with CUDA. The table belongs into docs/precision.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import jax
import ml_dtypes
import numpy as np

from gradwire.wire._dtypes import EXTENDED, NAMES


def outcome(exchange: Callable[[], tuple[Any, Any, int, int]]) -> str:
    """What became of the array: shared, copied, narrowed, or the exception that refused it."""
    try:
        before, after, start, arrived = exchange()
    except Exception as error:
        return f"refused ({type(error).__name__})"
    if after != before:
        return "narrowed"
    return "shared" if start == arrived else "copied"


def into_jax(name: str) -> tuple[Any, Any, int, int]:
    a = cupy.zeros(64, dtype=np.dtype(getattr(ml_dtypes, name, name)))
    x = jax.dlpack.from_dlpack(a)
    return a.dtype, x.dtype, a.data.ptr, x.unsafe_buffer_pointer()


def out_of_jax(name: str) -> tuple[Any, Any, int, int]:
    with jax.enable_x64(True):
        x = jax.device_put(
            np.zeros(64, dtype=np.dtype(getattr(ml_dtypes, name, name))), jax.devices("gpu")[0]
        )
    a = cupy.from_dlpack(x)
    return x.dtype, a.dtype, x.unsafe_buffer_pointer(), a.data.ptr


def main() -> None:
    print(f"CuPy {cupy.__version__}, JAX {jax.__version__}, {jax.devices('gpu')[0].device_kind}\n")
    print("| dtype | `jax.dlpack`, x64 on | `jax.dlpack`, x64 off | `cupy.from_dlpack` |")
    print("| --- | --- | --- | --- |")
    for name in (*NAMES, *EXTENDED):
        cells = []
        for x64 in (True, False):
            with jax.enable_x64(x64):
                cells.append(outcome(lambda name=name: into_jax(name)))  # type: ignore[misc]
        cells.append(outcome(lambda name=name: out_of_jax(name)))  # type: ignore[misc]
        print(f"| `{name}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
