"""The devices of this host, under the names that users give them, each with its queue."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from gradwire._errors import ArgumentError, Overloaded


class Joint(Protocol):
    """Work that can be done together with other work of the same key."""

    key: Hashable

    def together(self, others: Sequence[Any]) -> list[Any]:
        """The results of this and ``others``, in that order: each a value or an exception."""


@dataclass(eq=False, slots=True)
class _Job:
    """One piece of work that waits for its device, and who waits for it."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    joint: Joint | None

    def finish(self, result: Any) -> None:
        if self.future.cancelled():
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class Device:
    """One device: its name, JAX's handle, its queue and the one thread that feeds it.

    Args:
        name: as users give it: ``"cpu:0"``, ``"gpu:1"``.
        handle: JAX's device.
        memory: bytes that computations, linearizations and answers may take on it.
        queue: most jobs that may wait.
        rows: most jobs that are joined into one.
    """

    def __init__(self, name: str, handle: jax.Device, *, memory: int, queue: int, rows: int) -> None:
        self.name = name
        self.handle = handle
        self.memory = memory
        self.sharding = jax.sharding.SingleDeviceSharding(handle)
        self._most = queue
        self._rows = rows
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None

    @property
    def queued(self) -> int:
        """Jobs that wait or run."""
        return len(self._jobs) + self._busy

    async def perform(self, work: Callable[[], Any], joint: Joint | None = None) -> Any:
        """``work()``, on the device's thread, after what waits there; ``joint``: with others like it.

        A caller that is cancelled while it waits takes its work with it.

        Raises:
            Overloaded: the queue is full.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future(), joint)
        with self._changed:
            if len(self._jobs) >= self._most:
                raise Overloaded(
                    f"The queue of {self.name} is full.",
                    expected=f"at most {self._most} waiting",
                    got="one more",
                )
            if self._thread is None:
                self._thread = threading.Thread(target=self._feed, name=f"gradwire-{self.name}", daemon=True)
                self._thread.start()
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._changed, suppress(ValueError):  # it has begun, or is done
                self._jobs.remove(job)
            raise

    def _feed(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                while not self._jobs:
                    self._changed.wait()
                self._busy = True
                jobs = self._next()
            if jobs:
                self._do(jobs)
            del jobs  # the wait for the next one must not keep this one's arrays alive

    def _next(self) -> list[_Job]:
        """The first job whose caller still waits, and those to be done with it."""
        first = self._jobs.popleft()
        if first.future.cancelled():
            return []
        if first.joint is None:
            return [first]
        key, rest, joined = first.joint.key, deque[_Job](), [first]
        for job in self._jobs:
            if len(joined) < self._rows and job.joint is not None and job.joint.key == key:
                if not job.future.cancelled():
                    joined.append(job)
            else:
                rest.append(job)
        self._jobs = rest
        return joined

    def _do(self, jobs: list[_Job]) -> None:
        first = jobs[0]
        results: list[Any]
        try:
            if first.joint is not None:
                results = first.joint.together([job.joint for job in jobs[1:]])
            else:
                results = [first.work()]
        except BaseException as error:
            results = [error] * len(jobs)
        if len({job.loop for job in jobs}) == 1:
            _call(first.loop, _finish_all, jobs, results)
        else:
            for job, result in zip(jobs, results, strict=True):
                _call(job.loop, job.finish, result)

    def describe(self) -> dict[str, Any]:
        """As one entry of ``GET /v1/devices``; memory in bytes, used where the device reports it."""
        stats = self.handle.memory_stats() or {}
        return {
            "name": self.name,
            "kind": self.handle.device_kind,
            "queued": self.queued,
            "memory_bytes": self.memory,
            "memory_used_bytes": stats.get("bytes_in_use"),
        }


def _finish_all(jobs: list[_Job], results: list[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        job.finish(result)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(function, *args)


class Devices:
    """All visible devices; ``cpu`` too where there is a GPU.

    Args:
        memory: bytes each may use; where None, what the device reports, and on the host half of its memory.
        queue, rows: as of `Device`.
    """

    def __init__(self, *, memory: int | None = None, queue: int = 1024, rows: int = 64) -> None:
        default = list(jax.local_devices())
        platforms = {device.platform for device in default}
        cpus = [] if "cpu" in platforms else list(jax.local_devices(backend="cpu"))

        def named(handle: jax.Device) -> Device:
            platform = "gpu" if handle.platform in ("gpu", "cuda", "rocm") else handle.platform
            number = handle.id if platform == "cpu" else handle.local_hardware_id
            return Device(
                f"{platform}:{number}", handle, memory=memory or _memory_of(handle), queue=queue, rows=rows
            )

        self._default = [named(handle) for handle in default]
        self._all = [*self._default, *(named(handle) for handle in cpus)]

    def __iter__(self) -> Iterator[Device]:
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


def _memory_of(handle: jax.Device) -> int:
    reported = (handle.memory_stats() or {}).get("bytes_limit")
    if reported:
        return int(reported)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
