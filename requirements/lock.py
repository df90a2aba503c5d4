"""Records the exact versions for the Python that runs this, as ``py<minor>-<environment>.txt``.

Run it with a pip of 22.2 or newer (``make lock``). pip resolves pyproject.toml's ranges without
installing anything; the largest environment is resolved first and constrains the others, so that a
package has one version for each Python. torch.txt is kept by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parent
PYTHON = f"py{sys.version_info.major}{sys.version_info.minor}"
# What each environment of the Makefile installs; setuptools builds the project itself.
ENVIRONMENTS = {"lint": "dev", "test": "test", "service": "service", "client": "demo"}


def resolve(extra: str, constraints: Path | None) -> dict[str, str]:
    """Names and versions that pip would install for the project with ``extra``."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), f"{PROJECT}[{extra}]", "setuptools"]
        if constraints is not None:
            command += ["--constraint", str(constraints)]
        subprocess.run(command, check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {item["name"].lower(): item["version"] for item in found if item["name"] != "gradwire"}


def main() -> None:
    largest: Path | None = None
    for environment, extra in ENVIRONMENTS.items():
        print(f"== {PYTHON}-{environment}: resolving gradwire[{extra}]", flush=True)
        versions = resolve(extra, largest)
        lock = FOLDER / f"{PYTHON}-{environment}.txt"
        lock.write_text("".join(f"{name}=={version}\n" for name, version in sorted(versions.items())))
        largest = largest or lock


if __name__ == "__main__":
    main()
