"""`run`, `fuzz` and `compare` under a baseline."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashverify import cli
from flashverify.baseline.assessment import Assessment
from flashverify.baseline.reading import read_baseline
from flashverify.campaign import toolkit
from flashverify.campaign.commands.waived import summary_under
from flashverify.comparing import compare_runs
from flashverify.judge.record import Summary
from tests.baseline.test_reading import KNOWN, RATIO, table, written
from tests.report.synthetic import explained, failing, result, write_run

FAKES = Path(__file__).resolve().parents[1] / "campaign"
TAIL = KNOWN | {"subject": '"tail"'}


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")
    (tmp_path / "pyproject.toml").touch()

    def call(*arguments):
        return CliRunner().invoke(cli.main, [*arguments, "--device", "cpu", "--workers", "1"])

    return call


@pytest.mark.slow
def test_a_run_is_held_against_the_baseline_beside_pyproject(call, tmp_path):
    gone = TAIL | {"cause": '"gone"', "case": '"fv1 seq_k=3"'}
    low = RATIO | {"subject": '"tail"', "worst": "1e-6"}
    written(tmp_path, table("known", TAIL), table("known", gone), table("ratio", low))

    done = call("run", "--subject", "tail", "--no-report", "--max-cases", "8")

    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "FAIL: 1 ratio above what the baseline lets stand"
    known, above, gone, source = (line for line in lines if re.match("known|above|baseline", line))
    assert re.match(r"known: tail: scale-missing: it is being rewritten \(https://example.org/7\)$", known)
    assert re.match(r"above its ceiling: o fp16 of tail: error / bound \S+, the baseline lets 1e-06 stand: fv1 ", above)
    assert gone.endswith("gone (https://example.org/7): its own case passes: take the entry out of the baseline")
    assert source == "baseline: flashverify-baseline.toml"
    assert "how sure" not in done.stdout


def test_a_waiver_without_a_link_is_refused_before_anything_runs(call, tmp_path):
    written(tmp_path, table("known", {key: value for key, value in TAIL.items() if key != "link"}))

    done = call("fuzz", "--subject", "tail", "--max-cases", "5")

    assert done.exit_code == 2
    assert "link is missing: an http or https address" in done.stderr
    assert not Path("flashverify-out").exists()


@pytest.mark.parametrize(
    ("before", "unknown", "exceeded", "errors", "covering", "after"),
    [
        (1, 0, (), 0, 9, 0),
        (1, 1, (), 0, 9, 1),
        (0, 0, ("o",), 0, 9, 1),
        (1, 0, (), 2, 9, 3),
        (1, 0, (), 0, 0, 3),
        (3, 0, (), 0, 9, 3),
    ],
)
def test_what_is_known_leaves_the_exit_code_clean_and_nothing_else_does(
    tmp_path, before, unknown, exceeded, errors, covering, after
):
    baseline = read_baseline(written(tmp_path))
    held = Assessment(baseline, (), (explained(),) * unknown, exceeded=exceeded)
    summary = Summary(9, 0, covering, 1, 0, 1.0, "budget", before)

    assert summary_under(held, summary, errors).exit_code == after


def test_a_comparison_lets_known_failures_stand_and_says_so(tmp_path):
    record = explained()
    case = record.case
    old = write_run(tmp_path / "old", (result(case, stats=()),))
    bad = failing(case, output=record.key.output, error=record.key.error)
    new = write_run(tmp_path / "new", (bad,), (record,))
    fields = KNOWN | {"subject": f'"{record.key.subject}"', "cause": f'"{record.diagnosis.name}"'}
    baseline = read_baseline(written(tmp_path, table("known", fields)))
    other = read_baseline(written(tmp_path, table("known", fields | {"cause": '"another"'})))

    assert compare_runs(old, new).decision == compare_runs(old, new, other).decision == "do not merge"
    found = compare_runs(old, new, baseline)
    assert found.decision == "look"
    assert any("newly fails for causes that the baseline knows" in reason for reason in found.reasons)
