"""Linearizations and resident arrays: kept for their owner, within bounds of time and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import hosted
import jax
import numpy as np
import pytest
from running import FEW, Answer, Running, started, tree

import gradwire
from gradwire import wire

X = np.array([0.5, 1.5, -0.25])
UNKNOWN = "0" * 64


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Running]:
    """Keeps linearizations for a second, and few bytes of anything."""
    options = ("--linearization-ttl", "1", "--linearization-bytes", "20000", "--resident-bytes", "20000")
    with started(FEW, *options) as running:
        yield running


def linearized(service: Running, map: str = "wave", *args: Any, **fields: Any) -> str:
    answer = service.ask(map, "linearize", *(args or (X,)), **fields)
    assert answer.status == 200, answer.fields
    return f"/v1/linearizations/{answer.fields['linearization']['id']}"


def put(service: Running, array: np.ndarray) -> Answer:
    body = b"".join(bytes(part) for part in wire.canonical(array))
    path = f"/v1/arrays/{wire.sha256(array)}"
    return service.send("PUT", path, body, Content_Type="application/msgpack")


# Linearizations.


def test_a_linearization_answers_products_and_its_matrix(
    service: Running, random: np.random.Generator
) -> None:
    made = service.ask("wave", "linearize", X)
    assert np.allclose(tree(made), hosted.wave(X), rtol=1e-14)
    assert made.fields["linearization"]["expires"] == 300.0
    path = f"/v1/linearizations/{made.fields['linearization']['id']}"
    v, w = random.standard_normal((2, 3))
    with jax.enable_x64(True):
        jacobian = np.asarray(jax.jacfwd(hosted.wave._declaration.fun)(X))
    pushed = service.pack(f"{path}/jvp", {"tangents": [wire.Tree(v)]})
    assert np.allclose(tree(pushed, "tangent"), jacobian @ v, rtol=1e-12)
    pulled = service.pack(f"{path}/vjp", {"cotangent": wire.Tree(w)})
    assert np.allclose(tree(pulled, "cotangents")[0], w @ jacobian, rtol=1e-12)
    dense = service.pack(f"{path}/dense", {})
    assert np.allclose(tree(dense, "jacobian")[0], jacobian, rtol=1e-12)
    stacked = service.pack(f"{path}/jvp", {"tangents": [wire.Tree(np.stack([v, w]))]})
    assert np.allclose(tree(stacked, "tangent"), np.stack([v, w]) @ jacobian.T, rtol=1e-12)
    for answer in (pushed, pulled, dense):
        meta = answer.fields["meta"]
        assert (meta["map"], meta["version"]) == ("wave", hosted.wave.version)
        assert meta["request_id"] == answer.headers["x-request-id"]
    assert service.send("DELETE", path).status == 204


@pytest.mark.parametrize(
    ("argnums", "form"), [(0, np.ndarray), ([0], list), ([1, 0], list), (None, list), ({"tuple": [0]}, tuple)]
)
def test_the_matrix_takes_the_form_of_argnums(service: Running, argnums: Any, form: type) -> None:
    a, b = np.ones((1, 2)), np.ones((2, 1))
    path = linearized(service, "product", a, b, argnums=argnums)
    dense = tree(service.pack(f"{path}/dense", {}), "jacobian")
    assert isinstance(dense, form)
    shapes = [dense.shape] if form is np.ndarray else [block.shape for block in dense]
    every = [(1, 1, 1, 2), (1, 1, 2, 1)]
    order = {0: [0], None: [0, 1]}.get(argnums if argnums in (0, None) else -1) or (
        argnums if type(argnums) is list else [0]
    )
    assert shapes == [every[position] for position in order]
    assert service.send("DELETE", path).status == 204


@pytest.mark.parametrize(
    ("operation", "fields", "kind"),
    [
        ("jvp", {}, "malformed"),
        ("jvp", {"tangents": None}, "malformed"),
        ("jvp", {"tangents": 3}, "malformed"),
        ("jvp", {"tangents": {"a": [1.0]}}, "malformed"),
        ("jvp", {"tangents": []}, "arguments"),
        ("jvp", {"tangents": [[1.0] * 3, [1.0] * 3]}, "arguments"),
        ("jvp", {"tangents": [[1.0] * 4]}, "shape"),
        ("jvp", {"tangents": [[[1.0]] * 3]}, "shape"),
        ("jvp", {"tangents": [{"a": [1.0] * 3}]}, "arguments"),
        ("jvp", {"tangents": ["text"]}, "dtype"),
        ("jvp", {"cotangent": [1.0] * 3}, "malformed"),
        ("vjp", {}, "malformed"),
        ("vjp", {"cotangent": [1.0] * 4}, "shape"),
        ("vjp", {"cotangent": [{"re": 1, "im": 1}] * 3}, "dtype"),
        ("vjp", {"cotangent": [1.0] * 3, "tangents": []}, "malformed"),
        ("dense", {"argnums": 0}, "malformed"),
        ("grad", {}, "route-not-found"),
        ("", {}, "route-not-found"),
    ],
)
def test_a_linearization_refuses_what_it_cannot_take(
    service: Running, operation: str, fields: dict[str, Any], kind: str
) -> None:
    path = linearized(service)
    assert service.post(f"{path}/{operation}", fields).kind == kind
    assert service.post(f"{path}/dense", {}).status == 200
    assert service.send("DELETE", path).status == 204


def test_a_map_without_vjp_has_no_vjp_of_its_linearization_either(service: Running) -> None:
    path = linearized(service, "halved_until_small", 3.0)
    assert service.post(f"{path}/jvp", {"tangents": [1.0]}).fields["tangent"] == 0.25
    assert service.post(f"{path}/dense", {}).fields["jacobian"] == [0.25]
    assert service.send("DELETE", path).status == 204


def test_the_matrix_of_a_map_that_is_not_holomorphic_is_refused(service: Running) -> None:
    path = linearized(service, "mixed", X + 1j)
    assert service.post(f"{path}/dense", {}).kind == "not-differentiable"
    assert service.post(f"{path}/vjp", {"cotangent": [1.0] * 3}).status == 200
    holomorphic = linearized(service, "square", X + 1j)
    assert service.post(f"{holomorphic}/dense", {}).status == 200
    for kept in (path, holomorphic):
        assert service.send("DELETE", kept).status == 204


def test_unknown_forgotten_and_expired_linearizations_are_one_and_the_same_answer(
    service: Running, forgetful: Running
) -> None:
    forgotten, expired = linearized(service), linearized(forgetful)
    assert service.send("DELETE", forgotten).status == 204
    time.sleep(1.2)
    for running, path in (
        (service, forgotten),
        (service, f"/v1/linearizations/{'a' * 24}"),
        (service, "/v1/linearizations/..%2f..%2fetc"),
        (service, f"/v1/linearizations/{'x' * 2000}"),
        (forgetful, expired),
    ):
        for operation, fields in (
            ("jvp", {"tangents": [[1.0]]}),
            ("vjp", {"cotangent": None}),
            ("dense", {}),
        ):
            answer = running.post(f"{path}/{operation}", fields)
            if answer.status != 404:
                assert (answer.status, answer.kind) == (410, "gone")
                del answer.fields["instance"]
                assert answer.fields == {
                    "type": "urn:gradwire:gone",
                    "title": "Gone",
                    "status": 410,
                    "detail": "There is no such linearization (any more): linearize again.",
                    "got": "an id that is not known",
                }
        assert running.send("DELETE", path).status in (404, 410)
    assert forgetful.devices["linearizations"] == 0


def test_a_linearization_in_use_does_not_expire(forgetful: Running) -> None:
    path = linearized(forgetful)
    for _ in range(5):
        time.sleep(0.4)
        assert forgetful.post(f"{path}/jvp", {"tangents": [[1.0] * 3]}).status == 200


def test_linearizations_beyond_the_budget_push_out_the_one_unused_longest(forgetful: Running) -> None:
    paths = [linearized(forgetful, "wave", np.ones(200) * scale) for scale in range(10)]
    # Each keeps at least its point.
    assert forgetful.devices["linearization_bytes"] >= 200 * 8
    found = [forgetful.post(f"{path}/vjp", {"cotangent": None}).status for path in paths]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 200
    assert 410 in found
    assert forgetful.devices["linearization_bytes"] <= 20_000
    assert forgetful.is_healthy()


def test_the_client_remakes_what_the_service_has_lost(forgetful: Running) -> None:
    with gradwire.connect(forgetful.url) as lab:
        kept, given_up = lab["wave"].linearize(X), lab["wave"].using(keep=False).linearize(X)
        before = kept.jvp(X)
        time.sleep(1.2)
        assert np.array_equal(kept.jvp(X), before)
        with pytest.raises(gradwire.LinearizationLost):
            given_up.jvp(X)
        kept.close()
        given_up.close()


# Resident arrays.


def test_an_array_is_put_named_read_and_forgotten(service: Running) -> None:
    array = np.random.default_rng(1).standard_normal((5, 3))
    digest = wire.sha256(array)
    path = f"/v1/arrays/{digest}"
    assert put(service, array).status == 201
    assert put(service, array).status == 200
    read = service.get(path)
    assert (read.status, read.headers["content-type"]) == (200, "application/msgpack")
    assert read.body == b"".join(bytes(part) for part in wire.canonical(array))
    head = service.http.head(path)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(read.body)), b"")
    assert np.array_equal(service.value("same", wire.Ref(digest)), array)
    assert service.send("DELETE", path).status == 204
    for answer in (service.get(path), service.send("DELETE", path)):
        assert (answer.status, answer.kind) == (410, "gone")
        assert answer.fields["missing"] == [digest]


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int8", "bool", "uint64", ">f8"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_any_array_can_be_resident(service: Running, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    assert put(service, array).status in (200, 201)
    assert np.array_equal(service.value("same", wire.Ref(wire.sha256(array))), array)


@pytest.mark.parametrize("field", ["args", "kwargs", "tangents", "cotangent", "eval_shape"])
def test_a_resident_array_is_good_wherever_an_array_is(service: Running, field: str) -> None:
    put(service, X)
    ref = wire.Ref(wire.sha256(X))
    operation, args, fields = {
        "args": ("evaluate", (ref,), {}),
        "kwargs": ("evaluate", (), {"kwargs": {"x": ref}}),
        "tangents": ("jvp", (X,), {"tangents": [ref]}),
        "cotangent": ("vjp", (X,), {"cotangent": ref}),
        "eval_shape": ("eval_shape", (ref,), {}),
    }[field]
    named = service.ask("wave", operation, *args, **fields)
    sent = service.ask(
        "wave",
        operation,
        *(X if arg is ref else arg for arg in args),
        **{key: [X] if key == "tangents" else {"x": X} if key == "kwargs" else X for key in fields},
    )
    for name in set(sent.fields) - {"meta"}:
        assert np.array_equal(np.asarray(tree(named, name)), np.asarray(tree(sent, name))) or name == "shapes"
    assert named.status == sent.status == 200


def test_a_linearization_takes_resident_vectors(service: Running) -> None:
    put(service, X)
    ref, path = wire.Ref(wire.sha256(X)), linearized(service)
    named = service.pack(f"{path}/jvp", {"tangents": [wire.Tree(ref)]})
    sent = service.pack(f"{path}/jvp", {"tangents": [wire.Tree(X)]})
    assert np.array_equal(tree(named, "tangent"), tree(sent, "tangent"))
    lost = service.pack(f"{path}/vjp", {"cotangent": wire.Tree(wire.Ref(UNKNOWN))})
    assert (lost.kind, lost.fields["missing"]) == ("gone", [UNKNOWN])


def test_every_array_that_is_missing_is_named_at_once(service: Running) -> None:
    refs = [wire.Ref(digit * 64) for digit in "0123"]
    answer = service.ask(
        "joined", "jvp", refs[0], {"a": [refs[1], X]}, tangents=[refs[2], refs[0]], kwargs={"scale": refs[3]}
    )
    assert answer.kind == "gone"
    assert sorted(answer.fields["missing"]) == [ref.sha256 for ref in refs]


@pytest.mark.parametrize(
    "name", ["xyz", UNKNOWN.upper().replace("0", "A"), UNKNOWN[1:], "..%2f..%2fetc", "%00" * 64]
)
def test_a_name_that_is_no_hash_is_refused(service: Running, name: str) -> None:
    body = b"".join(bytes(part) for part in wire.canonical(X))
    for method, sent in (("GET", None), ("DELETE", None), ("PUT", body)):
        headers = {"Content_Type": "application/msgpack"} if sent else {}
        answer = service.send(method, f"/v1/arrays/{name}", sent, **headers)
        assert answer.kind in ("arguments", "route-not-found")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"".join(bytes(part) for part in wire.canonical(X)), "arguments"),
        (b"\x80", "malformed"),
        (b"\x81\xa1a\x01", "malformed"),
        (b"\x01", "malformed"),
        (b"\xc0", "malformed"),
        (b"\x81\xa3ref\xd9\x40" + b"0" * 64, "malformed"),
        (b"\x81\xa5tuple\x90", "malformed"),
    ],
)
def test_a_body_that_is_not_the_array_named_is_refused(service: Running, body: bytes, kind: str) -> None:
    before = service.devices["resident_arrays"]
    answer = service.send("PUT", f"/v1/arrays/{UNKNOWN}", body, Content_Type="application/msgpack")
    assert answer.kind == kind
    assert service.devices["resident_arrays"] == before


def test_arrays_beyond_the_budget_push_out_the_one_unused_longest(forgetful: Running) -> None:
    arrays = [np.full(1000, float(fill)) for fill in range(4)]
    for array in arrays:
        assert put(forgetful, array).status == 201
    status = [forgetful.get(f"/v1/arrays/{wire.sha256(array)}").status for array in arrays]
    assert status == [410, 410, 200, 200]
    assert forgetful.devices["resident_bytes"] == 16_000
    # Read last, the older one stays.
    assert forgetful.get(f"/v1/arrays/{wire.sha256(arrays[2])}").status == 200
    put(forgetful, arrays[0])
    status = [forgetful.get(f"/v1/arrays/{wire.sha256(array)}").status for array in arrays]
    assert status == [200, 410, 200, 410]
    for array in arrays:
        forgetful.send("DELETE", f"/v1/arrays/{wire.sha256(array)}")
    assert forgetful.devices["resident_bytes"] == 0


def test_an_array_that_alone_is_over_the_budget_is_refused(forgetful: Running) -> None:
    answer = put(forgetful, np.zeros(3000))
    assert answer.status >= 400
    assert answer.kind in ("out-of-memory", "too-large", "quota")
    assert "20000" in answer.fields["expected"]
    assert forgetful.is_healthy()


def test_a_resident_array_is_no_view_of_what_came_after_it(service: Running) -> None:
    array = np.arange(1000.0)
    put(service, array)
    for fill in range(5):
        service.value("same", np.full(1000, float(fill)))
    assert np.array_equal(service.value("same", wire.Ref(wire.sha256(array))), array)
    doubled = service.ask("wave", "evaluate", wire.Ref(wire.sha256(array)))
    assert doubled.status == 200
    assert np.array_equal(service.value("same", wire.Ref(wire.sha256(array))), array)


def test_the_client_names_a_resident_array_and_restores_one_that_was_lost(service: Running) -> None:
    with gradwire.connect(service.url) as lab, lab.put(X) as resident:
        expected = lab["wave"](X)
        assert np.array_equal(lab["wave"](resident), expected)
        assert service.send("DELETE", f"/v1/arrays/{wire.sha256(X)}").status == 204
        assert np.array_equal(lab["wave"](resident), expected)
        assert np.array_equal(resident.get(), X)
