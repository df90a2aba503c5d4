"""`gradwire serve` in a process of its own, and what a program without the client would send to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from gradwire import wire
from gradwire._errors import KINDS

MAPS = Path(__file__).with_name("hosted.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = Path(__file__).with_name("few.py")
SERVE = "import sys; from gradwire_service.serve import command; sys.exit(command(sys.argv[1:]))"


class Answer(NamedTuple):
    """An answer, and what it says."""

    status: int
    headers: httpx.Headers
    body: bytes
    fields: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind of error that it tells."""
        assert self.headers["content-type"].startswith("application/problem+")
        assert self.fields["status"] == self.status
        assert self.fields["instance"] == f"urn:gradwire:request:{self.headers['x-request-id']}"
        kind = str(self.fields["type"]).removeprefix("urn:gradwire:")
        assert KINDS[kind].status == self.status
        assert self.fields["title"] == KINDS[kind].title
        return kind


class Running:
    """A service: ask it in JSON (numbers, lists) or in msgpack (arrays)."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process
        self.http = httpx.Client(base_url=url, timeout=60)

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Any request; underscores in header names stand for dashes."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        answer = self.http.request(method, path, content=body, headers=named)
        fields: dict[str, Any] = {}
        if answer.content:
            codec = wire.JSON if "json" in answer.headers["content-type"] else wire.MSGPACK
            fields = codec.decode(answer.content).fields
        return Answer(answer.status_code, answer.headers, answer.content, fields)

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def status(self, path: str) -> int:
        """The status of a GET; 0 where nobody answers."""
        try:
            return self.get(path).status
        except httpx.TransportError:
            return 0

    def post(self, path: str, fields: Any, **headers: str) -> Answer:
        """The answer to a JSON request: fields as `json` has them."""
        body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        return self.send("POST", path, body, Content_Type="application/json", **headers)

    def ask(self, map: str, operation: str = "evaluate", /, *args: Any, **fields: Any) -> Answer:
        """The answer to a msgpack request; a field that holds a tree is marked by `wire.Tree`.

        Each of ``args`` is a tree, as are ``cotangent`` and the entries of ``tangents`` and ``kwargs``.
        """
        return self.pack(
            f"/v1/maps/{map}/{operation}", {"args": [wire.Tree(arg) for arg in args], **_marked(fields)}
        )

    def pack(self, path: str, fields: Mapping[str, Any], *, method: str = "POST", **headers: str) -> Answer:
        """The answer to a msgpack request."""
        body = b"".join(bytes(part) for part in wire.MSGPACK.encode(fields, "str"))
        return self.send(method, path, body, Content_Type="application/msgpack", **headers)

    def value(
        self, map: str, *args: Any, field: str = "value", operation: str = "evaluate", **fields: Any
    ) -> Any:
        """One field of a good answer, as a tree."""
        return tree(self.ask(map, operation, *args, **fields), field)

    @property
    def devices(self) -> dict[str, Any]:
        return self.get("/v1/devices").fields

    def is_healthy(self) -> bool:
        """Whether it lives, is ready, and still computes."""
        return (
            self.get("/health/live").status == 200
            and self.get("/health/ready").status == 200
            and self.post("/v1/maps/cubic/grad", {"args": [2.0]}).fields["gradient"] == 12.0
        )


def _marked(fields: dict[str, Any]) -> dict[str, Any]:
    made = dict(fields)
    if "cotangent" in made:
        made["cotangent"] = wire.Tree(made["cotangent"])
    if "tangents" in made:
        made["tangents"] = [wire.Tree(tangent) for tangent in made["tangents"]]
    if "kwargs" in made:
        made["kwargs"] = {key: wire.Tree(value) for key, value in made["kwargs"].items()}
    return made


def tree(answer: Answer, field: str = "value") -> Any:
    """A field of a good answer as a pytree of arrays."""
    assert answer.status == 200, answer.fields
    codec = wire.JSON if "json" in answer.headers["content-type"] else wire.MSGPACK
    message = codec.decode(answer.body)
    return message.tree(message.fields[field], specs=field == "shapes")


@contextmanager
def started(*arguments: str | Path, devices: int = 1, until_ready: bool = True) -> Iterator[Running]:
    """`gradwire serve` with these arguments, once it is ready."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GRADWIRE_")}
    environ |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, *map(str, arguments), "--port", "0"],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    running = None
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " at http://" in line, f"the service did not start: {line}"
        running = Running(line.rpartition(" at ")[2].strip(), process)
        while until_ready and running.status("/health/ready") != 200:
            time.sleep(0.05)
        yield running
    finally:
        if running is not None:
            running.http.close()
        process.terminate()
        process.communicate()
