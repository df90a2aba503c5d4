"""One real service over a real socket for the whole suite, and each map asked two ways: here and there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

import gradwire
from gradwire_service.demo import serving

sys.path.insert(0, str(Path(__file__).parent))

import maps


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with serving(Path(maps.__file__), options=["--compiled-queries", "4096"]) as url:
        yield url


@pytest.fixture(scope="session")
def lab(url: str) -> Iterator[gradwire.Service]:
    with gradwire.connect(url) as lab:
        yield lab


@pytest.fixture(scope="session", params=["local", "remote"])
def hosted(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The suite's maps by name: the local `Map`s, and then the remote ones of the same functions."""
    if request.param == "local":
        return maps.HOSTED
    return Remembered(request.getfixturevalue("lab"))


class Remembered(dict[str, Any]):
    """Remote maps, each described once."""

    def __init__(self, lab: gradwire.Service) -> None:
        super().__init__()
        self.lab = lab

    def __missing__(self, name: str) -> Any:
        return self.setdefault(name, self.lab[name])


class Counted:
    """A service asked through a client that writes down every request."""

    def __init__(self, url: str, client: httpx.Client, requests: list[str]) -> None:
        self.requests = requests
        self._lab = gradwire.connect(url, http_client=client)

    def __getitem__(self, name: str) -> Any:
        """The remote map; fetching its description is not counted."""
        found = self._lab[name]
        self.requests.clear()
        return found


@pytest.fixture
def counted(url: str) -> Iterator[Counted]:
    requests: list[str] = []

    def note(request: httpx.Request) -> None:
        requests.append(f"{request.method} {request.url.path}")

    with httpx.Client(event_hooks={"request": [note]}) as client:
        yield Counted(url, client, requests)
