"""What a run found: bars, and the figures behind them; as JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"


@dataclass(frozen=True)
class Bar:
    """One thing that must hold.

    Attributes:
        what: what is compared with what.
        value: as measured; None where it could not be.
        sense: which side of ``limit`` is good.
        stretch: what would be better still.
        unit: of value, limit and stretch; × for a ratio.
        reason: why it was not measured.
    """

    what: str
    value: float | None
    sense: Literal["at most", "at least"]
    limit: float
    stretch: float | None = None
    unit: str = "×"
    reason: str = ""

    @property
    def met(self) -> bool | None:
        """Whether it holds; None where it was not measured."""
        return None if self.value is None else self._holds(self.value, self.limit)

    @property
    def stretched(self) -> bool:
        """Whether the stretch holds too."""
        return self.value is not None and self.stretch is not None and self._holds(self.value, self.stretch)

    def _holds(self, value: float, limit: float) -> bool:
        return value <= limit if self.sense == "at most" else value >= limit


@dataclass(frozen=True)
class Figure:
    """A figure behind the bars: the median time of a competitor, or a size."""

    name: str
    value: float
    unit: str = "ms"


@dataclass
class Section:
    """What one entry of `benchmarks.bars.BARS` found."""

    title: str
    bars: list[Bar] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    took: float = 0.0
    """Seconds."""

    def times(self, medians: Mapping[str, float], prefix: str = "") -> None:
        """Note medians that are in seconds."""
        self.figures += [Figure(f"{prefix}{name}", 1e3 * seconds) for name, seconds in medians.items()]


@dataclass
class Results:
    """One run on one machine."""

    command: str
    machine: dict[str, str]
    sections: dict[str, Section] = field(default_factory=dict)

    def save(self, path: Path = RESULTS) -> None:
        """Write them, each bar with whether it is met."""
        data = asdict(self)
        for name, section in self.sections.items():
            for bar, written in zip(section.bars, data["sections"][name]["bars"], strict=True):
                written["met"] = bar.met
        path.write_text(json.dumps(_rounded(data), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path = RESULTS) -> Results:
        """Read what `save` wrote."""
        data = json.loads(path.read_text(encoding="utf-8"))
        sections = {}
        for name, section in data["sections"].items():
            bars = [Bar(**{key: bar[key] for key in bar if key != "met"}) for bar in section.pop("bars")]
            figures = [Figure(**figure) for figure in section.pop("figures")]
            sections[name] = Section(**section, bars=bars, figures=figures)
        return cls(data["command"], data["machine"], sections)


def _rounded(data: Any) -> Any:
    """Four significant digits: more would be noise."""
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value) for value in data]
    return float(f"{data:.4g}") if isinstance(data, float) else data
