"""``gradwire check`` as a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradwire_service.check import command

RIGHT = """
import jax, jax.numpy as jnp
from jaxtyping import Array, Float
from gradwire_service import Map

@Map
def sine(x: Float[Array, "n"]):
    return jnp.sin(x)
"""
UNKNOWN = (
    RIGHT
    + """
@Map
def unknown(x):
    return x
"""
)
WRONG = (
    RIGHT
    + """
@jax.custom_jvp
def cube(x):
    return x ** 3

cube.defjvp(lambda primals, tangents: (primals[0] ** 3, 2 * primals[0] ** 2 * tangents[0]))

@Map
def cubed(x: Float[Array, "n"]):
    return cube(x)
"""
)


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [(RIGHT, [], 0), (RIGHT, ["--strict"], 0), (UNKNOWN, [], 0), (UNKNOWN, ["--strict"], 1), (WRONG, [], 1)],
    ids=["right", "right strict", "unknown", "unknown strict", "wrong"],
)
def test_the_status_says_whether_all_is_right(
    text: str, options: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "some_maps.py"
    file.write_text(text, encoding="utf-8")
    assert command([str(file), "--seed", "3", *options]) == status
    printed = capsys.readouterr().out
    assert "sine" in printed and "adjoint" in printed and "Taylor" in printed
    assert ("FAILED" in printed) == (text is WRONG)
