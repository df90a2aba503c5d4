"""``python -m benchmarks.profile``: where the time of one small call goes, on the client and on the service.

One VJP of x · sin x with n = 1: what the service says of its stages, what is left of a call when the
client is a C program, what uvicorn alone takes, and the functions that Python spends it in.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradwire
from benchmarks import load, maps
from benchmarks.measure import progress
from benchmarks.session import Session
from gradwire_service import Settings, create_app

_CALLS = 1_000
_LINES = 25


def split(session: Session) -> dict[str, float]:
    """Medians in milliseconds of the parts of a call; the stages are the service's own words."""
    lab = session.lab
    f = lab["wave"]
    x = w = np.ones(1)
    durations: list[float] = []
    stages: dict[str, list[float]] = {}
    for _ in range(_CALLS):
        began = time.perf_counter()
        f.vjp(x, w)
        durations.append(time.perf_counter() - began)
        for stage, seconds in lab.last_timing.items():
            stages.setdefault(stage, []).append(seconds)
    request = load.vjp("wave", x, w)
    through_c = load.run(session.service.port, request, connections=1, seconds=1.0).median_ms
    head, body = request.split(b"\r\n\r\n", 1)
    uvicorn = load.run(session.echo.port, head + b"\r\n\r\n" + body, connections=1, seconds=1.0).median_ms
    health = load.run(session.service.port, load.get("/health/live"), connections=1, seconds=1.0).median_ms
    call = 1e3 * statistics.median(durations)
    told = {f"  service: {stage}": 1e3 * statistics.median(found) for stage, found in stages.items()}
    return {
        "one call of the Python client": call,
        "  the client's own part (call − the same from C)": call - through_c,
        "the same request from C": through_c,
        **told,
        "  service: HTTP and the rest (from C − stages − bare uvicorn)": through_c
        - sum(told.values())
        - uvicorn,
        "  bare uvicorn echo from C": uvicorn,
        "GET /health/live from C": health,
    }


def profiled(run: Callable[[], object]) -> str:
    """The functions in which ``run`` spends its own time."""
    profile = cProfile.Profile()
    profile.runcall(run)
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(_LINES)
    return "\n".join(line for line in out.getvalue().splitlines() if line.strip())


def client_calls(lab: gradwire.Service) -> Callable[[], None]:
    """Calls of the client, to be profiled."""
    f = lab["wave"]
    x = w = np.ones(1)

    def run() -> None:
        for _ in range(_CALLS):
            f.vjp(x, w)

    return run


def service_calls() -> Callable[[], None]:
    """The same requests handed to the application in this process, without sockets: its event loop's part."""
    app = create_app([maps.wave], Settings())
    body = load.vjp("wave", np.ones(1), np.ones(1)).split(b"\r\n\r\n", 1)[1]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/maps/wave/vjp",
        "raw_path": b"/v1/maps/wave/vjp",
        "query_string": b"",
        "root_path": "",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/msgpack"),
            (b"content-length", b"%d" % len(body)),
        ],
    }

    async def once() -> int:
        status = 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        await app({**scope, "state": {}}, receive, send)
        return status

    async def calls() -> None:
        async with app.router.lifespan_context(app):
            while not app.state.service.ready:
                await asyncio.sleep(0.01)
            for _ in range(_CALLS):
                status = await once()
                assert status == 200, f"the application answered {status}"

    return lambda: asyncio.run(calls())


def main() -> None:
    with Session() as session:
        progress("stages")
        for name, ms in split(session).items():
            print(f"{name:<62} {ms:8.3f} ms", flush=True)
        progress("the client's functions")
        print(f"\nThe client, {_CALLS} calls (cProfile makes small functions look dear)\n")
        print(profiled(client_calls(session.lab)))
        progress("the service's functions")
        print(f"\nThe service's event loop, {_CALLS} requests without sockets\n")
        print(profiled(service_calls()))


if __name__ == "__main__":
    main()
