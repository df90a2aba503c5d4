"""Services that the tests share: started once, and as healthy after each test as before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from running import EXAMPLES, FEW, MAPS, Running, started


@pytest.fixture(scope="session")
def everything() -> Iterator[Running]:
    """Every map of `hosted`, on three devices, with small bounds."""
    options = ("--answer-bytes", "1MiB", "--compiled-queries", "24", "--transform-depth", "8")
    with started(MAPS, *options, devices=3) as running:
        yield running


@pytest.fixture(scope="session")
def restricted() -> Iterator[Running]:
    """Computes in 32 bit by default, and in 16 at will; on the second of its two devices."""
    options = ("--precision", "float32", "--allow-precision", "float32,float16", "--device", "cpu:1")
    with started(FEW, *options, devices=2) as running:
        yield running


@pytest.fixture(scope="session")
def examples() -> Iterator[Running]:
    """The examples, side by side."""
    with started(*(EXAMPLES / f"{name}.py" for name in ("mri", "fft", "tutorial"))) as running:
        yield running


@pytest.fixture
def service(everything: Running) -> Iterator[Running]:
    """`everything`, which must be as healthy after the test as before."""
    yield everything
    assert everything.is_healthy()


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)
