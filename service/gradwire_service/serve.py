"""``gradwire serve``: host the maps of files and modules."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import math
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import uvicorn
from fastapi import FastAPI
from pydantic import ByteSize

from gradwire._errors import ArgumentError, GradwireError
from gradwire_service.http.access import is_loopback
from gradwire_service.http.app import Hosted, create_app
from gradwire_service.http.protocol import protocol_class
from gradwire_service.map import Map
from gradwire_service.settings import Settings

KEEP_ALIVE = 75
"""Seconds an idle connection stays open: longer than proxies and clients keep theirs, so that
they close first and no request meets a closing door."""


def command(argv: Sequence[str]) -> int:
    """Runs ``gradwire serve`` until a signal stops it.

    Returns:
        The exit status: 0 after SIGTERM or SIGINT, 2 when the service cannot start as asked.
    """
    given = vars(_parser().parse_args(argv))
    sources = given.pop("sources")
    try:
        settings = Settings.load(given)
        check_reach(settings)
        # A port that is taken is told before the maps are loaded.
        with listening(settings) as (listener, url):
            maps = load_maps(sources)
            app = create_app(maps, settings)
            # From here on a client's connection is kept until it is answered.
            listener.listen(2048)
            print(f"gradwire: {', '.join(map.name for map in maps)} at {url}", flush=True)
            server(app, settings, url).run(sockets=[listener])
            leave = bool(app.state.service.busy)
    except (GradwireError, OSError) as error:
        print(f"gradwire serve: {error}", file=sys.stderr)
        return 2
    if leave:
        # What still computes or compiles cannot be interrupted, and would keep or break the exit.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _parser() -> argparse.ArgumentParser:
    """One option for every setting; what is not given stays absent, so that other sources may decide."""
    parser = argparse.ArgumentParser(
        prog="gradwire serve",
        description="Host every Map in the namespace of each file or module.",
        epilog="Every option is also an environment variable (GRADWIRE_PORT) and a key in gradwire.toml "
        "(port). Lists are separated by commas; sizes are bytes, or like 2GiB.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("sources", nargs="+", metavar="FILE", help="a Python file, or a module's dotted name")
    for name, field in Settings.model_fields.items():
        option = "--" + name.replace("_", "-")
        default = "" if field.default in (None, (), False) else f" (default {_text(field.default)})"
        if field.annotation is bool:
            parser.add_argument(option, dest=name, action="store_true", help=field.description)
        elif isinstance(field.default, tuple) or name == "allow_precision":
            help = f"{field.description}{default}"
            parser.add_argument(option, dest=name, action="append", metavar="LIST", help=help)
        else:
            parser.add_argument(option, dest=name, metavar="VALUE", help=f"{field.description}{default}")
    return parser


def _text(default: object) -> str:
    if isinstance(default, ByteSize):
        return default.human_readable()
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def check_reach(settings: Settings) -> None:
    """Refuses to listen where strangers can come in.

    Raises:
        ArgumentError: the host is not a loopback address, and ``insecure`` is not said.
    """
    if settings.uds is None and not settings.insecure and not is_loopback(settings.host):
        raise ArgumentError(
            f"--host {settings.host} would let everyone on the network compute here, and tokens that keep "
            "strangers out come in a later version. Listen on 127.0.0.1 behind an SSH tunnel or a proxy, "
            "or accept the risk with --insecure.",
            argument="host",
        )


def load_maps(sources: Sequence[str]) -> list[Map]:
    """Every map in the namespace of each source, once, in the order of definition.

    Args:
        sources: paths of Python files, or dotted names of modules.

    Raises:
        ArgumentError: a source that cannot be imported or holds no map, or two maps of
            the same name and version.
    """
    found: dict[str, tuple[Map, str]] = {}
    for source in dict.fromkeys(sources):
        # A file may import its neighbours, as when Python runs it; a module is one of the current folder.
        is_file = source.endswith(".py") or os.sep in source
        sys.path.insert(0, str(Path(source).resolve().parent if is_file else Path.cwd()))
        try:
            module = _import_file(Path(source)) if is_file else importlib.import_module(source)
        except (Exception, SystemExit) as error:
            raise ArgumentError(f"{source} could not be imported: {_told(error)}") from error
        maps = [value for value in vars(module).values() if isinstance(value, Map)]
        if not maps:
            raise ArgumentError(f"{source} defines no Map: decorate its functions with gradwire_service.Map.")
        for map in maps:
            key = f"{map.name}@{map.version}"
            known, place = found.setdefault(key, (map, source))
            if known is not map:
                raise ArgumentError(
                    f"{key} is defined twice, in {place} and in {source}. Give one another name or version."
                )
    return [map for map, _ in found.values()]


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Found by pickle and dataclasses while it runs; a module that is already there keeps its name.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _told(error: BaseException) -> str:
    """An exception in one line, with the place in the user's code where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def server(app: FastAPI, settings: Settings, url: str) -> uvicorn.Server:
    """What serves ``app``, with every limit of a connection, once its ``run`` is given a bound socket.

    Args:
        app: as `create_app` makes it.
        settings: the limits, and where to write that the service is ready.
        url: how clients reach it.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http=protocol_class(settings),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_deadline),
    )
    return _Server(config, app.state.service, settings.ready_file, url)


class _Server(uvicorn.Server):
    """uvicorn, which tells when it is ready and ends with success when told to stop."""

    def __init__(self, config: uvicorn.Config, service: Hosted, ready_file: Path | None, url: str) -> None:
        super().__init__(config)
        self.service = service
        self.ready_file = ready_file
        self.url = url

    async def main_loop(self) -> None:
        telling = asyncio.create_task(self._tell())
        try:
            await super().main_loop()
        finally:
            telling.cancel()
            if self.ready_file is not None:
                self.ready_file.unlink(missing_ok=True)

    async def _tell(self) -> None:
        while not self.service.ready:
            await asyncio.sleep(0.05)
        if self.ready_file is not None:
            _write_whole(self.ready_file, json.dumps({"url": self.url, "pid": os.getpid()}))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but without raising the signal once more at the end: stopping is success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _write_whole(path: Path, text: str) -> None:
    """Writes a file that is complete as soon as it is there."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


@contextmanager
def listening(settings: Settings) -> Iterator[tuple[socket.socket, str]]:
    """The listening socket and the service's URL."""
    if settings.uds is not None:
        with _bound_path(settings.uds) as listener:
            yield listener, f"unix://{settings.uds.resolve()}"
        return
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            raise OSError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from None
        host = f"[{settings.host}]" if family == socket.AF_INET6 else settings.host
        yield listener, f"http://{host}:{listener.getsockname()[1]}"


@contextmanager
def _bound_path(path: Path) -> Iterator[socket.socket]:
    """A Unix socket at ``path``, in place of one that nobody listens on any more; removed at the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                if probe.connect_ex(str(path)) == 0:
                    raise OSError(f"another service listens on {path}")
            path.unlink()
        listener.bind(str(path))
        try:
            # The owner and the group: a socket has no tokens to keep the others out.
            path.chmod(0o660)
            yield listener
        finally:
            path.unlink(missing_ok=True)
