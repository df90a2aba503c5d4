"""What goes in comes out: every kind, every dtype, every layout."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from gradwire._errors import ArgumentError, DTypeError
from gradwire.kinds import KINDS, kind_of, leading
from gradwire.wire._dtypes import EXTENDED, NAMES

DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in (*NAMES, *EXTENDED)}


def values(name: str, shape: tuple[int, ...] = (4, 6)) -> np.ndarray:
    """Small numbers that every dtype holds exactly; complex ones with an imaginary part."""
    counted = np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 8)
    dtype = DTYPES[name]
    return np.asarray(counted + (1j * (counted % 3) if dtype.kind == "c" else 0)).astype(dtype)


def as_numpy(a: np.ndarray) -> np.ndarray:
    return np.array(a)


def as_jax(a: np.ndarray) -> jax.Array:
    with jax.enable_x64(True):
        made: jax.Array = jax.device_put(a)
    return made


def as_torch(a: np.ndarray) -> Any:
    import torch

    bits = {"bfloat16": np.int16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}.get(a.dtype.name)
    if bits is None:
        return torch.from_numpy(np.array(a))
    return torch.from_numpy(np.array(a.view(bits))).view(getattr(torch, a.dtype.name))


MAKE: dict[str, Callable[[np.ndarray], Any]] = {"numpy": as_numpy, "jax": as_jax}
if importlib.util.find_spec("torch"):
    MAKE["torch"] = as_torch


def same(got: np.ndarray, expected: np.ndarray) -> None:
    assert type(got) is np.ndarray
    assert got.dtype == expected.dtype and got.dtype.isnative
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(4, 6), (), (0, 3)], ids=["matrix", "0-d", "empty"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MAKE)
def test_every_dtype_goes_out_and_comes_back_bit_for_bit(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    expected = values(dtype, shape)
    x = MAKE[name](expected)
    kind = kind_of(x)
    assert kind is not None and kind.name == name
    same(kind.to_numpy(x), expected)
    back = kind.from_numpy(expected.copy(), x)
    assert type(back) is type(x)
    assert back.dtype == x.dtype
    assert tuple(back.shape) == shape
    same(kind.to_numpy(back), expected)


def read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


NUMPY_LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F order": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), dtype=a.dtype, offset=1).reshape(a.shape),
}


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64", "complex64", "bfloat16"])
@pytest.mark.parametrize("layout", NUMPY_LAYOUTS)
def test_a_numpy_array_of_any_layout_keeps_its_values(layout: str, dtype: str) -> None:
    a = values(dtype)
    x = NUMPY_LAYOUTS[layout](a)
    kind = kind_of(x)
    assert kind is not None
    same(kind.to_numpy(x), a)


@pytest.mark.parametrize("layout", ["F order", "strided", "reversed", "read-only"])
@pytest.mark.parametrize("dtype", ["float64", "complex64", "bfloat16"])
@pytest.mark.parametrize("name", MAKE)
def test_an_answer_of_any_layout_becomes_any_kind(name: str, dtype: str, layout: str) -> None:
    a = values(dtype)
    kind = next(kind for kind in KINDS if kind.name == name)
    same(kind.to_numpy(kind.from_numpy(NUMPY_LAYOUTS[layout](a), MAKE[name](a))), a)


def test_a_plain_numpy_array_is_not_copied() -> None:
    x = np.ones(3)
    kind = kind_of(x)
    assert kind is not None and kind.to_numpy(x) is x and kind.from_numpy(x, x) is x


@pytest.mark.parametrize("scalar", [np.float32(1.5), np.int64(3), np.bool_(True), ml_dtypes.bfloat16(2)])
def test_a_numpy_scalar_is_a_0d_array(scalar: np.generic) -> None:
    kind = kind_of(scalar)
    assert kind is not None and kind.name == "numpy"
    a = kind.to_numpy(scalar)
    assert a.shape == () and a.dtype == scalar.dtype and a == scalar


@pytest.mark.parametrize(
    "x",
    [
        np.ones((1, 1)).view(np.matrix),
        np.ma.masked_array([1.0, 2.0], mask=[True, False]),
        np.array([1, "a"], dtype=object),
        np.array(["a"]),
        np.array([b"a"]),
        np.array(["2026-01-01"], dtype="datetime64[D]"),
        np.array([1], dtype="timedelta64[s]"),
        np.zeros(2, dtype=[("a", "f8")]),
        np.zeros(2, dtype=np.longdouble),
        np.zeros(2, dtype=np.clongdouble),
        np.zeros(2, dtype=ml_dtypes.int4),
    ],
    ids=lambda x: f"{type(x).__name__} {x.dtype.name}",
)
def test_what_is_no_plain_array_of_numbers_is_refused(x: np.ndarray) -> None:
    kind = kind_of(x)
    assert kind is not None and kind.name == "numpy"
    with pytest.raises(DTypeError) as raised:
        kind.to_numpy(x)
    assert raised.value.expected and raised.value.got


def test_a_jax_answer_keeps_64_bits_whatever_the_callers_x64_setting() -> None:
    with jax.enable_x64(False):
        like = jnp.ones(2)
        kind = kind_of(like)
        assert kind is not None
        for dtype in (np.float64, np.int64, np.complex128):
            back = kind.from_numpy(np.array([1, 2**30 + 1], dtype), like)
            assert back.dtype == dtype
            assert kind.to_numpy(back)[1] == 2**30 + 1


def test_a_jax_answer_goes_to_the_device_of_the_argument() -> None:
    for device in jax.devices():
        like = jax.device_put(np.ones(2, np.float32), device)
        kind = kind_of(like)
        assert kind is not None
        back = kind.from_numpy(np.ones(3, np.float32), like)
        assert back.devices() == {device} and back.committed
    free = jnp.ones(2)
    kind = kind_of(free)
    assert kind is not None
    assert not kind.from_numpy(np.ones(3, np.float32), free).committed


def test_a_jax_array_on_the_cpu_is_sent_without_a_copy() -> None:
    x = jnp.arange(100.0)
    kind = kind_of(x)
    assert kind is not None
    assert kind.to_numpy(x).__array_interface__["data"][0] == x.unsafe_buffer_pointer()


def test_a_numpy_answer_is_writable() -> None:
    locked = read_only(np.ones(3))
    kind = kind_of(locked)
    assert kind is not None
    back = kind.from_numpy(locked, locked)
    back += 1
    assert locked.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "transform", [jax.jit, jax.vmap, jax.make_jaxpr, lambda f: jax.grad(lambda x: f(x).sum())]
)
def test_jax_tracers_are_refused_with_the_way_to_go(transform: object) -> None:
    def f(x: jax.Array) -> jax.Array:
        kind = kind_of(x)
        assert kind is not None and kind.name == "jax"
        kind.to_numpy(x)
        return x

    with pytest.raises(ArgumentError, match=r"gradwire\.interop\.jax"):
        transform(f)(jnp.ones(3))  # type: ignore[operator]


def test_typed_prng_keys_are_refused_with_the_way_to_go() -> None:
    key = jax.random.key(0)
    kind = kind_of(key)
    assert kind is not None
    with pytest.raises(DTypeError, match=r"jax\.random\.key_data"):
        kind.to_numpy(key)
    assert kind.to_numpy(jax.random.key_data(key)).dtype == np.uint32


@pytest.mark.parametrize(
    "thing", [1, 1.5, 1j, True, None, "text", [1.0], (1.0,), {}, object(), np.dtype("f8"), jnp.float32]
)
def test_what_is_no_array_has_no_kind(thing: object) -> None:
    assert kind_of(thing) is None


def test_where_kinds_mix_jax_leads_before_numpy() -> None:
    n, j = np.ones(1), jnp.ones(1)
    assert [kind.name for kind in KINDS] == ["jax", "torch", "cupy", "numpy"]
    for given, name, first in (
        ([1.0, n, j, jnp.zeros(1)], "jax", j),
        ([1.0, n, np.zeros(1)], "numpy", n),
        ([1.0, "text"], "numpy", None),
        ([], "numpy", None),
    ):
        kind, like = leading(given)
        assert kind.name == name and like is first


def test_no_library_is_imported_before_an_array_of_it_comes_along() -> None:
    program = """
import sys
import numpy as np
from gradwire import kinds
for x in (np.ones(3), np.float32(1), 1.0, None, "text"):
    kinds.kind_of(x), kinds.is_dask(x)
kind, like = kinds.leading([np.ones(3)])
kind.from_numpy(kind.to_numpy(like), like)
print([m for m in ("jax", "torch", "cupy", "dask", "ml_dtypes", "scipy") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
