"""Dask arrays: an evaluation becomes one deferred request, made when the result is computed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from gradwire.kinds._kind import comes_from


@lru_cache(maxsize=1024)
def _is_dask_array(cls: Any) -> bool:
    array: Any = sys.modules.get("dask.array")
    return array is not None and comes_from(cls, "dask") and issubclass(cls, array.Array)


def is_dask(x: Any) -> bool:
    """Whether ``x`` is a Dask array. Imports nothing."""
    cls: Any = type(x)
    return _is_dask_array(cls)


def lazy(call: Callable[..., Any], spec: Any, *arrays: Any) -> Any:
    """The Dask arrays of ``call(*arrays)``, which is called once, when they are computed.

    Args:
        call: takes what ``arrays`` stand for, Dask arrays as whole NumPy arrays; returns
            NumPy arrays in the structure of ``spec``.
        spec: a pytree (tuples, lists, dicts) of things with ``shape`` and ``dtype``.
        arrays: the arguments (pytrees too); Dask arrays in them stay deferred until then.

    Returns:
        A pytree of Dask arrays, one chunk each, with the shapes and dtypes of ``spec``.
    """
    import dask
    import dask.array

    def deferred(answer: Any, spec: Any) -> Any:
        if spec is None:
            return None
        if isinstance(spec, tuple | list):
            return type(spec)([deferred(answer[i], child) for i, child in enumerate(spec)])
        if isinstance(spec, dict):
            return {key: deferred(answer[key], child) for key, child in spec.items()}
        dtype = np.dtype(spec.dtype)
        return dask.array.from_delayed(answer, shape=tuple(spec.shape), dtype=dtype, meta=np.empty((), dtype))

    return deferred(dask.delayed(call, pure=False)(*arrays), spec)


def refuse_dask(arrays: Iterable[Any], operation: str) -> None:
    """Derivatives are not deferred.

    Raises:
        NotImplementedError: there is a Dask array among ``arrays``; it says how to go on.
    """
    if not any(map(is_dask, arrays)):
        return
    raise NotImplementedError(
        f"{operation} of a Dask array is not deferred. Compute the array first, "
        f"f.{operation}(x.compute()), or go block by block: "
        f"dask.array.map_blocks(lambda block: f.{operation}(block), x, …)."
    )
