"""A cause that shows with other values where a bucket was seen alone is at work there; one that shows nowhere there is not."""

import msgspec
import pytest

from flashverify.campaign.causes.book import CauseBook
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.reservoir import Reservoir
from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute
from flashverify.campaign.supervisor.turns import Turns
from flashverify.campaign.worker.replays import Replays
from flashverify.case.text import format_case, parse_case
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord, Folded
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict

OUT, DK = Key("k", "accuracy", "bound", "o", "fp16"), Key("k", "accuracy", "bound", "dk", "fp16")
DQ, DV, DBIAS = (Key("k", "accuracy", "bound", output, "fp16") for output in ("dq", "dv", "dbias"))
READ = Key("k", "sanitizer", "out-of-bounds", "k_view", "fp16")
NAN = Key("k", "nonfinite", "nan", "o", "fp16")
ALONE = "fv1 regime=zeros"


def failing(key, ratio=8.0):
    return Verdict(check=key.check, status=Status.FAIL, error=key.error, output=key.output, ratio=ratio.hex())


def result(case, *verdicts):
    passed = tuple(Verdict(check=check, status=Status.PASS) for check in ("accuracy", "sanitizer", "nonfinite"))
    stats = tuple(OutputStats(output, "end-to-end", 4) for output in ("o", "dk"))
    return CaseResult(case, "k", "cpu", (*verdicts, *passed), stats)


def finding(key, case="fv1", **changes):
    return FindingRecord(key, case, case, failing(key), "cpu", "k", **changes)


def book(company, *keys, cases=("fv1",), **changes):
    """The first key is a cause that was explained, with the first case as its minimal one; the others wait."""
    reservoir = Reservoir()
    for key in keys:
        reservoir.lead(Sighting(key, ALONE, failing(key)))
    records = {key: finding(key) for key in keys}
    records[keys[0]] = finding(keys[0], cases[0], confirmation=Confirmation(3, 3), **changes)
    return CauseBook(records, {}, reservoir, company), records


def seen(company, case, *keys, times=1):
    for _ in range(times):
        company.add(result(case, *map(failing, keys)))


@pytest.fixture
def alone():
    """An access that was seen twice with wrong values of O and once without."""
    company = Company()
    seen(company, "fv1", OUT, READ, times=2)
    seen(company, "fv1", times=9)
    seen(company, ALONE, READ)
    return company


@pytest.mark.parametrize("at_work", [True, False])
def test_a_bucket_that_was_seen_alone_is_folded_only_where_the_cause_is_at_work_there(alone, at_work):
    causes, _ = book(alone, OUT, READ)
    _, (sighting,) = causes.question("k", trials=True)
    assert sighting.alone == (ALONE,)
    causes.looked(OUT, [sighting])
    assert list(causes.companions(over=True)) == []
    causes.answer(OUT, sighting, "", told=False, at_work=at_work)

    assert [(key, cause) for key, cause, _ in causes.companions(over=True)] == [(READ, OUT)] * at_work
    assert causes.question("k", trials=True) is None, "it is asked once"


def test_values_that_a_named_diagnosis_denies_are_not_excused(alone):
    seen(alone, ALONE, DK)
    named, _ = book(alone, OUT, DK, diagnosis=Diagnosis("scale-missing"))
    plain, _ = book(alone, OUT, DK)

    assert named.question("k", trials=True)[1][0].alone == ()
    assert plain.question("k", trials=True)[1][0].alone == (ALONE,)


def test_a_defect_of_the_bits_of_a_bitmap_shows_with_a_tree_too():
    company = Company()
    seen(company, "fv1 seq_q=2 seq_k=3 tree=-1,0", OUT, READ, times=4)
    symptoms = frozenset({("accuracy", "bound", "o")})

    assert company.met(READ, symptoms, parse_case("fv1 bitmap=128,0"))[0] == 4
    assert company.met(READ, symptoms, parse_case("fv1 window=1,*")) == (0, 1.0)


def test_a_defect_of_the_lengths_of_keys_shows_with_those_of_rows_too():
    company = Company()
    seen(company, "fv1 seq_q=2 qlen=1", OUT, READ, times=4)

    assert company.met(READ, frozenset({("accuracy", "bound", "o")}), parse_case("fv1 klen=1"))[0] == 4


@pytest.mark.parametrize(("times", "wrong", "folded"), [(2, DQ, True), (3, DQ, False), (2, DK, True), (2, DV, False)])
def test_the_late_gradient_of_a_part_is_the_work_of_a_named_finding_that_makes_those_of_the_logits_wrong(
    times, wrong, folded
):
    company = Company()
    seen(company, "fv1", OUT, DBIAS, times=times)
    causes, records = book(company, OUT, DBIAS, diagnosis=Diagnosis("scale-missing"))
    held = (Folded(wrong, "fv1", "", "follows from the wrong O"),)
    records[OUT] = msgspec.structs.replace(records[OUT], folded=held)

    assert [key for key, *_ in causes.companions(over=True)] == [DBIAS] * folded


def test_what_needs_the_same_part_and_shows_both_is_one_finding():
    causal, plain = "fv1 seq_q=2 causal=bottom-right", "fv1"
    company = Company()
    seen(company, causal, OUT, DK, times=3)

    def folded(lead=causal, shows=(OUT, DK), **changes):
        causes, _ = book(company, OUT, DK, cases=(lead,), **changes)
        causes.explained(DK, shows)
        return next(causes.needed(), None)

    assert folded()[:2] == (DK, OUT)
    assert folded(lead=plain) is None, "what shows everywhere shows there too"
    assert folded(shows=(DK,)) is None, "it shows without the other"
    assert folded(diagnosis=Diagnosis("causal-ignored")) is None, "a name has to account for values"
    seen(company, "fv1 causal=top-left", DK)
    assert folded() is None, "it was seen alone"


def test_a_late_failure_of_an_output_that_a_named_finding_makes_wrong_is_its_work():
    company = Company()
    seen(company, "fv1", OUT, NAN, times=2)
    causes, _ = book(company, OUT, NAN, diagnosis=Diagnosis("scale-missing"))
    assert [key for key, *_ in causes.companions(over=True)] == [NAN]
    seen(company, "fv1", OUT, NAN)

    causes, _ = book(company, OUT, NAN, diagnosis=Diagnosis("scale-missing"))
    assert list(causes.companions(over=True)) == [], "there was time to ask"


def test_a_wrong_shape_is_never_the_work_of_wrong_values():
    company = Company()
    shape = Key("k", "accuracy", "shape", "dk", "fp16")
    seen(company, "fv1", OUT, shape, DK, times=4)

    values, _ = book(company, OUT, DK)
    assert [key for key, *_ in values.companions(over=True)] == [DK]
    shapes, _ = book(company, OUT, shape)
    assert list(shapes.companions(over=True)) == []


class Session:
    """O of the subject is wrong, `ratio` times its bound, with several keys and values other than zeros; NaN with large ones or a large scale.

    With `only`, O is wrong in that regime alone.
    """

    def __init__(self, ratio=1e3, only=""):
        self.toolkit, self.ratio, self.only = self, ratio, only

    def subject(self, spec):
        return spec

    def refusal(self, subject, case):
        return None

    def judge(self, spec, case, plan):
        regime = case.values.regime
        shows = regime == self.only if self.only else regime != "zeros"
        wrong = [OUT] * (case.seq_k > 1 and shows) + [NAN] * (regime == "large" or case.scale == 1e4)
        asked = [failing(key, self.ratio) for key in wrong if key.check == plan.removeprefix("only:")]
        return result(format_case(case), *asked)


def replays(regime="normal", **given):
    return Replays(Session(**given), Attribute(finding(OUT, f"fv1 seq_k=2 regime={regime}"), ()))


def test_other_values_show_a_cause_and_a_larger_case_does_where_no_values_are_compared():
    assert replays().at_work(parse_case("fv1 seq_k=3 regime=zeros"), sizes=False)
    assert not replays().at_work(parse_case("fv1 regime=zeros"), sizes=False)
    assert replays().at_work(parse_case("fv1 regime=zeros"), sizes=True)


def test_a_cause_that_shows_with_the_values_of_its_own_case_alone_is_at_work_where_these_show_it():
    assert replays(only="integers", regime="integers").at_work(parse_case("fv1 seq_k=3 regime=large"), sizes=False)
    assert not replays(only="integers", regime="one-hot").at_work(parse_case("fv1 seq_k=3 regime=large"), sizes=False)


def test_a_value_that_is_not_finite_belongs_to_an_output_that_is_far_off_with_plain_values():
    case, accuracy = parse_case("fv1 seq_k=3 regime=large"), ("accuracy", "bound", "o")

    assert replays().far_off(case, accuracy)
    assert not replays(ratio=3.0).far_off(case, accuracy), "a small error makes no infinity"
    assert not replays().far_off(parse_case("fv1 regime=large"), accuracy)
    assert replays().far_off(parse_case("fv1 seq_k=3 scale=10000 regime=large"), accuracy), "with the usual scale"


@pytest.mark.parametrize("at_work", [True, False])
def test_two_findings_each_seen_without_the_other_are_not_told_apart_by_cases_on_which_one_is_at_work(at_work):
    company = Company()
    seen(company, "fv1", OUT)
    seen(company, "fv1", DK)
    causes, records = book(company, OUT, DK)
    causes._companions.tried(OUT, DK, at_work)

    assert causes._companions.crossed(records[OUT], records[DK]) is not at_work


def test_a_finding_that_is_gone_on_too_few_cases_tells_nothing():
    sighting = Sighting(NAN, "fv1 seq_k=3 regime=large", failing(NAN), (failing(NAN), failing(OUT)))

    assert replays().why(sighting) is None


def test_what_is_not_finite_has_its_turn_with_the_comparisons_with_exact_values():
    turns, taken = Turns(), []
    waiting = [finding(OUT), finding(NAN), finding(READ)]
    for _ in range(4):
        taken.append(turns.first(waiting).key.check)
        turns.took(turns.first(waiting).key)

    assert taken == ["accuracy", "sanitizer"] * 2
    assert turns.first([finding(NAN), finding(READ)]).key == NAN, "what is clear comes first"
