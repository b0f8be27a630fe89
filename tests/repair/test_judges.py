"""Further cases on which a repair must be right."""

from dataclasses import replace
from functools import partial

import pytest

from flashverify.repair.judges import Judges
from tests.repair.changing import CASE, Changing


@pytest.fixture
def changing():
    return Changing()


@pytest.fixture
def judges(changing):
    return Judges(changing.subject, CASE, None)


def test_the_right_edit_is_right_on_several_cases_that_fail_without_it(changing, judges):
    assert judges.all_right(partial(changing.as_if, shift=lambda _: 0))
    assert judges.failing >= 6
    assert judges.cases >= judges.failing
    assert CASE not in changing.asked


@pytest.mark.parametrize(
    "shift",
    [
        lambda case: int(case.seq_q != CASE.seq_q),
        lambda case: int(case.seq_k != CASE.seq_k),
        lambda case: int(case.seq_q > 64),
        lambda case: case.seq_q - CASE.seq_q,
    ],
    ids=["these rows", "these keys", "a small case", "by the number of rows"],
)
def test_an_edit_that_only_fits_the_failing_case_is_refused(changing, judges, shift):
    assert not judges.all_right(partial(changing.as_if, shift=shift))


def test_a_case_that_refuted_an_edit_is_asked_first(changing, judges):
    def large(case):
        return int(case.seq_q > 64)

    assert not judges.all_right(partial(changing.as_if, shift=large))
    refuting = changing.asked[-1]
    changing.asked.clear()

    assert not judges.all_right(partial(changing.as_if, shift=large))
    assert changing.asked == [refuting]


def test_a_case_on_which_the_unedited_subject_raises_is_left_out(changing, judges):
    changing.raising = lambda case: case.seq_q > 20

    assert judges.all_right(partial(changing.as_if, shift=lambda _: 0))
    changing.asked.clear()
    assert judges.all_right(partial(changing.as_if, shift=lambda _: 0))
    assert changing.asked
    assert all(case.seq_q <= 20 for case in changing.asked)


def test_an_edit_that_raises_where_the_unedited_subject_does_not_is_refused(changing, judges):
    raising = partial(changing.as_if, shift=lambda _: 0, raising=lambda case: case.seq_q > 20)

    assert not judges.all_right(raising)


def test_a_repair_of_a_subject_that_fails_nowhere_else_is_not_believed():
    changing = Changing(lambda case: int(case == CASE))

    assert not Judges(changing.subject, CASE, None).all_right(partial(changing.as_if, shift=lambda _: 0))


def test_the_other_failing_case_is_asked_too(changing):
    first = replace(CASE, seq_q=11, seq_k=13)
    shift = partial(changing.as_if, shift=lambda case: int(case == first))

    assert Judges(changing.subject, CASE, None).all_right(shift)
    assert not Judges(changing.subject, CASE, first).all_right(shift)
