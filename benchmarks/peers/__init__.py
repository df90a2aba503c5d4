"""UM-Bridge and Tesseract, each served and called in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from benchmarks import servers
from benchmarks.measure import Timed
from benchmarks.servers import Server

_HERE = Path(__file__).parent
_NEEDS = "import jax, tesseract_core.runtime, umbridge"


def unavailable(python: str | None) -> str:
    """Why ``python`` cannot measure the peers; empty where it can."""
    if python is None:
        return "the peers' environment was not named (--peers-python)"
    try:
        found = subprocess.run([python, "-c", _NEEDS], capture_output=True, text=True)
    except OSError as error:
        return f"the peers' environment cannot be used: {error.strerror}"
    return "" if found.returncode == 0 else "the peers are not installed: " + found.stderr.strip()[-200:]


class Peers:
    """The peers' servers, and one process in which their own clients call them."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._open = ExitStack()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the client)
        self._client: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._client = subprocess.Popen(
            [self._python, str(_HERE / "client.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        assert self._client is not None and self._client.stdin is not None
        self._client.stdin.close()
        self._client.wait(10)
        self._log.close()
        self._open.close()

    @cached_property
    def tesseract(self) -> Server:
        """`tesseract_api.py`, served as its container does."""
        port = servers.free_port()
        command = (self._python, "-m", "tesseract_core.runtime", "serve", "--port", str(port))
        environment = {"TESSERACT_API_PATH": str(_HERE / "tesseract_api.py"), "JAX_ENABLE_X64": "1"}
        return self._open.enter_context(servers.started(command, port, environment=environment))

    @cached_property
    def umbridge(self) -> Server:
        """`umbridge_server.py`."""
        port = servers.free_port()
        command = (self._python, str(_HERE / "umbridge_server.py"), str(port))
        return self._open.enter_context(servers.started(command, port, environment={"JAX_ENABLE_X64": "1"}))

    def call(self, peer: str, task: str, n: int) -> Timed:
        """``task`` (``vjp`` or ``jacobian``) of size ``n``, by a peer of `client.CALLS`, timed there."""
        url = self.umbridge.url if peer.startswith("umbridge") else self.tesseract.url

        def calls(number: int) -> list[float]:
            durations: list[float] = self._ask(peer=peer, task=task, url=url, n=n, calls=number)
            return durations

        return calls

    def _ask(self, **question: Any) -> Any:
        assert self._client is not None and self._client.stdin is not None and self._client.stdout is not None
        self._client.stdin.write(json.dumps(question) + "\n")
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the peers' client ended: {self._log.read()[-1000:]}")
        return json.loads(line)
