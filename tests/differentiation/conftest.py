"""One real service over a real socket for the suite, and each map asked two ways: here and there."""

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

import hand_maps
import random_maps
import traced_maps

MODULES = (hand_maps, random_maps, traced_maps)
LOCAL = {found.name: found for module in MODULES for found in vars(module).values() if isinstance(found, Map)}


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with serving(
        *(Path(module.__file__) for module in MODULES), options=["--compiled-queries", "4096"]
    ) as url:
        yield url


@pytest.fixture(scope="session")
def lab(url: str) -> Iterator[gradwire.Service]:
    with gradwire.connect(url) as lab:
        yield lab


class Remembered(dict[str, Any]):
    """Remote maps, each described once."""

    def __init__(self, lab: gradwire.Service) -> None:
        super().__init__()
        self.lab = lab

    def __missing__(self, name: str) -> Any:
        return self.setdefault(name, self.lab[name])


@pytest.fixture(scope="session", params=["local", "remote"])
def hosted(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The suite's maps by name: the local `Map`s, and then the remote ones of the same functions."""
    return LOCAL if request.param == "local" else Remembered(request.getfixturevalue("lab"))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)
