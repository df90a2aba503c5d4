"""The lean transport over real sockets, against peers that keep HTTP's rules and peers that do not."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import gradwire
from gradwire import _errors as errors
from gradwire._connection import FIELDS, HEAD_BYTES, parse_head
from gradwire._http import LeanTransport
from gradwire._memory import TRUSTED, Growing, aligned
from gradwire._session import Address, Incoming, Lost, Outgoing

Script = Callable[[socket.socket], None]


class Peer:
    """Listens, and plays one script for each connection, the last one again and again."""

    def __init__(self, *scripts: Script, at: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.scripts = list(scripts)
        self.accepted = 0
        self.failures: list[BaseException] = []
        self._tls = tls
        if at is None:
            self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
            self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._listening.getsockname()[1]}"
        else:
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(at)
            self._listening.listen(128)
            self.url = f"unix://{at}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            script = self.scripts[min(self.accepted, len(self.scripts) - 1)]
            self.accepted += 1
            thread = threading.Thread(target=self._play, args=(script, sock))
            self._threads.append(thread)
            thread.start()

    def _play(self, script: Script, sock: socket.socket) -> None:
        with sock:
            sock.settimeout(30)
            try:
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_side=True)
                with sock:
                    script(sock)
            except OSError:
                pass  # Clients hang up in these tests; that is no error.
            except BaseException as failure:
                self.failures.append(failure)

    def close(self) -> None:
        # Closing alone does not wake a thread that accepts.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(40)
        assert not self.failures


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def made(*scripts: Script, **more: Any) -> Peer:
        peers.append(Peer(*scripts, **more))
        return peers[-1]

    yield made
    for one in peers:
        one.close()


def head_of(sock: socket.socket) -> bytes:
    """Reads a head byte by byte, so that nothing of the body is taken."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte:
            raise ConnectionError("the client has gone")
        head += byte
    return head


def request_of(sock: socket.socket) -> tuple[bytes, bytearray]:
    head = head_of(sock)
    length = next(
        (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    body = bytearray()
    while len(body) < length:
        body += sock.recv(1 << 20)
    return head, body


def saying(*pieces: bytes, pause: float = 0.0) -> Script:
    """Answers the first request with these pieces, and hangs up."""

    def script(sock: socket.socket) -> None:
        request_of(sock)
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(pause)

    return script


def echoing(sock: socket.socket) -> None:
    while True:
        _, body = request_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def outgoing(peer: Peer, *body: Any, method: str = "POST", timeout: float = 20.0) -> Outgoing:
    return Outgoing(method, Address.parse(peer.url).base + "/x", {"X-Name": "value"}, body, timeout)


def ask(peer: Peer, *body: Any, **more: Any) -> Any:
    transport = LeanTransport(Address.parse(peer.url))
    try:
        return transport.send(outgoing(peer, *body, **more))
    finally:
        transport.close()


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 200 OK\r\ncontent-length:5 \r\n\r\nhel", b"lo"],
        [b"HTTP/1.0 200 \r\n\r\nhel", b"lo"],
        [b"HTTP/1.1 200\r\nConnection: close\r\n\r\nhello"],
        [
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\nhello",
        ],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"3;x=y\r\nllo\r\n0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n00005\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"],
    ],
    ids=["length", "pieces", "1.0", "until-close", "interim", "chunks", "trailer"],
)
@pytest.mark.parametrize("drip", [False, True])
def test_an_answer_is_read_however_it_is_framed(peer: Any, pieces: list[bytes], drip: bool) -> None:
    if drip:
        pieces = [bytes([byte]) for piece in pieces for byte in piece]
    answer = ask(peer(saying(*pieces, pause=0.0005 if drip else 0.01)))
    assert isinstance(answer, Incoming)
    assert (answer.status, bytes(answer.body)) == (200, b"hello")


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("DELETE", 204), ("HEAD", 404)]
)
def test_an_answer_without_a_body_is_not_waited_for(peer: Any, method: str, status: int) -> None:
    def script(sock: socket.socket) -> None:
        for _ in range(2):
            head_of(sock)
            sock.sendall(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status)

    there = peer(script)
    transport = LeanTransport(Address.parse(there.url))
    for _ in range(2):
        answer = transport.send(outgoing(there, method=method))
        assert isinstance(answer, Incoming)
        assert (answer.status, bytes(answer.body)) == (status, b"")
    assert there.accepted == 1
    transport.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * (FIELDS + 1) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * HEAD_BYTES,
        b"HTTP/1.1 100 Continue\r\n\r\n" * (FIELDS + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n11",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * (FIELDS + 2),
    ],
)
def test_what_is_no_http_is_refused(peer: Any, answer: bytes) -> None:
    lost = ask(peer(saying(answer)))
    assert isinstance(lost, Lost)
    assert lost.answered and lost.connected and not lost.timed_out
    assert isinstance(lost.cause, httpx.RemoteProtocolError)


@pytest.mark.parametrize(
    ("answer", "answered"),
    [
        (b"", False),
        (b"HTTP/1.1 200", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhell", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\nhell", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nhell", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n", True),
    ],
)
def test_an_answer_cut_off_is_no_answer(peer: Any, answer: bytes, answered: bool) -> None:
    lost = ask(peer(saying(answer)))
    assert isinstance(lost, Lost)
    assert isinstance(lost.cause, ConnectionResetError)
    assert lost.answered is answered


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 2",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900000000\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx",
    ],
)
@pytest.mark.parametrize("drip", [b"", b"1"], ids=["silent", "drip"])
def test_no_way_to_dawdle_goes_beyond_the_deadline(peer: Any, start: bytes, drip: bytes) -> None:
    over = threading.Event()

    def script(sock: socket.socket) -> None:
        request_of(sock)
        sock.sendall(start)
        while not over.wait(0.02):
            sock.sendall(drip)

    there = peer(script)
    lost = ask(there, timeout=0.2)
    over.set()
    assert isinstance(lost, Lost)
    assert lost.timed_out and lost.connected
    assert isinstance(lost.cause, TimeoutError)


def test_a_body_that_nobody_reads_does_not_go_beyond_the_deadline(peer: Any) -> None:
    over = threading.Event()
    there = peer(lambda sock: over.wait(30))
    lost = ask(there, bytes(64 << 20), timeout=0.3)
    over.set()
    assert isinstance(lost, Lost)
    assert lost.timed_out and not lost.answered


@pytest.mark.parametrize("reads", [0, 100_000])
@pytest.mark.parametrize("then", ["hangs up", "waits"])
def test_an_answer_that_comes_before_the_body_is_sent_is_read(peer: Any, reads: int, then: str) -> None:
    over = threading.Event()

    def script(sock: socket.socket) -> None:
        head_of(sock)
        if reads:
            sock.recv(reads)
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too")
        time.sleep(0.02)
        sock.sendall(b" large\r\nContent-Length: 3\r\n\r\nbig")
        if then == "hangs up":
            sock.shutdown(socket.SHUT_WR)
        over.wait(10)

    there = peer(script)
    answer = ask(there, b"small", bytes(64 << 20))
    over.set()
    assert isinstance(answer, Incoming)
    assert (answer.status, bytes(answer.body)) == (413, b"big")


def test_after_an_early_answer_the_connection_is_not_used_again(peer: Any) -> None:
    def early(sock: socket.socket) -> None:
        head_of(sock)
        sock.sendall(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")
        while sock.recv(1 << 20):
            pass

    there = peer(early, echoing)
    transport = LeanTransport(Address.parse(there.url))
    first = transport.send(outgoing(there, bytes(64 << 20)))
    second = transport.send(outgoing(there, b"again"))
    assert isinstance(first, Incoming) and first.status == 413
    assert isinstance(second, Incoming) and bytes(second.body) == b"again"
    transport.close()


@pytest.mark.parametrize(
    "more",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"],
    ids=["closed", "unasked"],
)
def test_a_connection_that_cannot_be_trusted_any_more_is_replaced(peer: Any, more: bytes) -> None:
    """One that the service closed meanwhile, or on which it said more than it was asked."""
    gone = threading.Event()

    def once(sock: socket.socket) -> None:
        request_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none")
        time.sleep(0.05)
        sock.sendall(more)
        if not more:
            sock.close()
        gone.set()
        if more:
            time.sleep(0.2)

    there = peer(once, echoing)
    transport = LeanTransport(Address.parse(there.url))
    assert bytes(transport.send(outgoing(there)).body) == b"one"  # type: ignore[union-attr]
    assert gone.wait(10)
    answer = transport.send(outgoing(there, b"two"))
    assert isinstance(answer, Incoming)
    assert bytes(answer.body) == b"two"
    assert there.accepted == 2
    transport.close()


def test_close_is_honoured(peer: Any) -> None:
    reply = b"HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 2\r\n\r\nok"
    over = threading.Event()

    def script(sock: socket.socket) -> None:
        request_of(sock)
        sock.sendall(reply)
        over.wait(10)  # Says that it closes, and does not.

    there = peer(script)
    transport = LeanTransport(Address.parse(there.url))
    for _ in range(3):
        assert isinstance(transport.send(outgoing(there)), Incoming)
    over.set()
    assert there.accepted == 3
    transport.close()


def test_idle_connections_are_closed_before_the_service_closes_them(
    peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = peer(echoing)
    transport = LeanTransport(Address.parse(there.url))
    transport.send(outgoing(there))
    monkeypatch.setattr("gradwire._http.IDLE_SECONDS", 0.0)
    transport.send(outgoing(there))
    assert there.accepted == 2
    transport.close()


def test_the_last_connection_used_is_the_first_used_again(peer: Any) -> None:
    gate = threading.Barrier(8)

    def slowly(sock: socket.socket) -> None:
        request_of(sock)
        gate.wait(10)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        echoing(sock)

    there = peer(slowly)
    transport = LeanTransport(Address.parse(there.url))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: transport.send(outgoing(there)), range(8)))
    (connections,) = (pool._idle for pool in transport._pools.values())
    before = list(connections)
    for _ in range(5):
        transport.send(outgoing(there))
    assert there.accepted == len(before) == 8
    assert connections == before
    transport.close()


def test_sixty_four_threads_share_one_transport(peer: Any) -> None:
    there = peer(echoing)
    transport = LeanTransport(Address.parse(there.url))

    def one(number: int) -> bool:
        bodies = [b"%d:%d" % (number, turn) * (1 + 200 * turn) for turn in range(8)]
        answers = [transport.send(outgoing(there, body)) for body in bodies]
        return [bytes(answer.body) for answer in answers] == bodies  # type: ignore[union-attr]

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(one, range(64)))
    assert there.accepted <= 64
    transport.close()


def test_nothing_can_be_smuggled_into_a_head(peer: Any) -> None:
    there = peer(echoing)
    base = Address.parse(there.url).base
    transport = LeanTransport(Address.parse(there.url))
    for headers, path in [
        ({"A": "b\r\nC: d"}, "/x"),
        ({"A\r\nC": "d"}, "/x"),
        ({"A": "b\n"}, "/x"),
        ({}, "/x HTTP/1.1\r\nA: b\r\n\r\n"),
        ({}, "/x\r\nA: b"),
        ({}, "/x y"),
    ]:
        with pytest.raises(httpx.LocalProtocolError):
            transport.send(Outgoing("GET", base + path, headers, (), 5.0))
    assert there.accepted == 0


@pytest.mark.parametrize("where", ["tcp", "unix"])
def test_large_bodies_cross_both_ways_from_and_into_aligned_memory(
    peer: Any, tmp_path: Path, where: str
) -> None:
    there = peer(echoing, **({"at": str(tmp_path / "s")} if where == "unix" else {}))
    array = np.random.default_rng(0).integers(0, 255, 64 << 20, np.uint8)
    answer = ask(there, b"head", array.data, b"", b"tail")
    body = np.frombuffer(answer.body, np.uint8)
    assert body.size == array.size + 8
    assert body.flags.writeable
    assert body.ctypes.data % 64 == 0
    assert bytes(body[:4]) == b"head" and bytes(body[-4:]) == b"tail"
    assert np.array_equal(body[4:-4], array)


@pytest.mark.parametrize("size", [HEAD_BYTES, HEAD_BYTES + 1, 1 << 20])
def test_memory_of_an_answer_is_the_callers_alone(peer: Any, size: int) -> None:
    there = peer(echoing)
    transport = LeanTransport(Address.parse(there.url))
    bodies = [bytes([number]) * size for number in range(3)]
    answers = [transport.send(outgoing(there, body)) for body in bodies]
    assert [bytes(answer.body) for answer in answers] == bodies  # type: ignore[union-attr]
    assert all(not memoryview(answer.body).readonly for answer in answers)  # type: ignore[union-attr]
    transport.close()


def test_large_arrays_of_a_message_are_aligned_where_the_sender_padded(peer: Any) -> None:
    there = peer(echoing)
    sent = [np.arange(100_000.0), np.arange(50_000, dtype=np.float32)]
    pieces = gradwire.wire.MSGPACK.encode({"x": gradwire.wire.Tree(sent)}, "str")
    message = gradwire.wire.MSGPACK.decode(ask(there, *pieces).body)
    for back, array in zip(message.tree(message.fields["x"]), sent, strict=True):
        assert back.ctypes.data % 64 == 0
        assert back.flags.writeable
        assert np.array_equal(back, array)


def test_memory_is_taken_as_bytes_come() -> None:
    growing = Growing(1 << 16)
    content = os.urandom((1 << 19) + 5)
    while growing.size < len(content):
        with growing.room(70_000) as room:
            piece = content[growing.size : growing.size + len(room)]
            room[: len(piece)] = piece
        growing.size += len(piece)
    assert bytes(growing.content()) == content
    assert np.frombuffer(growing.content(), np.uint8).ctypes.data % 64 == 0
    for size in (0, 1, 63, 64, 1 << 20):
        assert len(aligned(size)) == size


def test_a_long_answer_comes_into_memory_that_grows(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TRUSTED >= 1 << 20
    monkeypatch.setattr("gradwire._connection.TRUSTED", 1 << 17)
    array = np.random.default_rng(0).integers(0, 255, 1_000_003, np.uint8)
    body = ask(peer(echoing), array.data).body
    assert np.array_equal(np.frombuffer(body, np.uint8), array)
    assert not memoryview(body).readonly


@pytest.mark.parametrize("framing", ["chunks", "until close"])
def test_a_long_answer_of_unknown_length_comes_whole(peer: Any, framing: str) -> None:
    content = np.random.default_rng(0).integers(0, 255, 3_000_000, np.uint8).tobytes()

    def script(sock: socket.socket) -> None:
        request_of(sock)
        if framing == "until close":
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + content)
            return
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(content), 700_001):
            piece = content[start : start + 700_001]
            sock.sendall(b"%X\r\n" % len(piece) + piece + b"\r\n")
        sock.sendall(b"0\r\n\r\n")

    assert bytes(ask(peer(script)).body) == content


def test_repeated_fields_are_joined() -> None:
    head = parse_head("HTTP/1.1 200 OK\r\nServer-Timing: a;dur=1\r\nserver-timing:\tb;dur=2 \r\nEmpty:")
    assert head == (200, {"server-timing": "a;dur=1, b;dur=2", "empty": ""}, True)


def test_no_connection_is_told_from_a_lost_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    transport = LeanTransport(Address.parse(f"http://127.0.0.1:{port}"))
    lost = transport.send(Outgoing("GET", f"http://127.0.0.1:{port}/", {}, (), 5.0))
    assert isinstance(lost, Lost) and not lost.connected
    transport = LeanTransport(Address.parse("unix:///nowhere/at/all.sock"))
    lost = transport.send(Outgoing("GET", "http://localhost/", {}, (), 5.0))
    assert isinstance(lost, Lost) and not lost.connected
    transport = LeanTransport(Address.parse("http://host.invalid"))
    lost = transport.send(Outgoing("GET", "http://host.invalid/", {}, (), 5.0))
    assert isinstance(lost, Lost) and not lost.connected


def test_it_goes_under_an_httpx_client(peer: Any) -> None:
    seen: list[bytes] = []

    def script(sock: socket.socket) -> None:
        while True:
            head, body = request_of(sock)
            seen.append(head)
            sock.sendall(b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    there = peer(script)
    with httpx.Client(transport=LeanTransport(Address.parse(there.url + "/lab"))) as client:
        response = client.post(
            f"{there.url}/lab/x?y=z", content=iter([b"by ", b"pieces"]), headers={"B": "c"}
        )
        assert (response.status_code, response.content, response.headers["x-a"]) == (200, b"by pieces", "b")
        assert client.get(f"{there.url}/elsewhere").status_code == 200
        assert there.accepted == 1
        with pytest.raises(httpx.UnsupportedProtocol):
            client.get("http://elsewhere.invalid/")
    assert seen[0].startswith(b"POST /lab/x?y=z HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nb: c\r\n" in seen[0] and b"transfer-encoding" not in seen[0].lower()
    assert seen[1].startswith(b"GET /elsewhere HTTP/1.1\r\n") and b"ontent-" not in seen[1]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", httpx.ReadError),
        (b"nonsense\r\n\r\n", httpx.RemoteProtocolError),
        (None, httpx.ReadTimeout),
    ],
)
def test_under_httpx_it_fails_as_httpx_does(
    peer: Any, answer: bytes | None, error: type[httpx.TransportError]
) -> None:
    over = threading.Event()
    there = peer(saying(answer) if answer is not None else lambda sock: over.wait(10))
    with (
        httpx.Client(transport=LeanTransport(Address.parse(there.url)), timeout=0.3) as client,
        pytest.raises(error) as caught,
    ):
        client.get(there.url)
    over.set()
    assert caught.value.request.url.host == "127.0.0.1"


def test_a_proxy_of_the_environment_is_used_for_other_machines(
    peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def proxy(sock: socket.socket) -> None:
        seen.append(head_of(sock))
        sock.sendall(b"HTTP/1.1 204 No content\r\n\r\n")

    there = peer(proxy)
    for name in ("HTTP_PROXY", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", there.url)
    with gradwire.connect("http://gpu-host.invalid:8000", retries=0) as lab:
        lab.request("DELETE", "/v1/linearizations/a", None)
    assert seen[0].startswith(b"DELETE http://gpu-host.invalid:8000/v1/linearizations/a HTTP/1.1\r\n")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        [
            *[
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ],
            *["-subj", "/CN=gradwire", "-addext", "subjectAltName=IP:127.0.0.1"],
            *("-keyout", str(path), "-out", str(path.with_suffix(".crt"))),
        ],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))


@pytest.mark.usefixtures("trusted")
def test_small_and_large_bodies_cross_on_one_tls_connection(peer: Any, tls: ssl.SSLContext) -> None:
    there = peer(echoing, tls=tls)
    transport = LeanTransport(Address.parse(there.url))
    for size in (1, 10, HEAD_BYTES + 1, 8 << 20, 0):
        body = os.urandom(size)
        assert bytes(transport.send(outgoing(there, body)).body) == body  # type: ignore[union-attr]
    assert there.accepted == 1
    transport.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(peer: Any, tls: ssl.SSLContext) -> None:
    lost = ask(peer(echoing, tls=tls))
    assert isinstance(lost, Lost) and not lost.connected
    assert isinstance(lost.cause, ssl.SSLCertVerificationError)


@pytest.mark.usefixtures("trusted")
def test_a_certificate_for_another_host_is_refused(peer: Any, tls: ssl.SSLContext) -> None:
    there = peer(echoing, tls=tls)
    there.url = there.url.replace("127.0.0.1", "localhost")
    lost = ask(there)
    assert isinstance(lost, Lost) and not lost.connected
    assert isinstance(lost.cause, ssl.SSLCertVerificationError)


@pytest.mark.usefixtures("trusted")
def test_an_answer_over_tls_cut_short_is_not_taken_for_whole(peer: Any, tls: ssl.SSLContext) -> None:
    def script(sock: socket.socket) -> None:
        request_of(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of")
        sock.shutdown(socket.SHUT_RDWR)  # Without TLS's own farewell, as an attacker would.

    lost = ask(peer(script, tls=tls))
    assert isinstance(lost, Lost) and lost.answered


@pytest.mark.usefixtures("trusted")
def test_an_early_answer_over_tls_is_read(peer: Any, tls: ssl.SSLContext) -> None:
    def script(sock: socket.socket) -> None:
        head_of(sock)
        sock.sendall(b"HTTP/1.1 413 Too large\r\nContent-Length: 3\r\n\r\nbig")
        while sock.recv(1 << 16):
            pass

    answer = ask(peer(script, tls=tls), bytes(64 << 20))
    assert isinstance(answer, Incoming) and answer.status == 413


@pytest.mark.usefixtures("trusted")
def test_silence_in_the_tls_handshake_ends_with_the_deadline(peer: Any) -> None:
    over = threading.Event()
    there = peer(lambda sock: over.wait(10))
    there.url = there.url.replace("http:", "https:")
    lost = ask(there, timeout=0.2)
    over.set()
    assert isinstance(lost, Lost) and not lost.connected
    assert isinstance(lost.cause, TimeoutError)


def test_a_forked_child_makes_connections_of_its_own(peer: Any) -> None:
    there = peer(echoing)
    program = """
import os, sys
from gradwire._http import LeanTransport
from gradwire._session import Address, Outgoing
address = Address.parse(sys.argv[1])
transport = LeanTransport(address)
def good(name):
    body = name * 10
    return all([bytes(transport.send(Outgoing("POST", address.base, {}, (body,), 10.0)).body) == body
                for _ in range(30)])
well = good(b"before")
child = os.fork()
if child == 0:
    os._exit(0 if good(b"child") else 1)
well = good(b"parent") and well
sys.exit(0 if os.waitpid(child, 0)[1] == 0 and well else 1)
"""
    subprocess.run([sys.executable, "-c", program, there.url], check=True, timeout=60, env=_environment())
    assert there.accepted == 2


def test_a_service_that_refuses_a_large_request_early_is_heard(peer: Any) -> None:
    def script(sock: socket.socket) -> None:
        head_of(sock)
        sock.sendall(b"HTTP/1.1 413 X\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\nbig")

    with (
        gradwire.connect(peer(script).url, retries=0) as lab,
        pytest.raises(errors.WireError, match="larger"),
    ):
        lab.request("POST", "/v1/maps/f/evaluate", {"x": gradwire.wire.Tree(np.zeros(8 << 20))})


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
