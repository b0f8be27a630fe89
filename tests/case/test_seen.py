"""Whether a mask shows anything: of large ones a few rows say so, and where they do not every row is asked."""

import pytest

from flashverify.case import Mask
from flashverify.case.masks import predicate
from flashverify.case.masks.mask import Packed
from flashverify.case.space.seen import sees_something

SIZES = {"batch": 1, "heads": 2, "seq_q": 200, "seq_k": 300}


@pytest.fixture
def asked(monkeypatch):
    """The rows that were looked at."""
    found, plain = [], predicate.visible

    def visible(case):
        see = plain(case)
        return None if see is None else lambda rows, keys: found.append(rows) or see(rows, keys)

    monkeypatch.setattr(predicate, "visible", visible)
    return found


@pytest.mark.parametrize("first", [0, 150])
def test_a_few_rows_of_most_masks_say_so(asked, first):
    assert sees_something(Mask(causal="bottom-right"), **SIZES, first=first)
    assert sum(rows.stop - rows.start for rows in asked) < 20


@pytest.mark.parametrize(
    ("mask", "shows"),
    [
        (Mask(packed=Packed((0, 30, 31, 200), (0, 0, 300, 300))), True),  # row 30 alone
        (Mask(packed=Packed((0, 30, 30, 200), (0, 0, 300, 300))), False),
    ],
)
def test_every_row_is_asked_where_they_do_not(asked, mask, shows):
    assert sees_something(mask, **SIZES) is shows
    assert set(range(200)) == {row for rows in asked for row in range(rows.start, rows.stop)}
