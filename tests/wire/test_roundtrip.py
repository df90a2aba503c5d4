"""Every dtype, shape class and memory layout goes through every encoding and comes back the same."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gradwire.wire import JSON, MSGPACK, Bare, Codec, Tree, allowed_dtype, dtype_name

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES += ["float16", "float32", "float64", "complex64", "complex128"]
NAMES += ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
RESERVED = ["nd", "complex", "dtype", "base64", "re", "tuple", "ref", "dict", "csr"]
EXACT = [(MSGPACK, "str"), (MSGPACK, "bin"), (JSON, "base64")]

shapes = st.one_of(
    st.just(()),
    st.sampled_from([(0,), (0, 3), (2, 0), (1,), (1, 1, 1)]),
    st.tuples(st.integers(1, 9)),
    st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple),
)


def strided(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = np.repeat(array, 2, axis=-1) if array.ndim else array
    return wide[..., ::2] if array.ndim else wide


def reversed_(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.flip(np.flip(array).copy())


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


def big_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(array.dtype.newbyteorder(">"))


LAYOUTS = [np.ascontiguousarray, np.asfortranarray, strided, reversed_, read_only, big_endian]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Arrays of any bits, NaN payloads and signed zeros included."""
    dtype = allowed_dtype(draw(st.sampled_from(NAMES)))
    shape = draw(shapes)
    size = prod(shape) * dtype.itemsize
    data = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    if dtype == np.bool_:
        data = data & 1
    array = data.view(dtype).reshape(shape) if size else np.empty(shape, dtype)
    layout = draw(st.sampled_from(LAYOUTS))
    laid = np.asarray(layout(array))
    return (
        laid if laid.shape == shape else laid.reshape(shape)
    )  # some give 0-d arrays a dimension, or take it


def back(value: Any, codec: Codec, style: str) -> Any:
    body = bytearray(b"".join(codec.encode({"args": [Tree(value)]}, style)))
    message = codec.decode(body)
    assert message.style == (style if codec is MSGPACK else "lists")
    return message.tree(message.fields["args"][0])


@settings(deadline=None)
@given(array=arrays(), how=st.sampled_from(EXACT))
def test_every_bit_of_every_array_survives(array: np.ndarray[Any, Any], how: tuple[Codec, str]) -> None:
    result = back(array, *how)
    native = array.astype(array.dtype.newbyteorder("="))
    assert type(result) is np.ndarray
    assert result.dtype == native.dtype == allowed_dtype(dtype_name(array.dtype)) and result.dtype.isnative
    assert result.shape == array.shape
    assert result.tobytes() == native.tobytes()


def wide_enough(array: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """A dtype of NumPy's own that holds the array's values exactly."""
    if array.dtype.kind in "biu":
        return array.dtype
    return np.dtype("complex128" if array.dtype.kind == "c" else "float64")


@settings(deadline=None)
@given(array=arrays())
def test_json_objects_give_every_value_in_its_own_dtype(array: np.ndarray[Any, Any]) -> None:
    result = back(array, JSON, "object")
    assert dtype_name(result.dtype) == dtype_name(array.dtype) and result.shape == array.shape
    wide = wide_enough(array)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        np.testing.assert_array_equal(result.astype(wide), array.astype(wide))


@settings(deadline=None)
@given(array=arrays())
def test_json_lists_give_every_value(array: np.ndarray[Any, Any]) -> None:
    assume(array.dtype.name != "uint64" or not array.size or int(array.max()) < 1 << 63)
    result = np.asarray(back(array, JSON, "lists"))
    assert result.size == array.size
    if array.size:
        wide = wide_enough(array)
        assert result.shape == array.shape
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(result.astype(array.dtype).astype(wide), array.astype(wide))


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=5).filter(lambda text: text not in ("NaN", "Infinity", "-Infinity")),
    arrays().filter(lambda array: array.dtype.kind in "fc"),
)
keys = st.one_of(st.text(max_size=3), st.sampled_from(RESERVED))


def not_one_array(items: list[Any]) -> bool:
    """A list of only numbers, or of only lists of them, means an array."""
    return any(isinstance(item, str | dict | tuple | np.ndarray) or item is None for item in items)


trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).filter(not_one_array),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=10,
)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.shape == right.shape
            and left.dtype.newbyteorder("=") == right.dtype.newbyteorder("=")
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return left == right


@settings(deadline=None)
@given(tree=trees, how=st.sampled_from([*EXACT, (JSON, "object")]))
def test_every_tree_comes_back_in_kind(tree: Any, how: tuple[Codec, str]) -> None:
    assert same(tree, back(tree, *how))


@pytest.mark.parametrize(
    "how", [*EXACT, (JSON, "lists"), (JSON, "object")], ids=lambda how: f"{how[0].name}-{how[1]}"
)
def test_bare_integers_stay_bare(how: tuple[Codec, str]) -> None:
    for content in ([1, 2, 3], [[1, -(2**63)], [2**63 - 1, 4]], list(range(-500, 500))):
        result = back(np.array(content).view(Bare), *how)
        assert type(result) is Bare and result.dtype == np.int64
        assert result.tolist() == content


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float32(1) / np.float32(3), "0.33333334"),
        (np.float16(0.1), "0.1"),
        (np.float64(0.1), "0.1"),
        (np.array([1 / 3]), "[0.3333333333333333]"),
        (np.array([0.1, 0.3, 3e38], allowed_dtype("bfloat16")), "[0.1,0.3,3e+38]"),
        (np.array([2**63 - 1, -(2**63)]), "[9223372036854775807,-9223372036854775808]"),
        (np.array([2**64 - 1], np.uint64), "[18446744073709551615]"),
        (np.array([True, False]), "[true,false]"),
        (np.array([[1 + 2j]], np.complex64), '[[{"re":1.0,"im":2.0}]]'),
        (np.array([np.nan, np.inf, -np.inf, -0.0]), '["NaN","Infinity","-Infinity",-0.0]'),
        (np.zeros((2, 0)), "[[],[]]"),
    ],
)
def test_json_lists_are_written_as_one_would_by_hand(array: Any, text: str) -> None:
    assert b"".join(JSON.encode({"value": Tree(array)}, "lists")).decode() == f'{{"value":{text}}}'
