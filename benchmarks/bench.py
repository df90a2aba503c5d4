"""``python -m benchmarks.bench [NAME,…]``: measure the bars, write results.json and docs/performance.md."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from benchmarks import page
from benchmarks.bars import BARS
from benchmarks.machine import facts
from benchmarks.measure import progress
from benchmarks.results import RESULTS, Results, Section
from benchmarks.session import Session


def measure(names: Sequence[str], session: Session) -> dict[str, Section]:
    """Run the entries of `BARS` with those names. One that fails says so and stops no other."""
    sections = {}
    for number, name in enumerate(names, 1):
        progress(f"[{number}/{len(names)}] {name}")
        began = time.perf_counter()
        try:
            section = BARS[name](session)
        except Exception as error:
            traceback.print_exc()
            section = Section(name, notes=[f"not measured: {type(error).__name__}: {error}"[:500]])
        section.took = time.perf_counter() - began
        print(page.plain(section), flush=True)
        sections[name] = section
    return sections


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__)
    parser.add_argument(
        "only", nargs="?", default="", help=f"comma-separated, of {', '.join(BARS)}; all where left out"
    )
    parser.add_argument("--peers-python", help="Python of the environment with umbridge and tesseract-core")
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name] or list(BARS)
    unknown = [name for name in names if name not in BARS]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(BARS)}")
    # Stopped from outside, it stops its servers too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    machine = facts()
    with Session(peers_python=options.peers_python) as session:
        sections = measure(names, session)
    if set(names) == set(BARS):
        results = Results("make bench", machine, sections)
        results.save()
        page.write(results)
        print(f"{RESULTS.name} and {page.PAGE.name} are written.")
    else:
        print("A part of the bars: results.json and docs/performance.md stay as they are.")
    unmet = sum(bar.met is False for section in sections.values() for bar in section.bars)
    print(f"{unmet} bars are not met." if unmet else "Every bar that was measured is met.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
