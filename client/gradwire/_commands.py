"""``gradwire maps`` and ``gradwire call``: a service from the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError
from gradwire._operator import Operator
from gradwire._service import connect
from gradwire._signature import Signature
from gradwire.wire import ArraySpec

_TOKEN = "Set GRADWIRE_TOKEN where the service asks for a token."


def maps(argv: Sequence[str]) -> int:
    """List the maps of a service; with ``--json`` as the service describes them."""
    parser = argparse.ArgumentParser(
        "gradwire maps", description="List the maps of a service.", epilog=_TOKEN
    )
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--json", action="store_true", help="the whole descriptions, as JSON")
    options = parser.parse_args(argv)
    with connect(options.url) as service:
        descriptions = service.request("GET", "/v1/maps", None).fields["maps"]
    if options.json:
        print(json.dumps(descriptions, indent=2))
        return 0
    rows = [("name", "version", "signature", "operations", "")]
    for entry in descriptions:
        doc = (entry.get("doc") or "").strip().partition("\n")[0]
        signature = str(Signature.from_description(entry))
        rows.append((entry["name"], entry["version"], signature, ", ".join(entry["operations"]), doc))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


@dataclass(frozen=True)
class Request:
    """What ``gradwire call`` was asked for, its files read."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tangents: tuple[Any, ...]
    cotangent: Any
    argnums: int | tuple[int, ...] | None

    def differentiated(self) -> dict[str, Any]:
        """The keywords of an operation whose argnums are 0 unless given."""
        return self.kwargs if self.argnums is None else {**self.kwargs, "argnums": self.argnums}

    def directions(self) -> Any:
        """The tangents in the form that argnums asks for."""
        return self.tangents[0] if isinstance(self.argnums, int) else self.tangents


def _evaluate(f: Operator, r: Request) -> dict[str, Any]:
    return {"value": f(*r.args, **r.kwargs)}


def _jacobian(f: Operator, r: Request) -> dict[str, Any]:
    return {"jacobian": f.jacobian(*r.args, **r.differentiated())}


def _jvp(f: Operator, r: Request) -> dict[str, Any]:
    value, tangent = f.jvp(r.args, r.directions(), argnums=r.argnums, **r.kwargs)
    return {"value": value, "tangent": tangent}


def _vjp(f: Operator, r: Request) -> dict[str, Any]:
    value, cotangents = f.vjp(r.args, r.cotangent, argnums=r.argnums, **r.kwargs)
    return {"value": value, "cotangents": cotangents}


def _grad(f: Operator, r: Request) -> dict[str, Any]:
    return {"gradient": f.grad(*r.args, **r.differentiated())}


def _value_and_grad(f: Operator, r: Request) -> dict[str, Any]:
    value, gradient = f.value_and_grad(*r.args, **r.differentiated())
    return {"value": value, "gradient": gradient}


def _hessian(f: Operator, r: Request) -> dict[str, Any]:
    return {"hessian": f.hessian(*r.args, **r.differentiated())}


def _hvp(f: Operator, r: Request) -> dict[str, Any]:
    return {"product": f.hvp(r.args, r.directions(), argnums=r.argnums, **r.kwargs)}


def _eval_shape(f: Operator, r: Request) -> dict[str, Any]:
    return {"shapes": f.eval_shape(*r.args, **r.kwargs)}


OPERATIONS: dict[str, Callable[[Operator, Request], dict[str, Any]]] = {
    "evaluate": _evaluate,
    "jacobian": _jacobian,
    "jvp": _jvp,
    "vjp": _vjp,
    "grad": _grad,
    "value_and_grad": _value_and_grad,
    "hessian": _hessian,
    "hvp": _hvp,
    "eval_shape": _eval_shape,
}
"""What can be asked in one call: every operation but linearize, which is for many."""


def call(argv: Sequence[str]) -> int:
    """Ask one operation of one map; print the answer, or write it to an npz file."""
    parser = argparse.ArgumentParser(
        "gradwire call",
        description="Ask one operation of one map. An argument is an .npy file, an .npz file "
        "(a dict of arrays) or JSON, such as 1.5, [1, 2] or null.",
        epilog=_TOKEN,
    )
    parser.add_argument("url", metavar="URL")
    parser.add_argument("map", metavar="MAP")
    parser.add_argument("operation", metavar="OPERATION", choices=OPERATIONS, help=", ".join(OPERATIONS))
    parser.add_argument("args", metavar="ARG", nargs="*")
    parser.add_argument(
        "--tangent", metavar="F", action="append", default=[], help="one per differentiated argument"
    )
    parser.add_argument("--cotangent", metavar="F")
    parser.add_argument("--argnums", metavar="N,…", help="positions to differentiate, such as 0 or 0,2")
    parser.add_argument("--kwarg", metavar="K=JSON", action="append", default=[])
    parser.add_argument("--precision", metavar="P", help='such as float32, or "compute=float32,output=input"')
    parser.add_argument("--device", metavar="D", help="cpu, gpu or gpu:1")
    parser.add_argument(
        "--out", metavar="F.npz", type=Path, help="write the answer there instead of printing it"
    )
    options = parser.parse_args(argv)
    operation = options.operation
    if bool(options.tangent) != (operation in ("jvp", "hvp")):
        parser.error("--tangent goes with jvp and hvp, which need it")
    if (options.cotangent is None) == (operation == "vjp"):
        parser.error("--cotangent goes with vjp, which needs it")
    if options.argnums is not None and operation in ("evaluate", "eval_shape"):
        parser.error(f"--argnums says what to differentiate; {operation} does not")
    if options.out is not None and operation == "eval_shape":
        parser.error("eval_shape has no arrays to write")

    request = Request(
        args=tuple(_read(text, "ARG") for text in options.args),
        kwargs=dict(_keyword(text) for text in options.kwarg),
        tangents=tuple(_read(text, "--tangent") for text in options.tangent),
        cotangent=None if options.cotangent is None else _read(options.cotangent, "--cotangent"),
        argnums=_argnums(options.argnums),
    )
    if isinstance(request.argnums, int) and len(request.tangents) > 1:
        parser.error("one position in --argnums takes one --tangent")
    with connect(options.url, precision=options.precision, device=options.device) as service:
        answer = OPERATIONS[operation](service[options.map], request)
    named = [leaf for name, tree in answer.items() for leaf in _leaves(name, tree)]
    if options.out is None:
        for name, leaf in named:
            _show(name, leaf)
    else:
        with options.out.open("wb") as file:
            arrays: dict[str, Any] = {name: _storable(leaf) for name, leaf in named if leaf is not None}
            np.savez(file, **arrays)
    return 0


def _read(text: str, argument: str) -> Any:
    """The array in a file, or the value of a JSON text."""
    path = Path(text)
    if path.suffix in (".npy", ".npz"):
        try:
            loaded = np.load(path, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
        except (OSError, ValueError, EOFError) as error:
            raise ArgumentError(
                f"{text} cannot be read: {error}",
                argument=argument,
                expected="an .npy or .npz file of numbers",
            ) from None
    try:
        return json.loads(text)
    except ValueError:
        raise ArgumentError(
            f"{text[:60]!r} is neither an .npy or .npz file nor JSON (text in JSON stands in quotes).",
            argument=argument,
            expected="a file or JSON",
        ) from None


def _keyword(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(
            f"{text[:60]!r} names no value.", argument="--kwarg", expected="NAME=VALUE", got="no equals sign"
        )
    return name, _read(value, f"--kwarg {name}")


def _argnums(text: str | None) -> int | tuple[int, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ArgumentError(
            "argnums are integers.", argument="--argnums", expected="N or N,N,…", got=text[:60]
        ) from None
    return found[0] if len(found) == 1 else found


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of an answer, each with its path: ``value``, ``value.0``, ``value.weights.1``."""
    if isinstance(tree, dict):
        for key, child in tree.items():
            yield from _leaves(f"{name}.{key}", child)
    elif isinstance(tree, tuple | list):
        for index, child in enumerate(tree):
            yield from _leaves(f"{name}.{index}", child)
    else:
        yield name, tree


def _show(name: str, leaf: Any) -> None:
    if leaf is None:
        print(f"{name}: none")
        return
    print(f"{name}: {leaf.dtype.name}[{','.join(map(str, leaf.shape))}]")
    if not isinstance(leaf, ArraySpec):
        print(np.array2string(leaf))


def _storable(a: np.ndarray) -> np.ndarray:
    # An npy file has no bfloat16 and float8, only bytes without a type. float32 holds them exactly.
    return a if a.dtype.kind in "biufc" else a.astype(np.float32)
