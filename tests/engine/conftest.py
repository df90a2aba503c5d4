"""A service in a process of its own, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.hosted import __file__ as HOSTED
from service.running import Running, started


@pytest.fixture(scope="session")
def served() -> Iterator[Running]:
    """Every map of `hosted`, on three devices."""
    with started(HOSTED, devices=3) as running:
        yield running
