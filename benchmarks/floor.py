"""The floor of every transfer: so many bytes there and so many back over a plain TCP socket.

``python -m benchmarks.floor PORT`` is the server's side. A request is two little-endian uint64
(bytes to come, bytes wanted) and the bytes; the answer is the bytes wanted, from memory that was
there before. Buffers are used again and again: nothing is allocated, decoded or computed.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading

import numpy as np

_HEAD = struct.Struct("<QQ")
_MOST = 64 << 20
"""Bytes of a buffer: longer transfers go through it piece by piece."""


class Floor:
    """The client's side, on one kept connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, data: memoryview, into: memoryview) -> None:
        """Send ``data``, then fill ``into``."""
        head = _HEAD.pack(data.nbytes, into.nbytes)
        if data.nbytes < 1 << 16:
            self._socket.sendall(head + data)
        else:
            self._socket.sendall(head)
            self._socket.sendall(data)
        receive(self._socket, into)

    def close(self) -> None:
        self._socket.close()


def receive(connection: socket.socket, into: memoryview) -> bool:
    """Fill ``into``; False where the other side closed before its first byte."""
    got = 0
    while got < into.nbytes:
        some = connection.recv_into(into[got:], 0, socket.MSG_WAITALL)
        if not some:
            return False
        got += some
    return True


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = memoryview(bytearray(_HEAD.size))
    buffer = np.ones(_MOST, np.uint8).data
    while receive(connection, head):
        coming, wanted = _HEAD.unpack(head)
        while coming:
            receive(connection, buffer[: min(coming, _MOST)])
            coming -= min(coming, _MOST)
        while wanted:
            connection.sendall(buffer[: min(wanted, _MOST)])
            wanted -= min(wanted, _MOST)


def main() -> None:
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
