"""The native dialect: `/v1` to and from calls. Knows no JAX."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any

import numpy as np
from starlette.routing import BaseRoute, Route

from gradwire import wire
from gradwire._errors import ArgumentError, GradwireError, MapNotFound, WireError, to_problem
from gradwire._operator import BY_SHAPE, Call
from gradwire._signature import Signature
from gradwire._sparse import MOST_KNOWN, to_fields
from gradwire._transforms import Transform, read_argnums
from gradwire_service import sparse
from gradwire_service.engine.service import Outcome, Request, Service, size_of
from gradwire_service.http.exchange import Exchange
from gradwire_service.http.memory import Memory
from gradwire_service.http.problems import render as render
from gradwire_service.http.receiver import ClientDisconnected
from gradwire_service.http.responses import begin_stream, continue_stream, end_stream, send_buffers
from gradwire_service.settings import Settings

PROTOCOL = 1

BLOCKS = "application/vnd.gradwire.blocks+msgpack"
"""The media type of a Jacobian in blocks."""

FEATURES = (
    *("linearizations", "arrays", "blocks", "transforms", "stacks", "has_aux", "reports"),
    *(["sparse"] if sparse.available() else []),
)
"""Optional parts of the protocol that this service has."""

_TEXTS = ("mode", "precision", "device")
_FLAGS = ("sparse", "holomorphic", "has_aux")
_LISTS = ("args", "tangents", "transforms", "known_patterns")
FIELDS = frozenset({*_TEXTS, *_FLAGS, *_LISTS, "kwargs", "cotangent", "argnums"})
"""Every field of a request to a map."""

_PATTERN = re.compile("[0-9a-f]{64}")

Speaks = tuple[wire.Codec, str]


def owns(path: str) -> bool:
    """Every path that no other dialect claims: whoever asks first is asked last."""
    return False


def routes(service: Service, settings: Settings) -> list[BaseRoute]:
    """The routes of protocol 1."""

    memory = Memory()

    def on(path: str, method: str, answer: Callable[[NativeExchange], Awaitable[None]]) -> Route:
        return Route(path, NativeExchange.endpoint(service, settings, memory, answer), methods=[method])

    return [
        on("/v1/maps/{name:path}/{operation}", "POST", _operation),
        on("/v1/maps", "GET", _maps),
        on("/v1/maps/{name:path}", "GET", _map),
        on("/v1/linearizations/{id}/{operation}", "POST", _linear),
        on("/v1/linearizations/{id}", "DELETE", _forget_linearization),
        on("/v1/arrays/{sha256}", "PUT", _put_array),
        on("/v1/arrays/{sha256}", "GET", _get_array),
        on("/v1/arrays/{sha256}", "DELETE", _forget_array),
        on("/v1/devices", "GET", _devices),
    ]


class NativeExchange(Exchange):
    """One in protocol 1: its bodies are messages, answered in the request's format unless asked otherwise."""

    in_blocks = False
    """Whether the caller takes a Jacobian in blocks."""

    async def read(self) -> wire.Message:
        """The request's message, its format noted for the answer."""
        codec = wire.codec_for(self.header(b"content-type"))
        self.speaks = (codec, "str" if codec is wire.MSGPACK else "lists")
        limits = self.settings.wire_limits
        message = await self.read_with(lambda body: codec.decode(body, limits))
        self.speaks = (codec, message.style)
        self.in_blocks = (self.header(b"accept") or "").strip().lower() == BLOCKS
        if not self.in_blocks:
            self.speaks = wire.answer_codec(self.header(b"accept"), self.speaks)
        return message

    def answers(self) -> None:
        """Note the format of an answer to a request without a body: JSON unless asked otherwise."""
        self.speaks = wire.answer_codec(self.header(b"accept"), (wire.JSON, "lists"))

    @property
    def speaks(self) -> Speaks:
        speaks: Speaks = self.scope["state"]["speaks"]
        return speaks

    @speaks.setter
    def speaks(self, speaks: Speaks) -> None:
        self.scope["state"]["speaks"] = speaks

    async def reply(self, fields: dict[str, Any], *, status: int = 200, size: int = 0) -> None:
        """Send ``fields``; ``size`` is how many bytes of arrays are in them."""
        codec, style = self.speaks
        await self.write_with(lambda: codec.encode(fields, style), codec.media_type, status=status, size=size)

    async def reply_outcome(self, outcome: Outcome, known: Collection[str] | None = None) -> None:
        """Send an outcome; ``known`` are the caller's patterns where the answer is sparse, else None."""
        self.timing.update(outcome.timing)
        trees = {
            name: value
            if name in ("linearization", "report")
            else _listed(name, value)
            if known is None
            else to_fields(value, known)
            for name, value in outcome.fields.items()
        }
        meta = {**outcome.meta, "request_id": self.scope["state"]["request_id"]}
        await self.reply({**trees, "meta": meta}, size=size_of(list(outcome.fields.values())))

    async def stream(self, messages: AsyncGenerator[dict[str, Any]]) -> None:
        """Send messages one after the other, as they come; an error in between is the last of them."""
        started = False
        reader = asyncio.create_task(self._gone())
        try:
            async for message in messages:
                if reader.done():
                    raise ClientDisconnected
                if "meta" in message:
                    message["meta"]["request_id"] = self.scope["state"]["request_id"]
                if not started:
                    started = True
                    await begin_stream(self.send, BLOCKS)
                await continue_stream(self.send, wire.MSGPACK.encode(message, "str"))
        except GradwireError as error:
            if not started:
                raise
            instance = f"urn:gradwire:request:{self.scope['state']['request_id']}"
            problem = {"problem": to_problem(error, instance=instance)}
            await continue_stream(self.send, wire.MSGPACK.encode(problem, "str"))
        finally:
            reader.cancel()
            await messages.aclose()
        await end_stream(self.send)


def _listed(name: str, value: Any) -> Any:
    """A field's pytree; cotangents are always a list, one per differentiated argument."""
    return [wire.Tree(entry) for entry in value] if name == "cotangents" else wire.Tree(value)


# Maps.


async def _operation(exchange: NativeExchange) -> None:
    name, operation = exchange.parameter("name"), exchange.parameter("operation")
    declaration = exchange.service.find(name)
    offered = (*exchange.service.operations, *exchange.service.reports)
    if operation not in offered:
        raise MapNotFound(
            "There is no such operation.",
            kind="route-not-found",
            map=declaration.name,
            expected=", ".join(offered),
            got=repr(operation[:40]),
        )
    deadline = exchange.deadline
    message = await exchange.read()
    try:
        request = read_request(message, operation, declaration.signature, name, exchange.owner)
        if exchange.in_blocks and operation == "jacobian":
            await exchange.stream(exchange.service.blocks(request, deadline))
            return
        known = _known_patterns(message)
        service = exchange.service
        answer = service.report if operation in service.reports else service.answer
        with exchange.while_there():
            outcome = await answer(request, deadline)
    except GradwireError as error:
        error.map = error.map or declaration.name
        raise
    await exchange.reply_outcome(outcome, known if request.call.sparse else None)


def read_request(
    message: wire.Message, operation: str, signature: Signature, name: str, owner: str
) -> Request:
    """A request's message as a call of the map with that signature.

    Raises:
        WireError: fields that are not known, or of another form.
        ArgumentError: arguments that are no trees, or that no parameter takes.
    """
    fields = message.fields
    unknown = sorted(set(fields) - FIELDS)
    if unknown:
        raise WireError(
            f"The request has an unknown field {unknown[0][:64]!r}.",
            argument=unknown[0][:64],
            expected=", ".join(sorted(FIELDS)),
        )
    given = {key: value for key, value in fields.items() if value is not None}
    for key in given:
        _check_form(key, given[key])
    specs = operation in BY_SHAPE

    def argument(parameter_name: str, static: bool, raw: Any) -> Any:
        try:
            return message.static(raw) if static else message.tree(raw, specs=specs)
        except GradwireError as error:
            error.argument = error.argument or parameter_name
            raise

    raw_args = _entries(given.get("args", ()))
    if not any(parameter.positional for parameter in signature.parameters) and raw_args:
        signature.bind(raw_args, {}, map=name)
    args = []
    for position, raw in enumerate(raw_args):
        parameter = signature.at(position)
        args.append(argument(parameter.name, parameter.static, raw))
    kwargs = {}
    for key, raw in given.get("kwargs", {}).items():
        named = signature.named(key)
        if named is None:
            signature.bind(args, {key: raw}, map=name)
        kwargs[key] = argument(key, named is not None and named.static, raw)
    tangents = given.get("tangents")
    if operation == "vjp" and "cotangent" not in fields:
        raise ArgumentError(
            "vjp takes a cotangent: an array (or pytree) of the value's shape.",
            map=name,
            argument="cotangent",
            expected="a cotangent",
            got="none",
        )
    argnums = given.get("argnums")
    if argnums is not None:
        argnums = read_argnums(argnums)
    elif operation in ("jacobian", "grad", "value_and_grad", "hessian"):
        argnums = 0
    return Request(
        map=name,
        call=Call(
            operation,
            tuple(args),
            kwargs,
            argnums=argnums,
            tangents=None
            if tangents is None
            else tuple(argument("tangents", False, raw) for raw in _entries(tangents)),
            cotangent=None if "cotangent" not in given else argument("cotangent", False, given["cotangent"]),
            mode=given.get("mode", "auto"),
            sparse=given.get("sparse", False),
            holomorphic=given.get("holomorphic", False),
            has_aux=given.get("has_aux", False),
        ),
        owner=owner,
        transforms=tuple(Transform.from_fields(entry) for entry in given.get("transforms", ())),
        precision=given.get("precision"),
        device=given.get("device"),
        # Derivatives in several arguments come as a list for a list, as a tuple for a tuple.
        listed=type(fields.get("argnums")) is list or argnums is None,
    )


def _known_patterns(message: wire.Message) -> frozenset[str]:
    """The sparsity patterns that the caller holds.

    Raises:
        WireError: something that is no name of a pattern, or too many.
    """
    known = message.fields.get("known_patterns")
    if known is None:
        return frozenset()
    names = _entries(known)
    if len(names) > MOST_KNOWN or not all(type(name) is str and _PATTERN.fullmatch(name) for name in names):
        raise WireError(
            "known_patterns names sparsity patterns by their SHA-256.",
            argument="known_patterns",
            expected=f"at most {MOST_KNOWN} names of 64 hex digits, lower case",
            got=f"{len(names)} entries",
        )
    return frozenset(names)


def _check_form(key: str, value: Any) -> None:
    expected: str | None = None
    if key in _TEXTS and type(value) is not str:
        expected = "text"
    elif key in _FLAGS and type(value) is not bool:
        expected = "true or false"
    elif key in _LISTS and not isinstance(value, list | np.ndarray):
        expected = "a list"
    elif key == "kwargs" and type(value) is not dict:
        expected = "a map of names to arguments"
    if expected is None and key == "mode" and value not in ("auto", "fwd", "rev"):
        raise ArgumentError(
            "There is no such mode.", argument="mode", expected="auto, fwd or rev", got=repr(value[:32])
        )
    if expected is not None:
        raise WireError(
            f"The field {key!r} has the wrong form.", argument=key, expected=expected, got=_form(value)
        )


def _form(value: Any) -> str:
    return {dict: "a map", list: "a list", str: "text", bool: "true or false"}.get(
        type(value), type(value).__name__
    )


def _entries(raw: Any) -> list[Any]:
    """A list of arguments; a decoder may have packed a long list of numbers into one array."""
    return raw.tolist() if isinstance(raw, np.ndarray) else list(raw)


async def _maps(exchange: NativeExchange) -> None:
    exchange.answers()
    maps = await exchange.service.describe()
    await exchange.reply({"protocol": PROTOCOL, "features": list(FEATURES), "maps": maps})


async def _map(exchange: NativeExchange) -> None:
    exchange.answers()
    described = await exchange.service.describe_one(exchange.parameter("name"))
    await exchange.reply({"protocol": PROTOCOL, "features": list(FEATURES), **described})


# Linearizations.


async def _linear(exchange: NativeExchange) -> None:
    operation = exchange.parameter("operation")
    if operation not in exchange.service.linear_operations:
        raise MapNotFound(
            "A linearization has no such operation.",
            kind="route-not-found",
            expected=", ".join(exchange.service.linear_operations),
            got=repr(operation[:40]),
        )
    deadline = exchange.deadline
    message = await exchange.read()
    wanted = {"jvp": "tangents", "vjp": "cotangent", "dense": None}[operation]
    unknown = sorted(set(message.fields) - {wanted})
    if unknown or (wanted is not None and wanted not in message.fields):
        raise WireError(
            f"{operation} of a linearization takes "
            + (f"the field {wanted} alone." if wanted else "no fields."),
            argument=unknown[0][:64] if unknown else wanted,
            expected=wanted or "an empty map",
            got=", ".join(unknown)[:200] or "nothing",
        )
    if exchange.in_blocks and operation == "dense":
        await exchange.stream(
            exchange.service.linear_blocks(exchange.parameter("id"), exchange.owner, deadline)
        )
        return
    payload = None
    if wanted is not None:
        raw = message.fields[wanted]
        if wanted == "tangents":
            _check_form("tangents", raw)
            payload = [message.tree(entry) for entry in _entries(raw)]
        else:
            payload = message.tree(raw)
    with exchange.while_there():
        outcome = await exchange.service.linear(
            exchange.parameter("id"), exchange.owner, operation, payload, deadline
        )
    await exchange.reply_outcome(outcome)


async def _forget_linearization(exchange: NativeExchange) -> None:
    exchange.answers()
    exchange.service.linearizations.drop(exchange.parameter("id"), exchange.owner)
    await exchange.done()


# Resident arrays.


def _sha256(exchange: NativeExchange) -> str:
    text = exchange.parameter("sha256")
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ArgumentError(
            "An array is named by the SHA-256 of its canonical form.",
            argument="sha256",
            expected="64 hexadecimal digits in lower case",
            got=repr(text[:80]),
        )
    return text


async def _put_array(exchange: NativeExchange) -> None:
    sha256 = _sha256(exchange)
    message = await exchange.read()
    array = message.tree(message.fields)
    if not isinstance(array, np.ndarray):
        raise WireError("The body is one array.", expected="the canonical array", got=_form(array))
    new = await asyncio.to_thread(exchange.service.residents.put, array, sha256, exchange.owner)
    await exchange.reply({"sha256": sha256}, status=201 if new else 200)


async def _get_array(exchange: NativeExchange) -> None:
    array = exchange.service.residents.find(_sha256(exchange), exchange.owner)
    buffers = wire.canonical(array)
    await send_buffers(exchange.send, 200, wire.MSGPACK.media_type, buffers)


async def _forget_array(exchange: NativeExchange) -> None:
    exchange.answers()
    exchange.service.residents.drop(_sha256(exchange), exchange.owner)
    await exchange.done()


async def _devices(exchange: NativeExchange) -> None:
    exchange.answers()
    await exchange.reply(exchange.service.describe_devices())
