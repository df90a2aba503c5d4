"""The examples of docs/differentiation.md run as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "differentiation.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
GRADWIRE = str(Path(sys.executable).with_name("gradwire"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that hosts the page's maps."""
    file = tmp_path_factory.mktemp("page") / "maps.py"
    file.write_text(BLOCKS[0], encoding="utf-8")
    ready = file.with_name("ready.json")
    command = [GRADWIRE, "serve", str(file), "--port", "0", "--ready-file", str(ready)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        service.stdout.readline()
        while not ready.exists():
            assert service.poll() is None
        yield json.loads(ready.read_text())["url"]
        service.terminate()


def test_every_example_runs(url: str) -> None:
    names: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS[1:], start=1):
        exec(compile(block.replace("http://127.0.0.1:8000", url), f"block {number}", "exec"), names)
