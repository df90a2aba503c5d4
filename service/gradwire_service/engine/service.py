"""The service behind every dialect: hosted maps, admission, and the way of a call through the engine.

It knows no HTTP. Tracing, compiling and computing happen in threads; the event loop only waits.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from gradwire._errors import (
    ArgumentError,
    DeadlineExceeded,
    GradwireError,
    MapNotFound,
    Overloaded,
)
from gradwire._operator import Call
from gradwire._reports import REPORTS
from gradwire._transforms import Transform
from gradwire._trees import Tree as Pytree
from gradwire._trees import is_number, leaves
from gradwire.wire import Ref, Tree
from gradwire_service import capabilities
from gradwire_service.check import check_map
from gradwire_service.declaration import Declaration
from gradwire_service.diagnostics import cost, explain
from gradwire_service.differentiation import OPERATIONS
from gradwire_service.engine import holomorphic, local
from gradwire_service.engine.blocks import Blocks, plan
from gradwire_service.engine.coalescing import Row
from gradwire_service.engine.compiled import Compiled, compile_key, give_callbacks_64_bits, keep_compiled_in
from gradwire_service.engine.devices import Device, Devices
from gradwire_service.engine.execution import LINEAR, Engine, Linearization, on_host
from gradwire_service.engine.linearizations import Linearizations
from gradwire_service.engine.residents import Residents
from gradwire_service.engine.sparse import SparseQueries
from gradwire_service.map import Map
from gradwire_service.policy import BITS, INPUT, Policy
from gradwire_service.query import Asked, ask
from gradwire_service.settings import Settings

T = TypeVar("T")
log = logging.getLogger("gradwire.service")

LINEAR_FIELDS = {"jvp": "tangent", "vjp": "cotangents", "dense": "jacobian"}
"""What a linearization's operations answer."""

LARGE = 1 << 18
"""Bytes of arguments from which admission (which may cast them) leaves the event loop."""


@dataclass
class Request:
    """A call as a dialect read it, before admission."""

    map: str
    call: Call
    owner: str
    transforms: tuple[Transform, ...] = ()
    precision: str | None = None
    device: str | None = None
    listed: bool = False


@dataclass
class Outcome:
    """What a call came to: fields of host arrays, what is to be said of it, and where the time went (s)."""

    fields: dict[str, Any]
    meta: dict[str, Any]
    timing: dict[str, float] = field(default_factory=dict)


class Within(Protocol):
    """Waits, until the time is up."""

    async def __call__(self, answer: Awaitable[T], /) -> T: ...


class Service:
    """Maps hosted on this host's devices.

    Raises:
        ArgumentError: two maps of one name and version, or settings that no device or policy fits.
    """

    operations = tuple(OPERATIONS)
    linear_operations = tuple(LINEAR)
    reports = tuple(REPORTS)

    def __init__(self, maps: Iterable[Map], settings: Settings) -> None:
        self._settings = settings
        self._maps: dict[str, dict[str, Declaration]] = {}
        self._hosted: dict[Declaration, Map] = {}
        for hosted in maps:
            declaration = hosted._declaration
            versions = self._maps.setdefault(declaration.name, {})
            if declaration.version in versions:
                raise ArgumentError(
                    f"Two maps are named {declaration.name}@{declaration.version}; "
                    "give one another name or version.",
                    map=declaration.name,
                )
            versions[declaration.version] = declaration
            self._hosted[declaration] = hosted
        self._policy = Policy.parse(settings.precision)
        for name in settings.allow_precision or ():
            if name not in BITS:
                raise ArgumentError(
                    "allow_precision names a dtype that no policy has.",
                    argument="allow_precision",
                    expected=", ".join(BITS),
                    got=name,
                )
        give_callbacks_64_bits()
        if settings.compile_cache is not None:
            keep_compiled_in(settings.compile_cache)
        self.engine = Engine(
            Devices(memory=settings.device_memory, queue=settings.queue_length, rows=settings.coalesce_rows),
            compiled_queries=settings.compiled_queries,
            answer_bytes=settings.answer_bytes,
        )
        self.engine.devices.choose(settings.device)
        self.sparse_queries = SparseQueries(self.engine)
        self.linearizations = Linearizations(
            ttl=settings.linearization_ttl, most_bytes=settings.linearization_bytes
        )
        self.residents = Residents(most_bytes=settings.resident_bytes)
        self._compiler = ThreadPoolExecutor(settings.compile_threads, thread_name_prefix="gradwire-compile")
        self._compiling: dict[Hashable, asyncio.Future[Any]] = {}
        self._begun: dict[Hashable, None] = {}
        self._begun_lock = threading.Lock()
        self._warming: asyncio.Task[None] | None = None
        self._operations: dict[Declaration, tuple[str, ...]] = {}
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Whether a device computes or a query is compiled."""
        return bool(self._compiling) or any(device.queued for device in self.engine.devices)

    # Its life.

    @property
    def ready(self) -> bool:
        """Whether it is warmed up and takes requests."""
        return self._warming is not None and self._warming.done() and not self._stopping

    async def start(self) -> None:
        """Begin to warm up: find out what each map can do, and compile what has an example."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm_up())

    async def stop(self) -> None:
        """Take no more requests."""
        self._stopping = True
        if self._warming is not None:
            self._warming.cancel()
        self._compiler.shutdown(wait=False, cancel_futures=True)

    async def _warm_up(self) -> None:
        for declaration in self._declarations():
            await self._in_compiler(self._learn, declaration)

    def _learn(self, declaration: Declaration) -> None:
        # What is wrong with one map, or its example, is no reason not to serve it and the others.
        try:
            self._operations[declaration] = capabilities.operations(declaration)
            self._compile_example(declaration)
        except Exception as error:
            self._operations.setdefault(declaration, self.operations)
            log.warning("the example of %s cannot be evaluated: %s", declaration.name, error)

    def _compile_example(self, declaration: Declaration) -> None:
        if declaration.example is None:
            return
        args = tuple(
            capabilities.example_argument(arg, declaration, position)
            for position, arg in enumerate(declaration.example)
        )
        call = Call("evaluate", args, {})
        asked = self._admit(declaration, Request(declaration.name, call, "anonymous"))
        self.engine.compile(asked, self._place(declaration, None))

    def _declarations(self) -> Iterable[Declaration]:
        return [declaration for versions in self._maps.values() for declaration in versions.values()]

    # What it hosts.

    def find(self, name: str) -> Declaration:
        """The map ``name``, or ``name@version``; a bare name is the version listed last.

        Raises:
            MapNotFound: naming near misses.
        """
        bare, at, version = name.partition("@")
        versions = self._maps.get(bare, {})
        found = versions.get(version) if at else next(reversed(versions.values()), None)
        if found is not None:
            return found
        if versions:
            known = [f"{bare}@{known}" for known in versions]
            hint = f"{bare} is there as {', '.join(known[:5])}."
        else:
            near = difflib.get_close_matches(bare[:64], self._maps, n=3)
            hint = f"Did you mean {' or '.join(near)}?" if near else "GET /v1/maps lists what there is."
        raise MapNotFound(f"No map of that name is hosted here. {hint}", got=repr(name[:80]))

    async def describe(self) -> list[dict[str, Any]]:
        """Every hosted map, as in the answer to ``GET /v1/maps``."""
        return [await self._described(declaration) for declaration in self._declarations()]

    async def describe_one(self, name: str) -> dict[str, Any]:
        """One map, as there. Raises as `find` does."""
        return await self._described(self.find(name))

    async def _described(self, declaration: Declaration) -> dict[str, Any]:
        if declaration not in self._operations:
            await self._in_compiler(self._learn, declaration)
        allowed = self._settings.allow_precision
        return {
            "name": declaration.name,
            "version": declaration.version,
            "doc": declaration.doc,
            "operations": list(self._operations[declaration]),
            "policies": [INPUT, *(name for name in BITS if allowed is None or name in allowed)],
            "parameters": [parameter.describe() for parameter in declaration.signature.parameters],
            "returns": declaration.signature.returns,
        }

    def describe_devices(self) -> dict[str, Any]:
        """As in the answer to ``GET /v1/devices``."""
        return {
            "devices": [device.describe() for device in self.engine.devices],
            "compiled_queries": len(self.engine.compiled),
            "linearizations": len(self.linearizations),
            "linearization_bytes": self.linearizations.nbytes,
            "resident_arrays": len(self.residents),
            "resident_bytes": self.residents.nbytes,
        }

    # Answering.

    async def answer(self, request: Request, deadline: float | None) -> Outcome:
        """Answer a request within ``deadline`` seconds.

        Raises:
            GradwireError: whatever is wrong with it, or befell it.
        """
        declaration = self.find(request.map)
        return await self._within(deadline, declaration.name, self._answer(declaration, request))

    async def _answer(self, declaration: Declaration, request: Request) -> Outcome:
        owner, call = request.owner, request.call
        given = list(leaves((call.args, call.kwargs, call.tangents, call.cotangent)))
        if any(type(leaf) is Ref for leaf in given):
            call = request.call = self._with_residents(call, owner)
            given = list(leaves((call.args, call.kwargs, call.tangents, call.cotangent)))
        if size_of(given) > LARGE:
            asked = await asyncio.to_thread(self._admit, declaration, request)
        else:
            asked = self._admit(declaration, request)
        device = self._place(declaration, request.device)
        meta = self._meta(asked, device)
        if request.call.operation == "eval_shape":
            return Outcome({"shapes": await self._in_compiler(self.engine.shapes, asked)}, meta)
        if request.call.sparse:
            return await self._sparse(asked, device, meta)
        started = time.perf_counter()
        key = compile_key(asked, device)
        compiled = await self._compiled(key, lambda: self.engine.compile(asked, device))
        if holomorphic.promised(asked):
            await self._in_compiler(self.engine.check_promises, asked, device)
        outcome = Outcome({}, meta, {"compile": time.perf_counter() - started})

        def compute() -> dict[str, Any]:
            begun = time.perf_counter()
            outcome.timing["queue"] = begun - queued
            # Linearizations can be made anew: what is asked for now goes first.
            self.linearizations.make_room(device, compiled.memory)
            fields = self.engine.run(asked, compiled, device)
            kept = None
            if asked.query.operation == "linearize":
                linearization = self.engine.linearization(asked, compiled, device, fields)
                id, ttl = self.linearizations.keep(linearization, owner)
                kept = {"id": id, "expires": ttl}
            made: dict[str, Any] = on_host(fields, asked.query.precision)
            if kept is not None:
                made["linearization"] = kept
            outcome.timing["compute"] = time.perf_counter() - begun
            return made

        joint = None
        if declaration.coalesce and declaration.hand is None and asked.query.operation != "linearize":
            bucket = self._settings.coalesce_bucket
            joint = Row(self.engine, asked, device, key, bucket, self._begin_compiling, compute)
            if bucket is not None:
                await self._prepared(joint.batch_key(bucket), lambda: joint.make(bucket))
        queued = time.perf_counter()
        outcome.fields = await device.perform(compute, joint)
        # Of rows that were joined, none knows its own share.
        outcome.timing.setdefault("compute", time.perf_counter() - queued)
        return outcome

    async def _sparse(self, asked: Asked, device: Device, meta: dict[str, Any]) -> Outcome:
        """A sparse Jacobian or Hessian, its parts one by one in the device's queue."""
        started = time.perf_counter()
        if holomorphic.promised(asked):
            await self._in_compiler(self.engine.check_promises, asked, device)
        key = self.sparse_queries.key(asked, device)
        plan = self.sparse_queries.cached(key)
        if plan is None:
            plan = await self._once(key, lambda: self.sparse_queries.plan(asked, device))
        if plan.fallback is not None:
            meta["dense_fallback"] = plan.fallback
        planned = time.perf_counter()
        computation = self.sparse_queries.begin(plan, asked, device)
        for part in computation.parts:
            await device.perform(part)
        fields = {asked.query.operation: await asyncio.to_thread(computation.finish)}
        timing = {"compile": planned - started, "compute": time.perf_counter() - planned}
        return Outcome(fields, meta, timing)

    async def report(self, request: Request, deadline: float | None) -> Outcome:
        """What a map says of itself (``check``, ``cost``, ``explain``), in the field ``report``."""
        declaration = self.find(request.map)
        return await self._within(deadline, declaration.name, self._report(declaration, request))

    async def _report(self, declaration: Declaration, request: Request) -> Outcome:
        call = request.call
        if any(type(leaf) is Ref for leaf in leaves((call.args, call.kwargs))):
            call = self._with_residents(call, request.owner)
        if call.argnums is None:
            call = replace(call, argnums=declaration.default_argnums(call.args))
        device = self._place(declaration, request.device)

        def admit(asked: Call) -> Asked:
            return self._admit(declaration, replace(request, call=asked))

        def reported() -> dict[str, Any]:
            if call.operation == "check":
                checked = self._hosted[declaration].using(device=device.name)
                for transform in request.transforms:
                    checked = checked._transformed(transform)
                allowed = self._settings.allow_precision
                exact = "float64" if allowed is None or "float64" in allowed else "input"
                with local.on(self.engine):
                    return check_map(
                        checked, at=(call.args, call.kwargs), precision=request.precision or exact
                    ).fields()
            if call.operation == "cost":
                return cost(self.engine, declaration, call, admit, device).fields()
            reasons = self._reasons(declaration, request)
            return explain(self.engine, declaration, call, admit, device, reasons).fields()

        asked = await asyncio.to_thread(admit, replace(call, operation="evaluate", argnums=None))
        meta = self._meta(asked, device)
        return Outcome({"report": await self._in_compiler(reported)}, meta)

    def _reasons(self, declaration: Declaration, request: Request) -> dict[str, str]:
        """Why this device and this policy."""
        device = "the least busy"
        if request.device is not None:
            device = "asked for"
        elif declaration.device is not None:
            device = "the map's"
        elif self._settings.device is not None:
            device = "the service's"
        precision = f"the service's: {self._policy}"
        if request.precision is not None:
            precision = f"asked for: {Policy.parse(request.precision)}"
        elif declaration.precision is not None:
            precision = f"the map's: {declaration.precision}"
        return {"device": device, "precision": precision}

    async def blocks(self, request: Request, deadline: float | None) -> AsyncGenerator[dict[str, Any]]:
        """A Jacobian in blocks, as they are computed.

        First ``{jacobian: {type, shape}}``, then each ``{axis, start, block}``, then ``{meta}``.

        Everything that can be said against the request is said before the first of them.
        """
        declaration = self.find(request.map)
        within = self._clock(deadline, declaration.name)
        request.call = replace(request.call, operation="linearize")
        given = list(leaves((request.call.args, request.call.kwargs)))
        if any(type(leaf) is Ref for leaf in given):
            request.call = self._with_residents(request.call, request.owner)
        asked = await within(asyncio.to_thread(self._admit, declaration, request))
        device = self._place(declaration, request.device)
        key = compile_key(asked, device)
        compiled = await within(self._compiled(key, lambda: self.engine.compile(asked, device)))

        def linearize() -> Linearization:
            return self.engine.linearization(
                asked, compiled, device, self.engine.run(asked, compiled, device)
            )

        if holomorphic.promised(asked):
            await within(self._in_compiler(self.engine.check_promises, asked, device))
        kept = await within(device.perform(linearize))
        async with aclosing(
            self._in_blocks(kept, request.call.holomorphic, request.call.mode, within)
        ) as messages:
            async for message in messages:
                yield message

    async def linear_blocks(
        self, id: str, owner: str, deadline: float | None
    ) -> AsyncGenerator[dict[str, Any]]:
        """A kept linearization's matrix in blocks, as `blocks` gives them."""
        kept = self.linearizations.find(id, owner)
        within = self._clock(deadline, kept.asked.query.map)
        async with aclosing(self._in_blocks(kept, True, "auto", within)) as messages:
            async for message in messages:
                yield message

    async def _in_blocks(
        self, kept: Linearization, holomorphic: bool, mode: str, within: Within
    ) -> AsyncGenerator[dict[str, Any]]:
        planned = await within(
            self._in_compiler(lambda: plan(self.engine, kept, holomorphic=holomorphic, mode=mode))
        )
        yield {"jacobian": {"type": planned.dtype.str, "shape": list(planned.shape)}}
        starts = list(planned.starts)
        coming = [self._block(planned, start) for start in starts[:1]]
        try:
            for start, after in zip(starts, [*starts[1:], None], strict=True):
                # One block is computed while the one before it is sent.
                if after is not None:
                    coming.append(self._block(planned, after))
                block = await within(coming.pop(0))
                yield {"axis": planned.axis, "start": start, "block": Tree(block)}
                del block
        finally:
            for task in coming:
                task.cancel()
        yield {"meta": self._meta(kept.asked, kept.device)}

    def _block(self, planned: Blocks, start: int) -> asyncio.Task[np.ndarray]:
        return asyncio.create_task(planned.kept.device.perform(lambda: planned.block(start)))

    def _with_residents(self, call: Call, owner: str) -> Call:
        """``call`` with arrays for its references to resident ones."""
        missing: list[str] = []
        made = replace(
            call,
            args=self.residents.resolve(call.args, owner, missing),
            kwargs=self.residents.resolve(call.kwargs, owner, missing),
            tangents=self.residents.resolve(call.tangents, owner, missing),
            cotangent=self.residents.resolve(call.cotangent, owner, missing),
        )
        self.residents.check(missing)
        return made

    async def linear(
        self, id: str, owner: str, operation: str, payload: Pytree, deadline: float | None
    ) -> Outcome:
        """A product with a kept linearization (``jvp``, ``vjp``), or its matrix (``dense``).

        Raises:
            LinearizationLost: unknown, expired or somebody else's.
        """
        kept = self.linearizations.find(id, owner)
        return await self._within(deadline, kept.asked.query.map, self._linear(kept, operation, payload))

    async def _linear(self, kept: Linearization, operation: str, payload: Pytree) -> Outcome:
        query = kept.asked.query
        missing: list[str] = []
        payload = self.residents.resolve(payload, query.owner, missing)
        self.residents.check(missing)
        if operation == "jvp" and len(payload) != len(query.options.positions):
            raise ArgumentError(
                "There is one tangent for each differentiated argument.",
                map=query.map,
                argument="tangents",
                expected=str(len(query.options.positions)),
                got=str(len(payload)),
            )
        started = time.perf_counter()
        if operation == "dense":
            await self._in_compiler(self.engine.check_complex_linear, kept)
        if size_of(payload) > LARGE:
            asked = await asyncio.to_thread(self.engine.ask_linear, kept, operation, payload)
        else:
            asked = self.engine.ask_linear(kept, operation, payload)
        given, key, make = asked
        compiled = await self._compiled(key, lambda: self.engine.compiled.get_or_make(key, make))
        meta = self._meta(kept.asked, kept.device)
        outcome = Outcome({}, meta, {"compile": time.perf_counter() - started})

        def compute() -> dict[str, Any]:
            begun = time.perf_counter()
            outcome.timing["queue"] = begun - queued
            made = on_host(self.engine.run_linear(kept, compiled, given), query.precision)
            outcome.timing["compute"] = time.perf_counter() - begun
            return {LINEAR_FIELDS[operation]: made}

        queued = time.perf_counter()
        outcome.fields = await kept.device.perform(compute)
        return outcome

    def _meta(self, asked: Asked, device: Device) -> dict[str, Any]:
        query = asked.query
        return {
            "map": query.map,
            "version": query.version,
            "device": device.name,
            "computed_in": query.precision.computed_in,
            "lossy": query.precision.lossy,
        }

    def _admit(self, declaration: Declaration, request: Request) -> Asked:
        call = request.call
        count = sum(1 for _ in leaves((call.args, call.kwargs, call.tangents, call.cotangent)))
        if count > self._settings.request_leaves:
            raise ArgumentError(
                "The request has too many arrays and numbers (option request_leaves): "
                "join them into larger arrays.",
                map=declaration.name,
                expected=f"at most {self._settings.request_leaves}",
                got=str(count),
            )
        if len(request.transforms) > self._settings.transform_depth:
            raise ArgumentError(
                "Too many transforms in one query.",
                map=declaration.name,
                argument="transforms",
                expected=f"at most {self._settings.transform_depth}",
                got=str(len(request.transforms)),
            )
        policy = declaration.precision or self._policy
        if request.precision is not None:
            policy = Policy.parse(request.precision)
        asked = ask(
            declaration,
            request.call,
            request.transforms,
            policy=policy,
            owner=request.owner,
            listed=request.listed,
        )
        allowed = self._settings.allow_precision
        if allowed is not None and asked.query.precision.computed_in not in allowed:
            raise ArgumentError(
                "This service does not compute at that precision; ask for another with precision=.",
                map=declaration.name,
                argument="precision",
                expected=" or ".join(allowed),
                got=asked.query.precision.computed_in,
            )
        return asked

    def _place(self, declaration: Declaration, wanted: str | None) -> Device:
        return self.engine.devices.choose(
            next((d for d in (wanted, declaration.device, self._settings.device) if d is not None), None)
        )

    async def _compiled(self, key: Hashable, make: Callable[[], Compiled]) -> Compiled:
        """The executable for ``key``; compiled apart from the device, once, whoever else waits for it."""
        found = self.engine.compiled.get(key)
        return found if found is not None else await self._once(key, make)

    async def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        """``make()`` among the compiles, once, whoever else waits for ``key``."""
        making = self._compiling.get(key)
        if making is None:
            making = self._compiling[key] = asyncio.ensure_future(self._in_compiler(make))
            making.add_done_callback(lambda done: self._compiled_one(key, done))
        # A caller that gives up must not take the others' executable with it.
        made: T = await asyncio.shield(making)
        return made

    def _compiled_one(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        del self._compiling[key]
        if not done.cancelled():
            done.exception()  # whoever waits has it too; nobody may wait any more

    async def _prepared(self, key: Hashable, make: Callable[[], Compiled]) -> None:
        """See to it that the executable for ``key`` is there, if it can be made at all."""
        if key not in self._begun and self.engine.compiled.get(key) is None:
            try:
                await self._compiled(key, lambda: self.engine.compiled.get_or_make(key, make))
            except GradwireError:
                self._note_begun(key)  # not tried again: its rows go one by one

    def _begin_compiling(self, key: Hashable, make: Callable[[], Compiled]) -> None:
        """Compile for ``key`` in the background. Called from a device's thread."""
        if self._stopping or not self._note_begun(key):
            return

        def done(made: Future[Compiled]) -> None:
            # What cannot be compiled is not tried again: its rows go one by one.
            if not made.cancelled() and made.exception() is None:
                with self._begun_lock:
                    self._begun.pop(key, None)

        self._compiler.submit(self.engine.compiled.get_or_make, key, make).add_done_callback(done)

    def _note_begun(self, key: Hashable) -> bool:
        """Remember that ``key`` need not be begun (again); whether that is new."""
        with self._begun_lock:
            if key in self._begun:
                return False
            self._begun[key] = None
            if len(self._begun) > 2 * self._settings.compiled_queries:
                del self._begun[next(iter(self._begun))]
            return True

    async def _in_compiler(self, work: Callable[..., T], *args: Any) -> T:
        if self._stopping:
            raise Overloaded("The service is stopping.", kind="draining")
        return await asyncio.get_running_loop().run_in_executor(self._compiler, work, *args)

    async def _within(self, deadline: float | None, map: str, answer: Awaitable[T]) -> T:
        return await self._clock(deadline, map)(answer)

    def _clock(self, deadline: float | None, map: str) -> Within:
        """What waits for an answer, or for one part of it after the other, until the time from now is up."""
        seconds = self._settings.deadline if deadline is None else min(deadline, self._settings.deadline)
        end = asyncio.get_running_loop().time() + seconds

        async def within(answer: Awaitable[T]) -> T:
            try:
                async with asyncio.timeout_at(end):
                    return await answer
            except TimeoutError:
                raise DeadlineExceeded(
                    f"Not answered within {seconds:g} s; what was begun goes on and is thrown away.", map=map
                ) from None

        return within


def size_of(tree: Pytree) -> int:
    """Bytes of the arrays in ``tree``."""
    return sum(leaf.nbytes for leaf in leaves(tree) if not is_number(leaf) and hasattr(leaf, "nbytes"))
