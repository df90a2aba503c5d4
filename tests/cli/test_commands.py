"""``gradwire maps`` and ``gradwire call`` against a running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradwire._cli import main
from gradwire_service.demo import serving

MAPS = """
from functools import partial
import jax.numpy as jnp
from jaxtyping import Array, Float
from gradwire_service import Map

@Map
def square(x: Float[Array, "n"]) -> Float[Array, ""]:
    '''The sum of squares.

    More of it.
    '''
    return jnp.sum(x**2)

@Map
def product(a: Float[Array, "n"], b: Float[Array, "n"]) -> Float[Array, "n"]:
    return a * b

@partial(Map, static_argnames=("order",))
def power(x: Float[Array, "n"], order: int = 2) -> Float[Array, "n"]:
    return x**order

@Map
def parts(p):
    return {"sum": p["a"] + p["b"], "pair": (p["a"], 2 * p["b"])}

@Map
def half(x):
    return x.astype(jnp.bfloat16)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("maps") / "some_maps.py"
    file.write_text(MAPS, encoding="utf-8")
    with serving(file, options=["--device", "cpu"]) as url:
        yield url


@pytest.fixture
def x(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0, 3.0]))
    return str(tmp_path / "x.npy")


def test_maps_are_listed_with_signature_operations_and_first_line(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["maps", url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["name", "version", "signature", "operations"]
    assert [line.split()[0] for line in lines[1:]] == ["square", "product", "power", "parts", "half"]
    assert '(x: Float[Array, "n"]) -> Float[Array, ""]' in lines[1]
    assert lines[1].endswith("The sum of squares.") and "vjp" in lines[1]


def test_maps_as_json_are_the_services_descriptions(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maps", url, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described[0]["name"] == "square" and described[0]["parameters"][0]["name"] == "x"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["square", "evaluate", "[1, 2, 3]"], "value: float64[]\n14."),
        (["square", "jacobian", "X"], "jacobian: float64[3]\n[2. 4. 6.]"),
        (["square", "grad", "X"], "gradient: float64[3]\n[2. 4. 6.]"),
        (["square", "value_and_grad", "X"], "value: float64[]\n14.\ngradient: float64[3]\n[2. 4. 6.]"),
        (["square", "jvp", "X", "--tangent", "[1,0,0]"], "value: float64[]\n14.\ntangent: float64[]\n2."),
        (
            ["square", "vjp", "X", "--cotangent", "2"],
            "value: float64[]\n14.\ncotangents.0: float64[3]\n[ 4.  8. 12.]",
        ),
        (["square", "hvp", "X", "--tangent", "[0,0,1]"], "product.0: float64[3]\n[0. 0. 2.]"),
        (["square", "hessian", "[1.0, 2.0]"], "hessian: float64[2,2]\n[[2. 0.]\n [0. 2.]]"),
        (["square", "eval_shape", "X"], "shapes: float64[]"),
        (
            ["product", "jvp", "X", "X", "--tangent", "[1,1,1]", "--argnums", "1"],
            "tangent: float64[3]\n[1. 2. 3.]",
        ),
        (
            ["product", "vjp", "X", "X", "--cotangent", "[1,1,1]", "--argnums", "1,0"],
            "cotangents.1: float64[3]",
        ),
        (
            ["product", "jvp", "X", "X", "--tangent", "null", "--tangent", "X"],
            "tangent: float64[3]\n[1. 4. 9.]",
        ),
        (["product", "jacobian", "[2.0]", "[3.0]", "--argnums", "0,1"], "jacobian.1: float64[1,1]\n[[2.]]"),
        (["power", "evaluate", "X", "--kwarg", "order=3"], "value: float64[3]\n[ 1.  8. 27.]"),
        (["square", "evaluate", "X", "--precision", "float32"], "value: float32[]\n14."),
        (["square", "evaluate", "[-1.5]", "--device", "cpu"], "value: float64[]\n2.25"),
        (["parts", "evaluate", '{"a": 1.0, "b": [2.0]}'], "value.pair.1: float64[1]\n[4.]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.filterwarnings("ignore::gradwire.PrecisionWarning")
def test_every_operation_can_be_called(
    arguments: list[str], printed: str, url: str, x: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", url, *(x if argument == "X" else argument for argument in arguments)]) == 0
    assert printed in capsys.readouterr().out


def test_answers_are_written_as_named_arrays(url: str, x: str, tmp_path: Path) -> None:
    out = tmp_path / "answer.npz"
    assert main(["call", url, "square", "value_and_grad", x, "--out", str(out)]) == 0
    with np.load(out) as answer:
        assert answer["value"] == 14 and answer["gradient"].tolist() == [2, 4, 6]
    np.savez(tmp_path / "p.npz", a=np.ones(2), b=np.zeros(2))
    assert main(["call", url, "parts", "evaluate", str(tmp_path / "p.npz"), "--out", str(out)]) == 0
    with np.load(out) as answer:
        assert set(answer) == {"value.sum", "value.pair.0", "value.pair.1"}


def test_bfloat16_is_written_as_float32(url: str, x: str, tmp_path: Path) -> None:
    out = tmp_path / "answer.npz"
    assert (
        main(
            [
                "call",
                url,
                "half",
                "evaluate",
                x,
                "--precision",
                "compute=input,output=bfloat16",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    with np.load(out) as answer:
        assert answer["value"].dtype == np.float32


def test_a_file_of_objects_is_not_loaded(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert main(["call", url, "square", "evaluate", str(tmp_path / "x.npy")]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["squares", "evaluate", "[1.0]"], "square"),
        (["square", "evaluate", "[[1.0]]"], "x"),
        (["square", "evaluate"], "x"),
        (["square", "evaluate", "nonsense"], "JSON"),
        (["square", "evaluate", "missing.npy"], "cannot be read"),
        (["power", "evaluate", "[1.0]", "--kwarg", "order"], "NAME=VALUE"),
        (["square", "grad", "[1.0]", "--argnums", "a"], "argnums"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_goes_wrong_is_told_in_one_line(
    arguments: list[str], told: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", url, *arguments]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and told in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["square", "jvp", "[1.0]"],
        ["square", "vjp", "[1.0]"],
        ["square", "grad", "[1.0]", "--tangent", "[1.0]"],
        ["square", "evaluate", "[1.0]", "--argnums", "0"],
        ["square", "linearize", "[1.0]"],
        ["square", "eval_shape", "[1.0]", "--out", "x.npz"],
        ["product", "jvp", "[1.0]", "[1.0]", "--argnums", "0", "--tangent", "[1.0]", "--tangent", "[1.0]"],
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together_are_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["call", "http://localhost:1", *arguments])
    assert ended.value.code == 2
    assert "usage: gradwire call" in capsys.readouterr().err


def test_a_service_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maps", "not a url"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
