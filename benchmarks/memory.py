"""Memory of processes, as Linux counts it."""

from __future__ import annotations

import re
from pathlib import Path

MIB = 1 << 20


def resident(pid: int) -> int:
    """Bytes of memory that the process has now."""
    return _status(pid, "VmRSS")


def peak(pid: int) -> int:
    """The most bytes it had since `forget_peak`."""
    return _status(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Let the peak begin again at what the process has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, field: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None, f"no {field} in /proc/{pid}/status"
    return int(found[1]) * 1024
