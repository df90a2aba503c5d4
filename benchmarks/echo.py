"""A bare ASGI echo, ``python -m benchmarks.echo PORT``: uvicorn with nothing to decode or compute."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable

import uvicorn
from starlette.types import Receive, Scope, Send


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request with its own body."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": bytes(body)})


def caller(port: int, body: bytes) -> Callable[[], object]:
    """One request with ``http.client``, on a kept connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def call() -> object:
        connection.request("POST", "/", body, {"Content-Type": "application/msgpack"})
        return connection.getresponse().read()

    return call


def main() -> None:
    uvicorn.run(app, port=int(sys.argv[1]), lifespan="off", access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
