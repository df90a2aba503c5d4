"""docs/operations.md says of every option what is so."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ByteSize

from gradwire_service import Settings

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def shown(default: object) -> str:
    """A default as the page writes it."""
    if default is None or default == ():
        return ""
    if isinstance(default, ByteSize):
        return f"`{default.human_readable().replace('.0', '')}`"
    if isinstance(default, tuple):
        return f"`{','.join(default)}`"
    if isinstance(default, bool):
        return "no"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def rows() -> list[str]:
    return [
        f"| `{name}` | {shown(field.default)} | {field.description} |".replace("|  |", "| |")
        for name, field in Settings.model_fields.items()
    ]


def test_every_option_is_in_the_table_with_its_default() -> None:
    told = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| `[a-z_]+` \|", line)
    ]
    assert told == rows(), "\n".join(rows())
