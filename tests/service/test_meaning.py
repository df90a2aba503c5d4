"""Well-formed requests that mean nothing: each is refused for what it is, and the service goes on."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Answer, Running, tree

X = [0.25, 0.75]
SECRET = 31337.25
"""A value that no answer may repeat."""
HIDDEN = ("Traceback", "site-packages", "gradwire_service", "31337")


def refused(answer: Answer, *kinds: str) -> Answer:
    """A problem of one of these kinds that tells nothing it must not."""
    assert 400 <= answer.status < 500
    assert answer.kind in kinds
    text = answer.body.decode("utf-8", "replace")
    for hidden in (*HIDDEN, ".py:", str(Path.home()), str(Path(__file__).parents[2])):
        assert hidden not in text, text
    assert len(text) < 3000
    return answer


# Arguments, tangents, cotangents.


@pytest.mark.parametrize("args", [[], [X, X], [X] * 100, [X, None]])
def test_a_wrong_number_of_arguments_is_told_with_the_signature(service: Running, args: list[Any]) -> None:
    answer = refused(service.post("/v1/maps/wave/evaluate", {"args": args}), "arguments")
    assert answer.fields["expected"] == 'wave(x: Float[Array, "n"]) -> Float[Array, "n"]'
    assert answer.fields["got"] == f"{len(args)} positional arguments"
    assert answer.fields["map"] == "wave"


def test_no_fields_at_all_is_a_wrong_number_of_arguments(service: Running) -> None:
    refused(service.post("/v1/maps/wave/evaluate", {}), "arguments")


@pytest.mark.parametrize("kwargs", [{"y": X}, {"x": X, "y": X}, {"": X}, {"x" * 10_000: X}])
def test_unknown_keywords_are_refused_by_name(service: Running, kwargs: dict[str, Any]) -> None:
    answer = refused(service.post("/v1/maps/wave/evaluate", {"kwargs": kwargs}), "arguments")
    assert len(answer.body) < 2500


def test_an_argument_given_twice_is_refused(service: Running) -> None:
    refused(service.post("/v1/maps/wave/evaluate", {"args": [X], "kwargs": {"x": X}}), "arguments")


@pytest.mark.parametrize("operation", ["jvp", "hvp"])
@pytest.mark.parametrize(("tangents", "got"), [(None, "none"), ([], "0"), ([X, X], "2"), ([X] * 50, "50")])
def test_a_wrong_number_of_tangents_is_told(
    service: Running, operation: str, tangents: list[Any] | None, got: str
) -> None:
    fields = {"args": [X], "tangents": tangents}
    answer = refused(service.post(f"/v1/maps/energy/{operation}", fields), "arguments")
    assert (answer.fields["argument"], answer.fields["got"]) == ("tangents", got)
    assert "1" in answer.fields["expected"]


def test_a_missing_cotangent_is_told(service: Running) -> None:
    answer = refused(service.post("/v1/maps/wave/vjp", {"args": [X]}), "arguments")
    assert answer.fields["argument"] == "cotangent"


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (3, 2), (6,), (2, 3, 1), (1, 2, 3, 1), ()])
@pytest.mark.parametrize("field", ["tangents", "cotangent"])
def test_the_right_size_in_the_wrong_shape_is_refused(
    service: Running, shape: tuple[int, ...], field: str
) -> None:
    point = np.ones((2, 3))
    vector = np.full(shape, SECRET)
    given = {"tangents": [vector]} if field == "tangents" else {"cotangent": vector}
    operation = "jvp" if field == "tangents" else "vjp"
    answer = refused(service.ask("anything", operation, point, **given), "shape")
    assert answer.fields["argument"].startswith(field)
    assert (answer.fields["expected"], answer.fields["got"]) == ("(…, 2, 3)", str(shape))


@pytest.mark.parametrize("tree", [{"a": X}, [X, None], {"tuple": [X]}, {"tuple": [X, X]}])
def test_a_vector_of_another_structure_is_refused(service: Running, tree: Any) -> None:
    refused(service.post("/v1/maps/wave/jvp", {"args": [X], "tangents": [tree]}), "arguments", "shape")
    refused(service.post("/v1/maps/wave/vjp", {"args": [X], "cotangent": tree}), "arguments", "shape")


def test_a_complex_vector_for_something_real_is_refused(service: Running) -> None:
    v = np.ones(2) * (1 + SECRET * 1j)
    answer = refused(service.ask("wave", "jvp", np.ones(2), tangents=[v]), "dtype")
    assert (answer.fields["expected"], answer.fields["got"]) == ("float64", "complex128[2]")
    refused(service.ask("wave", "vjp", np.ones(2), cotangent=v), "dtype")
    # The other way round it passes.
    assert service.ask("square", "jvp", np.ones(2) + 0j, tangents=[np.ones(2)]).status == 200


def test_stack_dimensions_that_disagree_are_refused(service: Running) -> None:
    a, b = np.ones((2, 3)), np.ones((3, 2))
    for stacks in (((4,), (5,)), ((4,), ()), ((2, 2), (4,))):
        tangents = [np.ones((*stacks[0], *a.shape)), np.ones((*stacks[1], *b.shape))]
        answer = refused(service.ask("product", "jvp", a, b, tangents=tangents), "shape")
        assert answer.fields["argument"] == "tangents"
    # One that is left out agrees with any.
    answer = service.ask("product", "jvp", a, b, tangents=[np.ones((4, 2, 3)), None])
    assert tree(answer, "tangent").shape == (4, 2, 2)


@pytest.mark.parametrize("argument", [["text"], "text", [X, "text"], {"a": "31337"}])
def test_text_where_an_array_belongs_is_refused(service: Running, argument: Any) -> None:
    answer = refused(service.post("/v1/maps/anything/evaluate", {"args": [argument]}), "arguments")
    assert answer.fields["argument"] == "x"


# argnums.


@pytest.mark.parametrize(
    "argnums",
    [1, -2, 2**40, -(2**63), [0, 0], [0, -1], [0, 1], [], [[0]], 1.0, True, [True], "0", ["0"], {"a": 0},
     [None], {"tuple": []}, {"tuple": 0}, [0.0], [0] * 5000, list(range(5000))],
)  # fmt: skip
@pytest.mark.parametrize("where", ["operation", "transform"])
def test_argnums_that_name_no_argument_are_refused(service: Running, argnums: Any, where: str) -> None:
    fields: dict[str, Any] = {"args": [X]}
    if where == "operation":
        answer = service.post("/v1/maps/energy/jacobian", {**fields, "argnums": argnums})
    else:
        transforms = [{"name": "grad", "argnums": argnums}]
        answer = service.post("/v1/maps/energy/evaluate", {**fields, "transforms": transforms})
    refused(answer, "arguments", "malformed")
    assert answer.fields["argument"] in ("argnums", "transforms")


def test_what_has_no_derivative_is_not_differentiated(service: Running) -> None:
    for position, name in ((1, "mask"), (2, "k")):
        args = [np.ones(2), np.ones(2, bool), np.int64(3)]
        answer = refused(service.ask("chosen", "jacobian", *args, argnums=position), "not-differentiable")
        assert answer.fields["argument"] == name
    refused(service.ask("doubled", "jvp", np.arange(2), tangents=[None]), "not-differentiable")


def test_a_tangent_for_an_argument_that_is_not_differentiated_is_refused(service: Running) -> None:
    args = [np.ones(2), np.ones(2, bool), np.int64(3)]
    two = [np.ones(2), np.ones(2)]
    refused(service.ask("chosen", "jvp", *args, tangents=two), "arguments")
    refused(
        service.ask("product", "jvp", np.ones((1, 1)), np.ones((1, 1)), tangents=two, argnums=[0]),
        "arguments",
    )
    inside = service.ask(
        "same", "jvp", {"x": np.ones(2), "k": np.arange(2)}, tangents=[{"x": np.ones(2), "k": np.ones(2)}]
    )
    refused(inside, "arguments")


def test_static_arguments_are_not_differentiated(service: Running) -> None:
    answer = refused(service.ask("smoothed", "jacobian", np.ones(2), 2, argnums=1), "arguments")
    assert answer.fields["argument"] == "order"


# What does not exist.


@pytest.mark.parametrize(
    ("map", "operation", "fields"),
    [
        ("wave", "grad", {"args": [X]}),
        ("wave", "hvp", {"args": [X], "tangents": [X]}),
        ("halved_until_small", "vjp", {"args": [3.0], "cotangent": 1.0}),
        ("clipped", "jvp", {"args": [X], "tangents": [X]}),
        ("clipped", "jacobian", {"args": [X], "mode": "fwd"}),
        ("halved_until_small", "jacobian", {"args": [3.0], "mode": "rev"}),
        ("on_host", "jacobian", {"args": [X]}),
        ("mixed", "jacobian", {"args": [[{"re": 1, "im": 2}]]}),
        ("mixed", "jacobian", {"args": [[{"re": 1, "im": 2}]], "holomorphic": True}),
    ],
)
def test_derivatives_that_do_not_exist_are_told_as_such(
    service: Running, map: str, operation: str, fields: dict[str, Any]
) -> None:
    answer = service.post(f"/v1/maps/{map}/{operation}", fields)
    refused(answer, "not-differentiable")
    assert answer.fields["map"] == map


# Too much.


def test_a_jacobian_over_the_budget_is_refused_with_its_size_before_it_is_computed(service: Running) -> None:
    before = service.devices["compiled_queries"]
    for operation, size in (("jacobian", 8 * 1000**2), ("hessian", 8 * 1000**3)):
        answer = refused(service.ask("wave", operation, np.ones(1000)), "answer-too-large")
        assert (answer.fields["expected"], answer.fields["got"]) == ("at most 1048576 bytes", f"{size} bytes")
    made = service.ask("wave", "linearize", np.ones(1000))
    path = f"/v1/linearizations/{made.fields['linearization']['id']}"
    answer = refused(service.pack(f"{path}/dense", {}), "answer-too-large")
    assert answer.fields["got"] == "8000000 bytes"
    assert service.send("DELETE", path).status == 204
    # Only the linearization was compiled.
    assert service.devices["compiled_queries"] <= max(before + 1, 24)


def test_stacks_and_maps_over_the_budget_are_refused_too(service: Running) -> None:
    many = np.zeros((2000, 100))
    refused(service.ask("wave", "jvp", np.ones(100), tangents=[many]), "answer-too-large")
    refused(service.ask("wave", "evaluate", many, transforms=[{"name": "vmap"}]), "answer-too-large")


@pytest.mark.parametrize("count", [9, 1000])
@pytest.mark.parametrize("name", ["vmap", "grad", "jacfwd", "hessian"])
def test_transforms_nested_too_deep_are_refused_before_they_are_traced(
    service: Running, name: str, count: int
) -> None:
    answer = service.post("/v1/maps/cubic/evaluate", {"args": [1.0], "transforms": [{"name": name}] * count})
    refused(answer, "arguments")
    assert (answer.fields["argument"], answer.fields["got"]) == ("transforms", str(count))
    assert "8" in answer.fields["expected"]


@pytest.mark.parametrize(
    "transforms",
    [
        {"name": "grad"}, "grad", ["grad"], [None], [[]], [{}], [{"name": 3}], [{"name": "jit"}],
        [{"name": "__import__"}], [{"name": "grad", "in_axes": 0}], [{"name": "grad", "holomorphic": 1}],
        [{"name": "grad", "has_aux": "yes"}], [{"name": "vmap", "argnums": 0}],
        [{"name": "vmap", "axis_name": "i"}], [{"name": "vmap", "in_axes": "0"}],
        [{"name": "vmap", "in_axes": [0, 0]}], [{"name": "vmap", "in_axes": 7}],
        [{"name": "vmap", "in_axes": None}], [{"name": "vmap", "in_axes": 0.5}],
        [{"name": "vmap", "in_axes": {"a": 0}}], [{"name": "vmap", "out_axes": 7}],
        [{"name": "vmap", "out_axes": None}],
    ],
)  # fmt: skip
def test_transforms_that_are_none_are_refused(service: Running, transforms: Any) -> None:
    answer = service.ask("wave", "evaluate", np.ones((2, 2)), transforms=transforms)
    refused(answer, "malformed", "arguments", "shape")


def test_mapped_axes_of_different_lengths_are_refused(service: Running) -> None:
    a, b = np.ones((2, 1, 2)), np.ones((3, 2, 1))
    answer = refused(service.ask("product", "evaluate", a, b, transforms=[{"name": "vmap"}]), "shape")
    assert "2" in answer.fields["detail"]
    assert "3" in answer.fields["detail"]


@pytest.mark.parametrize(
    "order", [{"a": 1}, [{"a": 1}], [[1, {"b": [2]}]], "NaN", {"re": 1, "im": 2}, {"dtype": "float64"}, 2**70]
)
def test_a_static_argument_that_is_no_plain_data_is_refused(service: Running, order: Any) -> None:
    answer = service.post("/v1/maps/smoothed/evaluate", {"args": [X], "kwargs": {"order": order}})
    refused(answer, "arguments", "malformed", "map-failed")


def test_arrays_and_nans_are_never_static(service: Running) -> None:
    for order in (np.ones(2), np.float64("nan"), float("nan")):
        refused(service.ask("smoothed", "evaluate", np.ones(2), order), "arguments", "malformed")


def test_statics_of_other_types_are_other_queries(service: Running) -> None:
    for order, expected in ((2, 0.5), (2.0, 0.5), (True, 1.0), (1, 1.0), (-0.5, -2.0)):
        answer = service.post("/v1/maps/smoothed/evaluate", {"args": [[1.0]], "kwargs": {"order": order}})
        assert answer.fields["value"] == [expected]


def test_a_static_argument_that_is_new_on_every_call_fills_no_memory(service: Running) -> None:
    for order in range(100, 130):
        value = service.post("/v1/maps/smoothed/evaluate", {"args": [[1.0]], "kwargs": {"order": order}})
        assert value.fields["value"] == [1 / order]
    assert service.devices["compiled_queries"] == 24


def test_a_shape_that_is_new_on_every_call_fills_no_memory_either(service: Running) -> None:
    for length in range(2, 30):
        assert service.ask("energy", "evaluate", np.zeros(length)).status == 200
    assert service.devices["compiled_queries"] == 24


# Names.


@pytest.mark.parametrize(
    "name",
    [
        "a/b", "a/b/c", "..%2f..%2fetc%2fpasswd", "a%00b", "%00", "%F0%9F%98%80", "x" * 3000, "wave@",
        "wave@@", "@", "%20", "wave%2Fevaluate", "wave%0D%0AX-Evil:%201", "%ff%fe", "__class__",
        "wave%3Cscript%3E",
    ],
)  # fmt: skip
def test_a_name_that_no_map_has_is_not_found(service: Running, name: str) -> None:
    asked = service.post(f"/v1/maps/{name}/evaluate", {"args": [X]})
    described = service.get(f"/v1/maps/{name}")
    for answer in (asked, described):
        assert refused(answer, "map-not-found", "route-not-found").status == 404
        assert "x-evil" not in answer.headers
        assert len(answer.body) < 1500


def test_a_name_of_a_megabyte_is_refused(service: Running) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        name = b"x" * (1 << 20)
        # The service may answer, and close, before it has read the whole of it.
        with suppress(OSError):
            connection.sendall(b"POST /v1/maps/" + name + b"/evaluate HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 414", b"HTTP/1.1 413")


def test_an_operation_that_does_not_exist_is_not_found_with_those_that_do(service: Running) -> None:
    answer = refused(service.post("/v1/maps/wave/differentiate", {"args": [X]}), "route-not-found")
    assert answer.fields["expected"].startswith("evaluate, jacobian")


def test_a_near_miss_is_named(service: Running) -> None:
    answer = refused(service.post("/v1/maps/wav/evaluate", {"args": [X]}), "map-not-found")
    assert "wave" in answer.fields["detail"]


# Fields.


@pytest.mark.parametrize("field", ["arg", "Args", "", "__class__", "value", "x" * 10_000, "é😀"])
def test_an_unknown_field_is_refused_by_name(service: Running, field: str) -> None:
    answer = refused(service.post("/v1/maps/wave/evaluate", {"args": [X], field: 1}), "malformed")
    assert answer.fields["argument"] == field[:64]
    assert "args" in answer.fields["expected"]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("args", {"a": 1}, "a list"),
        ("args", 5, "a list"),
        ("args", "text", "a list"),
        ("kwargs", [X], "a map"),
        ("kwargs", "text", "a map"),
        ("tangents", {"a": 1}, "a list"),
        ("transforms", 3, "a list"),
        ("known_patterns", "a", "a list"),
        ("mode", 3, "text"),
        ("mode", [], "text"),
        ("precision", 32, "text"),
        ("precision", ["float32"], "text"),
        ("device", 0, "text"),
        ("sparse", 1, "true or false"),
        ("holomorphic", "yes", "true or false"),
        ("has_aux", [], "true or false"),
    ],
)
def test_a_field_of_the_wrong_form_is_refused(
    service: Running, field: str, value: Any, expected: str
) -> None:
    answer = refused(service.post("/v1/maps/wave/jacobian", {"args": [X], field: value}), "malformed")
    assert answer.fields["argument"] == field
    assert answer.fields["expected"].startswith(expected)
    assert "got" in answer.fields


@pytest.mark.parametrize("mode", ["", "forward", "FWD", "x" * 10_000])
def test_an_unknown_mode_is_refused(service: Running, mode: str) -> None:
    answer = refused(service.post("/v1/maps/wave/jacobian", {"args": [X], "mode": mode}), "arguments")
    assert answer.fields["expected"] == "auto, fwd or rev"


@pytest.mark.parametrize(
    "field",
    ["kwargs", "tangents", "argnums", "mode", "sparse", "holomorphic", "transforms", "precision", "device"],
)
def test_null_is_as_good_as_absent(service: Running, field: str) -> None:
    plain = service.post("/v1/maps/wave/jacobian", {"args": [X]})
    assert (
        service.post("/v1/maps/wave/jacobian", {"args": [X], field: None}).fields["jacobian"]
        == (plain.fields["jacobian"])
    )


@pytest.mark.parametrize("body", [[], 3, "text", None, [{"args": []}]])
def test_a_message_that_is_no_map_of_fields_is_refused(service: Running, body: Any) -> None:
    refused(service.post("/v1/maps/wave/evaluate", json.dumps(body).encode()), "malformed")


@pytest.mark.parametrize("timeout", ["", "soon", "-1", "0", "nan", "inf", "1e999", "1" * 100, "0x10"])
def test_a_timeout_that_is_no_time_is_refused(service: Running, timeout: str) -> None:
    answer = service.post("/v1/maps/wave/evaluate", {"args": [X]}, Gradwire_Timeout=timeout)
    assert refused(answer, "malformed").fields["argument"] == "Gradwire-Timeout"


# Arrays without data belong to eval_shape alone, references to resident arrays.


def test_an_array_without_data_is_only_for_eval_shape(service: Running) -> None:
    huge = {"dtype": "float64", "shape": [10**9]}
    shaped = service.post("/v1/maps/wave/eval_shape", {"args": [huge]})
    assert shaped.fields["shapes"] == huge
    refused(service.post("/v1/maps/wave/evaluate", {"args": [huge]}), "malformed")


def test_eval_shape_refuses_what_evaluate_would(service: Running) -> None:
    wrong = {"dtype": "float64", "shape": [2, 2]}
    refused(service.post("/v1/maps/wave/eval_shape", {"args": [wrong]}), "shape")
    refused(service.post("/v1/maps/wave/eval_shape", {"args": [{"dtype": "int64", "shape": [2]}]}), "dtype")


def test_a_thousand_refusals_hold_no_memory(service: Running) -> None:
    def peak() -> int:
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    body = json.dumps({"args": [[SECRET] * 20_000], "tangents": []})
    refused(service.post("/v1/maps/wave/jvp", body.encode()), "arguments")
    before = peak()
    for _ in range(200):
        refused(service.post("/v1/maps/wave/jvp", body.encode()), "arguments")
    assert peak() - before < 64 << 20


def test_axes_of_pytrees_are_mapped_over_as_declared(service: Running) -> None:
    x = {"a": np.ones((2, 3)), "b": np.ones((3, 2))}
    axes = {"name": "vmap", "in_axes": [{"dict": {"a": 0, "b": 1}}]}
    value = service.value("same", x, transforms=[axes])
    assert (value["a"].shape, value["b"].shape) == ((2, 3), (2, 3))
