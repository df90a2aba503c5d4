"""One distribution: the thin client, and beside it the service that its extras make run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SOURCES = ("client", "service", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources so that nothing is left in the checkout."""
    copy = tmp_path_factory.mktemp("sources")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=ignore)
        else:
            shutil.copy(source, copy / name)
    build = "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(copy / "dist"), str(copy)
    subprocess.run([sys.executable, "-m", *build], check=True, capture_output=True, text=True)
    (built,) = (copy / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_module_of_both_packages(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = set()
    for root in (PROJECT / "client", PROJECT / "service"):
        expected |= {str(path.relative_to(root)) for path in root.rglob("*.py")}
    assert packed == expected | {"gradwire/py.typed", "gradwire_service/py.typed"}


def test_the_core_needs_three_packages(wheel):
    (name,) = (n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(zipfile.ZipFile(wheel).read(name).decode())
    core = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert sorted(re.split(r"[<>=]", requirement)[0] for requirement in core) == ["httpx", "msgpack", "numpy"]


def test_locks_name_exact_versions_and_nothing_else():
    locks = [*PROJECT.glob("requirements/py*.txt"), PROJECT / "requirements/torch.txt"]
    assert len(locks) > 4
    for lock in locks:
        for line in lock.read_text().splitlines():
            assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), f"{lock.name}: {line}"


def test_locks_hold_every_environment_for_each_python():
    pythons = {lock.name.split("-")[0] for lock in PROJECT.glob("requirements/py*.txt")}
    for python in pythons:
        environments = {lock.stem.split("-")[1] for lock in PROJECT.glob(f"requirements/{python}-*.txt")}
        assert environments == {"client", "service", "test", "lint"}


def test_the_clients_environment_has_no_jax():
    for lock in PROJECT.glob("requirements/py*-client.txt"):
        assert not re.search(r"^(jax|fastapi|uvicorn)", lock.read_text(), re.MULTILINE)


def test_commands_are_entry_points():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert set(project["entry-points"]["gradwire.commands"]) == {"maps", "call", "serve", "demo", "check"}
