"""Every hostile kind of message is refused as a WireError, before memory is taken or an array made."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from base64 import b64encode
from typing import Any

import msgpack
import numpy as np
import pytest

from gradwire._errors import WireError
from gradwire.wire import JSON, MSGPACK, Codec, Limits

HUGE = 1 << 40


def array(**changes: Any) -> dict[str, Any]:
    """A good array's map with some fields changed; a field set to ... is left out."""
    good = {"nd": True, "type": "<f8", "kind": "", "shape": [2], "data": bytes(16)}
    return {key: value for key, value in {**good, **changes}.items() if value is not ...}


def obj(**changes: Any) -> dict[str, Any]:
    """The same as a JSON object."""
    good = {"dtype": "float64", "shape": [2], "data": [1.0, 2.0]}
    return {key: value for key, value in {**good, **changes}.items() if value is not ...}


def refused(codec: Codec, body: bytes, limits: Limits | None = None) -> WireError:
    """Decode and read; the memory taken meanwhile stays near what the body itself has."""
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as caught:
            message = codec.decode(body, limits or Limits())
            for raw in message.fields.values():
                message.tree(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (1 << 19) + 9 * len(body), "memory was taken before the message was refused"
    assert caught.value.kind in ("malformed", "too-large")
    assert len(str(caught.value)) < 1000
    return caught.value


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("something was unpickled",))


ARRAYS = {
    "object by kind": array(kind="O", type="|O", data=pickle.dumps(Bomb())),
    "object by binary kind": array(kind=b"O", data=pickle.dumps(Bomb())),
    "object by type": array(type="|O"),
    "object by name": array(type="object"),
    "object in a structured type": array(type=[["a", "|O"]], kind="V"),
    "structured": array(type=[["a", "<f8"]], kind="V"),
    "structured text": array(type="f8,O"),
    "void": array(type="|V8"),
    "bytes": array(type="|S8"),
    "text": array(type="<U4"),
    "datetime": array(type="<M8[s]"),
    "timedelta": array(type="<m8[s]"),
    "longdouble": array(type="<f16", shape=[1]),
    "complex longdouble": array(type="<c32", data=bytes(64)),
    "subarray": array(type="(2,)f8", shape=[1]),
    "commas": array(type="f4,f4"),
    "pointers": array(type="P"),
    "native byte order": array(type="=f8"),
    "no byte order": array(type="f8"),
    "type nil": array(type=None),
    "type a number": array(type=8),
    "type binary": array(type=b"<f8"),
    "type an array": array(type=array()),
    "type of a megabyte": array(type="<f8" * 350_000),
    "type empty": array(type="", data=b""),
    "no itemsize, 2**40 elements": array(type="|V0", shape=[HUGE], data=b""),
    "empty text type, 2**40 elements": array(type="|S0", shape=[HUGE], data=b""),
    "shape negative": array(shape=[-2]),
    "shape negative twice": array(shape=[-1, -2]),
    "shape fractional": array(shape=[2.0]),
    "shape boolean": array(shape=[True, 2]),
    "shape text": array(shape="2"),
    "shape nil": array(shape=None),
    "shape a number": array(shape=2),
    "shape nested": array(shape=[[2]]),
    "shape an array": array(shape=array()),
    "shape overflowing": array(shape=[1 << 32, 1 << 32], data=b""),
    "shape overflowing to the right size": array(shape=[1 << 62, 4, 2], data=b""),
    "shape beyond int64": array(shape=[1 << 63], data=b""),
    "rank 33": array(shape=[1] * 33, data=bytes(8)),
    "rank 65": array(shape=[1] * 65, data=bytes(8)),
    "rank a million": array(shape=[1] * 1_000_000, data=bytes(8)),
    "huge and zero": array(shape=[1 << 62, 0], data=b""),
    "zero and huge": array(shape=[0, HUGE, HUGE], data=b""),
    "huge": array(shape=[HUGE], data=b""),
    "data too short": array(data=bytes(15)),
    "data too long": array(data=bytes(17)),
    "data absent": array(data=b""),
    "data text": array(data="0123456789abcdef"),
    "data nil": array(data=None),
    "data numbers": array(data=[1.0, 2.0]),
    "data many numbers": array(shape=[100], data=[1.0] * 100),
    "data lists of binaries too short": array(data=[bytes(8), bytes(7)]),
    "data lists of binaries too long": array(data=[bytes(8), bytes(9)]),
    "data lists of lists": array(data=[[bytes(16)]]),
    "data an array": array(data=array()),
    "nd a number": array(nd=1),
    "nd nil": array(nd=None),
    "nd text": array(nd="true"),
    "scalar with a shape": array(nd=False),
    "scalar of the wrong size": {"nd": False, "type": "<f8", "data": bytes(16)},
    "scalar of objects": {"nd": False, "type": "|O", "data": bytes(8)},
    "without type": array(type=...),
    "without kind": array(kind=...),
    "without shape": array(shape=...),
    "without data": array(data=...),
    "without nd": array(nd=...) | {"dtype": 1},
    "one field more": array(order="C"),
    "kind nil": array(kind=None),
    "kind structured": array(kind="V"),
    "bool of 2": array(type="|b1", data=b"\x01\x02"),
    "complex unparsable": {"complex": True, "data": "one"},
    "complex of a megabyte": {"complex": True, "data": "1" * 1_000_000},
    "complex false": {"complex": False, "data": "(1+2j)"},
    "complex with more": {"complex": True, "data": "(1+2j)", "x": 1},
    "complex binary": {"complex": True, "data": b"(1+2j)"},
    "a json array": obj(),
    "ref too short": {"ref": "ab"},
    "ref no hex": {"ref": "g" * 64},
    "ref upper case": {"ref": "A" * 64},
    "ref a number": {"ref": 1},
    "tuple of nothing": {"tuple": None},
    "tuple of a map": {"tuple": {}},
    "tuple and more": {"tuple": [], "x": 1},
    "dict of a list": {"dict": []},
    "csr": {"csr": True, "shape": [1, 1]},
    "reserved key": {"re": 1, "x": 2},
    "binary by itself": b"abc",
    "binary in a list": [1.0, b"abc"],
    "ragged": [[1, 2], [3]],
    "ragged, long": [[1.0] * 100, [1.0] * 101],
    "ragged in depth": [[1, 2], 3],
    "numbers and bools": [1, True],
    "numbers and bools in rows": [[1.0], [True]],
    "beyond int64": (1 << 63),
    "beyond int64 in a list": [1 << 63],
    "beyond int64 in a long list": [1 << 63] * 100,
}


@pytest.mark.parametrize("value", ARRAYS.values(), ids=ARRAYS)
def test_msgpack_makes_no_array_of_a_bad_header(value: Any) -> None:
    refused(MSGPACK, msgpack.packb({"args": value}))
    refused(MSGPACK, msgpack.packb({"args": [value, None]}))


ONE = msgpack.packb({"args": 1})
MSGPACKS = {
    "empty": b"",
    "no map": msgpack.packb([1]),
    "an array of numbers": msgpack.packb([1.0] * 100),
    "trailing nil": ONE + b"\xc0",
    "twice": ONE + ONE,
    "reserved byte": b"\x81\xa4args\xc1",
    "ext": msgpack.packb({"args": msgpack.ExtType(5, b"abcd")}),
    "ext long": msgpack.packb({"args": msgpack.ExtType(5, bytes(1000))}),
    "timestamp": msgpack.packb({"args": msgpack.Timestamp(1, 2)}),
    "bad utf-8": b"\x81\xa4args\xa2\xff\xfe",
    "bad utf-8 key": b"\x81\xa2\xff\xfe\x01",
    "bad utf-8 binary key": b"\x81\xc4\x02\xff\xfe\x01",
    "surrogate in utf-8": b"\x81\xa4args\xa3\xed\xa0\x80",
    "overlong utf-8": b"\x81\xa4args\xa2\xc0\xaf",
    "array32 lies": b"\x81\xa4args\xdd\xff\xff\xff\xff",
    "array32 lies about numbers": b"\x81\xa4args\xdd\xff\xff\xff\xff\xcb" + bytes(8),
    "array32 lies about small numbers": b"\x81\xa4args\xdd\xff\xff\xff\xff\x01\x01",
    "array16 lies": b"\x81\xa4args\xdc\xff\xff\xc0",
    "map32 lies": b"\x81\xa4args\xdf\xff\xff\xff\xff",
    "map16 lies": b"\x81\xa4args\xde\xff\xff",
    "bin32 lies": b"\x81\xa4args\xc6\xff\xff\xff\xff",
    "str32 lies": b"\x81\xa4args\xdb\xff\xff\xff\xff",
    "key lies": b"\x81\xdb\xff\xff\xff\xff",
    "depth bomb of lists": b"\x81\xa4args" + b"\x91" * 1_000_000,
    "depth bomb of maps": b"\x81\xa1a" * 300_000,
    "depth bomb that ends": b"\x81\xa4args" + b"\x91" * 65 + b"\x90",
    "a million empty lists": b"\x81\xa4args\xdd\x00\x10\x00\x00" + b"\x90" * (1 << 20),
    "a million empty maps": b"\x81\xa4args\xdd\x00\x10\x00\x00" + b"\x80" * (1 << 20),
    "a million nils": b"\x81\xa4args\xdd\x00\x10\x00\x00" + b"\xc0" * (1 << 20),
    "key a number": b"\x81\x01\x01",
    "key nil": b"\x81\xc0\x01",
    "key a list": b"\x81\x90\x01",
    "key twice": b"\x82\xa1a\x01\xa1a\x02",
    "key twice in two forms": b"\x82\xa1a\x01\xd9\x01a\x02",
    "key of an array twice": b"\x81\xa4args"
    + msgpack.packb(array()).replace(b"\x85", b"\x86", 1)
    + b"\xa2nd\xc3",
    "keys of both kinds": b"\x82\xa1a\x01\xc4\x01b\x02",
    "keys of both kinds, inside": b"\x81\xa4args\x81\xc4\x01b\x02",
}


@pytest.mark.parametrize("body", MSGPACKS.values(), ids=MSGPACKS)
def test_msgpack_refuses_what_is_no_message(body: bytes) -> None:
    refused(MSGPACK, body)


def test_a_length_that_is_not_there_is_no_question_of_size() -> None:
    for name, body in MSGPACKS.items():
        if "lies" in name:
            assert refused(MSGPACK, body).kind == "malformed"


def test_msgpack_cut_off_anywhere_is_refused() -> None:
    whole = msgpack.packb({"args": [array(), [1.5] * 70, "text", 300, -40000, 1.5], "m": {"x": None}})
    for stop in range(len(whole)):
        refused(MSGPACK, whole[:stop])


JSONS: dict[str, str | bytes] = {
    "empty": "",
    "no object": "[1]",
    "trailing": '{"args": 1} 2',
    "twice": '{"args": 1}{"args": 1}',
    "NaN": '{"args": NaN}',
    "Infinity": '{"args": Infinity}',
    "-Infinity": '{"args": [1.0, -Infinity]}',
    "1e999": '{"args": 1e999}',
    "1e999 in a list": '{"args": [1.0, -1e999]}',
    "400 digits": '{"args": ' + "9" * 400 + "}",
    "400 digits in a list": '{"args": [1, ' + "9" * 400 + "]}",
    "400 digits among others": '{"args": ["a", -' + "9" * 400 + "]}",
    "400 digits outside": '{"argnums": ' + "9" * 400 + "}",
    "50000 digits": '{"args": ' + "9" * 50_000 + "}",
    "beyond int64": '{"args": 9223372036854775808}',
    "beyond int64 in a list": '{"args": [9223372036854775808]}',
    "lone surrogate": '{"args": "\\ud800"}',
    "lone surrogate as a key": '{"args": {"\\udfff": 1}}',
    "bad utf-8": b'{"args": "\xff"}',
    "utf-16": '{"args": 1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"args": 1}',
    "key twice": '{"args": 1, "args": 2}',
    "key twice inside": '{"args": {"a": 1, "\\u0061": 2}}',
    "single quotes": "{'args': 1}",
    "comment": '{"args": 1} // one',
    "control character": '{"args": "\x01"}',
    "depth bomb of lists": '{"args": ' + "[" * 500_000,
    "depth bomb of objects": '{"a":' * 200_000,
    "depth bomb that ends": '{"args": ' + "[" * 65 + "]" * 65 + "}",
    "depth bomb for the parser": '{"args": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a million empty objects": '{"args": [' + ",".join(["{}"] * 1_000_001) + "]}",
    "ragged": '{"args": [[1, 2], [3]]}',
    "ragged with words": '{"args": [[1, "NaN"], [3]]}',
    "numbers and bools": '{"args": [1, true]}',
    "words and bools": '{"args": ["NaN", true]}',
    "number beside a list": '{"args": [1, [2]]}',
    "re without im": '{"args": {"re": 1}}',
    "re of text": '{"args": {"re": "one", "im": 1}}',
    "re of a bool": '{"args": {"re": true, "im": 1}}',
    "a msgpack array": '{"args": {"nd": true, "type": "<f8"}}',
}


@pytest.mark.parametrize("body", JSONS.values(), ids=JSONS)
def test_json_refuses_what_is_no_message(body: str | bytes) -> None:
    refused(JSON, body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass"))


def base64(content: Any, **changes: Any) -> dict[str, Any]:
    return obj(data=..., base64=content, **changes)


OBJECTS = {
    "object": obj(dtype="object"),
    "code": obj(dtype="<f8"),
    "dtype nil": obj(dtype=None),
    "dtype of a megabyte": obj(dtype="float64" * 150_000),
    "longdouble": obj(dtype="float128"),
    "datetime": obj(dtype="datetime64[s]"),
    "one field more": obj(order="C"),
    "both data and base64": obj(base64=b64encode(bytes(16)).decode()),
    "without shape": obj(shape=...),
    "without data": obj(data=...),
    "shape negative": obj(shape=[-2]),
    "shape fractional": obj(shape=[2.0]),
    "shape boolean": obj(shape=[True, 2]),
    "rank 33": obj(shape=[1] * 33, data=[1.0]),
    "huge and zero": obj(shape=[1 << 62, 0], data=[]),
    "huge": obj(shape=[HUGE], data=[1.0]),
    "too short": obj(data=[1.0]),
    "too long": obj(data=[1.0, 2.0, 3.0]),
    "not flat": obj(data=[[1.0, 2.0]]),
    "not flat, right length": obj(data=[[1.0], [2.0]]),
    "text": obj(data=["a", "b"]),
    "null": obj(data=[None, 1.0]),
    "bool among floats": obj(data=[True, 1.0]),
    "float among integers": obj(dtype="int64", data=[1.5, 2]),
    "bool among integers": obj(dtype="int64", data=[True, 2]),
    "NaN among integers": obj(dtype="int64", data=["NaN", 2]),
    "300 as uint8": obj(dtype="uint8", data=[300, 1]),
    "-1 as uint8": obj(dtype="uint8", data=[-1, 1]),
    "2**63 as int64": obj(dtype="int64", data=[1 << 63, 1]),
    "numbers as bools": obj(dtype="bool", data=[0, 1]),
    "1e300 as float32": obj(dtype="float32", data=[1e300, 1.0]),
    "infinity where the dtype has none": obj(dtype="float8_e4m3fn", data=["Infinity", 1.0]),
    "complex where real": obj(data=[{"re": 1, "im": 2}, 1.0]),
    "complex with more": obj(dtype="complex128", data=[{"re": 1, "im": 2, "x": 3}, 1.0]),
    "base64 a list": base64([1]),
    "base64 with spaces": base64(b64encode(bytes(16)).decode() + " "),
    "base64 without padding": base64(b64encode(bytes(16)).decode().rstrip("=")),
    "base64 url": base64("_" * 22 + "=="),
    "base64 not ascii": base64("é" * 24),
    "base64 too short": base64(b64encode(bytes(15)).decode()),
    "base64 too long": base64(b64encode(bytes(17)).decode()),
    "base64 bool of 2": base64(b64encode(b"\x02\x01").decode(), dtype="bool"),
}


@pytest.mark.parametrize("value", OBJECTS.values(), ids=OBJECTS)
def test_json_makes_no_array_of_a_bad_header(value: Any) -> None:
    refused(JSON, json.dumps({"args": value}).encode())


@pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])
def test_limits_are_those_given(codec: Codec) -> None:
    def body(value: Any) -> bytes:
        return msgpack.packb({"a": value}) if codec is MSGPACK else json.dumps({"a": value}).encode()

    four = np.zeros(4)
    many = b"".join(codec.encode({"a": four.tolist()}, "str" if codec is MSGPACK else "lists"))
    assert refused(codec, many, Limits(body_bytes=10)).kind == "too-large"
    assert refused(codec, body([[], [], [], {}]), Limits(objects=4)).kind == "too-large"
    refused(codec, body([[[1]]]), Limits(depth=3))
    refused(codec, body([[[1]]]), Limits(rank=2))
    header = array(shape=[2, 1]) if codec is MSGPACK else obj(shape=[2, 1])
    assert refused(codec, body(header), Limits(elements=1)).kind == "too-large"
    codec.decode(body([[[1]]]), Limits(depth=4))


def test_arrays_without_data_are_read_only_where_asked_for() -> None:
    for codec, value in (
        (MSGPACK, msgpack.packb({"a": array(data=...)})),
        (JSON, json.dumps({"a": obj(data=...)}).encode()),
    ):
        message = codec.decode(value)
        assert message.tree(message.fields["a"], specs=True).shape == (2,)
        with pytest.raises(WireError):
            message.tree(message.fields["a"])


@pytest.mark.parametrize("shape", [[-1], [1 << 62, 1 << 62], [1.0], [1] * 40])
def test_shapes_without_data_are_checked_too(shape: list[Any]) -> None:
    for codec, body in (
        (MSGPACK, msgpack.packb({"a": array(data=..., shape=shape)})),
        (JSON, json.dumps({"a": obj(data=..., shape=shape)}).encode()),
    ):
        message = codec.decode(body)
        with pytest.raises(WireError):
            message.tree(message.fields["a"], specs=True)
