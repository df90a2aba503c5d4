"""``gradwire demo``: the example maps served, and a client that uses them from another process.

`serving` runs a service for as long as a block of code needs one; the benchmarks use it too.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

GRADWIRE = [sys.executable, "-c", "import sys, gradwire._cli; sys.exit(gradwire._cli.main())"]
_CLIENT_NEEDS = ("gradwire", "matplotlib", "scipy")
_FIND = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"


@contextmanager
def serving(*files: Path, options: Sequence[str] = (), patience: float = 120.0) -> Iterator[str]:
    """A service of the maps in ``files`` on a free loopback port, in a process of its own.

    Args:
        files: files of maps.
        options: further options of ``gradwire serve``.
        patience: seconds in which it must be ready.

    Yields:
        The service's URL. It is stopped when the block ends, however it ends.

    Raises:
        RuntimeError: the service ended, or was not ready in time; the message holds its log.
    """
    with tempfile.TemporaryDirectory(prefix="gradwire-") as folder:
        ready, log = Path(folder, "ready.json"), Path(folder, "log")
        command = [*GRADWIRE, "serve", *map(str, files), "--port", "0", "--ready-file", str(ready), *options]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            url = _wait_until_ready(process, ready, patience)
            if url is None:
                raise RuntimeError(f"the service did not start: {log.read_text(errors='replace').strip()}")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path, patience: float) -> str | None:
    """The URL that the service wrote once ready, or None if it ended or took too long."""
    began = told = time.monotonic()
    while process.poll() is None and time.monotonic() - began < patience:
        # The file may be there before it is whole.
        text = ready.read_text(encoding="utf-8") if ready.exists() else ""
        if text.rstrip().endswith("}"):
            return str(json.loads(text)["url"])
        if time.monotonic() - told > 2:
            told = time.monotonic()
            print(f"  still starting, {told - began:.0f} s", file=sys.stderr, flush=True)
        time.sleep(0.05)
    return None


def _stop(signum: int, frame: FrameType | None) -> None:
    """A signal that ends the demo ends it through its ``finally`` blocks: the service stops too."""
    sys.exit(128 + signum)


def command(arguments: Sequence[str]) -> int:
    """Runs the demo; its last line on stdout is one line of JSON, and 0 says that its figures hold."""
    parser = argparse.ArgumentParser(
        prog="gradwire demo", description="Reconstruct an MRI slice through a service started for it."
    )
    parser.add_argument("--examples", type=Path, default=Path("examples"), help="folder with mri.py")
    parser.add_argument("--out", type=Path, default=Path("out/mri.png"), help="picture to write")
    parser.add_argument("--client-python", help="Python of an environment without JAX to run the client in")
    options = parser.parse_args(arguments)

    maps, client = options.examples / "mri.py", options.examples / "mri_client.py"
    if not (maps.is_file() and client.is_file()):
        parser.error(f"no mri.py and mri_client.py in {options.examples}: name a checkout's examples folder")
    python = options.client_python or sys.executable
    if subprocess.run([python, "-c", _FIND, *_CLIENT_NEEDS]).returncode:
        parser.error(f"{python} needs {', '.join(_CLIENT_NEEDS)}: install 'gradwire[demo]' there")

    signal.signal(signal.SIGTERM, _stop)
    print(f"Starting the service with {maps}", flush=True)
    with serving(maps) as url:
        print(f"Serving at {url}; the client runs in its own process: {python}", flush=True)
        run = [python, str(client), url, "--out", str(options.out)]
        if options.client_python:
            run.append("--without-jax")
        return subprocess.run(run).returncode
