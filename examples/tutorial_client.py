"""Differentiation from afar: a first tutorial, with no JAX in this process.

Serve the maps with ``gradwire serve examples/tutorial.py``, then run
``python examples/tutorial_client.py [URL]``. Each line is one request.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

import gradwire


def lessons(lab: gradwire.Service) -> Iterator[tuple[str, object]]:
    """Each lesson as Python, and what it gives."""
    polynomial, surface, quadratic, cartesian, quartic = (
        lab[name] for name in ("polynomial", "surface", "quadratic", "cartesian", "quartic")
    )
    grad, hessian, vmap = gradwire.grad, gradwire.hessian, gradwire.vmap

    yield "polynomial(2.0)", polynomial(2.0)
    yield "grad(polynomial)(2.0)", grad(polynomial)(2.0)
    yield "value_and_grad(polynomial)(2.0)", gradwire.value_and_grad(polynomial)(2.0)
    yield "grad(grad(polynomial))(2.0)", grad(grad(polynomial))(2.0)
    yield "grad(grad(grad(polynomial)))(2.0)", grad(grad(grad(polynomial)))(2.0)

    yield "grad(surface)(3.0, 2.0)", grad(surface)(3.0, 2.0)
    yield "grad(surface, argnums=1)(3.0, 2.0)", grad(surface, argnums=1)(3.0, 2.0)
    yield "grad(surface, argnums=(0, 1))(3.0, 2.0)", grad(surface, argnums=(0, 1))(3.0, 2.0)
    yield "grad(grad(surface), argnums=1)(3.0, 2.0)", grad(grad(surface), argnums=1)(3.0, 2.0)

    x, a = np.array([1.0, -1.0]), np.array([[2.0, 1.0], [3.0, 4.0]])
    yield "quadratic(x, a)", quadratic(x, a)
    yield "grad(quadratic)(x, a)", grad(quadratic)(x, a)
    yield "hessian(quadratic)(x, a)", hessian(quadratic)(x, a)

    point = np.array([2.0, np.pi / 2, 0.0])
    yield "cartesian(point)", cartesian(point)
    yield "jacfwd(cartesian)(point)", gradwire.jacfwd(cartesian)(point)
    yield "jacrev(cartesian)(point)", gradwire.jacrev(cartesian)(point)

    xs = np.array([0.0, 1.0, 2.0])
    over_x = (0, None)
    yield "vmap(quartic, over_x)(xs, 0.5)", vmap(quartic, over_x)(xs, 0.5)
    yield "vmap(grad(grad(quartic)), over_x)(xs, 0.5)", vmap(grad(grad(quartic)), over_x)(xs, 0.5)


def shown(result: object) -> str:
    """A result on one line, rounded to six digits and without negative zeros."""
    if isinstance(result, tuple):
        return f"({', '.join(shown(part) for part in result)})"
    rounded = np.round(np.asarray(result), 6) + 0.0
    return str(rounded.tolist())


def main(url: str) -> None:
    with gradwire.connect(url) as lab:
        for code, result in lessons(lab):
            print(f"{code} = {shown(result)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
