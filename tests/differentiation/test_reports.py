"""What a map says of itself: check, cost and explain, here and there; and answers that are not finite."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gradwire as gw
from gradwire._reports import CheckReport, Cost, CostReport, Explanation, Finding

X = np.array([0.3, 1.2, 2.5])
Z = X + 1j * X[::-1]


# check


def test_check_passes_what_is_right(hosted):
    for name, args in (
        ("chained", (X,)),
        ("decay", (X[:2], X)),
        ("kepler", (X, np.float64(0.2))),
        ("hand_twisted", (Z,)),
        ("hand_power", (Z,)),
        ("clipped", (X,)),
    ):
        report = hosted[name].check(*args)
        assert isinstance(report, CheckReport)
        assert report.ok and report.unchecked is None and report.failed is None, str(report)
        # What complex to complex maps do not have, and what takes a scalar map, is said so.
        outcomes = {"ok", "skipped"} if name.endswith(("twisted", "clipped")) else {"ok"}
        assert {finding.outcome for finding in report.findings} == outcomes, str(report)
        assert {finding.derivative for finding in report.findings} <= set(hosted[name].operations)


def test_check_finds_a_planted_wrong_rule(hosted):
    for name in ("planted", "doubled"):
        report = hosted[name].check(X)
        assert not report.ok
        failed = {finding.derivative for finding in report.findings if finding.outcome == "FAILED"}
        assert "jvp" in failed, str(report)
        assert all(finding.why for finding in report.findings if finding.outcome == "FAILED")


def test_check_says_that_a_rule_raised(hosted):
    report = hosted["raising"].check(X)
    assert not report.ok
    assert any("the detector is cold" in finding.why for finding in report.findings)


def test_check_prints_as_a_table(hosted):
    text = str(hosted["planted"].check(X))
    lines = text.splitlines()
    assert lines[0].split() == ["map", "derivative", "test", "figure", "outcome", "why"]
    assert all(line.startswith("planted") for line in lines[1:])
    assert any("jvp x" in line and "Taylor" in line and "FAILED" in line for line in lines)
    column = lines[0].index("outcome")
    assert {line[column:].split()[0] for line in lines[1:]} <= {"ok", "FAILED", "skipped"}


def test_check_goes_along_with_transforms(hosted):
    assert gw.grad(hosted["chained"]).check(X).ok
    assert not gw.vmap(hosted["planted"]).check(np.stack([X, X + 1])).ok
    assert hosted["twisted"].using(complex_as="real_pairs").check(np.stack([X, X], axis=-1)).ok


def test_check_of_what_cannot_be_evaluated(hosted):
    report = hosted["logarithm"].check(-np.ones((2, 2)))
    assert not report.ok and "not finite" in report.failed
    assert "FAILED" in str(report)


# cost


def operations(f, n):
    return f.cost(gw.ArraySpec((n, n), np.dtype("f8")), gw.ArraySpec((n, n), np.dtype("f8"))).operations


def test_cost_grows_as_it_should(hosted):
    small, large = operations(hosted["matmul"], 16), operations(hosted["matmul"], 32)
    assert 7 < large["evaluate"].flops / small["evaluate"].flops < 9  # n³
    assert large["evaluate"].argument_bytes == 2 * 32 * 32 * 8
    assert large["evaluate"].answer_bytes >= 32 * 32 * 8
    assert large["evaluate"].bytes_accessed > small["evaluate"].bytes_accessed
    assert large["jvp"].flops > 1.5 * large["evaluate"].flops
    assert large["jacobian"].answer_bytes >= 2 * 32**4 * 8
    assert "grad" not in large  # no scalar map


def test_cost_runs_nothing(hosted):
    x = np.ones((3, 4))
    calls = hosted["calls"]
    before = calls(0.0)
    report = hosted["counted"].cost(x)
    assert {"evaluate", "jvp", "jacobian"} <= set(report.operations)
    hosted["counted"].explain(x)
    hosted["counted"].eval_shape(x)
    assert calls(0.0) == before
    hosted["counted"](x)
    assert calls(0.0) == before + 1  # what counts does count


def test_cost_prints_as_a_table_and_names_the_device(hosted):
    report = hosted["decay"].cost(X[:2], X)
    assert isinstance(report, CostReport) and report.map == "decay" and "cpu" in report.device
    lines = str(report).splitlines()
    assert lines[0] == f"decay on {report.device}"
    assert lines[1].split() == ["operation", "flops", "accessed", "arguments", "answer", "temporary"]
    assert {line.split()[0] for line in lines[2:]} == set(report.operations)
    assert any("B" in line for line in lines[2:])


def test_cost_of_transforms_and_by_hand(hosted):
    report = gw.grad(hosted["chained"]).cost(X)
    assert report.operations["evaluate"].answer_bytes == 3 * 8
    by_hand = hosted["gamma"].cost(X).operations  # nothing is compiled: the compiler knows nothing
    assert by_hand["evaluate"] == Cost(None, None, 0, 0, 0)


# explain


def test_explain_names_what_would_be_used(hosted):
    report = hosted["decay"].explain(X[:2], X)
    assert isinstance(report, Explanation) and report.map == "decay"
    assert report.choices["jacobian"] == ("rev", "5 numbers in (p, t), 3 out")
    assert report.choices["blocks"][0] == "none"
    device, why = report.choices["device"]
    assert "cpu" in device and why == "the least busy"
    assert report.choices["precision"][0] == "computed in float64"
    assert report.choices["x64"][0] == "on" and report.choices["matmul"][0] == "highest"
    assert "lossy" not in report.choices
    lines = str(report).splitlines()
    assert lines[0] == "decay" and any(line.split()[:2] == ["jacobian", "rev"] for line in lines)


def test_explain_goes_forward_or_backward_by_size(hosted):
    assert hosted["newton"].explain(np.float64(2.0)).choices["jacobian"] == ("fwd", "1 numbers in (a), 1 out")
    assert hosted["chained"].explain(X).choices["jacobian"] == ("rev", "3 numbers in (x), 1 out")
    assert hosted["chained"].explain(X).choices["blocks"][0] == "1 of 1 rows"
    tall = hosted["logarithm"].explain(np.ones((40, 30)))
    assert tall.choices["jacobian"][0] == "fwd" and tall.choices["blocks"][0] == "256 of 1200 columns"


def test_explain_says_when_the_cheaper_mode_does_not_exist(hosted):
    mode, why = hosted["stretched"].explain(X).choices["jacobian"]
    assert mode == "fwd" and "rev would be cheaper, but does not exist here" in why
    assert "vjp" not in hosted["stretched"].explain(X).choices["operations"][0]
    mode, why = hosted["clipped"].explain(X).choices["jacobian"]
    assert mode == "rev" and "fwd would be cheaper, but does not exist here" in why


def test_explain_of_complex_maps(hosted):
    assert hosted["phase"].explain(X).choices["jacobian"][0] == "fwd"  # R→C
    assert hosted["power"].explain(Z).choices["jacobian"][0] == "rev"  # C→R
    mode, why = hosted["twisted"].explain(Z).choices["jacobian"]
    assert mode == "none" and "holomorphic=True" in why
    assert hosted["power"].explain(Z.astype("c8")).choices["precision"][0] == "computed in float32"
    real = hosted["twisted"].using(complex_as="real_pairs").explain(np.ones((3, 2)))
    assert real.choices["jacobian"] == ("fwd", "6 numbers in (z), 6 out")


def test_explain_of_maps_by_hand(hosted):
    choices = hosted["gamma"].explain(X).choices
    assert choices["derivatives"] == ("by hand", "from jvp and vjp")
    assert hosted["forward_gamma"].explain(X).choices["derivatives"] == ("by hand", "from jvp")
    assert hosted["plain_gamma"].explain(X).choices["derivatives"] == ("by hand", "from nothing")
    assert choices["operations"][0] == ", ".join(hosted["gamma"].operations)


def test_explain_says_whose_choice_precision_and_device_are(hosted):
    choices = hosted["rough"].explain(X).choices
    assert choices["precision"][0] == "computed in float32, answered in float32"
    assert choices["precision"][1].startswith("the map's")
    assert choices["lossy"][0] == "yes" and choices["x64"][0] == "off"
    assert choices["device"][1] == "the map's"
    asked = hosted["rough"].using(precision="float64", device="cpu:0").explain(X).choices
    assert asked["precision"][0] == "computed in float64, answered in float64"
    assert asked["precision"][1].startswith("asked for")
    assert asked["device"] == ("cpu:0", "asked for")


def test_explain_where_nothing_can_be_differentiated(hosted):
    choice, why = hosted["measured"].explain(np.ones(2, int)).choices["derivatives"]
    assert choice == "none" and "floating" in why


# Reports in messages.

OK = Finding("vjp", "x", "adjoint", "ok")


@pytest.mark.parametrize(
    "report",
    [
        CheckReport("f", (Finding("jvp", "x", "Taylor", "FAILED", "1", "off"), OK)),
        CheckReport("f", unchecked="no example"),
        CheckReport("f", failed="its value is not finite"),
        CostReport("f", "cpu:0", {"evaluate": Cost(12.0, 96.0, 8, 16, 0), "jvp": Cost(None, None, 1, 2, 3)}),
        Explanation("f", {"device": ("cpu:0", "the least busy"), "jacobian": ("fwd", "3 in, 4 out")}),
    ],
    ids=lambda report: type(report).__name__,
)  # fmt: skip
def test_fields_are_read_back(report):
    there = json.loads(json.dumps(report.fields()))
    assert type(report).from_fields(there) == report
    assert str(type(report).from_fields(there)) == str(report)


# Answers that are not finite.


def test_the_first_entry_that_is_not_finite_is_located(hosted):
    x = np.ones((3, 4))
    x[1, 2], x[2, 0] = 0.0, -1.0
    strict = hosted["logarithm"].using(nonfinite="raise")
    with pytest.raises(gw.MapFailed, match=r"2 entries that are not finite, the first at \(1, 2\)") as caught:
        strict(x)
    assert caught.value.map == "logarithm" and caught.value.got == "1 NaN, 1 infinite"
    assert strict(np.ones((3, 4))).shape == (3, 4)
    loose = strict.using(nonfinite="ignore")(x)
    assert np.isnan(loose[2, 0]) and np.isneginf(loose[1, 2])
    with pytest.raises(gw.ArgumentError):
        strict.using(nonfinite="count")


@pytest.mark.parametrize("ask", [
    lambda f, x: f.jacobian(x),
    lambda f, x: f.jvp(x, np.ones_like(x)),
    lambda f, x: f.vjp(x, np.ones_like(x)),
    lambda f, x: f.hessian(x),
    lambda f, x: f.linearize(x),
    lambda f, x: gw.jacfwd(f)(x),
    lambda f, x: gw.vmap(f)(x[None]),
    lambda f, x: f.jacobian(x, out=np.empty((2, 2, 2, 2))),
])  # fmt: skip
def test_every_answer_is_looked_at(hosted, ask):
    x = np.ones((2, 2))
    x[1, 1] = 0.0
    with pytest.raises(gw.MapFailed, match="not finite, the first at"):
        ask(hosted["logarithm"].using(nonfinite="raise"), x)
