"""A skip that nobody accounted for fails CI."""

from __future__ import annotations

import pytest

import skips

pytest_plugins = ["pytester"]

SKIPPING = """
import pytest

def test_runs(): pass

@pytest.mark.skip(reason="no such device")
def test_skips(): pass

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_to_fail(): assert False
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs SKIPPING under the plugin, with CI and the list as given."""

    def run(*, ci: bool, allowed: str = "", source: str = SKIPPING) -> dict[str, int]:
        listed = pytester.path / "allowed.txt"
        listed.write_text(allowed)
        monkeypatch.setattr(skips, "ALLOWED", listed)
        monkeypatch.setenv("CI", "true" if ci else "")
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_inprocess("-p", "skips").parseoutcomes()

    return run


def test_outside_ci_a_skip_is_a_skip(run):
    assert run(ci=False) == {"passed": 1, "skipped": 1, "xfailed": 1}


def test_in_ci_an_unlisted_skip_fails(run):
    assert run(ci=True) == {"passed": 1, "errors": 1, "xfailed": 1}


@pytest.mark.parametrize(
    "line", ["test_it.py::test_skips | no such device", "test_it.py::* | no such*", "# why\n\n* | *"]
)
def test_a_listed_skip_passes(run, line):
    assert run(ci=True, allowed=line) == {"passed": 1, "skipped": 1, "xfailed": 1}


@pytest.mark.parametrize("line", ["test_it.py::test_skips | other reason", "test_it.py::test_runs | *"])
def test_another_test_or_reason_is_not_accepted(run, line):
    assert run(ci=True, allowed=line)["errors"] == 1


def test_a_skipped_module_is_a_skip(run):
    source = "import pytest\npytest.importorskip('no_such_module_anywhere')\ndef test_it(): pass"
    assert run(ci=True, source=source) == {"errors": 1}
    assert run(ci=True, source=source, allowed="test_it.py | could not import *") == {"skipped": 1}


def test_a_line_without_a_reason_is_refused():
    with pytest.raises(pytest.UsageError, match="node id"):
        skips.read_allowed("tests/test_it.py")


def test_brackets_in_a_node_id_are_literal():
    (pattern,) = skips.read_allowed("test_it.py::test[a-*] | gone")
    assert pattern.fullmatch("test_it.py::test[a-1] | gone")
    assert not pattern.fullmatch("test_it.py::testa | gone")
