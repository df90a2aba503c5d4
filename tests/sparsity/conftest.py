"""One service for the suite, and each map asked two ways: here and there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire_service import Map
from gradwire_service.demo import serving

sys.path.insert(0, str(Path(__file__).parent))

import sparse_maps


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with serving(Path(sparse_maps.__file__), options=["--answer-bytes", "4MiB"]) as url:
        yield url


@pytest.fixture(scope="session")
def lab(url: str) -> Iterator[gradwire.Service]:
    with gradwire.connect(url) as lab:
        yield lab


@pytest.fixture(scope="session", params=["local", "remote"])
def hosted(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The suite's maps by name: the local ones, and then the remote ones of the same functions."""
    if request.param == "local":
        return {name: found for name, found in vars(sparse_maps).items() if isinstance(found, Map)}
    service: gradwire.Service = request.getfixturevalue("lab")
    return service


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(3)
