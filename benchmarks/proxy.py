"""A TCP proxy that counts the bytes that go through it to the server."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

_PIECE = 1 << 20


class CountingProxy:
    """Passes on what comes to ``port`` (its own, a free one) to ``target``.

    Attributes:
        sent: bytes that went to the target.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.sent = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # It was closed.
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        try:
            while piece := source.recv(_PIECE):
                if counted:
                    self.sent += len(piece)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return
