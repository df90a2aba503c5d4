"""`gradwire serve`: what it hosts, where it listens, how it starts and stops."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gradwire._errors import ArgumentError
from gradwire_service.serve import command, load_maps

MAPS = """
import jax.numpy as jnp
from gradwire_service import Map

@Map
def valley(x):
    return jnp.sum(x * x)

hill = valley  # another name for the same map
"""


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports is gone after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    file = tmp_path / "valleys.py"
    file.write_text(MAPS)
    return file


@contextmanager
def started(*arguments: str | Path, ready: Path) -> Iterator[subprocess.Popen[str]]:
    """`gradwire serve` in a process of its own, from when it says that it is ready."""
    code = "import sys; from gradwire_service.serve import command; sys.exit(command(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments), "--ready-file", str(ready)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            while not ready.exists() and process.poll() is None:
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_tells_when_it_is_ready_and_stops_with_success(
    maps: Path, tmp_path: Path, number: signal.Signals
) -> None:
    ready = tmp_path / "ready.json"
    with started(maps, "--port", "0", ready=ready) as process:
        told = json.loads(ready.read_text())
        assert told["pid"] == process.pid
        host, port = told["url"].removeprefix("http://").split(":")
        with closing(http.client.HTTPConnection(host, int(port))) as connection:
            connection.request("GET", "/health/ready")
            assert connection.getresponse().status == 200
        process.send_signal(number)
        output, _ = process.communicate()
    assert process.returncode == 0
    assert output == f"gradwire: valley at {told['url']}\n"
    assert not ready.exists()


def test_it_listens_on_a_unix_socket_in_place_of_a_dead_one(maps: Path, tmp_path: Path) -> None:
    ready, path = tmp_path / "ready.json", tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with started(maps, "--uds", path, ready=ready) as process:
        assert json.loads(ready.read_text())["url"] == f"unix://{path}"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 0
    assert not path.exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gpu-host"])
def test_it_does_not_listen_beyond_loopback_unless_told(
    maps: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command([str(maps), "--host", host, "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "--insecure" in error
    assert "tokens" in error


def test_a_port_that_is_taken_is_told(maps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert command([str(maps), "--port", port]) == 2
        assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_a_unix_socket_that_is_in_use_is_told(
    maps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(tmp_path / "socket"))
        taken.listen()
        assert command([str(maps), "--uds", str(tmp_path / "socket")]) == 2
    assert "another service listens" in capsys.readouterr().err


def test_a_wrong_option_is_told(maps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command([str(maps), "--port", "many"]) == 2
    assert "'port', from the command line" in capsys.readouterr().err


def test_an_unknown_dialect_is_told(maps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command([str(maps), "--port", "0", "--dialects", "native,klingon"]) == 2
    assert "klingon" in capsys.readouterr().err


def test_a_map_under_two_names_is_hosted_once(maps: Path) -> None:
    assert [map.name for map in load_maps([str(maps), str(maps)])] == ["valley"]


def test_maps_of_a_module_are_found_by_its_dotted_name(maps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (maps.parent / "terrain_of_tests").mkdir()
    maps.rename(maps.parent / "terrain_of_tests" / "valleys.py")
    monkeypatch.chdir(maps.parent)
    assert [map.name for map in load_maps(["terrain_of_tests.valleys"])] == ["valley"]


def test_two_maps_of_one_name_and_version_stop_the_start(maps: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(MAPS)
    with pytest.raises(
        ArgumentError, match=r"valley@\w+ is defined twice, in .*valleys\.py and in .*other\.py"
    ):
        load_maps([str(maps), str(other)])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nothing_of_that_name", r"ModuleNotFoundError: .*nothing_of_that_name.*line 1"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "defines no Map"),
    ],
)
def test_a_file_without_maps_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=told):
        load_maps([str(file)])


@pytest.mark.parametrize("source", ["absent.py", "absent.module", "."])
def test_a_source_that_is_not_there_is_told(source: str) -> None:
    with pytest.raises(ArgumentError, match="could not be imported"):
        load_maps([source])
