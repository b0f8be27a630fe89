"""One condition follows from another one where its numbers are a part of the other's."""

import pytest

from flashverify.diagnosis.implication import implied


@pytest.mark.parametrize(
    ("conclusion", "condition"),
    [
        ("seq_q < 3", "seq_q < 2"),
        ("seq_q < 2", "seq_q <= 1"),
        ("seq_q <= 1", "seq_q < 2"),
        ("seq_q < 3", "seq_q == 2"),
        ("seq_k > 64", "seq_k >= 65"),
        ("seq_k != 0", "seq_k > 0"),
        ("seq_k % 64 != 0", "seq_k % 64 == 5"),
        ("row_max > -10", "row_max >= -9.5"),
        ("window == yes", "window == yes"),
        ("in other words", "in other words"),
    ],
)
def test_a_wider_range_of_the_same_number_follows(conclusion, condition):
    assert implied([conclusion], ["dropout == no", condition])


@pytest.mark.parametrize(
    ("conclusion", "condition"),
    [
        ("seq_q < 2", "seq_q < 3"),
        ("seq_q < 3", "seq_k < 2"),
        ("seq_q > 1", "seq_q < 9"),
        ("seq_k % 64 != 0", "seq_k % 32 == 5"),
        ("row_max < 2", "row_max < 2.5"),
        ("row_max <= 1", "row_max < 2"),
        ("seq_q < 3", "seq_q < seq_k"),
        ("key_tile[64] == last", "key_tile[32] == last"),
        ("seq_q < 3", "in other words"),
    ],
)
def test_other_ranges_and_other_numbers_do_not(conclusion, condition):
    assert not implied([conclusion], [condition])


def test_every_conclusion_has_to_follow():
    assert implied([], [])
    assert not implied(["seq_q < 3"], [])
    assert not implied(["seq_q < 3", "window == yes"], ["seq_q < 2"])
