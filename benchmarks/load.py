"""The load generator, ``load.c``: compiled when first used, then asked for so many seconds of requests."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gradwire import wire

_SOURCE = Path(__file__).with_name("load.c")


class NoCompiler(RuntimeError):
    """There is no C compiler here, and so no load generator."""


@dataclass(frozen=True)
class Load:
    """What came of some seconds of requests; latencies in ms."""

    answers: int
    others: int
    seconds: float
    median_ms: float
    p99_ms: float
    longest_ms: float

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.answers / self.seconds


@cache
def _program() -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("the load generator (benchmarks/load.c) needs a C compiler")
    program = Path(tempfile.gettempdir(), f"gradwire-load-{_SOURCE.stat().st_mtime_ns}")
    if not program.exists():
        subprocess.run([compiler, "-O2", "-o", str(program), str(_SOURCE)], check=True)
    return program


def evaluate(map: str, x: np.ndarray) -> bytes:
    """A whole request for the value of ``map`` at ``x``."""
    return _post(f"/v1/maps/{map}/evaluate", {"args": [wire.Tree(x)]})


def vjp(map: str, x: np.ndarray, w: np.ndarray) -> bytes:
    """A whole request for its VJP there."""
    return _post(f"/v1/maps/{map}/vjp", {"args": [wire.Tree(x)], "argnums": 0, "cotangent": wire.Tree(w)})


def _post(path: str, fields: dict[str, object]) -> bytes:
    body = b"".join(bytes(memoryview(part).cast("B")) for part in wire.MSGPACK.encode(fields, "str"))
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/msgpack\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    """A whole request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def begun(
    port: int, request: bytes, *, connections: int, seconds: float, pause_ms: float = 0.0
) -> subprocess.Popen[str]:
    """Begin to send ``request`` again and again; `ended` waits for it."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(request)
    command: Sequence[object] = (_program(), port, connections, seconds, pause_ms, file.name)
    return subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> Load:
    """What came of it.

    Raises:
        RuntimeError: the load generator failed: the server closed a connection, say.
    """
    out, error = process.communicate()
    assert isinstance(process.args, list)
    Path(str(process.args[-1])).unlink(missing_ok=True)
    if process.returncode:
        raise RuntimeError(f"the load generator failed: {error.strip()}")
    return Load(**json.loads(out))


def run(port: int, request: bytes, *, connections: int, seconds: float) -> Load:
    """So many connections for so many seconds."""
    return ended(begun(port, request, connections=connections, seconds=seconds))
