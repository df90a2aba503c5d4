"""Every refusal names the map, the argument, what was expected and what came, and is its built-in."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

import gradwire

X = np.array([0.3, -1.2, 2.5])

BUILT_IN = {
    "MapNotFound": KeyError, "ArgumentError": TypeError, "ShapeError": ValueError, "DTypeError": TypeError,
    "NotDifferentiable": TypeError, "MapFailed": RuntimeError, "AnswerTooLarge": MemoryError,
    "OutOfMemory": MemoryError, "LinearizationLost": Exception, "QuotaExceeded": Exception,
    "Overloaded": Exception, "DeadlineExceeded": TimeoutError, "Unauthorized": PermissionError,
    "ServiceUnavailable": ConnectionError, "WireError": ValueError,
}  # fmt: skip


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_is_a_gradwire_error_and_its_built_in(name):
    error = getattr(gradwire, name)
    assert issubclass(error, gradwire.GradwireError) and issubclass(error, BUILT_IN[name])
    assert not hasattr(builtins, name)


# what is asked, its error, the map, the argument
REFUSED = {
    "missing": (lambda m: m["outer"](X), "ArgumentError", "outer", None),
    "extra": (lambda m: m["valley"](X, X), "ArgumentError", "valley", None),
    "unknown": (lambda m: m["valley"](X, size=3), "ArgumentError", "valley", "size"),
    "twice": (lambda m: m["valley"](X, x=X), "ArgumentError", "valley", None),
    "keyword only": (lambda m: m["shifted"](X, X), "ArgumentError", "shifted", None),
    "rank": (lambda m: m["valley"](X[None]), "ShapeError", "valley", "x"),
    "rank of a keyword": (lambda m: m["shifted"](X, by=X[None]), "ShapeError", "shifted", "by"),
    "named dimension": (lambda m: m["shifted"](X, by=X[:2]), "ShapeError", "shifted", "by"),
    "dimensions of two": (lambda m: m["affine"](X, np.ones((4, 2))), "ShapeError", "affine", "matrix"),
    "shape in a derivative": (lambda m: m["valley"].hessian(X[None]), "ShapeError", "valley", "x"),
    "a tree for an array": (lambda m: m["valley"]((X, X)), "ShapeError", "valley", "x"),
    "None for an array": (lambda m: m["valley"](None), "ShapeError", "valley", "x"),
    "dtype": (lambda m: m["valley"](np.arange(3)), "DTypeError", "valley", "x"),
    "dtype of a keyword": (lambda m: m["shifted"](X, by=np.arange(3)), "DTypeError", "shifted", "by"),
    "complex for real": (lambda m: m["valley"].grad(X + 0j), "DTypeError", "valley", "x"),
    "real for complex": (lambda m: m["intensity"](X), "DTypeError", "intensity", "z"),
    "text": (lambda m: m["valley"]("text"), "ArgumentError", "valley", "x"),
    "not scalar": (lambda m: m["bend"].grad(X), "NotDifferentiable", "bend", None),
    "tangent shape": (lambda m: m["bend"].jvp(X, X[:2]), "ShapeError", "bend", "tangents[0]"),
    "cotangent shape": (lambda m: m["bend"].vjp(X, X), "ShapeError", "bend", "cotangent"),
    "tangent dtype": (lambda m: m["bend"].jvp(X, 1j * X), "DTypeError", "bend", "tangents[0]"),
    "mode": (lambda m: m["bend"].jacobian(X, mode="up"), "ArgumentError", "bend", "mode"),
    "precision": (lambda m: m["bend"].using(precision="single")(X), "ArgumentError", "bend", "precision"),
    "device": (lambda m: m["bend"].using(device="tpu:9")(X), "ArgumentError", "bend", "device"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_map_the_argument_what_was_expected_and_what_came(hosted, name):
    ask, kind, map, argument = REFUSED[name]
    with pytest.raises(getattr(gradwire, kind)) as caught:
        ask(hosted)
    error = caught.value
    assert type(error) is getattr(gradwire, kind)
    assert (error.map, error.argument) == (map, argument)
    if name != "not scalar":
        assert error.expected and error.got
        assert error.expected in str(error) and error.got in str(error)
    assert map in str(error) and (argument or map) in str(error)
    assert "Traceback" not in str(error) and "0.3" not in str(error)


def test_local_and_remote_refusals_say_the_same(lab):
    import maps

    for name, (ask, _, _, _) in REFUSED.items():
        said = []
        for hosted in (maps.HOSTED, lab):
            with pytest.raises(gradwire.GradwireError) as caught:
                ask(hosted)
            error = caught.value
            said.append((type(error), error.detail, error.argument, error.expected, error.got))
        assert said[0] == said[1], name


def test_an_error_of_the_service_has_the_requests_id(lab):
    with pytest.raises(gradwire.ShapeError) as caught:
        lab["valley"](X[None])
    assert caught.value.request_id and caught.value.request_id in str(caught.value)


# Maps that fail.


@pytest.mark.parametrize(
    "ask",
    [
        lambda f: f(X), lambda f: f.jacobian(X), lambda f: f.jvp(X, X), lambda f: f.vjp(X, X),
        lambda f: f.grad(X),
        lambda f: f.hessian(X), lambda f: f.linearize(X), lambda f: f.eval_shape(X),
        lambda f: gradwire.vmap(f)(X), lambda f: gradwire.grad(f)(X),
    ],
)  # fmt: skip
def test_a_failing_map_gives_its_own_exceptions_type_and_message(hosted, ask):
    with pytest.raises(gradwire.MapFailed, match="LookupError: the scanner is off at shape") as caught:
        ask(hosted["failing"])
    assert caught.value.map == "failing" and isinstance(caught.value, RuntimeError)


def test_a_map_that_fails_while_it_runs_does_too(hosted):
    with pytest.raises(gradwire.MapFailed, match="ArithmeticError: no such slice") as caught:
        hosted["breaking"](X)
    assert caught.value.map == "breaking"


def test_a_map_that_branches_on_a_value_fails_with_jaxs_words(hosted):
    with pytest.raises(gradwire.MapFailed, match="TracerBoolConversionError") as caught:
        hosted["branching"](X)
    assert caught.value.map == "branching"


def test_a_map_that_failed_can_be_asked_again(hosted):
    for _ in range(2):
        with pytest.raises(gradwire.MapFailed):
            hosted["failing"](X)
    assert hosted["identity"](1.0) == 1.0


def test_a_map_that_is_not_there(lab):
    with pytest.raises(KeyError) as caught:
        lab["vally"]
    assert isinstance(caught.value, gradwire.MapNotFound) and "valley" in str(caught.value)
    assert "vally" not in lab and "valley" in lab
