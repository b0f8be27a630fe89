"""A run that version 0.1.0 stored is read, reported and replayed by this one."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashverify.campaign.store.reader import open_run
from flashverify.campaign.store.reproduction import read_reproduction
from flashverify.case import format_case, parse_case
from flashverify.cli import main

STORED = Path(__file__).parent / "stored_run_0_1_0"


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(STORED, tmp_path / "run")


def test_it_is_read_without_loss(run):
    stored = open_run(run)
    results = list(stored.results())

    assert (len(results), len(stored.findings), stored.problems) == (12, 2, [])
    assert {result.subject for result in results} == {"late"}
    assert stored.summary is not None
    assert all(format_case(parse_case(result.case)) == result.case for result in results)


def test_its_findings_name_what_replays_them(run):
    for finding in open_run(run).findings:
        reproduction = read_reproduction(finding.path)

        assert (reproduction.case, reproduction.subject) == (finding.record.case, "wrong:late")
        assert parse_case(reproduction.case)


def test_it_is_reported(run):
    result = CliRunner().invoke(main, ["report", str(run)])

    assert result.exit_code == 0, result.output
    assert "late" in (run / "report.md").read_text(encoding="utf-8")
