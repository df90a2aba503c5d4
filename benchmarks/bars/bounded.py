"""Memory of a large request, on both sides."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks import servers
from benchmarks.results import Bar, Figure, Section
from benchmarks.session import Session

_IN, _OUT = 256, 128


def memory(session: Session) -> Section:
    """256 MiB in, 128 MiB out, in a fresh service and a fresh client."""
    with servers.gradwire_service(device=session.device) as server:
        command = [sys.executable, "-m", "benchmarks.large_client", "total", server.url, str(server.pid)]
        found: dict[str, float] = json.loads(
            subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        )
    what = "256 MiB in, 128 MiB out"
    service, client = found["service, first request"], found["client, first request"]
    section = Section(
        "256 MiB in, 128 MiB out: memory above idle",
        [
            Bar(f"{what}: service's peak, times in + out", service / (_IN + _OUT), "at most", 1.1),
            Bar(f"{what}: client's peak, times its answer", client / _OUT, "at most", 1.2),
            Bar(f"{what}: service afterwards", found["service, afterwards"], "at most", 32, unit="MiB"),
            Bar(f"{what}: client afterwards", found["client, afterwards"], "at most", 32, unit="MiB"),
            Bar(
                f"{what}: service's peak of a second request, times the first",
                found["service, second request"] / service,
                "at most",
                1.02,
            ),
        ],
    )
    section.figures = [Figure(name, value, "MiB") for name, value in found.items()]
    return section
