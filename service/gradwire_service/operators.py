"""Hosting operators that exist already: SciPy's, PyLops', Pyxu's, as arguments for `Map`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError

Parts = dict[str, Any]
"""``fun``, ``version``, ``jvp``, ``vjp``, ``example``: what `Map` is made of; ``name`` is the caller's."""


def linear(op: Any) -> Parts:
    """A linear operator with ``shape``, ``matvec`` and ``rmatvec`` (SciPy's, PyLops'), or a matrix.

    PyLops' operators take and give arrays of their own ``dims`` and ``dimsd``.
    """
    if not hasattr(op, "matvec"):
        from scipy.sparse.linalg import aslinearoperator

        op = aslinearoperator(op)
    rows, columns = op.shape
    into = tuple(getattr(op, "dims", None) or (columns,))
    out = tuple(getattr(op, "dimsd", None) or (rows,))

    def forward(x: Any) -> Any:
        return np.asarray(op.matvec(np.asarray(x).reshape(-1))).reshape(out)

    def transpose(w: Any) -> Any:
        # Their adjoint conjugates; a vjp is the plain transpose.
        return np.conj(np.asarray(op.rmatvec(np.conj(np.asarray(w)).reshape(-1)))).reshape(into)

    dtype = np.dtype(op.dtype or np.float64)
    example = np.zeros(into, dtype if dtype.kind in "fc" else np.float64)
    return _parts(forward, lambda x, v: forward(v), lambda x, w: transpose(w), example)


def pyxu(op: Any) -> Parts:
    """A Pyxu LinOp, DiffFunc or DiffMap, on real arrays.

    Raises:
        ArgumentError: an operator that is not differentiable.
    """
    if hasattr(op, "adjoint"):
        jvp, vjp = lambda x, v: op.apply(v), lambda x, w: op.adjoint(w)
    elif hasattr(op, "grad"):
        # A functional: its value has shape (1,).
        jvp = lambda x, v: np.sum(op.grad(x) * v, keepdims=True).reshape(-1)[:1]  # noqa: E731 (a pair of formulas)
        vjp = lambda x, w: op.grad(x) * w  # noqa: E731 (a pair of formulas)
    elif hasattr(op, "jacobian"):
        jvp, vjp = lambda x, v: op.jacobian(x).apply(v), lambda x, w: op.jacobian(x).adjoint(w)
    else:
        raise ArgumentError(
            "A Pyxu operator is hosted with its derivatives.",
            argument="op",
            expected="a LinOp, DiffFunc or DiffMap",
            got=type(op).__name__,
        )
    return _parts(op.apply, jvp, vjp, np.zeros(op.dim_shape))


def _parts(
    value: Callable[[Any], Any],
    jvp: Callable[[Any, Any], Any],
    vjp: Callable[[Any, Any], Any],
    example: np.ndarray,
) -> Parts:
    # The operator is no text to make a version of: what it does to a vector tells one from another.
    probe = np.random.default_rng(0).standard_normal(example.shape).astype(example.dtype)
    seen = np.ascontiguousarray(value(probe))
    return {
        "fun": lambda x: value(x),  # nameless, so that a name must be given
        "version": hashlib.sha256(repr((seen.shape, seen.dtype)).encode() + seen.tobytes()).hexdigest()[:12],
        "jvp": lambda primals, tangents: (value(primals[0]), jvp(primals[0], tangents[0])),
        "vjp": lambda primals, cotangent: (value(primals[0]), (vjp(primals[0], cotangent),)),
        "example": (example,),
        "arrays": "numpy",
    }
