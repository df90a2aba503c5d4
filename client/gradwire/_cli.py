"""The command ``gradwire``: finds a command among the entry points and runs it.

A command is an entry point of the group ``gradwire.commands``: a function that takes the
arguments after the command's name and returns the exit status. Any installed package may
add one. Nothing is imported but the command that is run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points, version

from gradwire._errors import GradwireError

GROUP = "gradwire.commands"
OWN = ("gradwire", "gradwire_service")

SUMMARIES = {
    "serve": "host the maps in files or modules",
    "demo": "reconstruct an MRI slice through a service started for it",
    "check": "test every derivative of the maps in a file",
    "maps": "list the maps of a service",
    "call": "ask one operation of one map",
}
"""What the help says about our own commands; importing them to find out could take seconds."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gradwire`` with ``argv`` (by default the process's own) and return the exit status.

    0: done. 1: a `GradwireError`, told in one line on stderr. 2: wrong usage, or a command
    whose dependencies are not installed.
    """
    try:
        status = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except GradwireError as error:
        return _fail(" ".join(str(error).split()), 1)
    except BrokenPipeError:
        # Whoever read our output has gone (`gradwire maps … | head`); Python must not flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    first = arguments[0] if arguments else None
    if first is None or first in ("-h", "--help"):
        print(_usage(commands), file=sys.stderr if first is None else sys.stdout)
        return 2 if first is None else 0
    if first == "--version":
        print(f"gradwire {version('gradwire')}")
        return 0
    if first not in commands:
        names = ", ".join(sorted(commands))
        return _fail(f"there is no command {first!r}; the commands are {names}", 2)
    try:
        command: Callable[[list[str]], int] = commands[first].load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise
        return _missing(commands[first], error.name)
    return command(arguments[1:])


def _usage(commands: dict[str, EntryPoint]) -> str:
    ours = [name for name in SUMMARIES if name in commands]
    lines = [
        f"  {name:10}{SUMMARIES.get(name, '')}".rstrip() for name in (*ours, *sorted({*commands} - {*ours}))
    ]
    return "\n".join(
        [
            "usage: gradwire COMMAND …",
            "       gradwire COMMAND --help",
            "       gradwire --version",
            "",
            "commands:",
            *lines,
        ]
    )


def _missing(entry: EntryPoint, module: str) -> int:
    if entry.module.partition(".")[0] in OWN:
        return _fail(
            f"`gradwire {entry.name}` needs the service extra: pip install 'gradwire[service]' "
            f"({module} is not installed)",
            2,
        )
    return _fail(f"`gradwire {entry.name}` needs {module}, which is not installed", 2)


def _fail(line: str, status: int) -> int:
    print(f"gradwire: {line}", file=sys.stderr)
    return status
