"""What a baseline may hold, and which finding an entry stands for."""

import datetime

import pytest

from flashverify.baseline.additions import add_entries, entry_of, ratio_entry
from flashverify.baseline.assessment import assess
from flashverify.baseline.reading import NAME, baseline_for, read_baseline
from flashverify.errors import ConfigError
from flashverify.judge.record import Diagnosis, FindingRecord, Folded
from flashverify.judge.verdict import Key, Status, Verdict

KNOWN = {
    "subject": '"mine"',
    "cause": '"scale-missing"',
    "reason": '"it is being rewritten"',
    "link": '"https://example.org/7"',
    "date": "2026-01-31",
}
RATIO = {"subject": '"mine"', "output": '"o"', "dtype": '"fp16"', "worst": "0.5", "date": "2026-01-31"}
TODAY = datetime.date(2026, 2, 1)


def table(name, fields):
    return "\n".join([f"[[{name}]]", *(f"{key} = {value}" for key, value in fields.items())]) + "\n"


def written(tmp_path, *tables):
    file = tmp_path / NAME
    file.write_text("\n".join(["format = 1", *tables]))
    return file


def finding(*, subject="mine", output="o", dtype="fp16", cause="scale-missing", ratio=3.0, **changes):
    verdict = Verdict(
        check="accuracy", status=Status.FAIL, error="bound", output=output, ratio=ratio.hex(), message="m"
    )
    key = Key(subject, "accuracy", "bound", output, dtype)
    diagnosis = Diagnosis(name=cause, sentence="It is.") if cause else None
    given = {"case": "fv1 seq_k=9", "first": "fv1 seq_k=33", "diagnosis": diagnosis} | changes
    return FindingRecord(key=key, verdict=verdict, evidence="fake", subject_spec="k:mine", **given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"link": None}, "link is missing: an http or https address"),
        ({"link": '"see the tracker"'}, "link='see the tracker' is not accepted: an http or https address"),
        ({"link": '""'}, "link='' is not accepted"),
        ({"reason": None}, "reason is missing"),
        ({"reason": '"  "'}, "is not accepted: why it may stand"),
        ({"date": None}, "date is missing"),
        ({"date": '"2026-01-31"'}, "is not accepted: a date as 2026-01-31, without quotes"),
        ({"subject": None}, "subject is missing"),
        ({"cause": None}, "neither cause nor check is given"),
        ({"casue": '"x"'}, "unknown key 'casue'; accepted: subject, reason"),
        ({"worst": "true"}, "worst=True is not accepted: a positive number"),
        ({"dtypes": '["fp64"]'}, "dtypes=\\['fp64'\\] is not accepted: a list of dtypes"),
        ({"case": '"fv1 no=3"'}, "case='fv1 no=3' is not accepted: the text of a case"),
    ],
)
def test_an_entry_that_is_not_understood_is_refused(tmp_path, changes, message):
    fields = {key: value for key, value in (KNOWN | changes).items() if value is not None}

    with pytest.raises(ConfigError, match=message):
        read_baseline(written(tmp_path, table("known", KNOWN), table("known", fields)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "format=None"),
        ("format = 2", "format=2"),
        ("format = 1\nknwon = 1", "unknown key 'knwon'"),
        ("[[", "cannot read"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path, text, message):
    (tmp_path / NAME).write_text(text)

    with pytest.raises(ConfigError, match=message):
        read_baseline(tmp_path / NAME)


def test_the_file_beside_pyproject_is_found_from_below_and_a_named_one_has_to_be_there(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    assert baseline_for(None, tmp_path / "a/b") is None
    (tmp_path / "pyproject.toml").touch()
    assert baseline_for(None, tmp_path / "a/b") is None
    written(tmp_path, table("known", KNOWN), table("ratio", RATIO))

    found = baseline_for(None, tmp_path / "a/b")

    assert [entry.cause for entry in found.known] == ["scale-missing"]
    assert [ceiling.worst for ceiling in found.ceilings] == [0.5]
    with pytest.raises(ConfigError, match="cannot read"):
        baseline_for(str(tmp_path / "none.toml"), tmp_path)


@pytest.mark.parametrize(
    ("changes", "record", "stands"),
    [
        ({}, finding(), True),
        ({}, finding(output="lse", dtype="bf16"), True),
        ({}, finding(cause="causal-off"), False),
        ({}, finding(cause=""), False),
        ({}, finding(subject="other"), False),
        ({"subject": '"k:mine"'}, finding(subject="other"), True),
        ({"case": '"fv1 seq_k=33"'}, finding(cause=""), True),
        ({"case": '"fv1 seq_k=33"'}, finding(cause="causal-off"), False),
        ({"dtypes": '["bf16"]'}, finding(), False),
        ({"worst": "2.9"}, finding(), False),
        ({"worst": "3.0"}, finding(), True),
        ({"worst": "9.0"}, finding(ratio=float("nan")), False),
        ({"cause": None, "check": '"accuracy"', "output": '"o"'}, finding(cause=""), True),
        ({"cause": None, "check": '"accuracy"', "output": '"lse"'}, finding(cause=""), False),
        ({"cause": None, "check": '"memory"'}, finding(cause=""), False),
    ],
)
def test_an_entry_stands_for_its_cause_and_for_nothing_else(tmp_path, changes, record, stands):
    fields = {key: value for key, value in (KNOWN | changes).items() if value is not None}
    baseline = read_baseline(written(tmp_path, table("known", fields)))

    assert (baseline.known_as(record) is not None) == stands


def test_a_folded_failure_is_its_findings(tmp_path):
    folded = Folded(Key("mine", "accuracy", "bound", "dq", "bf16"), "fv1", "m", "why")
    fields = KNOWN | {"check": '"accuracy"', "output": '"dq"'}
    baseline = read_baseline(written(tmp_path, table("known", fields)))

    assert baseline.known_as(finding()) is None
    assert baseline.known_as(finding(folded=(folded,))) is not None


def test_a_run_is_told_what_is_known_worse_and_absent(tmp_path):
    other = KNOWN | {"cause": '"causal-off"', "worst": "2.0"}
    absent = KNOWN | {"cause": '"gone"'}
    baseline = read_baseline(written(tmp_path, *(table("known", each) for each in (KNOWN, other, absent))))
    records = (finding(), finding(output="lse", cause="causal-off"), finding(cause="new"))

    found = assess(baseline, records, {"mine"})

    assert [entry.cause for _, entry in found.known] == ["scale-missing"]
    assert found.unknown == records[1:]
    assert found.worse == ("mine: causal-off: its error / bound is 3.00, the baseline lets 2 stand",)
    assert [entry.cause for entry, _ in found.absent] == ["gone"]
    assert found.fails
    assert assess(baseline, (), {"other"}).absent == ()


def test_a_new_entry_is_refused_until_it_has_a_reason_and_a_link(tmp_path):
    file = written(tmp_path, "# by hand\n", table("known", KNOWN))

    add_entries(file, [entry_of(finding(cause="causal-off"), TODAY), ratio_entry("mine", "o", "bf16", 0.7321, TODAY)])

    assert "# by hand" in file.read_text()
    with pytest.raises(ConfigError, match=r"\[\[known\]\] 2: reason='' is not accepted"):
        read_baseline(file)
    filled = (
        file.read_text().replace('reason = ""', 'reason = "r"').replace('link = ""', 'link = "https://example.org"')
    )
    file.write_text(filled)
    found = read_baseline(file)
    assert found.known_as(finding(subject="any", cause="causal-off")) is found.known[1]
    assert (found.ceilings[0].worst, found.ceilings[0].date) == (0.74, TODAY)


def test_a_baseline_that_is_not_there_is_made(tmp_path):
    add_entries(tmp_path / NAME, [ratio_entry("mine", "o", "bf16", 1e-3, TODAY)])

    assert read_baseline(tmp_path / NAME).ceilings[0].worst == 0.001
