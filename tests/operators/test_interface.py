"""The interface itself: which members there are, how they are called, and what they import."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import maps
import numpy as np
import pytest

import gradwire

MEMBERS = {
    "__call__": "(self, *args, **kwargs)",
    "apply": "(self, *args, **kwargs)",
    "jacobian": "(self, *args, argnums=0, mode='auto', sparse=False, holomorphic=False, **kwargs)",
    "jvp": "(self, primals, tangents, argnums=None, **kwargs)",
    "vjp": "(self, primals, cotangent, argnums=None, **kwargs)",
    "grad": "(self, *args, argnums=0, holomorphic=False, **kwargs)",
    "value_and_grad": "(self, *args, argnums=0, holomorphic=False, **kwargs)",
    "hessian": "(self, *args, argnums=0, sparse=False, **kwargs)",
    "hvp": "(self, primals, tangents, argnums=None, **kwargs)",
    "linearize": "(self, *args, argnums=None, **kwargs)",
    "eval_shape": "(self, *args, **kwargs)",
    "check": "(self, *args, **kwargs)",
    "cost": "(self, *args, argnums=None, **kwargs)",
    "explain": "(self, *args, argnums=None, **kwargs)",
    "using": "(self, *, precision=None, device=None, timeout=None, keep=None,"
    " complex_as=None, nonfinite=None, progress=None, out=None)",
}
ATTRIBUTES = {"name", "version", "signature", "operations"}

LINEAR = {
    "__matmul__": "(self, other)",
    "__rmatmul__": "(self, vector)",
    "jvp": "(self, tangents)",
    "vjp": "(self, cotangent)",
    "matvec": "(self, x)",
    "rmatvec": "(self, x)",
    "matmat": "(self, X)",
    "rmatmat": "(self, X)",
    "todense": "(self)",
    "to_scipy": "(self)",
    "close": "(self)",
    "gram": "(self)",
    "norm": "(self, *, rtol=0.001, most=100, seed=0)",
    "dottest": "(self, *, rtol=None, seed=0)",
}
LINEAR_ATTRIBUTES = {"value", "shape", "dtype", "T", "H"}

FUNCTIONS = {
    "grad": "(f, argnums=0, has_aux=False, holomorphic=False)",
    "value_and_grad": "(f, argnums=0, has_aux=False, holomorphic=False)",
    "jacfwd": "(f, argnums=0, has_aux=False, holomorphic=False)",
    "jacrev": "(f, argnums=0, has_aux=False, holomorphic=False)",
    "jacobian": "(f, argnums=0, has_aux=False, holomorphic=False)",
    "hessian": "(f, argnums=0, has_aux=False, holomorphic=False)",
    "vmap": "(f, in_axes=0, out_axes=0)",
    "jit": "(f)",
    "jvp": "(f, primals, tangents, has_aux=False)",
    "vjp": "(f, *primals, has_aux=False)",
    "linearize": "(f, *primals, has_aux=False)",
    "connect": "(url=None, *, token=None, timeout=300.0, precision=None, device=None, retries=5,"
    " http_client=None)",
}


def shown(function):
    """Its signature, annotations left out."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))


def public(x):
    """Its public members; a class's further constructors are none of its instances'."""
    names = {name for name in dir(x) if not name.startswith("_")}
    return {name for name in names if not isinstance(inspect.getattr_static(x, name, None), classmethod)}


def protocol_members():
    return public(gradwire.Operator) | {n for n in inspect.get_annotations(gradwire.Operator) if n[0] != "_"}


def test_the_protocol_has_these_members_and_no_others():
    assert protocol_members() == (MEMBERS.keys() | ATTRIBUTES) - {"__call__"}
    for name, signature in MEMBERS.items():
        assert shown(getattr(gradwire.Operator, name)) == signature, name


@pytest.mark.parametrize("made", ["map", "transformed", "with options"])
def test_every_map_meets_the_protocol_signature_for_signature(hosted, made):
    f = {
        "map": lambda f: f,
        "transformed": lambda f: gradwire.vmap(gradwire.grad(f)),
        "with options": lambda f: f.using(precision="float32"),
    }[made](hosted["valley"])
    assert isinstance(f, gradwire.Operator)
    assert public(f) == protocol_members()
    for name in MEMBERS:
        assert inspect.signature(getattr(type(f), name)) == inspect.signature(
            getattr(gradwire.Operator, name)
        ), name


def test_a_linear_operator_has_these_members_and_no_others(hosted):
    with hosted["valley"].linearize(np.ones(2)) as J:
        assert public(J) == (LINEAR.keys() | LINEAR_ATTRIBUTES) - {"__matmul__", "__rmatmul__"}
        for name, signature in LINEAR.items():
            assert shown(getattr(type(J), name)) == signature, name


def test_the_functions_have_jaxs_names_and_options():
    for name, signature in FUNCTIONS.items():
        assert shown(getattr(gradwire, name)) == signature, name


def test_the_package_exports_nothing_else():
    classes = {
        name for name, x in vars(gradwire).items() if isinstance(x, type) and x.__module__[:8] == "gradwire"
    }
    assert set(gradwire.__all__) == FUNCTIONS.keys() | classes | {"__version__"}


def test_importing_the_client_imports_no_array_library_and_no_server():
    heavy = ["jax", "cupy", "torch", "dask", "scipy", "fastapi", "gradwire_service"]
    script = f"import sys, gradwire; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_calling_remote_maps_imports_none_either(url):
    script = f"""
import sys, numpy as np, gradwire
f = gradwire.connect({url!r})["valley"]
x = np.array([1.0, 2.0])
f(x), f.hessian(x), gradwire.vmap(gradwire.grad(f))(x[None]), f.linearize(x) @ x
print([name for name in ("jax", "cupy", "torch", "dask", "scipy") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_a_map_tells_what_was_declared(hosted):
    f = hosted["outer"]
    assert f.name == "outer"
    assert f.__doc__ == "Two vectors to a matrix."
    assert str(f.signature) == '(a: Float[Array, "n"], b: Float[Array, "m"]) -> Float[Array, "n m"]'
    assert hosted["rough"].version == "1.0"
    assert f.version == maps.HOSTED["outer"].version
    assert (
        str(hosted["power"].signature)
        == "(x: Float[Array, \"n\"], order: static = 2, *, flavour: static = 'plain')"
    )
    assert str(hosted["gathered"].signature) == "(first, *others)"
    assert str(hosted["labelled"].signature) == "(x, **weights)"


def test_operations_are_those_that_exist(hosted):
    every = (
        "evaluate", "jacobian", "jvp", "vjp", "grad", "value_and_grad", "hessian", "hvp", "linearize",
        "eval_shape",
    )  # fmt: skip
    vector = tuple(name for name in every if name not in ("grad", "value_and_grad", "hvp"))
    assert hosted["valley"].operations == every
    assert hosted["bend"].operations == vector
    assert hosted["total"].operations == ("evaluate", "eval_shape")
    assert "vjp" not in hosted["looped"].operations
    assert "jvp" not in hosted["clipped"].operations


def test_a_remote_map_can_be_pickled(lab):
    f = gradwire.grad(lab["valley"]).using(precision="float64")
    again = pickle.loads(pickle.dumps(f))
    x = np.array([0.5, 2.0])
    np.testing.assert_array_equal(again(x), f(x))
