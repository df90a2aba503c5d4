"""Maps that fail: told as such, by type and message and no more; the service goes on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Running, started, tree

import gradwire
from gradwire_service.failures import shown, told

X = np.array([1.0, 2.0])


@pytest.mark.parametrize(
    ("map", "told"),
    [
        ("refusing", "refusing raised ValueError: only on Tuesdays"),
        ("refusing_on_host", "ValueError: only on Wednesdays"),
        ("looking_at", "TracerBoolConversionError"),
        ("talking", "returned a str"),
    ],
)
@pytest.mark.parametrize("operation", ["evaluate", "jvp", "linearize"])
def test_a_map_that_fails_is_told_with_its_exceptions_type_and_message(
    service: Running, map: str, told: str, operation: str
) -> None:
    fields = {"tangents": [X]} if operation == "jvp" else {}
    answer = service.ask(map, operation, X, **fields)
    if map == "refusing_on_host" and operation != "evaluate":
        assert answer.kind == "not-differentiable"
        return
    assert answer.kind == "map-failed"
    assert answer.fields["map"] == map
    assert told in answer.fields["detail"]


def test_the_client_raises_map_failed(service: Running) -> None:
    with gradwire.connect(service.url) as lab:
        for map in ("refusing", "refusing_on_host"):
            with pytest.raises(gradwire.MapFailed, match="ValueError: only on") as caught:
                lab[map](X)
            assert caught.value.map == map
            assert caught.value.request_id
            assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("map", ["refusing", "refusing_on_host", "looking_at", "talking"])
def test_no_place_on_the_host_and_no_traceback_is_told(service: Running, map: str) -> None:
    answer = service.ask(map, "evaluate", X)
    text = answer.body.decode("utf-8", "replace")
    for hidden in ("Traceback", "File ", "site-packages", str(Path(__file__).parent), str(Path.home())):
        assert hidden not in text
    assert "gradwire_service/" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No such file: '/home/bob/data/a.npy'", "No such file: 'a.npy'"),
        ("run at /srv/x/engine/compiled.py:56 for jit", "run at compiled.py:56 for jit"),
        (r'File "C:\Users\bob\f.py", line 3', 'File "f.py", line 3'),
        (
            "See https://docs.jax.dev/en/latest/errors.html#x",
            "See https://docs.jax.dev/en/latest/errors.html#x",
        ),
        ("shapes (3,)/(4,) and a/b, 1/2", "shapes (3,)/(4,) and a/b, 1/2"),
        ("x" * 5000, "x" * 2000),
    ],
)
def test_a_foreign_message_names_files_without_their_places(text: str, expected: str) -> None:
    assert shown(text) == expected
    assert told(OSError(text)) == f"OSError: {expected}"


@pytest.mark.parametrize("accept", ["application/msgpack", "application/json"])
def test_nan_and_infinity_are_results_like_any(service: Running, accept: str) -> None:
    body = {"args": [[1.0, -1.0]]}
    answer = service.post("/v1/maps/lost/evaluate", body, Accept=accept)
    assert np.isnan(tree(answer)).tolist() == [True, False]
    assert tree(answer)[1] == -math.inf
    derivative = service.post("/v1/maps/lost/jacobian", body, Accept=accept)
    assert np.isnan(tree(derivative, "jacobian")).any()


def test_what_jax_cannot_hold_in_an_array_is_refused_when_it_returns(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(
        "from jaxtyping import Array, Float\nfrom gradwire_service import Map\nV = Float[Array, 'n']\n"
        "@Map\ndef cubic(x): return x**3\n"
        "@Map\ndef keyed(x: V): return {1: x}\n"
        "@Map\ndef setted(x: V): return {1, 2}\n"
        "@Map\ndef exiting(x: V): raise SystemExit(3)\n"
        "@Map\ndef recursing(x: V): return recursing(x)\n"
        "@Map\ndef secretive(x: V): raise KeyError('/var/lib/secret/place')\n"
        "@Map\ndef verbose(x: V): raise ValueError('long ' * 100_000)\n"
        "@Map\ndef strange(x: V): raise ValueError('\\ud800 \\x00 \\x1b[31m')\n"
        "@Map\ndef nothing(x: V): return None\n"
        "@Map\ndef listed(x: V): return [x, (x, {'k': x}), None]\n"
    )
    with started(file) as service:
        for name in ("keyed", "setted", "exiting", "recursing", "secretive", "verbose", "strange"):
            answer = service.ask(name, "evaluate", X)
            assert answer.kind == "map-failed", name
            assert len(answer.body) < 4000
            assert b"/var/lib" not in answer.body
            assert service.is_healthy(), name
        assert service.value("nothing", X) is None
        listed = service.value("listed", X)
        assert isinstance(listed, list)
        assert isinstance(listed[1], tuple)
        assert np.array_equal(listed[1][1]["k"], X)
        assert listed[2] is None
        assert service.is_healthy()


@pytest.mark.parametrize("stages", [{"evaluate"}, {"jvp"}])
def test_the_same_failure_comes_again_and_is_not_kept(service: Running, stages: set[str]) -> None:
    before = service.devices["compiled_queries"]
    fields: dict[str, Any] = {"tangents": [X]}
    for operation in stages:
        given = fields if operation == "jvp" else {}
        answers = [service.ask("refusing", operation, X, **given) for _ in range(3)]
        assert {answer.fields["detail"] for answer in answers} == {
            "refusing raised ValueError: only on Tuesdays"
        }
    assert service.devices["compiled_queries"] == before
