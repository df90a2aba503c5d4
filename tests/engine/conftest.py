"""A service in a process of its own, started once."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from engine.hosted import __file__ as HOSTED
from service.running import Running, started


@pytest.fixture(scope="session")
def served() -> Iterator[Running]:
    """Every map of `hosted`, on three devices."""
    with started(HOSTED, devices=3) as running:
        yield running


@pytest.fixture(autouse=True)
def x64_as_before() -> Iterator[None]:
    """A service lets its whole process have 64 bits; the next tests' process should not be one."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
