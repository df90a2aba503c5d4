"""How a foreign exception, a map's or JAX's own, is told to a caller."""

from __future__ import annotations

import re
import threading

LONGEST = 2000
"""Characters of a message that are passed on."""

_PATH = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]+)+[/\\](?=[\w.])")


def told(error: BaseException) -> str:
    """``Type: message``, as `shown` shows it."""
    return f"{type(error).__name__}: {shown(message_of(error))}"


def message_of(error: BaseException) -> str:
    """The text of a foreign exception, which may fail to give one."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be read)"


def is_ours_to_end(error: BaseException) -> bool:
    """Whether ``error`` is a person's Ctrl-C, which comes in the main thread alone, and not a map's own."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def shown(text: str) -> str:
    """A foreign message, cut to a length that helps; files by name only: where they are is the host's own."""
    return _PATH.sub("", text[:LONGEST])
