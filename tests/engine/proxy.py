"""A TCP proxy that counts what goes through it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Passes bytes on to a port of this host, and counts those that go to it."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._counted = threading.Lock()
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            there = socket.create_connection(("127.0.0.1", self._target))
            for source, sink, counts in ((here, there, True), (there, here, False)):
                threading.Thread(target=self._pass, args=(source, sink, counts), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(1 << 18):
                if counts:
                    with self._counted:
                        self.sent += len(data)
                sink.sendall(data)

    def close(self) -> None:
        # Only this wakes a thread that waits in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def counting(port: int) -> Iterator[Proxy]:
    """A proxy in front of a port, until the block ends."""
    proxy = Proxy(port)
    thread = threading.Thread(target=proxy.run)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
