"""Which dtypes cross between NumPy and JAX without a copy: measured, and as docs/precision.md says.

Every cell of the two tables on that page is measured here by comparing addresses. A cell with a mark is
another from some version on, which the page's table of marks gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from gradwire.wire._dtypes import EXTENDED, NAMES

PAGE = Path(__file__).parents[2] / "docs" / "precision.md"


def table(first_header: str) -> dict[tuple[str, str], str]:
    """The table of the page whose first header is ``first_header``: (row, column) → cell."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_header} |"))
    cells = {}
    columns = [cell.strip() for cell in lines[start].strip("|").split("|")]
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        row, *values = (cell.strip() for cell in line.strip("|").split("|"))
        cells.update({(row, column): value for column, value in zip(columns[1:], values, strict=True)})
    return cells


MARKS = table("mark")


def installed_from(requirements: str) -> bool:
    """Whether everything in a text such as "numpy 2.5 with ml_dtypes 0.7" is that new here."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(".")[:2]]

    pairs = (requirement.split() for requirement in requirements.split(" with "))
    return all(numbers(version(package)) >= numbers(first) for package, first in pairs)


def here(cells: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """The cells as they are with the versions that are installed."""
    found = {}
    for cell, text in cells.items():
        outcome, _, mark = text.partition(" ")
        changed = mark != "" and installed_from(MARKS[mark, "from"])
        found[cell] = MARKS[mark, "it is"] if changed else outcome
    return found


DTYPES = here(table("dtype"))
LAYOUTS = here(table("layout"))


def aligned(dtype: np.dtype[Any], *, offset: int = 0, shape: tuple[int, ...] = (8, 8)) -> np.ndarray:
    """Zeros that start ``offset`` bytes after a multiple of 64."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + size].view(dtype).reshape(shape)


def address(a: np.ndarray) -> int:
    start: int = a.__array_interface__["data"][0]
    return start


@contextmanager
def on_the_cpu(x64: bool) -> Iterator[None]:
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(x64):
        yield


IMPORTS: dict[str, Callable[[np.ndarray], jax.Array]] = {
    "device_put": jax.device_put,
    "jax.dlpack": jax.dlpack.from_dlpack,
    "jnp.asarray": jnp.asarray,
}
EXPORTS: dict[str, Callable[[Any], np.ndarray]] = {
    "np.asarray": np.asarray,
    "np.from_dlpack": np.from_dlpack,
}


def into_jax(a: np.ndarray, route: str, *, x64: bool) -> str:
    with on_the_cpu(x64):
        try:
            x = IMPORTS[route](a)
        except (BufferError, TypeError, ValueError, RuntimeError):
            return "refused"
        assert a.size == 0 or x.devices() == {jax.devices("cpu")[0]}
        if x.dtype != a.dtype:
            return "narrowed"
        return "shared" if x.unsafe_buffer_pointer() == address(a) else "copied"


def out_of_jax(dtype: np.dtype[Any], route: str, *, x64: bool) -> str:
    with on_the_cpu(True):
        x = jax.device_put(np.ones(8, dtype))
    with on_the_cpu(x64):
        try:
            a = EXPORTS[route](x)
        except (BufferError, TypeError, ValueError, RuntimeError):
            return "refused"
    assert a.dtype == dtype and not a.flags.writeable
    return "shared" if x.unsafe_buffer_pointer() == address(a) else "copied"


@pytest.mark.parametrize(("dtype", "column"), DTYPES, ids=" ".join)
def test_every_dtype_crosses_as_the_page_says(dtype: str, column: str) -> None:
    route, _, setting = column.partition(", ")
    route = route.strip("`")
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype.strip("`"), dtype.strip("`")))
    for x64 in {"x64 on": [True], "x64 off": [False], "": [False, True]}[setting]:
        measured = (
            into_jax(aligned(numpy_dtype), route, x64=x64)
            if route in IMPORTS
            else out_of_jax(numpy_dtype, route, x64=x64)
        )
        assert measured == DTYPES[dtype, column]


F64 = np.dtype("f8")


def read_only() -> np.ndarray:
    a = aligned(F64)
    a.flags.writeable = False
    return a


MAKE: dict[str, Callable[[], np.ndarray]] = {
    "C order, at a multiple of 64 bytes": lambda: aligned(F64),
    "… of 32 bytes only": lambda: aligned(F64, offset=32),
    "… of 16 bytes only": lambda: aligned(F64, offset=16),
    "… of 8 bytes only": lambda: aligned(F64, offset=8),
    "read-only": read_only,
    "Fortran order": lambda: aligned(F64).T,
    "every second column": lambda: aligned(F64)[:, ::2],
    "reversed rows": lambda: aligned(F64)[::-1],
    "big-endian": lambda: aligned(np.dtype(">f8")),
    "0-d": lambda: aligned(F64, shape=()),
}


@pytest.mark.parametrize(("layout", "column"), LAYOUTS, ids=" ".join)
def test_every_layout_crosses_as_the_page_says(layout: str, column: str) -> None:
    assert into_jax(MAKE[layout](), column.strip("`"), x64=True) == LAYOUTS[layout, column]


def test_the_page_names_every_dtype_of_the_wire_and_every_layout_tried() -> None:
    assert {dtype.strip("`") for dtype, _ in DTYPES} == {*NAMES, *EXTENDED}
    assert {layout for layout, _ in LAYOUTS} == set(MAKE)
