"""What is ready before the service says so, and what a restart finds."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import jax.numpy as jnp
import numpy as np
import pytest

from engine.hosted import __file__ as HOSTED
from engine.hosting import Counted, Gate, ask, hosting, live, until
from gradwire_service import Map, Settings
from gradwire_service.engine.service import Service
from service.running import started


def test_examples_are_compiled_before_it_is_ready() -> None:
    counted = Counted(jnp.sin)

    async def main() -> None:
        async with hosting(counted.map(example=(np.ones(1000),))) as service:
            assert len(service.engine.compiled) == 1
            before = len(counted.traces)
            await ask(service, "counted", np.ones(1000), owner="anonymous")
            assert len(counted.traces) == before
            await ask(service, "counted", np.ones(1001))
            assert len(counted.traces) == before + 1

    asyncio.run(main())


def test_it_is_not_ready_while_it_warms_up() -> None:
    gate = Gate()
    sluggish = Map(gate.traced_map()._declaration.fun, name="sluggish", example=(np.ones(100),))

    async def main() -> None:
        service = Service([sluggish], Settings())
        assert not service.ready
        await service.start()
        await gate.is_reached()
        assert not service.ready
        gate.opened.set()
        await until(lambda: service.ready)
        await service.stop()
        assert not service.ready

    asyncio.run(main())


@pytest.mark.parametrize(
    "example",
    [(object(),), ("text",), (np.ones(3), 4), (), (np.array([None]),), (np.ones((2, 2)),)],
    ids=["no array", "text", "too many", "too few", "objects", "the map raises"],
)
def test_a_bad_example_only_logs(example: tuple[Any, ...], caplog: pytest.LogCaptureFixture) -> None:
    def vector(x: Any) -> Any:
        if x.ndim != 1:
            raise RuntimeError("vectors alone")
        return x + 1

    counted = Counted(jnp.cos)

    caplog.set_level(logging.WARNING, "gradwire.service")
    with live(Map(vector, name="vector", example=example), counted.map(example=(np.ones(77),))) as lab:
        assert "example of vector" in caplog.text
        # The maps after it are warmed up all the same, and it can be called and is listed.
        assert (77,) in counted.traces
        assert len(lab.service.engine.compiled) == 1
        listed = httpx.get(f"{lab.url}/v1/maps").json()["maps"]
        assert [each["name"] for each in listed] == ["vector", "counted"]
        answer = httpx.post(f"{lab.url}/v1/maps/vector/evaluate", json={"args": [[1.0, 2.0]]})
        assert answer.json()["value"] == [2.0, 3.0]


def test_a_restart_finds_its_compiled_code(tmp_path: Path) -> None:
    cache = tmp_path / "compiled"
    x = np.linspace(0, 1, 6)

    def compiled_by(session: str) -> set[str]:
        with started(HOSTED, "--compile-cache", cache) as running:
            for operation, fields in {
                "evaluate": {},
                "jacobian": {},
                "vjp": {"cotangent": x},
            }.items():
                assert running.ask("wave", operation, x, **fields).status == 200, session
        return {path.name for path in cache.iterdir() if not path.name.endswith("-atime")}

    first = compiled_by("the first")
    assert len(first) >= 4  # and the example of `warmed`
    assert compiled_by("the second") == first
