"""Starting what is measured: every server in a process of its own, on a free loopback port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
MAPS = PROJECT / "benchmarks" / "maps.py"
_GRADWIRE = (sys.executable, "-c", "import sys, gradwire._cli; sys.exit(gradwire._cli.main())")
_PATIENCE = 120.0


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def started(
    command: Sequence[str], port: int, *, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run ``command``, which listens on ``port``, until the block ends.

    Raises:
        RuntimeError: it ended, or did not listen in time; the message holds the end of its log.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
        )
        try:
            if not _listening(process, port):
                log.seek(0)
                tail = log.read().decode(errors="replace").strip()[-2000:]
                raise RuntimeError(f"{' '.join(command[:4])} did not start: {tail}")
            yield Server(port, process.pid)
        finally:
            process.terminate()
            try:
                # A computation or a compile that a bar began is not waited for.
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listening(process: subprocess.Popen[bytes], port: int) -> bool:
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < _PATIENCE:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False


@contextmanager
def gradwire_service(*options: str, device: str | None = None) -> Iterator[Server]:
    """A fresh service of `benchmarks.maps`, ready."""
    port = free_port()
    placed = () if device is None else ("--device", device)
    command = (*_GRADWIRE, "serve", str(MAPS), "--port", str(port), *placed, *options)
    with started(command, port) as server:
        _until_ready(server)
        yield server


def _until_ready(server: Server) -> None:
    import httpx

    began = time.monotonic()
    while httpx.get(f"{server.url}/health/ready").status_code != 200:
        if time.monotonic() - began > _PATIENCE:
            raise RuntimeError("the service did not become ready")
        time.sleep(0.1)


@contextmanager
def module(name: str) -> Iterator[Server]:
    """The server that is a module of this folder, such as ``benchmarks.echo``."""
    port = free_port()
    with started((sys.executable, "-m", name, str(port)), port) as server:
        yield server
