"""In CI a skipped test is a failed test, unless ``allowed_skips.txt`` lists it with its reason.

One line there reads ``node id | reason``; ``*`` stands for any text in either. Without
``CI=true`` in the environment skips stay skips.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
ALLOWED = Path(__file__).with_name("allowed_skips.txt")


def read_allowed(text: str) -> list[re.Pattern[str]]:
    """One pattern over ``node id | reason`` for each line that is neither empty nor a comment."""
    patterns = []
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            node, bar, reason = (part.strip() for part in line.partition("|"))
            if not (node and bar and reason):
                raise pytest.UsageError(f"{ALLOWED.name}: expected 'node id | reason', got {line!r}")
            patterns.append(re.compile(re.escape(f"{node} | {reason}").replace(r"\*", ".*"), re.DOTALL))
    return patterns


class AccountForSkips:
    """Turns every skip that is not listed into a failure that says so."""

    def __init__(self, allowed: list[re.Pattern[str]]) -> None:
        self.allowed = allowed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        return self.judge((yield))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        return self.judge((yield))

    def judge(self, report: Report) -> Report:
        # A strict or expected failure is reported as a skip too, with `wasxfail`; it is none.
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if not any(pattern.fullmatch(f"{report.nodeid} | {reason}") for pattern in self.allowed):
                report.outcome = "failed"
                report.longrepr = f"skipped in CI, and not listed in tests/{ALLOWED.name}: {reason}"
        return report


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") == "true":
        config.pluginmanager.register(AccountForSkips(read_allowed(ALLOWED.read_text(encoding="utf-8"))))
