"""Whether the service answers for its health while it works: the event loop must stay free."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import numpy as np

import gradwire
from benchmarks import load, servers
from benchmarks.results import Bar, Figure, Section
from benchmarks.servers import Server
from benchmarks.session import Session

_SECONDS = 10.0
_PAUSE_MS = 10.0

Busy = Callable[[Server], AbstractContextManager[None]]


def health(session: Session) -> Section:
    """99th percentile and longest of GET /health/live, every 10 ms for 10 s."""
    section = Section("Health while the service is busy")
    for name, busy in BUSY.items():
        try:
            _watch(session, section, name, busy)
        except RuntimeError as error:
            reason = str(error)[:200]
            section.bars.append(
                Bar(f"health during {name}, p99", None, "at most", 50, unit="ms", reason=reason)
            )
    return section


def _watch(session: Session, section: Section, name: str, busy: Busy) -> None:
    # What is begun here cannot be ended but with the service: each has its own.
    with servers.gradwire_service(device=session.device) as server:
        quiet = load.run(server.port, load.get("/health/live"), connections=1, seconds=0.5)
        with busy(server):
            watch = load.begun(
                server.port, load.get("/health/live"), connections=1, seconds=_SECONDS, pause_ms=_PAUSE_MS
            )
            found = load.ended(watch)
    section.bars += [
        Bar(f"health during {name}, p99", found.p99_ms, "at most", 50, unit="ms"),
        Bar(f"health during {name}, longest", found.longest_ms, "at most", 1_000, unit="ms"),
    ]
    section.figures += [
        Figure(f"{name}: median before", quiet.median_ms),
        Figure(f"{name}: median", found.median_ms),
        Figure(f"{name}: answers", found.answers, ""),
    ]


@contextmanager
def _calling(server: Server, call: Callable[[gradwire.Service], object]) -> Iterator[None]:
    """While one call runs, that lasts as long as the block at least.

    Raises:
        RuntimeError: it was over earlier, so that nothing was measured.
    """
    lab = gradwire.connect(server.url, retries=0, timeout=600)
    over = threading.Event()

    def run() -> None:
        # It ends with the service, and then has no answer.
        with suppress(gradwire.GradwireError):
            call(lab)
        over.set()

    threading.Thread(target=run, daemon=True).start()
    time.sleep(0.5)
    yield
    if over.is_set():
        raise RuntimeError("what should have kept the service busy ended before the measurement")


@contextmanager
def computation(server: Server) -> Iterator[None]:
    """Matrix products on every core."""
    x = np.random.default_rng(0).standard_normal((512, 512))
    with _calling(server, lambda lab: lab["slow"](x, np.int64(10**7))):
        yield


@contextmanager
def compile(server: Server) -> Iterator[None]:
    """A map of many operations."""
    with _calling(server, lambda lab: lab["unrolled"](np.ones(1_000))):
        yield


@contextmanager
def upload(server: Server) -> Iterator[None]:
    """256 MiB, again and again."""
    command = [sys.executable, "-m", "benchmarks.large_client", "upload", server.url, str(server.pid)]
    client = subprocess.Popen([*command, str(_SECONDS + 2)], stdout=subprocess.DEVNULL)
    try:
        time.sleep(1.0)
        yield
        if client.poll():
            raise RuntimeError("the upload failed")
    finally:
        client.terminate()
        client.wait()


BUSY: dict[str, Busy] = {
    "a long computation": computation,
    "a long compile": compile,
    "a 256 MiB upload": upload,
}
