"""What a campaign adds up: a failure of a problem that a check made is a finding with that problem's own case."""

import math
from types import SimpleNamespace

from flashverify.campaign.store import resume
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.supervisor.tally import Tally
from flashverify.judge.verdict import CaseResult, Status, Verdict
from tests.report.synthetic import failing as failing_result
from tests.report.synthetic import header, stats
from tests.report.synthetic import result as result_of


def test_a_failure_of_another_case_is_found_with_that_case():
    judged, other = "fv1 seq_q=3 seq_k=3", "fv1 seq_q=7 seq_k=7"
    failing = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o", case=other)
    own = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="dq")
    result = CaseResult(case=judged, subject="s", evidence="cpu", verdicts=(failing, own))
    found = Tally().add(result, "m:s", 1.0)

    assert {record.key.output: (record.case, record.first) for record in found} == {
        "o": (other, other),
        "dq": (judged, judged),
    }


def test_of_many_stored_results_without_a_failure_some_stand_for_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "_STEPS", ((4, 1), (14, 5), (math.inf, 10)))
    clean = [result_of(f"fv1 seq_q={n}", stats=(stats("o", 0.5, telling=-1),)) for n in range(1, 35)]
    results = [*clean, failing_result("fv1 seq_k=3"), failing_result("fv1 seq_k=4")]
    stored = SimpleNamespace(
        record=header(), path=tmp_path, findings=(), problems=[], results=lambda parsed: iter(results)
    )
    tally, missing = Tally(), []
    given = CampaignConfig(kind="fuzz", subjects=("kernel",), out=tmp_path, device="cpu", workers=1)

    assert len(list(resume.recount(tally, stored, given, 1.0, missing))) == 36
    assert (tally.judged, tally.covering, tally.worst) == (36, 36, {"o": 0.5, "dq": 3.0})
    assert [(record.key.output, record.first) for record in missing[:1]] == [("dq", "fv1 seq_k=3")]
    counts = sorted(tally.company._entries["kernel"].values())
    assert sum(counts) == 4 + 2 * 5 + 2 * 10 + 2, "each failure counts, and those that are looked at stand for ten"
