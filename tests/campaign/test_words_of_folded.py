"""What was found out of a finding is not lost where another one, of which less is said, holds it."""

import msgspec
import pytest

from flashverify.campaign.causes.diagnoses import heard
from flashverify.campaign.merging.findings import _fold
from flashverify.campaign.supervisor.tally import Tally
from flashverify.judge.record import Diagnosis, FindingRecord
from flashverify.judge.verdict import Key
from tests.campaign.company_seen import DK, OUT, failing
from tests.campaign.test_own_right import BOTH, END, LARGE, SMALL, result

NAN = Key("k", "nonfinite", "nan", "o", "fp32")
NAMED = Diagnosis("scale-missing", "The scale is missing.", place="o: row 1")
READ = Diagnosis("", "O misses keys. 3 of 4 fail.", evidence="It holds on 9 cases.", reading="O misses keys.")
UNWRITTEN = Diagnosis("not-written", "Elements of o are never written.")
LOOKS = Diagnosis("", "No known wrong semantics explains it.", place="o: row 7")
OF_NAN = "So it is of o of fp32 (nonfinite), which has the same cause."


def finding(key, diagnosis):
    return FindingRecord(key, "fv1", "fv1", failing(key), "cpu", "k", diagnosis=diagnosis)


@pytest.mark.parametrize(
    ("own", "other", "taken"),
    [
        (None, NAMED, True),
        (None, LOOKS, True),
        (LOOKS, NAMED, True),
        (LOOKS, READ, True),
        (LOOKS, UNWRITTEN, True),
        (UNWRITTEN, READ, True),
        (LOOKS, LOOKS, False),
        (LOOKS, None, False),
        (READ, NAMED, False),
        (NAMED, READ, False),
        (READ, UNWRITTEN, False),
        (UNWRITTEN, LOOKS, False),
    ],
)
def test_a_finding_takes_the_words_of_one_that_it_holds_where_these_say_more(own, other, taken):
    said = heard(finding(OUT, own), finding(NAN, other))
    if not taken:
        assert said == own
        return
    place = other.place if own is None else own.place
    assert said == msgspec.structs.replace(other, sentence=f"{other.sentence} {OF_NAN}", place=place)


def test_a_wrong_o_takes_no_words_of_gradients():
    assert heard(finding(OUT, LOOKS), finding(DK, NAMED)) == LOOKS
    assert heard(finding(DK, LOOKS), finding(OUT, NAMED)).name == "scale-missing"


def test_a_finding_that_is_folded_leaves_its_words_to_the_one_that_holds_it():
    tally = Tally()
    tally.records = {OUT: finding(OUT, LOOKS), NAN: finding(NAN, NAMED)}
    record = tally.fold(NAN, OUT, "its minimal case shows it too")

    assert record.diagnosis.name == "scale-missing"
    assert record.diagnosis.place == LOOKS.place
    assert tally.records == {OUT: record}


def test_findings_of_two_shards_keep_the_words_of_either():
    assert _fold(finding(OUT, LOOKS), finding(NAN, NAMED)).diagnosis.name == "scale-missing"
    assert _fold(finding(OUT, None), finding(NAN, LOOKS)).diagnosis.sentence == f"{LOOKS.sentence} {OF_NAN}"


def test_words_of_a_bucket_that_is_one_of_its_own_again_go_with_it():
    tally, dv = Tally(), msgspec.structs.replace(DK, output="dv")
    tally.add(result(SMALL, END), "k", 1.0)
    tally.records[dv] = finding(dv, LOOKS)
    tally.records[DK] = msgspec.structs.replace(tally.records[DK], diagnosis=NAMED)
    tally.fold(DK, dv, "its minimal case shows it too")
    assert tally.records[dv].diagnosis.name == "scale-missing"
    tally.add(result(LARGE, BOTH), "k", 2.0)

    assert tally.owners == {}
    assert tally.records[dv].diagnosis == LOOKS
