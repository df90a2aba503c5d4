"""The image, as far as it can be had without a Docker engine: linted, and its steps run in a bare folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gradwire_service import demo

PROJECT = Path(__file__).parents[2]
DOCKERFILE = PROJECT / "Dockerfile"


def instructions(word: str) -> list[str]:
    """What follows ``word`` in each of its instructions, continued lines joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith(f"{word} ")]


def test_the_dockerfile_has_no_lint():
    hadolint = Path(sysconfig.get_path("scripts"), "hadolint")
    found = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_service_is_not_root():
    (user,) = instructions("USER")
    assert int(user) > 0


def test_the_defaults_are_the_cpu_and_a_recorded_python():
    arguments = dict(line.split("=") for line in instructions("ARG"))
    assert arguments["EXTRA"] == "service"
    assert arguments["LOCK"] == f"py{arguments['PYTHON'].replace('.', '')}-service"
    assert (PROJECT / f"requirements/{arguments['LOCK']}.txt").is_file()


def test_every_copied_path_exists_and_is_in_the_build_context():
    kept = {line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {path for line in instructions("COPY") if "--from" not in line for path in line.split()[:-1]}
    assert copied == kept
    assert all((PROJECT / path).exists() for path in copied)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the build stage's RUN steps fill, run here with this Python and its versions."""
    root = tmp_path_factory.mktemp("image")
    source = root / "src"
    source.mkdir()
    for path in {path for line in instructions("COPY") if "--from" not in line for path in line.split()[:-1]}:
        copy = shutil.copytree if (PROJECT / path).is_dir() else shutil.copy
        copy(PROJECT / path, source / path)
    arguments = {"EXTRA": "service", "LOCK": f"py{sys.version_info.major}{sys.version_info.minor}-service"}
    for step in instructions("RUN"):
        if step.startswith("useradd"):
            continue
        step = re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], step)
        step = step.replace("/opt/gradwire", str(root / "gradwire")).replace(
            "python -m", f"{sys.executable} -m"
        )
        subprocess.run(step, shell=True, check=True, cwd=source, capture_output=True, text=True)
    return root / "gradwire"


@pytest.mark.image
def test_what_the_build_steps_install_serves_and_is_healthy(image, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "GRADWIRE", [str(image / "bin" / "gradwire")])
    *_, check = instructions("HEALTHCHECK")
    health = json.loads(check[check.index("CMD") + 3 :])
    start = json.loads(instructions("CMD")[-1])
    assert start[:2] == ["gradwire", "serve"]
    files = [PROJECT / name.lstrip("/") for name in start if name.endswith(".py")]
    options = start[start.index("--host") :]
    with demo.serving(*files, options=options) as url:
        port = url.rsplit(":", 1)[1].rstrip("/")
        health = [part.replace(":8000/", f":{port}/") for part in health]
        assert subprocess.run([image / "bin" / health[0], *health[1:]]).returncode == 0
    assert subprocess.run([image / "bin" / health[0], *health[1:]], capture_output=True).returncode != 0
