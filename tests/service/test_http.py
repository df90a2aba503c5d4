"""What every answer carries, in which format, and JSON through and through."""

from __future__ import annotations

import re
from typing import Any

import hosted
import msgpack
import numpy as np
import pytest
from running import Running, tree

import gradwire

X = [0.5, 1.5]
PATHS = (
    "/v1/maps",
    "/v1/maps/wave",
    "/v1/devices",
    "/health/live",
    "/health/ready",
    "/docs",
    "/openapi.json",
    "/",
)

FIELDS = {
    "evaluate": {"value"},
    "jacobian": {"jacobian"},
    "jvp": {"value", "tangent"},
    "vjp": {"value", "cotangents"},
    "grad": {"gradient"},
    "value_and_grad": {"value", "gradient"},
    "hessian": {"hessian"},
    "hvp": {"product"},
    "linearize": {"value", "linearization"},
    "eval_shape": {"shapes"},
}


def asked(operation: str) -> dict[str, Any]:
    return {
        "args": [X],
        **({"tangents": [X]} if operation in ("jvp", "hvp") else {}),
        **({"cotangent": 1.0} if operation == "vjp" else {}),
    }


# Answers.


@pytest.mark.parametrize("operation", FIELDS)
def test_an_answer_has_the_fields_of_its_operation_and_says_how_it_came_about(
    service: Running, operation: str
) -> None:
    answer = service.post(f"/v1/maps/energy/{operation}", asked(operation), X_Request_Id="lab-7.b_1")
    assert answer.status == 200
    assert set(answer.fields) == FIELDS[operation] | {"meta"}
    meta = answer.fields["meta"]
    assert {"map", "version", "device", "computed_in", "lossy", "request_id"} <= set(meta)
    assert (meta["map"], meta["version"]) == ("energy", hosted.energy.version)
    assert meta["device"] in ("cpu:0", "cpu:1", "cpu:2")
    assert (meta["computed_in"], meta["lossy"]) == ("float64", False)
    assert meta["request_id"] == answer.headers["x-request-id"] == "lab-7.b_1"
    if operation == "linearize":
        path = f"/v1/linearizations/{answer.fields['linearization']['id']}"
        assert service.send("DELETE", path).status == 204


@pytest.mark.parametrize("id", ["", "a b", "x" * 65, "a\tb", "<script>", "ä".encode().decode("latin-1")])
def test_a_request_id_that_is_not_sane_is_replaced(service: Running, id: str) -> None:
    answer = service.http.post(
        "/v1/maps/wave/evaluate", json={"args": [X]}, headers={b"x-request-id": id.encode("latin-1")}
    )
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])


@pytest.mark.parametrize("operation", ["evaluate", "jvp", "linearize"])
def test_the_stages_are_timed(service: Running, operation: str) -> None:
    answer = service.post(f"/v1/maps/energy/{operation}", asked(operation))
    timing = dict(
        re.fullmatch(r"(\w+);dur=(\d+\.\d+)", part).groups()
        for part in answer.headers["server-timing"].split(", ")
    )  # type: ignore[union-attr]
    assert list(timing) == ["decode", "queue", "compile", "compute", "encode"]
    assert all(float(milliseconds) < 60_000 for milliseconds in timing.values())


def test_the_client_has_the_timing_of_its_last_call(service: Running) -> None:
    with gradwire.connect(service.url) as lab:
        lab["wave"](np.array(X))
        assert set(lab.last_timing) == {"decode", "queue", "compile", "compute", "encode"}


@pytest.mark.parametrize(
    ("argnums", "form"),
    [(0, "bare"), (None, "bare"), ([0], "list"), ([1, 0], "list")],
)
@pytest.mark.parametrize(
    ("operation", "field", "map"),
    [("jacobian", "jacobian", "product"), ("hessian", "hessian", "product")],
)
def test_derivatives_are_bare_for_an_integer_and_a_list_for_a_list(
    service: Running, operation: str, field: str, map: str, argnums: Any, form: str
) -> None:
    fields = {"args": [[[1.0, 2.0]], [[1.0], [2.0]]], "argnums": argnums}
    derivative = service.post(f"/v1/maps/{map}/{operation}", fields).fields[field]
    if form == "bare":
        assert np.asarray(derivative).shape == (
            (1, 1, 1, 2) if operation == "jacobian" else (1, 1, 1, 2, 1, 2)
        )
    else:
        assert isinstance(derivative, list)
        assert len(derivative) == len(argnums)


def test_products_are_a_list_unless_one_argument_is_asked_for_by_its_number(service: Running) -> None:
    fields = {"args": [X], "tangents": [X]}
    expected = [6 * x**2 * x for x in X]
    assert service.post("/v1/maps/energy/hvp", fields).fields["product"] == [expected]
    assert service.post("/v1/maps/energy/hvp", {**fields, "argnums": [0]}).fields["product"] == [expected]
    assert service.post("/v1/maps/energy/hvp", {**fields, "argnums": 0}).fields["product"] == expected


@pytest.mark.parametrize("argnums", [0, [0], None])
def test_cotangents_are_always_a_list(service: Running, argnums: Any) -> None:
    answer = service.post("/v1/maps/energy/vjp", {"args": [X], "cotangent": 1.0, "argnums": argnums})
    assert answer.fields["cotangents"] == [[2 * x**3 for x in X]]


# Formats.


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("application/msgpack", "application/msgpack"),
        ("application/x-msgpack", "application/msgpack"),
        ("application/vnd.msgpack", "application/msgpack"),
        ("application/msgpack;q=0.5, application/json", "application/json"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/maps", "/v1/maps/wave", "/v1/devices"])
def test_a_get_is_answered_in_json_unless_accept_says_otherwise(
    service: Running, path: str, accept: str | None, content_type: str
) -> None:
    headers = {} if accept is None else {"accept": accept}
    request = service.http.build_request("GET", path, headers=headers)
    if accept is None:
        del request.headers["accept"]
    answer = service.http.send(request)
    assert answer.headers["content-type"] == content_type
    fields = answer.json() if "json" in content_type else msgpack.unpackb(answer.content)
    assert fields == service.get(path).fields or path == "/v1/devices"


@pytest.mark.parametrize(
    ("sent", "accept", "content_type"),
    [
        ("json", "", "application/json"),
        ("json", "*/*", "application/json"),
        ("json", "application/msgpack", "application/msgpack"),
        ("msgpack", "", "application/msgpack"),
        ("msgpack", "*/*", "application/msgpack"),
        ("msgpack", "application/json", "application/json"),
    ],
)
@pytest.mark.parametrize("args", [[X], []])
def test_a_request_is_answered_in_kind_unless_accept_says_otherwise(
    service: Running, sent: str, accept: str, content_type: str, args: list[Any]
) -> None:
    send = service.post if sent == "json" else service.pack
    answer = send("/v1/maps/wave/evaluate", {"args": args}, Accept=accept)
    expected = content_type if args else content_type.replace("/", "/problem+")
    assert answer.headers["content-type"] == expected


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "application/json;q=0"])
def test_a_format_that_is_not_spoken_is_refused(service: Running, accept: str) -> None:
    assert service.get("/v1/maps", Accept=accept).kind == "not-acceptable"
    assert service.post("/v1/maps/wave/evaluate", {"args": [X]}, Accept=accept).kind == "not-acceptable"


@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_the_body(service: Running, path: str) -> None:
    got, head = service.http.get(path), service.http.head(path)
    assert head.content == b""
    assert head.status_code == got.status_code == 200
    for name in ("content-type", "content-length"):
        assert head.headers[name] == got.headers[name]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/maps"),
        ("POST", "/v1/maps/wave"),
        ("GET", "/v1/linearizations/x"),
        ("PATCH", "/v1/devices"),
        ("DELETE", "/health/live"),
    ],
)
def test_a_method_that_a_path_has_not_is_told_with_those_it_has(
    service: Running, method: str, path: str
) -> None:
    answer = service.send(method, path)
    assert answer.kind == "method"
    assert answer.headers["allow"]


# JSON.


def evaluated(service: Running, argument: Any, **headers: str) -> Any:
    answer = service.post("/v1/maps/same/evaluate", {"args": [argument]}, **headers)
    assert answer.status == 200, answer.fields
    return answer.fields["value"]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ([1.5, -0.25], [1.5, -0.25]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ([True, False], [True, False]),
        (3, 3),
        (2.5, 2.5),
        (True, True),
        ([], []),
        (["NaN", "Infinity", "-Infinity", 1.0], ["NaN", "Infinity", "-Infinity", 1.0]),
        ({"re": 1.5, "im": -2.0}, {"re": 1.5, "im": -2.0}),
        ([{"re": 1.0, "im": "NaN"}, 2.0], [{"re": 1.0, "im": "NaN"}, {"re": 2.0, "im": 0.0}]),
        ({"dtype": "float32", "shape": [2, 1], "data": [0.1, 0.2]}, [[0.1], [0.2]]),
        ({"dtype": "float64", "shape": [1], "base64": "AAAAAAAA+D8="}, [1.5]),
        ({"dtype": "bfloat16", "shape": [1], "data": [1.5]}, [1.5]),
        ({"dtype": "uint64", "shape": [1], "data": [18446744073709551615]}, [18446744073709551615]),
        ({"a": [1.0], "b": [2.0, [3.0]][:1]}, {"a": [1.0], "b": [2.0]}),
        ({"tuple": [[1.0], None]}, {"tuple": [[1.0], None]}),
        ({"dict": {"re": [1.0]}}, {"dict": {"re": [1.0]}}),
        (None, None),
    ],
)
def test_json_comes_back_as_it_went(service: Running, argument: Any, value: Any) -> None:
    assert evaluated(service, argument) == value


def test_floats_are_the_shortest_that_round_trip_in_their_own_dtype(service: Running) -> None:
    for dtype in ("float32", "float16", "float64"):
        array = {"dtype": dtype, "shape": [3], "data": [0.1, 1 / 3, 1e-5]}
        texts = service.post("/v1/maps/same/evaluate", {"args": [array]}).body.decode()
        for value in np.array([0.1, 1 / 3, 1e-5], dtype):
            assert re.search(
                rf"[\[,]{re.escape(np.format_float_positional(value, trim='-'))}[\],]|e-0?5", texts
            )


@pytest.mark.parametrize("style", ["object", "base64"])
def test_json_arrays_are_objects_when_asked_for(service: Running, style: str) -> None:
    value = evaluated(service, [[1.5, 2.5]], Accept=f"application/json;arrays={style}")
    assert (value["dtype"], value["shape"]) == ("float64", [1, 2])
    assert value["data" if style == "object" else "base64"] in ([1.5, 2.5], "AAAAAAAA+D8AAAAAAAAEQA==")
    # And they are taken as they came.
    assert evaluated(service, value) == [[1.5, 2.5]]


@pytest.mark.parametrize("keys", ["str", "bin"])
def test_msgpack_keys_come_back_in_the_style_they_came_or_that_was_asked_for(
    service: Running, keys: str
) -> None:
    key = (lambda text: text.encode()) if keys == "bin" else (lambda text: text)
    array = {
        key("nd"): True,
        key("type"): "<f8",
        key("kind"): b"",
        key("shape"): [1],
        key("data"): np.ones(1).tobytes(),
    }
    body = msgpack.packb({key("args"): [array]})
    sent = service.http.post(
        "/v1/maps/wave/evaluate", content=body, headers={"content-type": "application/msgpack"}
    )
    assert key("value") in msgpack.unpackb(sent.content)
    asked = service.http.post(
        "/v1/maps/wave/evaluate", content=body,
        headers={"content-type": "application/msgpack", "accept": "application/msgpack;keys=bin"},
    )  # fmt: skip
    assert b"value" in msgpack.unpackb(asked.content)


def test_a_whole_session_in_json(service: Running) -> None:
    made = service.post("/v1/maps/energy/linearize", {"args": [X]}).fields
    path = f"/v1/linearizations/{made['linearization']['id']}"
    slope = [2 * x**3 for x in X]
    assert service.post(f"{path}/jvp", {"tangents": [[1, 0]]}).fields["tangent"] == slope[0]
    assert service.post(f"{path}/vjp", {"cotangent": 2}).fields["cotangents"] == [[2 * s for s in slope]]
    assert service.post(f"{path}/dense", {}).fields["jacobian"] == [slope]
    assert service.send("DELETE", path).status == 204
    transforms = [{"name": "grad"}, {"name": "vmap"}]
    rows = service.post("/v1/maps/energy/evaluate", {"args": [[X, X]], "transforms": transforms})
    assert rows.fields["value"] == [slope, slope]
    shapes = service.post("/v1/maps/energy/eval_shape", {"args": [X], "transforms": transforms[:1]})
    assert shapes.fields["shapes"] == {"dtype": "float64", "shape": [2]}


def test_json_and_msgpack_give_the_same_numbers(service: Running, random: np.random.Generator) -> None:
    x = random.standard_normal(20)
    json_answer = service.post("/v1/maps/wave/evaluate", {"args": [x.tolist()]})
    assert np.array_equal(tree(json_answer), service.value("wave", x))
