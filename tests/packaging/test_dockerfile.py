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
