"""What the figures depend on: the machine and the versions. No names of hosts or people."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import jax


def facts() -> dict[str, str]:
    """The facts that belong beside the figures."""
    devices = {device.device_kind for device in jax.local_devices()}
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "devices": ", ".join(sorted(devices)),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("jax", "numpy", "uvicorn", "httpx")},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            return next(line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
