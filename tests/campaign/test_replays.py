"""Which replayed cases speak against one cause of two failures, and which say nothing."""

import msgspec
import pytest

from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute
from flashverify.campaign.worker.replays import Replays
from flashverify.case.text import format_case
from flashverify.judge.record import Folded
from tests.campaign.test_at_work import DK, OUT, READ, failing, finding, result

SHOWS_BOTH = "fv1 seq_q=3 seq_k=6 causal=top-left sink=yes"


class Session:
    """DK of the subject is always wrong, O under a causal mask, both `ratio` times their bounds."""

    def __init__(self, ratio):
        self.toolkit, self.ratio = self, ratio

    def subject(self, spec):
        return spec

    def refusal(self, subject, case):
        return None

    def judge(self, spec, case, plan):
        wrong = [OUT] * (case.mask.causal is not None) + [DK]
        return result(format_case(case), *(failing(key, self.ratio) for key in wrong))


def why(sighting, *, ratio=1e3, folded=()):
    cause = msgspec.structs.replace(finding(OUT, SHOWS_BOTH, folded=folded), verdict=failing(OUT, ratio))
    return Replays(Session(ratio), Attribute(cause, (sighting,))).why(sighting)


@pytest.mark.parametrize(("ratio", "answer"), [(1e3, ""), (3.0, None)])
def test_what_stays_without_the_finding_speaks_against_it_unless_both_are_small_errors(ratio, answer):
    verdicts = (failing(DK, ratio), failing(OUT, ratio))
    found = why(Sighting(DK, SHOWS_BOTH, verdicts[0], verdicts), ratio=ratio)

    assert found == answer


def test_a_case_that_shows_another_failure_of_the_finding_denies_nothing():
    without = Sighting(DK, "fv1 seq_q=3 seq_k=6", failing(DK), (failing(DK), failing(READ)))

    assert why(without) == ""
    assert why(without, folded=(Folded(READ, "fv1", "", "shown"),)) is None
