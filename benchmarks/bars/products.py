"""Many products at one point: through a linearization, and stacked in one request."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import interleaved, timed
from benchmarks.results import Bar, Section
from benchmarks.session import Session

_PRODUCTS = 200
_STACK = 64


def linearized(session: Session) -> Section:
    """200 JVPs at one point."""
    section = Section(f"{_PRODUCTS} JVPs at one point, through a linearization and without")
    for name, n, limit in (("drift", 10_000, 8.0), ("layers", 256, None)):
        f = session.lab[name]
        x, v = np.random.default_rng(0).standard_normal((2, n))
        with f.linearize(x) as j:
            medians = interleaved(
                {
                    "a stateless JVP": timed(lambda f=f, x=x, v=v: f.jvp(x, v)),  # type: ignore[misc]
                    "a JVP of the linearization": timed(lambda j=j, v=v: j.jvp(v)),  # type: ignore[misc]
                    "making and closing it": timed(lambda f=f, x=x: f.linearize(x).close()),  # type: ignore[misc]
                },
                6.0,
            )
        stateless, product, making = medians.values()
        gain = _PRODUCTS * stateless / (making + _PRODUCTS * product)
        section.times(medians, prefix=f"{name}, n = {n}: ")
        if limit is None:
            section.notes.append(
                f"64 steps of tanh(A c), n = {n}, whose derivative costs about what the map costs: "
                f"{gain:.1f} × faster."
            )
        else:
            what = f"{_PRODUCTS} JVPs of 64 steps of c + 0.01 sin c: times faster through a linearization"
            section.bars.append(Bar(what, gain, "at least", limit))
    return section


def stacked(session: Session) -> Section:
    """64 tangents in one request."""
    section = Section(f"{_STACK} tangents of x · sin x, stacked in one request and one by one")
    f = session.lab["wave"]
    for n, limit in ((10, 20.0), (1_000, 8.0)):
        x, *vs = np.random.default_rng(0).standard_normal((1 + _STACK, n))
        stack = np.stack(vs)

        def one_by_one(x: np.ndarray = x, vs: list[np.ndarray] = vs) -> None:
            for v in vs:
                f.jvp(x, v)

        medians = interleaved(
            {
                f"n = {n}: one stack": timed(lambda x=x, stack=stack: f.jvp(x, stack)),  # type: ignore[misc]
                f"n = {n}: one by one": timed(one_by_one),
            },
            4.0,
        )
        together, apart = medians.values()
        section.times(medians)
        section.bars.append(
            Bar(
                f"{_STACK} tangents in one request, n = {n}: times faster than one by one",
                apart / together,
                "at least",
                limit,
            )
        )
    return section
