"""The afternoon server: what one would write in an afternoon instead of using Gradwire.

FastAPI, msgpack-numpy, jitted JAX on the event loop, and a kept-alive httpx client.
``python -m benchmarks.afternoon PORT``
"""

from __future__ import annotations

import sys
from typing import Any

import httpx
import jax
import jax.numpy as jnp
import msgpack  # type: ignore[import-untyped]
import msgpack_numpy
import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()


@jax.jit
def value_and_cotangent(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    value, pull = jax.vjp(lambda x: jnp.sin(x) * x, x)
    return value, pull(w)[0]


@app.post("/vjp")
async def vjp(request: Request) -> Response:
    given = msgpack.unpackb(await request.body(), object_hook=msgpack_numpy.decode)
    value, cotangent = value_and_cotangent(given["x"], given["w"])
    answer = {"value": np.asarray(value), "cotangent": np.asarray(cotangent)}
    return Response(msgpack.packb(answer, default=msgpack_numpy.encode), media_type="application/msgpack")


class Client:
    """Its client."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url)

    def vjp(self, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        body: Any = msgpack.packb({"x": x, "w": w}, default=msgpack_numpy.encode)
        response = self._http.post("/vjp", content=body)
        response.raise_for_status()
        answer = msgpack.unpackb(response.content, object_hook=msgpack_numpy.decode)
        return answer["value"], answer["cotangent"]


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
