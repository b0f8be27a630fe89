"""A prefix that is really the longest or the shortest of all sequences is not said to be the one of the first or of the next."""

import pytest

from flashverify import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import variants
from tests.diagnosis.planted import planted

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 backward=no batch=2 causal={} prefix={}"


@pytest.mark.parametrize("causal", ["top-left", "bottom-right"])
@pytest.mark.parametrize(
    ("of", "lengths", "name"),
    [
        (max, "7,4", "prefix-of-first-sequence"),
        (min, "4,7", "prefix-of-first-sequence"),
        (max, "4,7", "prefix-of-next-sequence"),
        (min, "7,4", "prefix-of-next-sequence"),
    ],
)
def test_a_related_case_tells_the_order_of_prefixes_from_their_lengths(of, lengths, name, causal):
    subject = planted(prefix=lambda s, j, n, b: j < of(n))
    case = parse_case(CASE.format(causal, lengths))
    (wrong,) = (each for each in SEMANTICS if each.name == name)
    claim = Claim(wrong)

    assert claim.answer(look(subject, case)) is Answer.CLEAR
    others = [each for each in variants(subject, case) if len(set(each.mask.prefix_lengths)) == 4]
    assert Answer.OTHERWISE in {claim.answer(look(subject, each)) for each in others}


@pytest.mark.parametrize(("of", "name"), [(max, "prefix-of-the-longest"), (min, "prefix-of-the-shortest")])
def test_the_longest_and_the_shortest_have_names_that_hold_there(of, name):
    subject = planted(prefix=lambda s, j, n, b: j < of(n))
    case = parse_case(CASE.format("top-left", "7,4"))
    (right,) = (each for each in SEMANTICS if each.name == name)
    others = [each for each in variants(subject, case) if len(set(each.mask.prefix_lengths)) == 4]

    assert {Claim(right).answer(look(subject, each)) for each in others} == {Answer.CLEAR}


def test_what_is_of_the_first_sequence_holds_there_too():
    subject = planted(prefix=lambda s, j, n, b: j < n[0])
    case = parse_case(CASE.format("top-left", "7,4"))
    (right,) = (each for each in SEMANTICS if each.name == "prefix-of-first-sequence")
    others = [each for each in variants(subject, case) if len(set(each.mask.prefix_lengths)) == 4]

    assert {Claim(right).answer(look(subject, each)) for each in others} == {Answer.CLEAR}
