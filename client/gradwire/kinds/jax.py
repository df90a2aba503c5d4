"""JAX arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError, DTypeError
from gradwire.kinds._kind import comes_from
from gradwire.wire import dtype_name


class JaxKind:
    name = "jax"

    def owns(self, cls: type) -> bool:
        jax: Any = sys.modules.get("jax")
        if jax is None or not comes_from(cls, "jax", "jaxlib"):
            return False
        return issubclass(cls, (jax.Array, jax.core.Tracer))

    def to_numpy(self, x: Any) -> np.ndarray:
        """A read-only view of a CPU array; a copy from any other device.

        Raises:
            ArgumentError: a tracer: it has no values yet.
            DTypeError: typed PRNG keys, or a dtype that cannot be sent.
        """
        import jax

        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            raise DTypeError(
                "Typed PRNG keys cannot be sent: pass jax.random.key_data(key), and wrap it in the map.",
                expected="the key's data, uint32",
                got=str(x.dtype),
            )
        if isinstance(x, jax.core.Tracer):
            raise ArgumentError(
                "JAX is tracing this array, so it has no values to send. "
                "gradwire.interop.jax makes a map that can be called, transformed and compiled inside JAX.",
                expected="a jax.Array with values",
                got=f"a tracer of shape {x.shape} and dtype {x.dtype}",
            )
        dtype_name(x.dtype)
        return np.asarray(x)

    def from_numpy(self, a: np.ndarray, like: Any) -> Any:
        """A `jax.Array`; one that is committed to its device only where ``like`` is.

        The dtype is kept whatever the x64 setting of the caller: a float64 answer is
        a float64 array.
        """
        import jax

        # device_put narrows 64-bit dtypes where x64 is off; the array, once made, keeps its dtype.
        with jax.enable_x64(True):
            if not like.committed:
                made = jax.device_put(a)
                if made.devices() == like.devices():
                    return made
            return jax.device_put(a, min(like.devices(), key=lambda device: device.id))


KIND = JaxKind()
