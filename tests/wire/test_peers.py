"""Other people's encoders and decoders: msgpack-numpy, and @msgpack/msgpack under Node."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from gradwire._errors import WireError
from gradwire.wire import JSON, MSGPACK, Bare, Tree

ARRAYS = {
    "float64": np.arange(6.0).reshape(2, 3),
    "float32 0-d": np.array(0.1, np.float32),
    "empty": np.zeros((0, 2), np.int16),
    "complex64": np.array([1 + 2j, -1j], np.complex64),
    "bool": np.array([[True], [False]]),
    "uint64": np.array([2**64 - 1], np.uint64),
    "big-endian": np.arange(3, dtype=">i4"),
    "strided": np.arange(10.0)[::-2],
    "large": np.arange(70_000.0),
}


def with_bin_keys(array: Any) -> bytes:
    packed: bytes = msgpack.packb({b"a": array}, default=msgpack_numpy.encode)
    return packed


def with_str_keys(array: Any) -> bytes:
    def encode(value: Any) -> Any:
        return {key.decode(): item for key, item in msgpack_numpy.encode(value).items()}

    packed: bytes = msgpack.packb({"a": array}, default=encode)
    return packed


@pytest.mark.parametrize("pack", [with_bin_keys, with_str_keys])
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_what_msgpack_numpy_packs_is_read(array: Any, pack: Any) -> None:
    message = MSGPACK.decode(pack(array))
    assert message.style == ("bin" if pack is with_bin_keys else "str")
    native = array.astype(array.dtype.newbyteorder("="))
    np.testing.assert_array_equal(message.tree(message.fields["a"]), native, strict=True)


@pytest.mark.parametrize("pack", [with_bin_keys, with_str_keys])
def test_scalars_that_msgpack_numpy_packs_are_read(pack: Any) -> None:
    for scalar in (np.float32(1.5), np.int8(-3), np.bool_(True), np.complex128(1 + 2j)):
        message = MSGPACK.decode(pack(scalar))
        if isinstance(scalar, complex):  # a Python complex too: written as one
            assert message.tree(message.fields["a"]) == scalar
        else:
            np.testing.assert_array_equal(message.tree(message.fields["a"]), np.asarray(scalar), strict=True)
    message = MSGPACK.decode(pack(1 - 2j))
    assert message.tree(message.fields["a"]) == 1 - 2j


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_msgpack_numpy_reads_what_is_written_with_bin_keys(array: Any) -> None:
    body = b"".join(MSGPACK.encode({"a": Tree({"x": array}), "m": 1}, "bin"))
    result = msgpack.unpackb(body, object_hook=msgpack_numpy.decode)
    np.testing.assert_array_equal(result[b"a"][b"x"], array)
    assert result[b"a"][b"x"].dtype == array.dtype.newbyteorder("=")


def test_bin_keys_are_written_byte_for_byte_as_msgpack_numpy_does() -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.zeros((300, 0), np.int8), np.arange(70_000)):
        assert b"".join(MSGPACK.encode({"a": Tree(array)}, "bin")) == with_bin_keys(array)


@pytest.mark.parametrize(
    "array", [np.array([{}, None]), np.zeros(2, "f8,O"), np.zeros(2, "f8,i4"), np.array("text")]
)
def test_what_msgpack_numpy_would_unpickle_is_refused(array: Any) -> None:
    with pytest.raises(WireError):
        message = MSGPACK.decode(with_bin_keys(array))
        message.tree(message.fields["a"])


def test_old_msgpack_without_binaries_is_refused() -> None:
    body = msgpack.packb({b"a": np.zeros(2)}, default=msgpack_numpy.encode, use_bin_type=False)
    with pytest.raises(WireError):
        message = MSGPACK.decode(body)
        message.tree(message.fields["a"])


def test_the_wire_format_imports_no_peer() -> None:
    program = "import gradwire.wire, sys; print({'msgpack_numpy', 'ml_dtypes'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


# Node ---------------------------------------------------------------------------

NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def node_answers() -> list[dict[str, Any]]:
    """What Node made of each of MESSAGES, and a message of its own."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node is not installed")
    if not (NODE / "node_modules" / "@msgpack").exists():
        ran = subprocess.run(["npm", "ci"], cwd=NODE, capture_output=True, text=True, timeout=120)
        if ran.returncode:
            pytest.skip("npm could not install @msgpack/msgpack")
    given = [
        {"hex": b"".join(MSGPACK.encode(fields, style)).hex(), "style": style} for fields, style in MESSAGES
    ]
    ran = subprocess.run(
        ["node", "peer.mjs"], cwd=NODE, input=json.dumps(given), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    answers: list[dict[str, Any]] = json.loads(ran.stdout)
    return answers


TREE = {
    "x": np.arange(6.0).reshape(2, 3),
    "f": np.array([0.1, 1 / 3], np.float32),
    "i": np.array(-7, np.int16),
    "large": np.arange(70_000, dtype=np.uint16),
    "t": (1.5, "text", None, True),
    "list": np.array([[1, 2], [300, -70_000]]).view(Bare),
}
MESSAGES = [({"args": [Tree(TREE)], "meta": {"map": "f"}}, style) for style in ("str", "bin")]


def assert_same(left: Any, right: Any) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert type(value) is type(right[key])
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(np.asarray(value), np.asarray(right[key]), strict=True)
        else:
            assert value == right[key]


def test_node_reads_what_is_written(node_answers: list[dict[str, Any]]) -> None:
    for answer in node_answers[: len(MESSAGES)]:
        message = JSON.decode(json.dumps(answer["json"]).encode())
        assert message.fields["meta"] == {"map": "f"}
        assert_same(message.tree(message.fields["args"][0]), TREE)


def test_what_node_packs_again_is_read(node_answers: list[dict[str, Any]]) -> None:
    for answer in node_answers[: len(MESSAGES)]:
        message = MSGPACK.decode(bytes.fromhex(answer["hex"]))
        assert message.style == "str"
        assert_same(message.tree(message.fields["args"][0]), TREE)


def test_what_node_writes_is_read(node_answers: list[dict[str, Any]]) -> None:
    message = MSGPACK.decode(bytes.fromhex(node_answers[-1]["hex"]))
    first, second = map(message.tree, message.fields["args"])
    np.testing.assert_array_equal(first, np.array([[1, 2.5, -3], [4, 5, 6]]), strict=True)
    assert second == (1, 0.5, None, "text")
    kwargs = message.tree(message.fields["kwargs"])
    np.testing.assert_array_equal(kwargs["weights"], np.array(0.1, np.float32), strict=True)
    assert type(kwargs["many"]) is Bare and kwargs["many"].tolist() == list(range(0, 10_000, 100))
    assert message.fields["argnums"] == 0
