"""One VJP (value and cotangent) of x · sin x in float64, from NumPy to NumPy."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from benchmarks import afternoon, echo
from benchmarks.local import aligned, jitted, value_and_cotangent
from benchmarks.measure import Timed, interleaved, timed
from benchmarks.results import Bar, Section
from benchmarks.session import Session

OURS = "Gradwire"
AFTERNOON = "afternoon server"
BESIDE = "Gradwire, beside the peers"
FLOOR = "raw TCP, same bytes"
LOCAL = "local jax.jit"
ECHO = "bare ASGI echo, http.client"
PEERS = {
    "Tesseract base64": "tesseract base64",
    "Tesseract default": "tesseract",
    "UM-Bridge": "umbridge",
    "UM-Bridge shared memory": "umbridge shared memory",
}
"""Peers as the page names them. They send the cotangent alone."""

_HEAD_BYTES = 400
"""Of our messages and HTTP heads, as far as they are not arrays."""


def small(session: Session) -> Section:
    """One number: the time is all overhead."""
    medians = _medians(session, 1, seconds=8.0)
    ours = medians[OURS]
    return _section(
        medians,
        1,
        [
            Bar("n = 1, against the afternoon server", ours / medians[AFTERNOON], "at most", 0.55, 0.4),
            faster(session, medians, "n = 1", "Tesseract default", 5.0),
        ],
    )


def thousand(session: Session) -> Section:
    """A small vector: not in the table of bars, reported because most calls look like it."""
    return _section(_medians(session, 1_000, seconds=6.0), 1_000, [])


def large(session: Session) -> Section:
    """8 MB arrays: the time should be the socket's and the computation's."""
    medians = _medians(session, 1_000_000, seconds=10.0)
    floor = medians[FLOOR] + medians[LOCAL]
    what = "n = 1 000 000"
    return _section(
        medians,
        1_000_000,
        [
            Bar(f"{what}, against raw TCP + local jit", medians[OURS] / floor, "at most", 1.35, 1.15),
            faster(session, medians, what, "Tesseract base64", 3.5),
            faster(session, medians, what, "Tesseract default", 9.0),
            faster(session, medians, what, "UM-Bridge", 80.0),
        ],
    )


def _section(medians: dict[str, float], n: int, bars: list[Bar]) -> Section:
    section = Section(f"One VJP of x · sin x, n = {n:,}".replace(",", " "), bars)
    section.times(medians)
    return section


def faster(session: Session, medians: dict[str, float], what: str, peer: str, times: float) -> Bar:
    value = medians[peer] / medians[BESIDE] if peer in medians else None
    return Bar(f"{what}, times faster than {peer}", value, "at least", times, reason=session.without_peers)


def _medians(session: Session, n: int, seconds: float) -> dict[str, float]:
    x, w = (aligned(row) for row in np.random.default_rng(0).standard_normal((2, n)))
    remote = session.lab["wave"]
    afternoon_client = afternoon.Client(session.afternoon.url)

    def fresh() -> tuple[np.ndarray, np.ndarray]:
        # Other numbers in every call: an argument that repeats would not be sent again.
        x[0] += 1e-6
        w[0] += 1e-6
        return x, w

    competitors: dict[str, Timed] = {
        OURS: timed(lambda: remote.vjp(*fresh())),
        AFTERNOON: timed(lambda: afternoon_client.vjp(*fresh())),
    }
    data = np.ones(2 * x.nbytes + _HEAD_BYTES, np.uint8).data
    into = np.ones(data.nbytes, np.uint8).data
    floor = session.floor
    competitors[FLOOR] = timed(lambda: floor.exchange(data, into))
    competitors[LOCAL] = timed(jitted(value_and_cotangent(lambda x: jnp.sin(x) * x), x, w))
    competitors[ECHO] = timed(echo.caller(session.echo.port, bytes(data)))
    medians = interleaved(competitors, seconds)
    if not session.without_peers:
        # Apart, with ours once more: a peer that takes seconds would leave few turns for the rest.
        peers = {name: session.peers.call(peer, "vjp", n) for name, peer in PEERS.items()}
        beside = interleaved({OURS: competitors[OURS], **peers}, seconds)
        medians[BESIDE] = beside.pop(OURS)
        medians.update(beside)
    return medians
