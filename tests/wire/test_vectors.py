"""The byte-exact vectors of docs/wire.md, read and written."""

from __future__ import annotations

import json
import re
from hashlib import sha256 as reference
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire._errors import KINDS, WireError
from gradwire.wire import JSON, MSGPACK, Limits, Message, Tree, allowed_dtype, canonical, sha256

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[Any]:
    """Each block of a kind: its options, and its lines by their first word."""
    found = re.findall(rf"^```{kind}\b([^\n]*)\n(.*?)^```", PAGE, flags=re.M | re.S)
    assert found, f"docs/wire.md has no {kind}"
    return [
        pytest.param(
            options.split(), dict(line.split(maxsplit=1) for line in body.strip().splitlines()), id=body[9:60]
        )
        for options, body in found
    ]


def trees(message: Message) -> dict[str, Any]:
    """The fields of a vector: args a list of trees, every other one a tree."""
    return {
        key: [message.tree(item) for item in raw] if key == "args" else message.tree(raw, specs=True)
        for key, raw in message.fields.items()
    }


def marked(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: list(map(Tree, value)) if key == "args" else Tree(value) for key, value in fields.items()}


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for item, other in zip(left, right, strict=True):
            assert_same(item, other)
    else:
        assert left == right


@pytest.mark.parametrize(("options", "lines"), blocks("vector"))
def test_both_forms_mean_the_same_and_are_written_so(options: list[str], lines: dict[str, str]) -> None:
    body = bytes.fromhex(lines["msgpack"])
    fields = trees(MSGPACK.decode(body))
    assert_same(fields, trees(JSON.decode(lines["json"].encode())))
    if "read" not in options:
        assert b"".join(MSGPACK.encode(marked(fields), "bin" if "bin" in options else "str")) == body
        assert json.loads(b"".join(JSON.encode(marked(fields), "object"))) == json.loads(lines["json"])


@pytest.mark.parametrize(("options", "lines"), blocks("canonical"))
def test_canonical_arrays_are_those_of_the_page(options: list[str], lines: dict[str, str]) -> None:
    message = JSON.decode(f'{{"x": {lines["json"]}}}'.encode())
    array = message.tree(message.fields["x"])
    body = bytes.fromhex(lines["msgpack"])
    assert b"".join(canonical(array)) == body
    assert sha256(array) == lines["sha256"] == reference(body).hexdigest()


@pytest.mark.parametrize(("options", "lines"), blocks("refused"))
def test_what_the_page_refuses_is_refused(options: list[str], lines: dict[str, str]) -> None:
    with pytest.raises(WireError):
        if "msgpack" in lines:
            trees(MSGPACK.decode(bytes.fromhex(lines["msgpack"])))
        else:
            trees(JSON.decode(lines["json"].encode()))


def test_the_page_names_every_dtype_limit_and_kind() -> None:
    for code in re.findall(r"`(\\?[|<][biufc]\d+|bfloat16|float8_\w+)`", PAGE):
        allowed_dtype(code.replace("\\", ""))
    limits = Limits()
    assert (limits.body_bytes, limits.depth, limits.objects) == (1 << 30, 64, 1_000_000)
    assert (limits.rank, limits.elements) == (32, 1 << 31)
    for text in ("| bytes of a message | 2³⁰ |", "| 64 |", "1 000 000", "| 32 |", "2³¹"):
        assert text in PAGE
    kinds = set(re.findall(r"`([a-z-]+)`", PAGE[PAGE.index("### 6.6") : PAGE.index("## 7")]))
    assert {kind for kind in KINDS if kind != "internal"} <= kinds
