"""What the README shows works as it stands there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GRADWIRE = str(Path(sys.executable).with_name("gradwire"))
ADDRESS = "http://127.0.0.1:8000"


def block(language: str, containing: str) -> str:
    """The README's one code block in ``language`` that holds ``containing``."""
    found = [
        text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in text
    ]
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's maps.py."""
    file = tmp_path_factory.mktemp("readme") / "maps.py"
    file.write_text(block("python", "# maps.py"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def url(maps: Path) -> Iterator[str]:
    """A service that hosts it."""
    ready = maps.with_name("ready.json")
    command = [GRADWIRE, "serve", str(maps), "--port", "0", "--ready-file", str(ready)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        service.stdout.readline()
        while not ready.exists():
            assert service.poll() is None
        yield json.loads(ready.read_text())["url"]
        service.terminate()


def test_hosting_takes_ten_lines(maps: Path) -> None:
    assert len(maps.read_text().splitlines()) <= 10


def test_the_hosted_map_passes_its_check(maps: Path) -> None:
    subprocess.run([GRADWIRE, "check", str(maps)], check=True)


def test_the_client_example_runs(url: str) -> None:
    code = block("python", "import gradwire\n")
    assert len([line for line in code.splitlines() if line]) <= 10
    names: dict[str, object] = {}
    exec(code.replace(ADDRESS, url), names)
    assert names["products"].shape == (5, 5)  # type: ignore[attr-defined]
    assert names["per_row"].shape == (2, 5)  # type: ignore[attr-defined]


def test_the_curl_example_runs(url: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    answer = subprocess.run(
        ["bash", "-c", block("sh", "curl ").replace(ADDRESS, url)], check=True, capture_output=True, text=True
    )
    assert json.loads(answer.stdout)["gradient"] == [-251.0, 101.0, 50.0]


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert (ROOT / target).exists(), target
