"""Dense Jacobians: a middling one against the peers, and one that fits nobody's memory twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import maps, servers
from benchmarks.bars.vjp import BESIDE, FLOOR, OURS, faster
from benchmarks.local import aligned, jitted
from benchmarks.measure import interleaved, timed
from benchmarks.results import Bar, Figure, Section
from benchmarks.session import Session

_HUGE = 20_000
_ROWS = 256


def dense(session: Session) -> Section:
    """Jacobian of A tanh(x), 1000 × 1000."""
    n = maps.DENSE
    x = aligned(np.random.default_rng(0).standard_normal(n))
    remote = session.lab["dense"]
    data = np.ones(x.nbytes, np.uint8).data
    into = np.ones(n * n * 8, np.uint8).data
    floor = session.floor
    competitors = {
        OURS: timed(lambda: remote.jacobian(x)),
        FLOOR: timed(lambda: floor.exchange(data, into)),
        "local jax.jit, jacfwd": timed(jitted(jax.jacfwd(maps.dense), x)),
        "local jax.jit, jacrev": timed(jitted(jax.jacrev(maps.dense), x)),
    }
    medians = interleaved(competitors, 8.0)
    local = min(medians["local jax.jit, jacfwd"], medians["local jax.jit, jacrev"])
    ratio = medians[OURS] / (medians[FLOOR] + local)
    if not session.without_peers:
        names = {"Tesseract base64": "tesseract base64", "Tesseract default": "tesseract"}
        peers = {name: session.peers.call(peer, "jacobian", n) for name, peer in names.items()}
        beside = interleaved({OURS: competitors[OURS], **peers}, 8.0)
        medians[BESIDE] = beside.pop(OURS)
        medians.update(beside)
    what = "Jacobian 1000 × 1000"
    section = Section(
        "Dense Jacobian of A tanh(x), 1000 × 1000, float64",
        [
            Bar(f"{what}, against raw TCP of the answer + local jit", ratio, "at most", 1.4),
            faster(session, medians, what, "Tesseract base64", 2.5),
            faster(session, medians, what, "Tesseract default", 10.0),
        ],
    )
    section.times(medians)
    return section


def huge(session: Session) -> Section:
    """20 000 × 20 000 in float32 (1.6 GB), into the caller's array."""
    title = "Jacobian 20 000 × 20 000 of a small map, float32, into out="
    what = "Jacobian 20 000 × 20 000"
    with servers.gradwire_service(device=session.device) as server:
        command = [sys.executable, "-m", "benchmarks.large_client", "jacobian", server.url, str(server.pid)]
        # One process does both, in turns; it has no JAX, and its memory is its own.
        found = subprocess.run(
            [*command, str(_HUGE), str(session.floor_server.port)], capture_output=True, text=True
        )
    if found.returncode:
        reason = (found.stderr.strip().splitlines() or ["it failed"])[-1][:200]
        return Section(
            title, [Bar(f"{what}, against raw TCP + local blocks", None, "at most", 1.1, reason=reason)]
        )
    told = json.loads(found.stdout)
    x = aligned(np.random.default_rng(0).standard_normal(_HUGE, np.float32))
    blocks = interleaved({"local blocks": timed(_local_blocks(x))}, 1.0, least=2)["local blocks"]
    mib = {key: value for key, value in told.items() if key.endswith("MiB")}
    section = Section(
        title,
        [
            Bar(
                f"{what}, against raw TCP + local blocks",
                told["ours"] / (told["floor"] + blocks),
                "at most",
                1.1,
            ),
            Bar(f"{what}, service above idle", told["service MiB"], "at most", 512, unit="MiB"),
            Bar(f"{what}, client beside out", told["client MiB"], "at most", 64, unit="MiB"),
        ],
    )
    section.times({OURS: told["ours"], FLOOR: told["floor"], "local blocks": blocks})
    section.figures += [Figure(key, value, "MiB") for key, value in mib.items()]
    return section


def _local_blocks(x: np.ndarray) -> Callable[[], None]:
    """The same Jacobian in blocks of rows, each brought to host memory and dropped."""
    n = x.size

    @jax.jit
    def rows(x: jax.Array, start: jax.Array) -> jax.Array:
        _, pull = jax.vjp(maps.neighbours, x)
        basis = (jnp.arange(n) == start + jnp.arange(_ROWS)[:, None]).astype(x.dtype)
        pulled: jax.Array = jax.vmap(lambda row: pull(row)[0])(basis)
        return pulled

    def call() -> None:
        with jax.enable_x64(False):
            for start in range(0, n, _ROWS):
                np.asarray(rows(x, start))

    return call
