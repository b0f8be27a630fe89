"""What a campaign adds up: a failure of a problem that a check made is a finding with that problem's own case."""

from flashverify.campaign.supervisor.tally import Tally
from flashverify.judge.verdict import CaseResult, Status, Verdict


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
