"""The devices of this host, under the names that users give them."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax

from gradwire._errors import ArgumentError


class Device:
    """One device: its name (``"cpu:0"``, ``"gpu:1"``), JAX's handle, and the one thread that feeds it."""

    def __init__(self, name: str, handle: jax.Device) -> None:
        self.name = name
        self.handle = handle
        self.sharding = jax.sharding.SingleDeviceSharding(handle)
        self._lock = threading.Lock()
        self.queued = 0

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix=f"gradwire-{self.name}")

    def submit(self, work: Any, *args: Any) -> Future[Any]:
        """Run ``work(*args)`` on the device's thread, after what is queued there."""
        with self._lock:
            self.queued += 1
        future = self._thread.submit(work, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: Future[Any]) -> None:
        with self._lock:
            self.queued -= 1

    def describe(self) -> dict[str, Any]:
        """As one entry of ``GET /v1/devices``; memory in bytes, where the device reports it."""
        stats = self.handle.memory_stats() or {}
        return {
            "name": self.name,
            "kind": self.handle.device_kind,
            "queued": self.queued,
            "memory_bytes": stats.get("bytes_limit"),
            "memory_used_bytes": stats.get("bytes_in_use"),
        }


class Devices:
    """All visible devices; ``cpu`` too where there is a GPU."""

    def __init__(self) -> None:
        default = list(jax.local_devices())
        platforms = {device.platform for device in default}
        cpus = [] if "cpu" in platforms else list(jax.local_devices(backend="cpu"))
        self._default = [_named(device) for device in default]
        self._all = [*self._default, *(_named(device) for device in cpus)]

    def __iter__(self) -> Any:
        return iter(self._all)

    def choose(self, wanted: str | None) -> Device:
        """The device asked for: by name, or the least busy of a platform (or of the default one).

        Raises:
            ArgumentError: no such device here.
        """
        if wanted is None:
            candidates = self._default
        else:
            candidates = [d for d in self._all if wanted in (d.name, d.name.partition(":")[0])]
        if not candidates:
            raise ArgumentError(
                "There is no such device here.",
                argument="device",
                expected=", ".join(device.name for device in self._all),
                got=repr(str(wanted)[:32]),
            )
        return min(candidates, key=lambda device: device.queued)


def _named(device: jax.Device) -> Device:
    platform = "gpu" if device.platform in ("gpu", "cuda", "rocm") else device.platform
    return Device(f"{platform}:{device.local_hardware_id if platform != 'cpu' else device.id}", device)
