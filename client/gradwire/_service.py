"""`connect`, and the `Service` it gives: a service's maps as a Mapping."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx

from gradwire import wire
from gradwire._errors import ArgumentError, GradwireError, MapNotFound, WireError
from gradwire._operator import Options
from gradwire._resident import ResidentArray
from gradwire._session import Address, Buffer, Exchange, Pause, Session, check_options, path_of
from gradwire._transport import Transport

if TYPE_CHECKING:
    from gradwire._blocks import Stream
    from gradwire._remote import RemoteMap

PROTOCOL = 1
_DEFAULT_TIMEOUT = 300.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(@[A-Za-z0-9._+-]{1,32})?")


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    timeout: float = _DEFAULT_TIMEOUT,
    precision: str | None = None,
    device: str | None = None,
    retries: int = 5,
    http_client: httpx.Client | None = None,
) -> Service:
    """The service at ``url``. Sends nothing yet.

    Args:
        url: ``http://host:port``, ``https://host`` or ``unix:///path.sock``; the environment's
            ``GRADWIRE_URL`` where it is left out.
        token: the environment's ``GRADWIRE_TOKEN`` where it is left out. It shows in no
            repr and no error.
        timeout: seconds for each request, retries included; ``math.inf`` for no end.
        precision: a precision policy, such as ``"float32"``; None leaves it to the map.
        device: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``; None lets the service choose.
        retries: how often a request that met a lost connection or a busy service is sent again.
        http_client: an `httpx.Client` to send with (certificates, proxies, tracing). It stays
            yours to close, and cannot be pickled or used after a fork.

    Raises:
        ArgumentError: something of this is not what it should be.
    """
    url = url or os.environ.get("GRADWIRE_URL")
    if not url:
        raise ArgumentError(
            "Which service? Give its URL, or set GRADWIRE_URL.", argument="url", expected="a URL", got="none"
        )
    if http_client is not None and not isinstance(http_client, httpx.Client):
        raise ArgumentError(
            "http_client sends the requests.",
            argument="http_client",
            expected="httpx.Client",
            got=type(http_client).__name__,
        )
    options = check_options(Options(precision=precision, device=device, timeout=timeout))
    token = token or os.environ.get("GRADWIRE_TOKEN") or None
    session = Session(Address.parse(url), token, retries)
    return Service(session, Transport(session.address, http_client), options)


class Service(Mapping[str, "RemoteMap"]):
    """A service's maps by name: ``list(lab)``, ``"name" in lab``, ``len(lab)``, ``lab["name"]``.

    Made by `connect`. Safe among threads and after a fork; picklable (with its token,
    without its connections). What `using` gives shares the connections, and closes with it.
    """

    def __init__(self, session: Session, transport: Transport, options: Options) -> None:
        self.session = session
        self.options = options
        self._transport = transport

    def __getitem__(self, name: str) -> RemoteMap:
        """The map ``name``, or its version ``name@version``; its signature is fetched here, once.

        Raises:
            MapNotFound: there is none; the error names near misses.
        """
        description = self._description(name)
        from gradwire._remote import RemoteMap

        return RemoteMap(self, description, name)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return False
        try:
            self._fetch(path_of(name))
        except MapNotFound:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        # Versions of one map follow one another under one name.
        return iter(dict.fromkeys(str(entry["name"]) for entry in self._catalogue()["maps"]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    # Mapping compares by content, which would fetch every map of both.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<gradwire.Service {self.session.address}>"

    @property
    def features(self) -> frozenset[str]:
        """The optional parts of the protocol that this service has; fetched once."""
        if self.session.features is None:
            self._catalogue()
        return self.session.features or frozenset()

    @property
    def last_timing(self) -> dict[str, float]:
        """Seconds that the service spent in each stage of this thread's last request.

        Stages are decode, queue, compile, compute and encode, as far as the service told.
        """
        return self.session.last_timing

    def using(
        self, *, precision: str | None = None, device: str | None = None, timeout: float | None = None
    ) -> Self:
        """The same service with these options; those left out stay as they are."""
        options = self.options.updated(precision=precision, device=device, timeout=timeout)
        return type(self)(self.session, self._transport, check_options(options))

    def put(self, x: Any) -> ResidentArray:
        """Keeps the array ``x`` on the service, to be named in requests instead of sent.

        Raises:
            DTypeError: a dtype that cannot be sent.
        """
        return ResidentArray.put(self, x)

    def request(
        self,
        method: str,
        path: str,
        fields: Mapping[str, Any] | None,
        *,
        options: Options | None = None,
        accept: str | None = None,
        stream: Stream | None = None,
    ) -> wire.Message:
        """One request and its answer, with retries and within the timeout of ``options``.

        ``fields`` are sent as they are (None: no body); of ``options`` only the timeout is used
        here, as not every request has a precision and a device. An answer without
        a body is a message without fields; so is one in blocks, which go into ``stream``.

        Raises:
            GradwireError: what the service answered, or what befell the request.
        """
        body = None if fields is None else wire.MSGPACK.encode(fields, "str")
        return self.send(method, path, body, options=options, accept=accept, stream=stream)

    def send(
        self,
        method: str,
        path: str,
        body: Sequence[Buffer] | None,
        *,
        options: Options | None = None,
        accept: str | None = None,
        stream: Stream | None = None,
    ) -> wire.Message:
        """`request` with a body that is encoded already."""
        timeout = self.options.timeout if options is None or options.timeout is None else options.timeout
        timeout = _DEFAULT_TIMEOUT if timeout is None else timeout
        return self._perform(
            self.session.exchange(method, path, body, timeout=timeout, accept=accept, stream=stream)
        )

    def close(self) -> None:
        """Closes the connections, also those of what `using` gave."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._transport.given:
            raise TypeError(
                "A Service with a http_client= of your own cannot be pickled: "
                "connect without one, or connect again in the other process."
            )
        session = self.session
        return _reconnected, (str(session.address), session.token, session.retries, self.options)

    def _perform(self, exchange: Exchange) -> wire.Message:
        """Does as the exchange says: all of this client's I/O and waiting."""
        try:
            step = next(exchange)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = exchange.send(None)
                else:
                    step = exchange.send(self._transport.send(step))
        except StopIteration as done:
            message: wire.Message = done.value
            return message

    def _fetch(self, path: str) -> dict[str, Any]:
        """The plain data that the service answers at ``path``."""
        return dict(self.request("GET", path, None).fields)

    def _catalogue(self) -> dict[str, Any]:
        catalogue = self._fetch("/v1/maps")
        if catalogue.get("protocol") != PROTOCOL or not isinstance(catalogue.get("maps"), list):
            raise WireError(
                f"What answers at {self.session.address} does not speak this client's protocol.",
                expected=f"protocol {PROTOCOL}",
                got=f"protocol {catalogue.get('protocol')!r}"[:40],
            )
        self.session.features = frozenset(str(feature) for feature in catalogue.get("features", ()))
        return catalogue

    def _description(self, name: str) -> dict[str, Any]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            error = MapNotFound(
                "No map can have that name.", expected="name or name@version", got=repr(name)[:80]
            )
        else:
            try:
                return self._fetch(path_of(name))
            except MapNotFound as not_found:
                error = not_found
        raise self._with_near_misses(error, name) from None

    def _with_near_misses(self, error: MapNotFound, name: object) -> MapNotFound:
        """``error``, naming maps with a name like ``name`` unless the service did so."""
        try:
            names = list(self)
        except GradwireError:
            return error
        wanted = str(name).partition("@")[0]
        near = difflib.get_close_matches(wanted, names, n=3)
        if near and not any(n in error.detail for n in near if n != wanted):
            error.detail += f" Did you mean {' or '.join(near)}?"
        return error


def _reconnected(address: str, token: str | None, retries: int, options: Options) -> Service:
    session = Session(Address.parse(address), token, retries)
    return Service(session, Transport(session.address), options)
