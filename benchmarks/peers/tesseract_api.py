"""The wave and the dense map of `benchmarks.maps` as a Tesseract. Runs in the peers' environment."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BaseModel
from tesseract_core.runtime import Array, Differentiable, Float64

DENSE = 1_000
A = np.random.default_rng(0).standard_normal((DENSE, DENSE)) / (2.0 * np.sqrt(DENSE))


class InputSchema(BaseModel):
    x: Differentiable[Array[(None,), Float64]]


class OutputSchema(BaseModel):
    wave: Differentiable[Array[(None,), Float64]]
    dense: Differentiable[Array[(None,), Float64]]


def wave(x: Any) -> Any:
    return jnp.sin(x) * x


def dense(x: Any) -> Any:
    return jnp.asarray(A) @ jnp.tanh(x)


pull = jax.jit(lambda x, w: jax.vjp(wave, x)[1](w)[0])
jacobian_of_dense = jax.jit(jax.jacfwd(dense))


def apply(inputs: InputSchema) -> OutputSchema:
    return OutputSchema(wave=np.asarray(wave(inputs.x)), dense=np.asarray(dense(inputs.x)))


def abstract_eval(abstract_inputs: Any) -> dict[str, Any]:
    shape = {"shape": abstract_inputs.x.shape, "dtype": "float64"}
    return {"wave": shape, "dense": shape}


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    return {"x": np.asarray(pull(inputs.x, cotangent_vector["wave"]))}


def jacobian(inputs: InputSchema, jac_inputs: set[str], jac_outputs: set[str]) -> dict[str, Any]:
    return {"dense": {"x": np.asarray(jacobian_of_dense(inputs.x))}}
