"""The wave map as an UM-Bridge model without optional checks. Runs in the peers' environment."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import umbridge

pull = jax.jit(lambda x, w: jax.vjp(lambda x: jnp.sin(x) * x, x)[1](w)[0])


class Wave(umbridge.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__("wave")

    def get_input_sizes(self, config: Any) -> list[int]:
        return [config["n"]]

    def get_output_sizes(self, config: Any) -> list[int]:
        return [config["n"]]

    def supports_gradient(self) -> bool:
        return True

    def gradient(
        self, out_wrt: int, in_wrt: int, parameters: Any, sens: Any, config: Any = None
    ) -> list[float]:
        found: list[float] = np.asarray(pull(np.asarray(parameters[0]), np.asarray(sens))).tolist()
        return found


umbridge.serve_models([Wave()], int(sys.argv[1]), error_checks=False)
