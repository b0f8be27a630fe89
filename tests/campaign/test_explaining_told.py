"""What a person is told while findings are explained: the status line, the first failure, folded ones, and many at the end."""

import msgspec
import pytest

from flashverify.campaign.commands.panel import status_text
from flashverify.campaign.commands.status_line import StatusLine
from flashverify.campaign.commands.terminal import verdict_lines
from flashverify.campaign.store.reproduction import replay_line
from flashverify.campaign.supervisor.events import FindingFolded, FindingSeen, Progress
from flashverify.judge.record import Confirmation, Folded
from tests.campaign.test_explaining import campaign, kinds, records


def progress(**changes):
    given = {"elapsed": 20.0, "cases": 40, "unsupported": 0, "errors": 0, "findings": 3, "restarts": 0, "rate": 2.0}
    return Progress(**(given | {"worst": {}, "remaining": 34.0} | changes))


def test_the_status_line_says_what_is_minimised_and_for_how_long():
    assert status_text(progress(explaining=1, explained=1, explaining_left=12.0)) == (
        "40 cases · 2.0/s · 3 findings · minimising 2 of 3, 0:12 left · 0:34 left"
    )
    assert "minimising 1 of 3 ·" in status_text(progress(explaining=1))
    assert "minimising" not in status_text(progress(explained=3))


@pytest.mark.slow
def test_the_first_failure_is_printed_when_it_is_seen_with_the_command_that_replays_it(tmp_path, capsys):
    _, events = campaign(tmp_path / "run", "two", max_cases=60)
    seen = kinds(events, FindingSeen)
    with StatusLine() as status:
        for event in seen:
            status(event)

    lines = capsys.readouterr().err.splitlines()
    assert [event.first for event in seen] == [True, False]
    assert lines[0].startswith("finding: two ")
    assert lines[0].endswith("<b>3 > 1</b>")
    assert lines[1] == f"  {replay_line(seen[0].record)}"
    assert [line for line in lines[2:] if line.startswith("  ")] == []
    assert lines[2].startswith("also failing: two ")


@pytest.mark.slow
def test_the_first_of_several_findings_of_one_case_is_the_first(tmp_path):
    _, events = campaign(tmp_path / "run", "everything", max_cases=4, workers=1, shrink=False, repeats=1)

    assert [event.first for event in kinds(events, FindingSeen)] == [True, False, False]


@pytest.mark.slow
@pytest.mark.thorough
def test_a_failure_that_is_folded_is_told_with_the_cause(tmp_path, capsys):
    campaign(tmp_path / "run", "tail", max_cases=20)
    (record,) = records(tmp_path / "run")
    folded = Folded(msgspec.structs.replace(record.key, output="dq"), "fv1", "dq is off", "the same diagnosis")
    with StatusLine() as status:
        status(FindingFolded(msgspec.structs.replace(record, folded=(folded,)), folded))

    line = capsys.readouterr().err.strip()
    assert line == "same cause (the same diagnosis): tail accuracy bound dq fp16: The logits are <not> scaled"


@pytest.mark.slow
@pytest.mark.thorough
def test_of_many_findings_that_nobody_explained_the_terminal_names_most_in_a_line(tmp_path):
    summary, _ = campaign(tmp_path / "run", "tail", max_cases=20)
    (explained,) = records(tmp_path / "run")
    waiting = [
        msgspec.structs.replace(
            explained, key=msgspec.structs.replace(explained.key, cause=n), confirmation=Confirmation()
        )
        for n in range(1, 6)
    ]
    lines = verdict_lines(summary, (*waiting, explained), {}, tmp_path, ())

    assert [line[:3] for line in lines if line[:1].isdigit() and line[1] == "."] == ["1. ", "2. ", "3. ", "4. "]
    assert sum("confirmed by mpmath" in line for line in lines) == 1
    at = lines.index("2 further findings that there was no time to explain; the report has their cards:")
    assert lines[at + 1 : at + 3] == [f"  tail accuracy bound o fp16: {explained.count} cases"] * 2
