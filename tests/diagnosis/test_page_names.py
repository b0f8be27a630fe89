"""A last page that is lost is told from a last tile of keys that is."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.telling_cases import telling
from tests.diagnosis.option_defects import PAGED, of_pages
from tests.diagnosis.test_diagnosis import named
from tests.fast_tier import thorough_in

FEW = PAGED.replace("seq_k=70", "seq_k=9")
LOST = {
    "partial-last-page-missing": lambda keys, size: keys // size * size,
    "last-page-missing": lambda keys, size: (keys - 1) // size * size,
}


def test_cases_that_tell_pages_apart_differ_in_how_full_the_last_page_is_and_in_its_size():
    paged = [case for case in telling(of_pages(lambda keys, size: keys)(), parse_case(FEW)) if case.seq_k > 40]

    assert {case.seq_k % case.storage.page_size == 0 for case in paged} == {True, False}
    assert any(case.seq_k % case.storage.page_size > case.storage.page_size // 2 for case in paged)
    assert len({case.storage.page_size for case in paged}) > 1


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_in(("partial-last-page-missing",), LOST))
def test_a_last_page_that_is_lost_has_one_name(name):
    found = named(of_pages(LOST[name])(), FEW)

    assert (found.name, found.also) == (name, ())
