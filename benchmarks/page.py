"""docs/performance.md, generated from results.json. ``python -m benchmarks.page`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.results import RESULTS, Bar, Figure, Results, Section

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"

LIMITS = Path(__file__).with_name("limits.md")
"""What was found out about the bars that are not met: written by hand, with the profile behind it."""

_HEAD = """\
# Performance

Made by `{command}` in one run on one machine; `benchmarks/bars/` holds what is measured and how, and
`benchmarks/results.json` the figures. Do not edit: `python -m benchmarks.page` writes this page anew.

Figures are medians; competitors take turns in one process (A B C A B C …), so that the machine's
noise hits them all alike. Compare ratios: the times are this machine's. Every call goes from NumPy
arrays to NumPy arrays over loopback, with the service's defaults.

{machine}

## The bars

{bars}

"""

_COMPETITORS = {
    "raw TCP, same bytes": "as many bytes there and back over a plain socket, into memory that is used "
    "again and again",
    "local jax.jit": "the computation alone, on 64-byte-aligned arrays, until the answer is in host memory",
    "bare ASGI echo": "uvicorn answering a request with its own body, called with `http.client`",
    "afternoon server": "`benchmarks/afternoon.py`: FastAPI, msgpack-numpy and jitted JAX on the event loop, "
    "called with a kept-alive httpx client",
    "Tesseract": "`tesseract-core[runtime]`, served without Docker by its own runtime, with uvloop and "
    "httptools; arrays as JSON lists (default) or base64. It sends the cotangent alone",
    "UM-Bridge": "`umbridge` without its size checks, over HTTP; it sends the cotangent alone. "
    "Shared memory, which works on one machine only, stands beside it",
}

_TAIL = """\
## What limits what is not met

{limits}

## What it is compared with

{competitors}

## On a GPU

{gpu}
"""

_NO_GPU = """\
Not run: no GPU was at hand. `python -m benchmarks.gpu` (under four minutes, no network, no peers) prints the
same bars with the service on the device, the time split by stage, float32 against float64 against
bfloat16, zero-copy checks for CuPy in every dtype, and peak device memory.
"""


def write(results: Results, path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text(text(results), encoding="utf-8")


def text(results: Results) -> str:
    """The page, in Markdown."""
    machine = _table(("", ""), results.machine.items())
    sections = results.sections.values()
    parts = [_HEAD.format(command=results.command, machine=machine, bars=bars_table(sections))]
    missing = {bar.reason for section in sections for bar in section.bars if bar.value is None and bar.reason}
    if missing:
        parts.append("Not measured: " + "; ".join(sorted(missing)) + ".\n\n")
    parts.append("## The figures behind them\n\n")
    for name, section in results.sections.items():
        parts.append(f"### {section.title}\n\n`make bench ONLY={name}`, {section.took:.0f} s.\n\n")
        if section.figures:
            parts.append(_table(("", "median"), ((f.name, _figure(f)) for f in section.figures)) + "\n\n")
        parts += [f"{note}\n\n" for note in section.notes]
    competitors = _table(("competitor", "what it is"), _COMPETITORS.items())
    limits = LIMITS.read_text(encoding="utf-8").strip()
    parts.append(_TAIL.format(competitors=competitors, gpu=_NO_GPU.strip(), limits=limits))
    return "".join(parts)


def bars_table(sections: Iterable[Section]) -> str:
    """Every bar of ``sections``, in Markdown."""
    return _table(
        ("what", "measured", "must be", "stretch", "met"),
        (
            [bar.what, _measured(bar), _limit(bar), _number(bar.stretch, bar.unit), _met(bar)]
            for section in sections
            for bar in section.bars
        ),
    )


def plain(section: Section) -> str:
    """A section for a terminal."""
    lines = [section.title]
    lines += [f"    {figure.name:<44} {_figure(figure):>14}" for figure in section.figures]
    for bar in section.bars:
        lines.append(f"  {_met(bar):<12} {bar.what}: {_measured(bar)} ({_limit(bar)})")
        if bar.value is None and bar.reason:
            lines.append(f"               {bar.reason}")
    lines += [f"  {note}" for note in section.notes]
    return "\n".join(lines)


def _met(bar: Bar) -> str:
    if bar.met is None:
        return "–"
    return "**no**" if not bar.met else "yes, stretch" if bar.stretched else "yes"


def _measured(bar: Bar) -> str:
    return "not measured" if bar.value is None else _number(bar.value, bar.unit)


def _limit(bar: Bar) -> str:
    return f"{'≤' if bar.sense == 'at most' else '≥'} {_number(bar.limit, bar.unit)}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {unit}"


def _figure(figure: Figure) -> str:
    return _number(figure.value, figure.unit)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    write(Results.load(RESULTS))


if __name__ == "__main__":
    main()
