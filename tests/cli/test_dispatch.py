"""The command ``gradwire``: what it lists, runs, and says when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gradwire._cli import SUMMARIES, main

PLUGIN = """
from gradwire import MapNotFound

def hello(argv):
    print("hello", *argv)
    return len(argv)

def failing(argv):
    raise MapNotFound("There is no such map.\\nDid you mean sine?", map="sin")
"""
ENTRY_POINTS = """[gradwire.commands]
hello = some_plugin:hello
failing = some_plugin:failing
lacking = some_plugin_that_is_not_there:command
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with commands of its own."""
    (tmp_path / "some_plugin.py").write_text(PLUGIN, encoding="utf-8")
    metadata = tmp_path / "some_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gradwire {version('gradwire')}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str], plugin: None) -> None:
    assert main(["--help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.partition("commands:\n")[2].splitlines()]
    assert set(listed) >= {"serve", "demo", "check", "maps", "call", "hello"}
    assert listed[: len(SUMMARIES)] == list(SUMMARIES)


def test_without_a_command_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err
    assert main(["no-such"]) == 2
    assert "maps" in capsys.readouterr().err


def test_a_command_of_another_distribution_runs(plugin: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hello", "a", "b"]) == 2
    assert capsys.readouterr().out == "hello a b\n"


def test_an_error_is_one_line_on_stderr(plugin: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["failing"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "gradwire: There is no such map. Did you mean sine? [map sin]\n"


def test_a_command_whose_package_is_missing_says_so(plugin: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lacking"]) == 2
    assert "some_plugin_that_is_not_there" in capsys.readouterr().err


def test_a_command_of_the_service_without_its_dependencies_names_the_extra() -> None:
    program = """
import sys
sys.modules["jax"] = None
from gradwire._cli import main
sys.exit(main(["check", "maps.py"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "`gradwire check` needs the service extra: pip install 'gradwire[service]'" in done.stderr


def test_asking_for_help_or_the_version_imports_neither_jax_nor_the_service() -> None:
    program = """
import sys
from gradwire._cli import main
main(["--help"]), main(["--version"])
assert not {"jax", "gradwire_service"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = "import sys; from gradwire._cli import main; sys.exit(main(['--help']))"
    done = subprocess.run([sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
