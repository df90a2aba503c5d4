"""How a foreign exception, a map's or JAX's own, is told to a caller."""

from __future__ import annotations

import re

LONGEST = 2000
"""Characters of a message that are passed on."""

_PATH = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]+)+[/\\](?=[\w.])")


def told(error: BaseException) -> str:
    """``Type: message``, as `shown` shows it."""
    return f"{type(error).__name__}: {shown(str(error))}"


def shown(text: str) -> str:
    """A foreign message, cut to a length that helps; files by name only: where they are is the host's own."""
    return _PATH.sub("", text[:LONGEST])
