"""One cause is one finding, whatever it makes wrong; another cause is another finding, also behind the same bucket."""

import shutil
from pathlib import Path

import msgspec
import pytest

from flashverify.campaign.store.sealing import pretty
from flashverify.campaign.store.writer import finding_name, open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import FindingFolded, FindingMinimal, FindingSeen
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.case.text import parse_case
from tests.campaign.killed import killed_after
from tests.fast_tier import fast_one_in

HERE = Path(__file__).parent


def config(out, subject, **changes):
    given = {"kind": "fuzz", "subjects": (subject,), "out": out, "device": "cpu", "workers": 1, "max_cases": 120}
    given |= {"batch": 40, "toolkit": "fake_toolkit:toolkit", "case_limit": 20.0, "shrink_seconds": 20.0}
    return CampaignConfig(**(given | changes))


def campaign(out, subject, **changes):
    events = []
    engine = Engine(config(out, subject, **changes), (events.append,))
    return engine.run(), events


def records(out):
    return [finding.record for finding in open_run(out).findings]


def buckets(record):
    """Every bucket that a finding holds."""
    return {record.key, *(folded.key for folded in record.folded)}


def shown(out):
    """Every bucket that the results show."""
    return {v.key(r.subject, parse_case(r.case).dtype) for r in open_run(out).results() for v in r.failures}


def test_one_defect_over_dtypes_outputs_and_checks_is_one_finding(tmp_path):
    summary, events = campaign(tmp_path / "run", "typed-one")

    (record,) = records(tmp_path / "run")
    assert (summary.exit_code, summary.findings) == (1, 1)
    assert (record.key.check, record.key.output, record.key.dtype) == ("accuracy", "o", "fp32")
    assert buckets(record) == shown(tmp_path / "run")
    assert len(buckets(record)) == 18
    reasons = {folded.key.output: folded.why for folded in record.folded if folded.key.dtype == "bf16"}
    assert reasons["o"] == "its minimal case in bf16 shows it too"
    assert reasons["dq"] == "its minimal case in bf16 with a backward shows it too"
    folded = [event for event in events if isinstance(event, FindingFolded)]
    assert {event.folded.key for event in folded} == buckets(record) - {record.key}
    assert [path.name for path in (tmp_path / "run/findings").iterdir()] == [
        open_run(tmp_path / "run").findings[0].path.name
    ]


@pytest.mark.slow
@pytest.mark.thorough
def test_memory_that_is_explained_first_takes_no_values_for_the_name_that_they_get(tmp_path):
    kept = tuple(f"fv1 seq_q={rows} seq_k=5 dim_v=24 layout=bshd" for rows in range(1, 7))
    _, events = campaign(tmp_path / "run", "two", kept=kept, max_cases=30)

    explained = [event.record.key.check for event in events if isinstance(event, FindingMinimal)]
    assert explained == ["memory", "accuracy"], "the other order says nothing"
    assert {record.key.check for record in records(tmp_path / "run")} == {"memory", "accuracy"}


@pytest.mark.slow
def test_counts_of_folded_failures_are_those_of_the_results(tmp_path):
    campaign(tmp_path / "run", "typed-one")

    (record,) = records(tmp_path / "run")
    results = list(open_run(tmp_path / "run").results())
    for key, count in [(record.key, record.count), *((f.key, f.count) for f in record.folded)]:
        expected = [r for r in results if any(v.key(r.subject, parse_case(r.case).dtype) == key for v in r.failures)]
        assert count == len(expected)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_diagnosis_accounts_for_a_case_that_it_says_too_little_about_by_way_of_a_simpler_one(tmp_path):
    campaign(tmp_path / "run", "typed-named")

    (record,) = records(tmp_path / "run")
    assert record.diagnosis.name == "tail-wrong"
    reasons = {folded.why for folded in record.folded if folded.key.check == "padding"}
    assert reasons <= {"the same diagnosis", "the same diagnosis on a simpler case"}
    assert reasons


@pytest.mark.slow
def test_a_second_defect_is_never_merged_into_the_first(tmp_path):
    summary, _ = campaign(tmp_path / "run", "typed-beside", max_cases=200)

    found = {record.key.output: record for record in records(tmp_path / "run")}
    assert summary.findings == 2
    assert {"o", "dk"} == found.keys()
    assert (parse_case(found["dk"].case).dim_v, parse_case(found["dk"].case).seq_k) == (24, 1)
    second = {msgspec.structs.replace(key, cause=0) for key in buckets(found["dk"])}
    assert buckets(found["o"]) | second == shown(tmp_path / "run")
    assert not buckets(found["o"]) & buckets(found["dk"])


@pytest.mark.slow
def test_a_defect_behind_the_same_bucket_is_a_second_cause(tmp_path):
    summary, events = campaign(tmp_path / "run", "typed-behind", max_cases=200)

    first, second = sorted(records(tmp_path / "run"), key=lambda record: record.diagnosis.name)
    assert summary.findings == 2
    assert (first.diagnosis.name, second.diagnosis.name) == ("layout-wrong", "tail-wrong")
    layout = parse_case(first.case)
    assert (layout.storage.layout, layout.seq_k, layout.seq_q) == ("bshd", 1, 1)
    opened = [e.record.key for e in events if isinstance(e, FindingSeen) and e.record.key.cause]
    assert all(key.output == "o" for key in opened)
    assert 1 in {key.cause for record in (first, second) for key in buckets(record)}


@pytest.mark.slow
@pytest.mark.thorough
def test_what_may_be_a_second_cause_is_none_where_it_does_not_fail_again_in_a_fresh_process(tmp_path):
    summary, events = campaign(tmp_path / "run", "typed-fleeting-behind", max_cases=200)

    assert summary.findings == 1
    assert [e.record.key for e in events if isinstance(e, FindingSeen) and e.record.key.cause] == []
    sizes = [parse_case(r.case).seq_k for r in open_run(tmp_path / "run").results() if r.failures]
    assert min(sizes) < 17 <= max(sizes), "both were seen"


@pytest.mark.slow
def test_a_gradient_that_is_right_given_the_wrong_o_follows_from_it(tmp_path):
    campaign(tmp_path / "run", "typed-follows")

    (record,) = records(tmp_path / "run")
    gradients = {folded.why for folded in record.folded if folded.key.output == "dq"}
    assert gradients == {"follows from the wrong O"}


@pytest.mark.slow
@pytest.mark.thorough
def test_an_exception_at_one_line_is_one_finding(tmp_path):
    campaign(tmp_path / "run", "typed-raises")

    (record,) = records(tmp_path / "run")
    assert all("its minimal case in" in folded.why for folded in record.folded)
    assert {key.dtype for key in buckets(record)} == {"fp32", "fp16", "bf16"}


@pytest.mark.slow
def test_as_many_causes_as_asked_for_end_the_search(tmp_path):
    summary, _ = campaign(tmp_path / "run", "typed-one", max_cases=5000, max_findings=1)

    assert (summary.stopped, summary.findings) == ("findings", 1)
    assert summary.cases < 200
    (record,) = records(tmp_path / "run")
    assert buckets(record) == shown(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("failures", fast_one_in(1, [1, 12], kept=2))
def test_a_kill_loses_no_bucket_and_the_run_goes_on_to_one_finding(tmp_path, failures):
    out = tmp_path / "run"
    killed_after(failures, config(out, "slow-typed-one", max_cases=80, seed=3), failing=True)
    held = set().union(*(buckets(record) for record in records(out)))
    assert shown(out) <= held, "a result that shows a failure has its bucket on the disk"

    summary, events = campaign(out, "slow-typed-one", max_cases=80, seed=3)

    (record,) = records(out)
    assert summary.findings == 1
    assert buckets(record) == shown(out)
    assert not held & {event.record.key for event in events if isinstance(event, FindingSeen)}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_folder_that_a_kill_left_of_a_folded_finding_goes_when_the_run_goes_on(tmp_path):
    campaign(tmp_path / "run", "typed-one", max_cases=40, max_findings=1)
    (finding,) = open_run(tmp_path / "run").findings
    member = msgspec.structs.replace(finding.record, key=finding.record.folded[0].key, folded=())
    left = tmp_path / "run/findings" / finding_name(member.key)
    shutil.copytree(finding.path, left)
    (left / "finding.json").write_bytes(pretty(member))
    before = len(records(tmp_path / "run"))

    summary, _ = campaign(tmp_path / "run", "typed-one", max_cases=40)

    assert (before, summary.findings, len(records(tmp_path / "run"))) == (2, 1, 1)
    assert not left.exists()
