"""What makes a Map, what is refused, and how clients are told of what is hosted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import hosted
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from running import Running, started, tree

import gradwire
from gradwire._errors import ArgumentError
from gradwire_service import Map, Settings, create_app

# Making one.


def plain(x):
    return x


class Callable:
    """A map with settings of its own."""

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x


def test_a_map_is_named_after_its_function_and_versioned_by_its_source() -> None:
    assert Map(plain).name == "plain"
    assert Map(plain).version == Map(plain).version
    assert Map(plain).version != Map(hosted._first).version
    assert Map(plain, name="other", version="2.0").version == "2.0"


@pytest.mark.parametrize("name", ["a", "_", "A-b_9", "a" * 64])
def test_good_names_are_taken(name: str) -> None:
    assert Map(plain, name=name).name == name


@pytest.mark.parametrize("name", ["", "9a", "-a", "a b", "a/b", "a@b", "a.b", "ä", "a" * 65, "a\n", "a\0"])
def test_names_that_cannot_be_hosted_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Map(plain, name=name)
    assert caught.value.argument == "name"


@pytest.mark.parametrize("version", ["", "a b", "a/b", "1@2", "v" * 33, "1\n"])
def test_versions_that_cannot_be_hosted_are_refused(version: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Map(plain, version=version)
    assert caught.value.argument == "version"


@pytest.mark.parametrize("reserved", ["argnums", "mode", "sparse", "holomorphic"])
def test_parameters_that_would_hide_an_option_are_refused(reserved: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f(x, {reserved}=0): return x", scope)
    with pytest.raises(ArgumentError) as caught:
        Map(scope["f"])
    assert caught.value.argument == reserved


@pytest.mark.parametrize("fun", [lambda x: x, Callable()])
def test_what_has_no_name_of_its_own_must_be_given_one(fun: Any) -> None:
    with pytest.raises(ArgumentError, match="name="):
        Map(fun)
    assert Map(fun, name="given").name == "given"


@pytest.mark.parametrize("names", [("y",), ("rest",), ("x", "y"), "order"])
def test_static_names_that_are_no_parameters_are_refused(names: Any) -> None:
    def f(x, *rest):
        return x

    with pytest.raises(ArgumentError) as caught:
        Map(f, static_argnames=names)
    assert caught.value.argument == "static_argnames"


@pytest.mark.parametrize("options", [{"precision": "float31"}, {"precision": ""}])
def test_a_map_with_an_impossible_precision_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Map(plain, **options)


def test_what_is_no_function_is_no_map() -> None:
    with pytest.raises(ArgumentError):
        Map(3)  # type: ignore[arg-type]


# Hosting them.


def test_two_maps_of_one_name_and_version_stop_the_start() -> None:
    with pytest.raises(ArgumentError, match="plain@1"):
        create_app([Map(plain, version="1"), Map(hosted._first, name="plain", version="1")], Settings())


def test_two_files_with_one_map_stop_serve(tmp_path: Path) -> None:
    text = "from gradwire_service import Map\ndef f(x): return x\nf = Map(f, version='1')\n"
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(text)
    code = "import sys, gradwire._cli; sys.exit(gradwire._cli.main())"
    serve = [sys.executable, "-c", code, "serve", "one.py", "two.py", "--port", "0"]
    found = subprocess.run(serve, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 2
    assert "f@1 is defined twice" in found.stderr
    assert "Traceback" not in found.stderr


def test_versions_of_a_map_are_served_side_by_side(service: Running) -> None:
    x = np.array([1.0])
    assert service.value("plus@1.0", x) == [2.0]
    assert service.value("plus@2.0%2Bb", x) == [3.0]
    assert service.value("plus@2.0+b", x) == [3.0]
    bare = service.ask("plus", "evaluate", x)
    assert (tree(bare), bare.fields["meta"]["version"]) == ([3.0], "2.0+b")
    unknown = service.ask("plus@3.0", "evaluate", x)
    assert unknown.kind == "map-not-found"
    assert "plus@1.0" in unknown.fields["detail"]


def test_the_client_finds_a_version_and_names_near_misses(service: Running) -> None:
    with gradwire.connect(service.url) as lab:
        assert lab["plus@1.0"](np.ones(1)) == [2.0]
        assert lab["plus@1.0"].version == "1.0"
        assert lab["plus"].version == "2.0+b"
        with pytest.raises(gradwire.MapNotFound, match="energy"):
            lab["energi"]


def test_modules_are_hosted_by_their_dotted_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "terrain" / "of"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "hills.py").write_text(
        "from gradwire_service import Map\n\n@Map\ndef cubic(x):\n    return x**3\n"
    )
    monkeypatch.chdir(tmp_path)
    with started("terrain.of.hills") as running:
        assert [entry["name"] for entry in running.get("/v1/maps").fields["maps"]] == ["cubic"]
        assert running.is_healthy()


# Describing them.


def test_a_map_is_described_as_declared(service: Running) -> None:
    described = service.get("/v1/maps/chosen").fields
    assert described["protocol"] == 1
    assert described["name"] == "chosen"
    assert described["version"] == hosted.chosen.version
    assert described["doc"] == "Floating, boolean and integer arguments."
    assert described["returns"] == {"shape": "n", "dtype": "Float"}
    assert described["parameters"] == [
        {"name": "x", "kind": "positional_or_keyword", "shape": "n", "dtype": "Float",
         "static": False, "required": True, "default": None},
        {"name": "mask", "kind": "positional_or_keyword", "shape": "n", "dtype": "Bool",
         "static": False, "required": True, "default": None},
        {"name": "k", "kind": "positional_or_keyword", "shape": "", "dtype": "Int",
         "static": False, "required": True, "default": None},
    ]  # fmt: skip


def test_statics_defaults_and_kinds_of_parameters_are_described(service: Running) -> None:
    (_, order) = service.get("/v1/maps/smoothed").fields["parameters"]
    assert (order["static"], order["required"], order["default"]) == (True, False, 1)
    kinds = {p["name"]: p["kind"] for p in service.get("/v1/maps/joined").fields["parameters"]}
    assert kinds == {"parts": "var_positional", "scale": "keyword_only", "others": "var_keyword"}
    (anything,) = service.get("/v1/maps/anything").fields["parameters"]
    assert (anything["shape"], anything["dtype"]) == (None, None)


def test_the_list_describes_every_map_as_it_describes_itself(service: Running) -> None:
    listed = service.get("/v1/maps").fields
    local = [value for value in vars(hosted).values() if isinstance(value, Map)]
    assert [(m["name"], m["version"]) for m in listed["maps"]] == [(m.name, m.version) for m in local]
    for described in listed["maps"][:4]:
        alone = service.get(f"/v1/maps/{described['name']}@{described['version']}").fields
        assert {key: alone[key] for key in described} == described
        assert alone["features"] == listed["features"]


def test_the_client_has_the_signature_of_the_local_map(service: Running) -> None:
    with gradwire.connect(service.url) as lab:
        for name in ("chosen", "smoothed", "product", "joined", "anything"):
            local = getattr(hosted, name)
            assert lab[name].signature == local.signature
            assert lab[name].operations == local.operations
            assert lab[name].__doc__ == local.__doc__


# Checking what comes against it.

N = np.arange(3.0)


@pytest.mark.parametrize(
    ("map", "args", "argument", "expected", "got"),
    [
        ("wave", (np.ones((3, 1)),), "x", 'Float[Array, "n"]', "(3, 1)"),
        ("wave", (1.0,), "x", 'Float[Array, "n"]', "()"),
        ("cubic", (N,), "x", 'Float[Array, ""]', "(3,)"),
        ("product", (np.ones((2, 3)), np.ones((2, 3))), "b", 'Float[Array, "k n"]', "(2, 3)"),
        ("chosen", (N, np.ones(4, bool), 1), "mask", 'Bool[Array, "n"]', "(4,)"),
        ("chosen", (N, np.ones(3, bool), np.ones(3, int)), "k", 'Int[Array, ""]', "(3,)"),
        ("shaped", (N, N, np.ones(2)), "z", 'Inexact[Array, "n"]', "(2,)"),
        ("joined", (N, N, np.ones(2)), "parts", 'Float[Array, "n"]', "(2,)"),
        ("wave", ({"a": N},), "x", 'Float[Array, "n"]', "a pytree"),
        ("wave", (None,), "x", 'Float[Array, "n"]', "None"),
    ],
)
@pytest.mark.parametrize("operation", ["evaluate", "eval_shape"])
def test_a_shape_that_is_not_the_declared_one_is_refused(
    service: Running, map: str, args: tuple[Any, ...], argument: str, expected: str, got: str, operation: str
) -> None:
    answer = service.ask(map, operation, *args)
    assert answer.kind == "shape"
    assert (answer.fields["map"], answer.fields["argument"]) == (map, argument)
    assert (answer.fields["expected"], answer.fields["got"]) == (expected, got)


def test_what_the_dimensions_agreed_on_before_is_told(service: Running) -> None:
    answer = service.ask("product", "evaluate", np.ones((2, 3)), np.ones((4, 5)))
    assert "a of shape (2, 3)" in answer.fields["detail"]


@pytest.mark.parametrize(
    ("map", "args", "argument", "expected", "got"),
    [
        ("wave", (np.arange(3),), "x", "Float", "int64[3]"),
        ("wave", (N + 0j,), "x", "Float", "complex128[3]"),
        ("wave", (N > 1,), "x", "Float", "bool[3]"),
        ("square", (N,), "z", "Complex", "float64[3]"),
        ("doubled", (N,), "k", "Int", "float64[3]"),
        ("doubled", (np.ones(3, "uint8"),), "k", "Int", "uint8[3]"),
        ("chosen", (N, np.array([0, 1, 1]), 1), "mask", "Bool", "int64[3]"),
        ("chosen", (N, N > 1, 2.0), "k", "Int", "float"),
        ("single", (N,), "x", "Float32", "float64[3]"),
        ("shaped", (N, N > 1, N), "y", "Num", "bool[3]"),
        ("shaped", (N, N, np.arange(3)), "z", "Inexact", "int64[3]"),
    ],
)
def test_a_dtype_that_is_not_of_the_declared_class_is_refused(
    service: Running, map: str, args: tuple[Any, ...], argument: str, expected: str, got: str
) -> None:
    answer = service.ask(map, "evaluate", *args)
    assert answer.kind == "dtype"
    assert (answer.fields["argument"], answer.fields["expected"], answer.fields["got"]) == (
        argument,
        expected,
        got,
    )


@pytest.mark.parametrize(
    ("map", "args"),
    [
        ("single", (N.astype("float32"),)),
        ("shaped", (N > 1, np.arange(3), N)),
        ("shaped", (N + 1j, N, N + 1j)),
        ("doubled", (np.arange(3, dtype="int8"),)),
        ("wave", (N.astype("float16"),)),
        ("anything", (N > 1,)),
        ("anything", (np.ones((2, 3, 4)),)),
        ("same", ({"a": [N, (N, None)]},)),
    ],
)
def test_what_fits_the_declaration_is_taken(service: Running, map: str, args: tuple[Any, ...]) -> None:
    assert service.ask(map, "evaluate", *args).status == 200


def test_bare_integers_become_floating_where_declared_so(service: Running) -> None:
    assert service.post("/v1/maps/wave/evaluate", {"args": [[0, 0]]}).fields["value"] == [0.0, 0.0]
    assert service.post("/v1/maps/cubic/grad", {"args": [2]}).fields["gradient"] == 12.0
    assert service.post("/v1/maps/anything/jacobian", {"args": [0]}).fields["jacobian"] == 2.0


def test_the_declaration_is_that_of_the_innermost_map(service: Running) -> None:
    rows = np.ones((4, 3))
    mapped = [{"name": "vmap"}]
    assert service.value("wave", rows, transforms=mapped).shape == (4, 3)
    assert service.value("wave", np.ones((5, 4, 3)), transforms=mapped * 2).shape == (5, 4, 3)
    assert service.ask("wave", "evaluate", rows[0], transforms=mapped).kind == "shape"
    axes = [{"name": "vmap", "in_axes": [0, None]}]
    assert service.value("product", np.ones((6, 2, 3)), np.ones((3, 4)), transforms=axes).shape == (6, 2, 4)
    wrong = service.ask("product", "evaluate", np.ones((6, 2, 3)), np.ones((4, 4)), transforms=axes)
    assert (wrong.kind, wrong.fields["got"]) == ("shape", "(4, 4)")


@pytest.mark.parametrize("stack", [(), (1,), (2, 3)])
def test_stack_dimensions_are_no_part_of_the_declared_shape(service: Running, stack: tuple[int, ...]) -> None:
    v = np.ones((*stack, 3))
    for operation, fields, name in (
        ("jvp", {"tangents": [v]}, "tangent"),
        ("vjp", {"cotangent": v}, "cotangents"),
    ):
        answer = service.ask("wave", operation, N, **fields)
        vectors = tree(answer, name)
        assert (vectors[0] if operation == "vjp" else vectors).shape == (*stack, 3)
        assert tree(answer).shape == (3,)


def test_maps_may_call_each_other_and_are_checked_there_too(service: Running) -> None:
    def outer(x: Float[Array, "a b"]) -> Float[Array, "a"]:
        return jnp.sum(hosted.product(x, x), axis=1)

    assert Map(outer)(np.ones((2, 2))).tolist() == [4.0, 4.0]
    with pytest.raises(gradwire.ShapeError, match="product"):
        Map(outer)(np.ones((2, 3)))
