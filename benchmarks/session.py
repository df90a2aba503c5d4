"""What the bars of one run share: servers and connections, opened when first asked for."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import Self

import jax

import gradwire
from benchmarks import servers
from benchmarks.floor import Floor
from benchmarks.peers import Peers, unavailable
from benchmarks.servers import Server


class Session:
    """One run.

    Args:
        device: where the service and the local floors compute; None leaves it to JAX.
        peers_python: of the environment that has the peers; without it they are not measured.
    """

    def __init__(self, *, device: str | None = None, peers_python: str | None = None) -> None:
        jax.config.update("jax_enable_x64", True)
        if device is not None:
            jax.config.update("jax_default_device", jax.devices(device)[0])
        self.device = device
        self._peers_python = peers_python
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @cached_property
    def service(self) -> Server:
        """The service with its defaults."""
        return self._open.enter_context(servers.gradwire_service(device=self.device))

    @cached_property
    def lab(self) -> gradwire.Service:
        """A client of `service`."""
        return self._open.enter_context(gradwire.connect(self.service.url))

    @cached_property
    def floor_server(self) -> Server:
        """What the raw TCP floor is asked of."""
        return self._open.enter_context(servers.module("benchmarks.floor"))

    @cached_property
    def floor(self) -> Floor:
        """The raw TCP floor."""
        floor = Floor(self.floor_server.port)
        self._open.callback(floor.close)
        return floor

    @cached_property
    def echo(self) -> Server:
        return self._open.enter_context(servers.module("benchmarks.echo"))

    @cached_property
    def afternoon(self) -> Server:
        return self._open.enter_context(servers.module("benchmarks.afternoon"))

    @cached_property
    def without_peers(self) -> str:
        """Why the peers are not measured; empty where they are."""
        return unavailable(self._peers_python)

    @cached_property
    def peers(self) -> Peers:
        """The peers' servers and clients; only where `without_peers` is empty."""
        assert self._peers_python is not None and not self.without_peers
        return self._open.enter_context(Peers(self._peers_python))
