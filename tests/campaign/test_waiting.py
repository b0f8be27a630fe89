"""Drawn cases that wait for a compiler."""

from flashverify.campaign.supervisor.waiting import Waiting
from flashverify.case.case import Case

LIKE, ALIKE, OTHER = (
    str(case) for case in (Case(seq_q=32), Case(seq_q=31), Case(dim_qk=40, dim_v=128, dtype="bf16", heads_q=4))
)


def test_what_was_taken_counts_for_the_next_one():
    waiting = Waiting((LIKE, ALIKE, OTHER))
    assert [waiting.take() for _ in range(3)] == [LIKE, OTHER, ALIKE]


def test_of_too_many_the_one_goes_that_covers_least_beside_those_that_were_taken():
    waiting = Waiting((LIKE, ALIKE))
    assert waiting.take() == LIKE
    others = [str(Case(dim_qk=40, dim_v=128, dtype="bf16", heads_q=4, seq_q=n + 1)) for n in range(64)]

    assert [waiting.add(text) for text in others] == [*[None] * 63, ALIKE]
    assert len(waiting) == 64
