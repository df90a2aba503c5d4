"""The page of figures: what `make bench` writes can be read back, and the page is made of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
RESULTS = PROJECT / "benchmarks" / "results.json"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import page

    return page


def test_a_bar_holds_on_its_own_side_of_the_limit(page: ModuleType):
    from benchmarks.results import Bar

    assert Bar("slow", 1.0, "at most", 2.0).met is True
    assert Bar("slow", 2.5, "at most", 2.0).met is False
    assert Bar("fast", 2.5, "at least", 2.0).met is True
    assert Bar("fast", 1.0, "at least", 2.0).met is False
    assert Bar("fast", None, "at least", 2.0, reason="no peers").met is None
    assert Bar("slow", 1.0, "at most", 2.0, 1.5).stretched
    assert not Bar("slow", 1.8, "at most", 2.0, 1.5).stretched


def test_results_are_read_back_as_written(page: ModuleType, tmp_path: Path):
    from benchmarks.results import Bar, Figure, Results, Section

    bars = [Bar("a", 1.25, "at most", 2.0, 1.5), Bar("b", None, "at least", 3.0, reason="no peers")]
    section = Section("Title", bars, [Figure("Gradwire", 0.5)], ["A note."], took=2.0)
    results = Results("make bench", {"cores": "2"}, {"small": section})
    path = tmp_path / "results.json"
    results.save(path)
    assert Results.load(path) == results
    written = json.loads(path.read_text())["sections"]["small"]["bars"]
    assert [bar["met"] for bar in written] == [True, None]


def test_the_page_tells_every_bar_and_why_one_was_not_measured(page: ModuleType):
    from benchmarks.results import Bar, Figure, Results, Section

    bars = [
        Bar("first thing", 1.25, "at most", 2.0, 1.5),
        Bar("second thing", 9.0, "at most", 2.0),
        Bar("third thing", None, "at least", 3.0, reason="the peers are not installed"),
    ]
    section = Section("A section", bars, [Figure("Gradwire", 0.5)], ["A note."])
    text = page.text(Results("make bench", {"cores": "2"}, {"small": section}))
    assert "| first thing | 1.25 × | ≤ 2 × | 1.5 × | yes, stretch |" in text
    assert "| second thing | 9 × | ≤ 2 × |  | **no** |" in text
    assert "| third thing | not measured | ≥ 3 × |  | – |" in text
    assert "the peers are not installed" in text
    assert "`make bench`" in text and "| cores | 2 |" in text and "| Gradwire | 0.5 ms |" in text


def test_the_recorded_results_have_their_form_and_made_the_page(page: ModuleType):
    from benchmarks.results import Results

    results = Results.load(RESULTS)
    assert results.command == "make bench"
    assert {"cores", "Python", "jax"} <= set(results.machine)
    for section in results.sections.values():
        for bar in section.bars:
            assert bar.sense in ("at most", "at least")
            assert bar.value is not None or bar.reason, f"{bar.what} does not say why it was not measured"
    assert page.PAGE.read_text(encoding="utf-8") == page.text(results), "run python -m benchmarks.page"


def test_the_recorded_results_are_of_every_bar(page: ModuleType):
    from benchmarks.bars import BARS
    from benchmarks.results import Results

    assert list(Results.load(RESULTS).sections) == list(BARS)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_load_generator_is_answered(page: ModuleType):
    from benchmarks import load, servers

    request = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nhello"
    with servers.module("benchmarks.echo") as echo:
        found = load.run(echo.port, request, connections=4, seconds=0.2)
    assert found.answers > 0 and found.others == 0
    assert 0 < found.median_ms <= found.p99_ms <= found.longest_ms


def test_an_unknown_bar_is_refused_by_name():
    command = [sys.executable, "-m", "benchmarks.bench", "smal"]
    refused = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert refused.returncode == 2 and "there is no smal" in refused.stderr
