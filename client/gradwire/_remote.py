"""RemoteMap: the operator interface, answered by a service."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from gradwire import kinds, wire
from gradwire._blocks import Filling, Stream
from gradwire._errors import GradwireError, LinearizationLost, NotDifferentiable, WireError
from gradwire._linear import Handle
from gradwire._operator import Answer, Call, OperatorBase, T, import_leaf
from gradwire._repeats import SMALLEST
from gradwire._reports import REPORTS
from gradwire._resident import ResidentArray
from gradwire._session import STREAMED, path_of
from gradwire._signature import Signature
from gradwire._sparse import Pattern, from_fields, scipy_sparse
from gradwire._trees import Tree, leaves, tree_map

if TYPE_CHECKING:
    from gradwire._service import Service


class RemoteMap(OperatorBase):
    """A map on a service, as an operator: made by ``lab["name"]``.

    ``using``, and everything `gradwire.grad` and its like return, are RemoteMaps too.
    They can be pickled and used among threads; each operation is one request.
    """

    def __init__(self, service: Service, description: Mapping[str, Any], asked: str) -> None:
        super().__init__(
            name=description["name"],
            version=description["version"],
            signature=Signature.from_description(description),
            doc=description.get("doc"),
            options=service.options,
        )
        self._service = service
        self._hosted_operations = tuple(description.get("operations", ()))
        self._features = frozenset(description.get("features", ()))
        # As it was asked for: name@version stays at that version.
        self._path = path_of(asked)

    def _base_operations(self) -> tuple[str, ...]:
        return self._hosted_operations

    def _perform(self, call: Call, read: Callable[[Answer], T]) -> T:
        known = self._known_patterns() if call.sparse else None
        return read(self._answer(call, self._post(call, known), known))

    def _known_patterns(self) -> dict[str, Pattern]:
        """What this client holds of the patterns of this map's sparse answers."""
        scipy_sparse()
        if "sparse" not in self._features:
            raise NotDifferentiable(
                "This service gives no sparse matrices: it needs the extra gradwire[sparse].",
                map=self.name,
                argument="sparse",
                expected="sparse=False",
                got="sparse=True",
            )
        return self._service.session.patterns.of(self._path)

    def _post(self, call: Call, known: Collection[str] | None = None) -> wire.Message:
        path = f"{self._path}/{call.operation}"

        def asked(send: Callable[[Any], Any]) -> wire.Message:
            fields = self._fields(call, send)
            if known:
                fields["known_patterns"] = list(known)
            return self._service.request("POST", path, fields, options=self._options)

        try:
            return asked(self._named)
        except LinearizationLost as lost:
            if not lost.extra.get("missing"):
                raise
            # The service loses what repeats faster than it can be put again: it goes with the request.
            return asked(named_where_put)

    def _answer(
        self, call: Call, message: wire.Message, known: Mapping[str, Pattern] | None = None
    ) -> Answer:
        meta = message.fields.get("meta") or {}
        if call.operation not in REPORTS and meta.get("lossy"):
            self._warn_of_precision(call, str(meta.get("computed_in")), self._service.session.warned)
        plain = {"linearization": message.fields.get("linearization"), "meta": meta}
        if call.operation in REPORTS:
            plain["report"] = message.fields["report"]

        def field(name: str) -> Any:
            if name in plain:
                return plain[name]
            if known is not None:
                matrices = from_fields(message.fields[name], message, known)
                for matrix in leaves(matrices):
                    self._service.session.patterns.keep(self._path, matrix.pattern)
                return matrices
            return message.tree(message.fields[name], specs=name == "shapes")

        return field

    def _fill(self, call: Call, filling: Filling, read: Callable[[np.ndarray], T]) -> T:
        if "blocks" not in self._features:
            raise NotImplementedError(f"the service at {self._service} does not send Jacobians in blocks")
        stream = Stream(filling)
        path = f"{self._path}/{call.operation}"
        fields = self._fields(call, named_where_put)
        options = self._options
        self._service.request("POST", path, fields, options=options, accept=STREAMED, stream=stream)
        filled = stream.result()
        if filling.meta.get("lossy"):
            computed_in = str(filling.meta.get("computed_in"))
            self._warn_of_precision(call, computed_in, self._service.session.warned)
        return read(filled)

    def _fields(self, call: Call, send: Callable[[Any], Any]) -> dict[str, Any]:
        """The request that asks ``call`` (only fields that differ from their defaults).

        ``send`` says what goes into the message for a leaf of an argument.
        """

        def written(static: bool, arg: Tree) -> Any:
            return _plain(arg) if static else wire.Tree(tree_map(send, arg))

        fields: dict[str, Any] = {
            "args": [written(self.signature.at(i).static, arg) for i, arg in enumerate(call.args)]
        }
        if call.kwargs:
            named = {key: self.signature.named(key) for key in call.kwargs}
            fields["kwargs"] = {
                key: written(bool(parameter and parameter.static), call.kwargs[key])
                for key, parameter in named.items()
            }
        if call.tangents is not None:
            fields["tangents"] = [sendable(tangent) for tangent in call.tangents]
        if call.operation == "vjp":
            fields["cotangent"] = sendable(call.cotangent)
        if call.argnums is not None:
            fields["argnums"] = (
                call.argnums if isinstance(call.argnums, int) else {"tuple": list(call.argnums)}
            )
        if call.mode != "auto":
            fields["mode"] = call.mode
        for flag in ("sparse", "holomorphic", "has_aux"):
            if getattr(call, flag):
                fields[flag] = True
        if self._transforms:
            fields["transforms"] = [transform.fields() for transform in self._transforms]
        if self._options.precision is not None:
            fields["precision"] = self._options.precision
        if self._options.device is not None:
            fields["device"] = self._options.device
        return fields

    def _named(self, leaf: Any) -> Any:
        """An argument's leaf, or the name of what the service holds of it already."""
        if isinstance(leaf, ResidentArray):
            return leaf.ref
        if type(leaf) is not np.ndarray or leaf.nbytes < SMALLEST or "arrays" not in self._features:
            return leaf
        session = self._service.session
        leaf = np.ascontiguousarray(leaf)  # as it is compared, put and sent
        kept = session.repeats.find(leaf)
        if kept is None and session.repeats.worth_putting(leaf):
            kept = session.repeats.keep(leaf)
            session.kept.setdefault(kept.sha256, kept)
            try:
                self._service.send("PUT", kept.path, kept.body(), options=self._options)
            except WireError as error:
                if error.kind != "too-large":
                    raise
                session.repeats.refused(kept)
                return leaf
        return leaf if kept is None else wire.Ref(kept.sha256)

    def _handle(self, call: Call, answer: Answer) -> Handle:
        point = None
        if self._options.keep is not False:
            copied = tree_map(_copied, (call.args, tuple(call.kwargs.values())))
            point = replace(call, args=copied[0], kwargs=dict(zip(call.kwargs, copied[1], strict=True)))
        version = str(answer("meta").get("version", self.version))
        return RemoteHandle(self, str(answer("linearization")["id"]), version, point)


class RemoteHandle:
    """A linearization on the service, made anew there when it was lost."""

    def __init__(self, map: RemoteMap, id: str, version: str, point: Call | None) -> None:
        self._map = map
        self._id: str | None = id
        self._version = version
        self._point = point
        self._lock = threading.Lock()

    def import_leaf(self, leaf: Any, argument: str) -> Any:
        return import_leaf(leaf, argument)

    def export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        return kind.from_numpy(np.asarray(leaf), like)

    def perform(self, operation: str, payload: Any, read: Callable[[Any], Any]) -> Any:
        fields: dict[str, Any]
        if operation == "jvp":
            fields, answer = {"tangents": [sendable(tangent) for tangent in payload]}, "tangent"
        elif operation == "vjp":
            fields, answer = {"cotangent": sendable(payload)}, "cotangents"
        else:
            fields, answer = {}, "jacobian"
        id = self._id
        if id is None:
            raise ValueError("this LinearOperator is closed")
        try:
            message = self._post(id, operation, fields)
        except LinearizationLost as lost:
            if self._point is None or lost.extra.get("missing"):
                raise
            message = self._post(self._remade(id, lost), operation, fields)
        return read(message.tree(message.fields[answer]))

    def _post(self, id: str, operation: str, fields: dict[str, Any]) -> wire.Message:
        path = f"/v1/linearizations/{quote(id, safe='')}/{operation}"
        try:
            return self._map._service.request("POST", path, fields, options=self._map._options)
        except GradwireError as error:
            error.map = error.map or self._map.name
            raise

    def _remade(self, lost_id: str, lost: LinearizationLost) -> str:
        """A new linearization at the same point; one, however many threads found the old one lost."""
        with self._lock:
            if self._id is None or self._point is None:
                raise lost
            if self._id == lost_id:
                message = self._map._post(self._point)
                version = str(message.fields["meta"]["version"])
                if version != self._version:
                    raise LinearizationLost(
                        f"The service lost this linearization, and {self._map.name} has another version now: "
                        "linearize again.",
                        map=self._map.name,
                        expected=f"version {self._version}",
                        got=f"version {version}",
                    ) from lost
                self._id = str(message.fields["linearization"]["id"])
            return self._id

    def close(self) -> None:
        with self._lock:
            id, self._id, self._point = self._id, None, None
        if id is not None:
            try:
                path = f"/v1/linearizations/{quote(id, safe='')}"
                self._map._service.request("DELETE", path, None, options=self._map._options)
            except LinearizationLost:
                pass  # gone already: that is what was asked for

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def sendable(tree: Tree) -> wire.Tree:
    """A pytree for a message: resident arrays are named, not sent."""
    return wire.Tree(tree_map(named_where_put, tree))


def named_where_put(leaf: Any) -> Any:
    """A leaf for a message: the name of an array that the caller put, or the leaf itself."""
    return leaf.ref if isinstance(leaf, ResidentArray) else leaf


def _plain(static: Any) -> Any:
    return [_plain(child) for child in static] if type(static) is tuple else static


def _copied(leaf: Any) -> Any:
    """A leaf of the point as nobody can change it: of a resident array the client's own copy."""
    if isinstance(leaf, ResidentArray) and leaf._kept is not None:
        return leaf._kept.array
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
