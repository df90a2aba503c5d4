"""Which operations a map says it has is which it has."""

from __future__ import annotations

from typing import Any

import hosted
import numpy as np
import pytest
from running import Running

N = np.array([0.5, 1.5, -0.25])
Z = N + 1j
IMAGE = np.arange(12.0).reshape(3, 4)
MASK = IMAGE > 3

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cubic": (1.5,),
    "wave": (N,),
    "energy": (N,),
    "spectrum": (N,),
    "power": (Z,),
    "square": (Z,),
    "mixed": (Z,),
    "doubled": (np.arange(3),),
    "halved_until_small": (3.5,),
    "clipped": (N,),
    "on_host": (N,),
    "powered": (N, 3),
    "pair_with_example": ({"a": N}, N),
    "product": (IMAGE, IMAGE.T),
    "chosen": (N, N > 0, 2),
    "single": (N.astype("float32"),),
    "shaped": (N, N, N),
    "joined": (N, N),
    "in_single": (N,),
    "smoothed": (N,),
    "slow": (N,),
    "refusing_on_host": (N,),
    "lost": (N,),
    "plus": (N,),
}
EXAMPLE_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "forward": (IMAGE, MASK),
    "loss": (IMAGE, MASK, IMAGE + 0j, 0.1),
    "fft": (N,),
    "polynomial": (1.5,),
    "surface": (1.5, 2.5),
    "quadratic": (N, np.eye(3)),
    "cartesian": (N,),
    "quartic": (1.5, 2.5),
}


def succeeding(service: Running, map: str, args: tuple[Any, ...], operations: list[str]) -> list[str]:
    """Those of ``operations`` that are answered at ``args``, in the first, holomorphic or not."""
    return [name for name in operations if any(_succeeds(service, map, name, args, h) for h in (False, True))]


def _succeeds(service: Running, map: str, operation: str, args: tuple[Any, ...], holomorphic: bool) -> bool:
    fields: dict[str, Any] = {"holomorphic": holomorphic}
    if operation not in ("evaluate", "eval_shape"):
        fields["argnums"] = [0]
    if operation in ("jvp", "hvp"):
        fields["tangents"] = [args[0]]
    if operation == "vjp":
        fields["cotangent"] = None
    answer = service.ask(map, operation, *args, **fields)
    assert answer.status == 200 or answer.kind in ("not-differentiable", "map-failed"), answer.fields
    if answer.status == 200 and operation == "linearize":
        id = answer.fields["linearization"]["id"]
        assert service.send("DELETE", f"/v1/linearizations/{id}").status == 204
    # What a map does while it runs, and where it is holomorphic, is no matter of which operations it has.
    at_this_point = answer.status != 200 and (
        answer.kind == "map-failed" or (holomorphic and "not holomorphic here" in answer.fields["detail"])
    )
    return answer.status == 200 or at_this_point


@pytest.mark.parametrize("map", ARGUMENTS)
def test_every_map_has_the_operations_that_it_says_and_no_other(service: Running, map: str) -> None:
    said = service.get(f"/v1/maps/{map}").fields["operations"]
    every = service.get("/v1/maps/cubic").fields["operations"]
    assert said == succeeding(service, map, ARGUMENTS[map], every)


@pytest.mark.parametrize("map", EXAMPLE_ARGUMENTS)
def test_every_map_of_the_examples_does_too(examples: Running, map: str) -> None:
    said = examples.get(f"/v1/maps/{map}").fields["operations"]
    every = examples.get("/v1/maps/polynomial").fields["operations"]
    assert len(every) == 10
    assert said == succeeding(examples, map, EXAMPLE_ARGUMENTS[map], every)


def test_every_example_is_tried(examples: Running) -> None:
    assert {m["name"] for m in examples.get("/v1/maps").fields["maps"]} == set(EXAMPLE_ARGUMENTS)


@pytest.mark.parametrize(
    ("map", "missing"),
    [
        ("cubic", set()),
        ("energy", set()),
        ("wave", {"grad", "value_and_grad", "hvp"}),
        ("halved_until_small", {"vjp", "grad", "value_and_grad", "hessian", "hvp"}),
        ("clipped", {"jvp", "grad", "value_and_grad", "hessian", "hvp"}),
        ("power", {"hessian"}),
    ],
)
def test_the_operations_are_those_that_mathematics_and_jax_leave(
    service: Running, map: str, missing: set[str]
) -> None:
    every = set(service.get("/v1/maps/cubic").fields["operations"])
    assert every - set(service.get(f"/v1/maps/{map}").fields["operations"]) == missing


def test_a_map_that_declares_nothing_has_what_succeeds_at_some_arguments(service: Running) -> None:
    # A number as well as a vector: its gradient exists.
    operations = service.get("/v1/maps/anything").fields["operations"]
    assert operations == list(hosted.cubic.operations)
    assert service.post("/v1/maps/anything/grad", {"args": [0.0]}).fields["gradient"] == 2.0
