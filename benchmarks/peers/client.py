"""The peers' own clients: one line of JSON asks for so many calls, one line answers with their seconds.

Runs in the peers' environment. Every call goes from NumPy arrays to NumPy arrays.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import umbridge
from tesseract_core import Tesseract

# What the libraries print must not get between the answers.
answers, sys.stdout = sys.stdout, sys.stderr


def tesseract(encoding: str | None, url: str, task: str, n: int) -> Callable[[], Any]:
    remote = Tesseract.from_url(url)
    if encoding is not None:
        remote = remote.with_encoding(output_format=encoding)
    x, w = np.random.default_rng(0).standard_normal((2, n))
    if task == "vjp":
        return lambda: remote.vector_jacobian_product({"x": x}, ["x"], ["wave"], {"wave": w})["x"]
    return lambda: remote.jacobian({"x": x}, ["x"], ["dense"])["dense"]["x"]


def um_bridge(shared: bool, url: str, task: str, n: int) -> Callable[[], Any]:
    assert task == "vjp"
    remote = umbridge.HTTPModel(url, "wave", use_shmem=shared)
    x, w = np.random.default_rng(0).standard_normal((2, n))
    return lambda: np.asarray(remote.gradient(0, 0, [x.tolist()], w.tolist(), {"n": n}))


CALLS: dict[str, Callable[[str, str, int], Callable[[], Any]]] = {
    "tesseract": lambda *at: tesseract(None, *at),
    "tesseract base64": lambda *at: tesseract("json+base64", *at),
    "umbridge": lambda *at: um_bridge(False, *at),
    "umbridge shared memory": lambda *at: um_bridge(True, *at),
}


@cache
def prepared(peer: str, url: str, task: str, n: int) -> Callable[[], Any]:
    return CALLS[peer](url, task, n)


def main() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        call = prepared(question["peer"], question["url"], question["task"], question["n"])
        durations = []
        for _ in range(question["calls"]):
            began = time.perf_counter()
            call()
            durations.append(time.perf_counter() - began)
        print(json.dumps(durations), file=answers, flush=True)


if __name__ == "__main__":
    main()
