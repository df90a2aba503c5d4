"""Every option of the service, with its default, in one frozen value.

An option is set on the command line (``--body-bytes``), by an environment variable
(``GRADWIRE_BODY_BYTES``) or by a key of ``gradwire.toml`` (``body_bytes``); the first
of these that has it decides, else the default stands.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError

from gradwire._errors import ArgumentError
from gradwire.wire import Limits

KIBI, MEBI, GIBI = 1 << 10, 1 << 20, 1 << 30


def _split(value: object) -> object:
    """Comma-separated text, or several of them, as the tuple that they stand for."""
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
        return tuple(part.strip() for item in items for part in item.split(",") if part.strip())
    return value


def _origin(value: str) -> str:
    """An origin as browsers send it; a wildcard would let any web page call."""
    if not re.fullmatch(r"https?://[^/*\s]+/?", value, re.IGNORECASE):
        raise ValueError(f"{value!r} is no origin: give it as scheme://host[:port]")
    return value.rstrip("/").lower()


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], BeforeValidator(_split)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]
Bytes = Annotated[ByteSize, Field(gt=0)]


class Settings(BaseModel):
    """The options of a service. Sizes take a number of bytes or text such as ``"1GiB"``."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # Where it listens, and to whom
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 8000
    uds: Annotated[Path | None, Field(description="listen on this Unix socket instead")] = None
    ready_file: Annotated[Path | None, Field(description="file to write {url, pid} to once ready")] = None
    insecure: Annotated[bool, Field(description="serve beyond loopback without tokens")] = False
    allowed_host: Annotated[Names, Field(description="further names that Host may give")] = ()
    cors_origin: Annotated[Origins, Field(description="web origins that may call: scheme://host[:port]")] = ()
    dialects: Annotated[Names, Field(description="protocols to speak")] = ("native",)

    # How it computes
    precision: Annotated[str, Field(description="policy of queries and maps that name none")] = "input"
    allow_precision: Annotated[Names | None, Field(description="the only precisions allowed")] = None
    device: Annotated[str | None, Field(description="device of queries and maps that name none")] = None
    deadline: Annotated[Seconds, Field(description="seconds for a request that sets no timeout")] = 300.0
    request_leaves: Annotated[Count, Field(description="most arrays and numbers in one request")] = 1000
    transform_depth: Annotated[Count, Field(description="most transforms in one query")] = 16
    compiled_queries: Annotated[Count, Field(description="most compiled queries kept")] = 256
    compile_threads: Annotated[Count, Field(description="queries compiled at the same time")] = 8
    compile_cache: Annotated[Path | None, Field(description="directory that keeps compiled code")] = None
    device_memory: Annotated[Bytes | None, Field(description="memory to use on each device")] = None
    queue_length: Annotated[Count, Field(description="most requests waiting for one device")] = 1024
    coalesce_rows: Annotated[Count, Field(description="most calls of a map joined into one")] = 64
    coalesce_bucket: Annotated[Count | None, Field(description="always join as many rows: reproducible")] = (
        None
    )
    linearization_ttl: Annotated[Seconds, Field(description="seconds a linearization is kept unused")] = 300.0
    linearization_bytes: Annotated[Bytes, Field(description="memory for linearizations")] = ByteSize(4 * GIBI)
    resident_bytes: Annotated[Bytes, Field(description="memory for resident arrays")] = ByteSize(4 * GIBI)
    answer_bytes: Annotated[Bytes, Field(description="largest answer")] = ByteSize(2 * GIBI)

    # What it reads from the network
    body_bytes: Annotated[Bytes, Field(description="largest request body")] = ByteSize(GIBI)
    body_deadline: Annotated[Seconds, Field(description="seconds for a whole body to arrive")] = 300.0
    body_grace: Annotated[Seconds, Field(description="seconds before body_rate is asked for")] = 10.0
    body_rate: Annotated[Bytes, Field(description="slowest body, bytes a second")] = ByteSize(64 * KIBI)
    wire_depth: Annotated[Count, Field(description="most containers inside each other in a message")] = 64
    wire_objects: Annotated[Count, Field(description="most lists, maps and items in a message")] = 1_000_000
    header_bytes: Annotated[Bytes, Field(description="largest request head")] = ByteSize(64 * KIBI)
    header_count: Annotated[Count, Field(description="most header fields in a request")] = 100
    header_deadline: Annotated[Seconds, Field(description="seconds for a request head to arrive")] = 10.0
    path_bytes: Annotated[Bytes, Field(description="longest request target")] = ByteSize(8 * KIBI)
    unread_deadline: Annotated[Seconds, Field(description="seconds a piece of an answer may stay unread")] = (
        60.0
    )
    connections: Annotated[Count, Field(description="most connections at a time")] = 800
    shutdown_deadline: Annotated[Seconds, Field(description="seconds for requests to end at a stop")] = 25.0

    @cached_property
    def wire_limits(self) -> Limits:
        """What one message may ask for."""
        return Limits(body_bytes=self.body_bytes, depth=self.wire_depth, objects=self.wire_objects)

    @classmethod
    def load(
        cls,
        given: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        file: Path = Path("gradwire.toml"),
    ) -> Settings:
        """The settings from ``given`` (the command line), then ``environ``, then ``file`` where it exists.

        Raises:
            ArgumentError: an unknown key in the file, or a value that does not fit,
                naming the option and where it came from.
        """
        sources: list[tuple[str, Mapping[str, Any]]] = [
            (str(file), _read(file)),
            ("the environment", _from_environment(cls, environ)),
            ("the command line", given or {}),
        ]
        values: dict[str, Any] = {}
        origin: dict[str, str] = {}
        for source, options in sources:
            values.update(options)
            origin.update(dict.fromkeys(options, source))
        try:
            return cls(**values)
        except ValidationError as error:
            problem = error.errors()[0]
            option = str(problem["loc"][0])
            raise ArgumentError(
                f"The option {option!r}, from {origin.get(option, 'the defaults')}, cannot be used: "
                f"{problem['msg']}.",
                argument=option,
            ) from None


CLIENT = frozenset({"GRADWIRE_URL", "GRADWIRE_TOKEN"})
"""Variables of the client, which may run on the same machine."""


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"The settings in {file} could not be read: {error}.") from None
    try:
        return {key.replace("-", "_"): value for key, value in tomllib.loads(text).items()}
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{file} is not TOML: {error}.") from None


def _from_environment(cls: type[Settings], environ: Mapping[str, str]) -> dict[str, str]:
    names = {f"GRADWIRE_{option.upper()}": option for option in cls.model_fields}
    for name in environ:
        if name.startswith("GRADWIRE_") and name not in names and name not in CLIENT:
            near = difflib.get_close_matches(name, names, n=1)
            raise ArgumentError(
                f"The environment's {name} is no option." + (f" Did you mean {near[0]}?" if near else ""),
                argument=name,
            )
    return {option: environ[name] for name, option in names.items() if name in environ}
