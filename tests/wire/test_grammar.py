"""What the values of a message mean, and what they may share."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from typing import Any

import msgpack
import numpy as np
import pytest

from gradwire._errors import ArgumentError, DTypeError, WireError
from gradwire.wire import JSON, MSGPACK, ArraySpec, Bare, Ref, Tree, allowed_dtype, dtype_name

CODECS = [
    pytest.param(MSGPACK, lambda value: msgpack.packb({"a": value}), id="msgpack"),
    pytest.param(JSON, lambda value: json.dumps({"a": value}).encode(), id="json"),
]


def meaning(codec: Any, body: bytes, **options: Any) -> Any:
    message = codec.decode(body)
    return message.tree(message.fields["a"], **options)


@pytest.mark.parametrize(("codec", "write"), CODECS)
@pytest.mark.parametrize("value", [True, 3, -3, 2.5, 1 << 40, None, "text", {"a": {"b": 1}}, {}])
def test_bare_values_stay_python(codec: Any, write: Any, value: Any) -> None:
    result = meaning(codec, write(value))
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize(("codec", "write"), CODECS)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], np.zeros(0)),
        ([[], []], np.zeros((2, 0))),
        ([1.5, 2], np.array([1.5, 2.0])),
        ([True, False], np.array([True, False])),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]).view(Bare)),
        ([[1.0, 2.0], [3, 4]], np.array([[1.0, 2.0], [3.0, 4.0]])),
        ([1.0] * 100, np.ones(100)),
        ([7] * 100, np.full(100, 7).view(Bare)),
        ([-1000] * 100, np.full(100, -1000).view(Bare)),
        ([1 << 40] * 100, np.full(100, 1 << 40).view(Bare)),
        ([1] * 99 + [1 << 40], np.array([1] * 99 + [1 << 40]).view(Bare)),
        ([1.5] * 99 + [2], np.array([1.5] * 99 + [2.0])),
        ([[1.5] * 99 + [2], [1.5] * 100], np.array([[1.5] * 99 + [2.0], [1.5] * 100])),
        ([[1.0] * 100, [2] * 100], np.array([[1.0] * 100, [2.0] * 100])),
        ([[[1] * 100] * 2] * 3, np.ones((3, 2, 100), np.int64).view(Bare)),
    ],
)
def test_lists_of_numbers_are_one_array(codec: Any, write: Any, value: Any, expected: Any) -> None:
    result = meaning(codec, write(value))
    assert type(result) is type(expected) and result.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected), strict=True)


@pytest.mark.parametrize(("codec", "write"), CODECS)
@pytest.mark.parametrize(
    "value", [[None, 1], ["a", 1], [{"x": 1}, 2.0], [None], [{}, [1, 2]], [["a"], [1, 2]]]
)
def test_other_lists_are_pytrees(codec: Any, write: Any, value: Any) -> None:
    result = meaning(codec, write(value))
    assert type(result) is list and len(result) == len(value)


@pytest.mark.parametrize(("codec", "write"), CODECS)
def test_tuples_dicts_and_references(codec: Any, write: Any) -> None:
    assert meaning(codec, write({"tuple": [1, {"tuple": []}]})) == (1, ())
    assert meaning(codec, write({"tuple": [1.5] * 70})) == (1.5,) * 70
    assert meaning(codec, write({"dict": {"tuple": 1, "nd": {"dict": {"dict": 2}}}})) == {
        "tuple": 1,
        "nd": {"dict": 2},
    }
    assert meaning(codec, write({"ref": "0a" * 32})) == Ref("0a" * 32)


@pytest.mark.parametrize(("codec", "write"), CODECS)
def test_static_arguments_arrive_as_tuples_with_their_types(codec: Any, write: Any) -> None:
    message = codec.decode(write([1, True, 1.0, "NaN", None, ["a"], {"tuple": [1, 2]}, [3] * 70]))
    result = message.static(message.fields["a"])
    assert result == (1, True, 1.0, "NaN", None, ("a",), (1, 2), (3,) * 70)
    assert [type(item) for item in result[:3]] == [int, bool, float]
    for value in ({"a": 1}, {"ref": "0a" * 32}, [{"x": 1}]):
        message = codec.decode(write(value))
        with pytest.raises(WireError):
            message.static(message.fields["a"])


def test_json_words_are_numbers_in_trees() -> None:
    assert np.isnan(meaning(JSON, b'{"a": "NaN"}'))
    assert meaning(JSON, b'{"a": "-Infinity"}') == -np.inf
    np.testing.assert_array_equal(
        meaning(JSON, b'{"a": [["NaN", 1], [2, "Infinity"]]}'), [[np.nan, 1], [2, np.inf]]
    )
    assert meaning(MSGPACK, msgpack.packb({"a": "NaN"})) == "NaN"


def test_complex_numbers() -> None:
    assert meaning(JSON, b'{"a": {"re": 1, "im": "Infinity"}}') == complex(1, np.inf)
    result = meaning(JSON, b'{"a": [[{"re": 1, "im": 2}, 3]]}')
    np.testing.assert_array_equal(result, np.array([[1 + 2j, 3]]), strict=True)
    result = meaning(JSON, b'{"a": {"dtype": "complex64", "shape": [1], "data": [{"re": 1, "im": "NaN"}]}}')
    assert result.dtype == np.complex64 and result.real == 1 and np.isnan(result.imag)
    for number in (1 + 2j, -1e-300j, complex(np.nan, -np.inf)):
        result = meaning(MSGPACK, msgpack.packb({"a": {"complex": True, "data": repr(number)}}))
        assert type(result) is complex and repr(result) == repr(number)


def test_arrays_share_the_memory_of_the_body() -> None:
    body = bytearray(b"".join(MSGPACK.encode({"a": Tree(np.arange(1000.0))}, "str")))
    result = meaning(MSGPACK, body)
    assert np.shares_memory(result, np.frombuffer(body, np.uint8)) and result.flags.writeable
    frozen = meaning(MSGPACK, bytes(body))
    assert not frozen.flags.writeable


def test_bodies_may_be_any_contiguous_memory() -> None:
    body = b"".join(MSGPACK.encode({"a": Tree(np.arange(10.0))}, "str"))
    for memory in (memoryview(body), np.frombuffer(body, np.uint8).data, memoryview(bytearray(body))):
        np.testing.assert_array_equal(meaning(MSGPACK, memory), np.arange(10.0))
    text = memoryview(b'{"a": [1.5]}')
    np.testing.assert_array_equal(meaning(JSON, text), [1.5])


def test_large_arrays_are_sent_from_their_own_memory() -> None:
    array = np.arange(100_000.0).reshape(100, 1000)
    pieces = MSGPACK.encode({"a": Tree([array, {"b": array}])}, "str")
    views = [piece for piece in pieces if len(piece) == array.nbytes]
    assert len(views) == 2
    assert all(np.shares_memory(np.frombuffer(view, np.float64), array) for view in views)


@pytest.mark.parametrize("before", [{}, {"m": "x" * 5}, {"m": 1, "n": 2}])
def test_the_data_of_large_arrays_stands_on_multiples_of_64(before: dict[str, Any]) -> None:
    array = np.arange(100_000.0)
    pieces = MSGPACK.encode(
        {**before, "args": [Tree(array)], "cotangent": Tree(array.reshape(10, -1))}, "str"
    )
    starts = np.cumsum([0, *map(len, pieces)])
    assert [int(start) % 64 for start, piece in zip(starts, pieces, strict=False) if len(piece) > 1000] == [
        0,
        0,
    ]
    assert msgpack.unpackb(b"".join(pieces))["args"][0]["data"] == array.tobytes()


def test_no_body_is_kept_alive() -> None:
    class Body(bytearray):
        """A bytearray that can be watched."""

    body = Body(b"".join(MSGPACK.encode({"a": Tree({"b": [np.ones(3), 1]})}, "bin")))
    watch = weakref.ref(body)
    gc.disable()
    try:
        result = meaning(MSGPACK, body)
        del body, result
        assert watch() is None
    finally:
        gc.enable()


def test_arrays_without_data() -> None:
    spec = ArraySpec((2, 3), np.dtype("float32"))
    for codec, style in ((MSGPACK, "str"), (MSGPACK, "bin"), (JSON, "lists")):
        body = b"".join(codec.encode({"a": Tree({"x": spec})}, style))
        assert meaning(codec, body, specs=True) == {"x": spec}
        mixed = b"".join(codec.encode({"a": Tree(np.ones(2))}, style))
        np.testing.assert_array_equal(meaning(codec, mixed, specs=True), np.ones(2))


@pytest.mark.parametrize("value", [{1, 2}, b"abc", object(), {"a": range(3)}, {1: 2}, np.dtype("f8")])
@pytest.mark.parametrize(("codec", "style"), [(MSGPACK, "str"), (JSON, "lists")])
def test_other_containers_are_refused_when_sent(codec: Any, style: str, value: Any) -> None:
    with pytest.raises(ArgumentError):
        codec.encode({"a": Tree(value)}, style)


@pytest.mark.parametrize(
    "array",
    [
        np.array([None]),
        np.array(["a"]),
        np.zeros(1, "M8[s]"),
        np.zeros(1, "f8,f8"),
        np.zeros(1, np.longdouble),
    ],
)
@pytest.mark.parametrize(("codec", "style"), [(MSGPACK, "str"), (JSON, "lists"), (JSON, "base64")])
def test_other_dtypes_are_refused_when_sent(codec: Any, style: str, array: Any) -> None:
    with pytest.raises(DTypeError, match="convert"):
        codec.encode({"a": Tree(array)}, style)


@pytest.mark.parametrize(("codec", "style"), [(MSGPACK, "str"), (MSGPACK, "bin"), (JSON, "lists")])
def test_what_no_text_or_integer_can_hold_is_refused_when_sent(codec: Any, style: str) -> None:
    for value in ("\ud800", {"\ud800": 1}, 1 << 64):
        with pytest.raises(WireError):
            codec.encode({"a": Tree(value)}, style)


def test_the_dtypes_that_cross() -> None:
    for name in (
        "bool",
        "int8",
        "uint64",
        "float16",
        "complex128",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
    ):
        assert dtype_name(allowed_dtype(name)) == name
    assert allowed_dtype("<f8") == np.float64 and allowed_dtype("|b1") == np.bool_
    assert dtype_name(np.dtype(">i4")) == "int32"
    for name in ("object", "|O", "f8", "float128", "<V8", "str", ""):
        with pytest.raises(WireError):
            allowed_dtype(name)


def test_bfloat16_asks_for_ml_dtypes_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DTypeError, match="install ml_dtypes"):
        allowed_dtype("bfloat16")
