import json
import math
import re

import pytest

from flashverify.comparing import compare_runs, write_comparison
from flashverify.errors import NoVerdictError, UsageError
from flashverify.judge.verdict import Status, Verdict, to_hex
from tests.report.synthetic import campaign, failing, header, result, stats, write_run

HOSTILE = "<script>|`@all`\x1b[2J"


def compare(tmp_path, before, after, *, old_record=None, new_record=None):
    old = write_run(tmp_path / "before", before, record=old_record)
    return compare_runs(old, write_run(tmp_path / "after", after, record=new_record))


def cases(count, ratio=0.25, output="o", subject="kernel"):
    return [result(f"fv1 seq_q={n}", subject, stats=(stats(output, ratio),)) for n in range(1, count + 1)]


def replaced(results, number, one):
    return [*results[:number], one, *results[number + 1 :]]


def test_the_same_run_may_merge(tmp_path):
    results = campaign(120)
    comparison = compare(tmp_path, results, results)
    assert (comparison.decision, comparison.exit_code, comparison.reasons) == ("may merge", 0, ())
    assert comparison.common == 120
    assert comparison.to_text().startswith("MAY MERGE\n")
    assert comparison.movers == ()


def test_a_newly_failing_check_is_not_merged(tmp_path):
    bad = result("fv1 seq_q=4", verdicts=(Verdict("memory", Status.FAIL, "dk", "guard", message="dk[9] is written"),))
    comparison = compare(tmp_path, cases(9), replaced(cases(9), 3, bad))
    assert (comparison.decision, comparison.exit_code) == ("do not merge", 1)
    (changed,) = comparison.newly_failing
    assert (changed.case, changed.failures) == ("fv1 seq_q=4", ("memory around dk is overwritten",))
    assert comparison.to_markdown().startswith("# ❌ Do not merge")


@pytest.mark.parametrize("ratio", [1.0000001, math.nan, math.inf])
def test_an_element_newly_outside_its_bound_is_not_merged(tmp_path, ratio):
    worse = result("fv1 seq_q=4", stats=(stats("o", ratio),))
    assert compare(tmp_path, cases(9, 1.0), replaced(cases(9, 1.0), 3, worse)).decision == "do not merge"


def test_another_failure_of_a_failing_case_is_not_merged(tmp_path):
    comparison = compare(tmp_path, [failing(output="dq")], [failing(output="dk")])
    assert comparison.decision == "do not merge"


def test_a_case_that_was_refused_and_now_fails_is_not_merged(tmp_path):
    refused = result("fv1", verdicts=(Verdict("supports", Status.UNSUPPORTED, message="no"),), stats=())
    assert compare(tmp_path, [refused], [failing()]).decision == "do not merge"


def test_the_same_failure_is_no_news(tmp_path):
    assert compare(tmp_path, [failing()], [failing()]).decision == "may merge"


def test_a_repaired_case_is_listed_and_no_reason(tmp_path):
    comparison = compare(tmp_path, replaced(cases(9), 3, failing("fv1 seq_q=4")), cases(9))
    assert (comparison.decision, comparison.exit_code) == ("may merge", 0)
    assert [changed.case for changed in comparison.newly_passing] == ["fv1 seq_q=4"]


@pytest.mark.parametrize(
    ("before", "after", "decision"),
    [(0.5, 0.56, "look"), (0.5, 0.54, "may merge"), (0.5, 0.1, "may merge"), (0.001, 0.009, "may merge")],
)
def test_growth_of_the_worst_ratio(tmp_path, before, after, decision):
    comparison = compare(
        tmp_path, cases(9, before), replaced(cases(9, before), 0, result("fv1 seq_q=1", stats=(stats("o", after),)))
    )
    assert comparison.decision == decision


def test_growth_of_the_99th_percentile(tmp_path):
    before = [*cases(200, 0.2), result("fv1 seq_q=999", stats=(stats("o", 0.9),))]
    after = [*cases(200, 0.3), result("fv1 seq_q=999", stats=(stats("o", 0.9),))]
    comparison = compare(tmp_path, before, after)
    assert comparison.decision == "look"
    (row,) = comparison.rows
    assert (row.cases, row.worst, row.p99) == (201, (0.9, 0.9), (0.2, 0.3))
    assert "p99 0.200 to 0.300" in comparison.reasons[0]


def test_rows_are_per_dtype_output_and_mode(tmp_path):
    results = campaign(120, defects=False)
    keys = [(r.key.subject, r.key.dtype, r.key.output, r.key.mode) for r in compare(tmp_path, results, results).rows]
    assert len(keys) == len(set(keys)) == 2 * 3 * 10
    assert keys[0] == ("flashverify.prefill", "fp16", "o", "end-to-end")


def test_lost_coverage_and_changed_status_are_a_look(tmp_path):
    thin = result("fv1 seq_q=4", stats=(stats("o", 0.25, exempt=500),))
    comparison = compare(tmp_path, cases(9), replaced(cases(9), 3, thin))
    assert (comparison.decision, comparison.reasons) == ("look", ("coverage changed: 1 case lost, 0 cases gained",))
    refused = result("fv1 seq_q=4", verdicts=(Verdict("supports", Status.UNSUPPORTED, message="no"),), stats=())
    reasons = compare(tmp_path / "again", cases(9), replaced(cases(9), 3, refused)).reasons
    assert reasons == ("1 case changed from pass to unsupported", "coverage changed: 1 case lost, 0 cases gained")


def test_missing_cases_are_counted_and_listed(tmp_path):
    comparison = compare(tmp_path, cases(9), [*cases(7), result("fv1 seq_k=77")])
    assert (comparison.decision, comparison.common) == ("look", 7)
    assert comparison.only_before == (("kernel", "fv1 seq_q=8"), ("kernel", "fv1 seq_q=9"))
    assert comparison.only_after == (("kernel", "fv1 seq_k=77"),)
    assert "Only in the earlier run: 2 cases" in comparison.to_text()


def test_new_cases_alone_are_no_reason(tmp_path):
    assert compare(tmp_path, cases(7), cases(9)).decision == "may merge"


def test_the_cases_that_moved_most_come_first(tmp_path):
    after = [result(f"fv1 seq_q={n}", stats=(stats("o", 0.25 - n / 1000),)) for n in range(1, 31)]
    movers = compare(tmp_path, cases(30), after).movers
    assert [mover.case for mover in movers] == [f"fv1 seq_q={n}" for n in range(30, 20, -1)]
    assert (movers[0].output, movers[0].before, movers[0].after) == ("o", 0.25, 0.22)


def test_one_subject_under_two_names_is_compared(tmp_path):
    comparison = compare(tmp_path, cases(5, subject="old"), cases(5, 0.9, subject="new"))
    assert comparison.decision == "look"
    assert comparison.notes == ("the subject is called old before and new after",)


def test_changed_forms_evidence_and_environment_are_told(tmp_path):
    before = header(form={"kernel": "gap=3"}, environment={"torch": "2.12", "python": "3.11"})
    after = header(form={"kernel": "gap=4"}, environment={"torch": "2.13", "python": "3.11"})
    there = [result(r.case, evidence="NVIDIA H200 (sm_90)") for r in cases(3)]
    comparison = compare(tmp_path, cases(3), there, old_record=before, new_record=after)
    assert comparison.decision == "look"
    assert comparison.settings == {
        "evidence of kernel": ("interpreter", "NVIDIA H200 (sm_90)"),
        "form of kernel": ("gap=3", "gap=4"),
        "torch": ("2.12", "2.13"),
    }


def test_a_changed_environment_alone_may_merge(tmp_path):
    comparison = compare(tmp_path, cases(3), cases(3), new_record=header(environment={"torch": "2.13"}))
    assert comparison.decision == "may merge"
    assert "torch: absent -> 2.13" in comparison.to_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], cases(3)),
        (cases(3), []),
        (cases(3), [result("fv1 seq_k=9")]),
        (cases(3) + cases(3, subject="other"), cases(3, subject="third")),
        ([result("fv1", verdicts=())], [result("fv1")]),
    ],
)
def test_nothing_in_common_is_no_verdict(tmp_path, before, after):
    with pytest.raises(NoVerdictError):
        compare(tmp_path, before, after)


def test_hostile_text_in_a_comparison(tmp_path):
    before = [result(HOSTILE, HOSTILE)]
    after = [failing(HOSTILE, HOSTILE, HOSTILE, HOSTILE), result("fv1" + HOSTILE, HOSTILE)]
    comparison = compare(
        tmp_path, before, after, new_record=header(environment={HOSTILE: HOSTILE}, form={HOSTILE: HOSTILE})
    )
    assert not re.search("[\x00-\x09\x0b-\x1f]", comparison.to_text() + comparison.to_markdown())
    for line in comparison.to_markdown().splitlines():
        assert "script" not in re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
    assert json.loads(comparison.to_json())["newly_failing"][0]["case"] == HOSTILE


def test_json_holds_exact_ratios_and_the_decision(tmp_path):
    data = json.loads(compare(tmp_path, cases(3), cases(3, 0.75)).to_json())
    assert (data["format"], data["decision"], data["exit_code"]) == (1, "look", 0)
    assert data["rows"][0]["worst"] == {
        "before": {"value": 0.25, "hex": "0x1.0000000000000p-2"},
        "after": {"value": 0.75, "hex": "0x1.8000000000000p-1"},
    }


@pytest.mark.parametrize("suffix", ["md", "json", "txt"])
def test_a_comparison_is_written(tmp_path, suffix):
    comparison = compare(tmp_path, cases(3), cases(3))
    write_comparison(comparison, tmp_path / f"c.{suffix}")
    assert "may merge" in (tmp_path / f"c.{suffix}").read_text(encoding="utf-8").lower()


def test_a_comparison_in_another_format_is_refused(tmp_path):
    comparison = compare(tmp_path, cases(3), cases(3))
    with pytest.raises(UsageError, match=r"ends in .html, .json, .md, .txt"):
        write_comparison(comparison, tmp_path / "c.pdf")


def test_a_bias_that_moved_is_a_look(tmp_path):
    def run(shift):
        return [
            result(f"fv1 seq_q={n}", stats=(stats("o", 0.25, signed=to_hex(0.01 * (n % 5) + shift + 1e-4 * (n % 3))),))
            for n in range(1, 400)
        ]

    assert compare(tmp_path / "same", run(0.0), run(0.0)).decision == "may merge"
    comparison = compare(tmp_path / "moved", run(0.0), run(0.05))
    assert comparison.decision == "look"
    assert "the bias of o moved" in comparison.reasons[0]
    assert compare(tmp_path / "little", run(0.0), run(1e-4)).decision == "may merge"
    row = json.loads(comparison.to_json())["rows"][0]
    assert row["drifted"]
    assert row["bias"]["mean"] == pytest.approx(0.05)
