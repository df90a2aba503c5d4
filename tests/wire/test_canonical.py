"""The canonical form of an array, which names it."""

from __future__ import annotations

from hashlib import sha256 as reference
from typing import Any

import msgpack
import numpy as np
import pytest

from gradwire.wire import MSGPACK, canonical, sha256

ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.float32(1.5),
    np.zeros((0, 3), np.int8),
    np.array([True]),
    np.arange(70_000),
    np.ones((300, 1, 70_000), np.bool_),
    np.zeros((1,) * 20, np.complex64),
]


def plainly(array: Any) -> bytes:
    """The same, put together by the msgpack package alone."""
    array = np.asarray(array)
    shape, data = list(array.shape), array.tobytes()
    packed: bytes = msgpack.packb(
        {"nd": True, "type": array.dtype.str, "kind": "", "shape": shape, "data": data}
    )
    return packed


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.ndim}d")
def test_it_is_what_msgpack_writes_in_shortest_forms(array: Any) -> None:
    assert b"".join(canonical(array)) == plainly(array)
    assert sha256(array) == reference(plainly(array)).hexdigest()


def test_neither_layout_nor_byte_order_changes_it() -> None:
    array = np.arange(12.0).reshape(3, 4)
    for other in (
        np.asfortranarray(array),
        array.astype(">f8"),
        np.repeat(array, 2, 1)[:, ::2],
        array[::-1].copy()[::-1],
    ):
        assert sha256(other) == sha256(array)
    assert sha256(array.T) != sha256(array)
    assert sha256(array.astype(np.float32)) != sha256(array)


def test_arrays_beyond_one_binary_are_written_as_several() -> None:
    array = np.arange(10, dtype=np.int16)
    body = b"".join(canonical(array, one_bin=19, piece=8))
    data = array.tobytes()
    assert msgpack.unpackb(body)["data"] == [data[:8], data[8:16], data[16:]]
    message = MSGPACK.decode(body)
    np.testing.assert_array_equal(message.tree(message.fields), array, strict=True)
    assert msgpack.unpackb(b"".join(canonical(array, one_bin=20, piece=8)))["data"] == data


def test_it_reads_as_a_message() -> None:
    for array in ARRAYS:
        message = MSGPACK.decode(b"".join(canonical(array)))
        np.testing.assert_array_equal(message.tree(message.fields), np.asarray(array), strict=True)
