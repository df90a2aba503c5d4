"""What a map says of itself when asked: reports that print as tables."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

Outcome = Literal["ok", "FAILED", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One derivative in one argument, tested in one way.

    Attributes:
        derivative: the operation: jvp, vjp, grad, ….
        argument: the name of the argument it is taken in.
        test: Taylor, adjoint or agreement.
        outcome: ok, FAILED or skipped.
        figure: what was measured.
        why: the reason of a failure or of a skip.
    """

    derivative: str
    argument: str
    test: str
    outcome: Outcome
    figure: str = ""
    why: str = ""


@dataclass(frozen=True)
class CheckReport:
    """Whether a map's derivatives are right at a point: what ``f.check(x)`` and ``gradwire check`` found.

    Attributes:
        map: the map's name.
        findings: one for each derivative and argument.
        unchecked: why the map could not be checked at all, or None.
        failed: why the map could not even be evaluated where it should be, or None.
    """

    map: str
    findings: tuple[Finding, ...] = ()
    unchecked: str | None = None
    failed: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a map that could not be checked has not failed."""
        return self.failed is None and all(finding.outcome != "FAILED" for finding in self.findings)

    def rows(self) -> list[tuple[str, ...]]:
        """The report's lines of a table: map, derivative, test, figure, outcome, why."""
        if self.unchecked is not None or self.failed is not None:
            word = "skipped" if self.failed is None else "FAILED"
            return [(self.map, "", "", "", word, self.failed or self.unchecked or "")]
        return [
            (self.map, f"{f.derivative} {f.argument}", f.test, f.figure, f.outcome, f.why)
            for f in self.findings
        ]

    def __str__(self) -> str:
        return check_table(self.rows())

    def fields(self) -> dict[str, Any]:
        """As in an answer."""
        return {**asdict(self), "findings": [asdict(finding) for finding in self.findings]}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            fields["map"],
            tuple(Finding(**finding) for finding in fields["findings"]),
            fields.get("unchecked"),
            fields.get("failed"),
        )


@dataclass(frozen=True)
class Cost:
    """What one operation takes, as the compiler knows it before anything runs.

    Attributes:
        flops: floating operations, None where the compiler does not say.
        bytes_accessed: memory read and written, in bytes, None where it does not say.
        argument_bytes, answer_bytes, temporary_bytes: on the device while it runs.
    """

    flops: float | None
    bytes_accessed: float | None
    argument_bytes: int
    answer_bytes: int
    temporary_bytes: int


@dataclass(frozen=True)
class CostReport:
    """What each operation of a map takes for arguments of these shapes: ``f.cost(x)``."""

    map: str
    device: str
    operations: dict[str, Cost] = field(default_factory=dict)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("operation", "flops", "accessed", "arguments", "answer", "temporary")]
        for name, cost in self.operations.items():
            flops = "" if cost.flops is None else f"{cost.flops:.3g}"
            accessed = "" if cost.bytes_accessed is None else _bytes(cost.bytes_accessed)
            sizes = (cost.argument_bytes, cost.answer_bytes, cost.temporary_bytes)
            rows.append((name, flops, accessed, *map(_bytes, sizes)))
        return f"{self.map} on {self.device}\n{table(rows)}"

    def fields(self) -> dict[str, Any]:
        """As in an answer."""
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        costs = {name: Cost(**cost) for name, cost in fields["operations"].items()}
        return cls(fields["map"], fields["device"], costs)


@dataclass(frozen=True)
class Explanation:
    """How a map would be differentiated at arguments of these shapes, and why: ``f.explain(x)``.

    Attributes:
        map: the map's name.
        choices: what is chosen, each with the reason: device, precision, mode, blocks, ….
    """

    map: str
    choices: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.map}\n{table([(name, what, why) for name, (what, why) in self.choices.items()])}"

    def fields(self) -> dict[str, Any]:
        """As in an answer."""
        return {"map": self.map, "choices": {name: list(choice) for name, choice in self.choices.items()}}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            fields["map"], {name: (str(what), str(why)) for name, (what, why) in fields["choices"].items()}
        )


Report = CheckReport | CostReport | Explanation

REPORTS: dict[str, type[CheckReport] | type[CostReport] | type[Explanation]] = {
    "check": CheckReport,
    "cost": CostReport,
    "explain": Explanation,
}
"""Every report a map gives of itself."""


def check_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of one check or several, under a heading; a reason is cut where it is long."""
    shown = [(*row[:-1], textwrap.shorten(row[-1], 100, placeholder=" …")) for row in rows]
    return table([("map", "derivative", "test", "figure", "outcome", "why"), *shown])


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned columns; the last one is left ragged."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit is always taken")
