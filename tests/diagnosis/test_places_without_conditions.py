"""A place that a reading or another name says is no condition of a name."""

import pytest

from tests.diagnosis.conditional import group, where
from tests.diagnosis.test_diagnosis import FORWARD, named, without_left
from tests.diagnosis.test_diagnosis_conditions import CAUSAL, IGNORED


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "place", "words"),
    [
        (
            "heads_q=2",
            lambda p, b, h, i, j: h % group(p) >= 1,
            "only in query heads of each group behind the first one",
        ),
        ("batch=2", lambda p, b, h, i, j: b >= 1, "only in sequences behind the first one"),
    ],
    ids=["member >= 1", "sequence >= 1"],
)
def test_a_mask_that_is_read_with_its_place_is_said_before_its_name_with_a_condition(options, place, words):
    found = named(where(place, **IGNORED), CAUSAL + options)
    also = f"Every case tried is consistent with this as well: the causal mask is ignored, {words}."
    assert (found.name, found.reading) == ("", f"O sees keys behind the diagonal, {words}.")
    assert found.sentence == f"{found.reading} {also}"


@pytest.mark.thorough
def test_a_name_that_says_the_place_is_said_before_a_name_with_a_condition():
    found = named(where(lambda p, b, h, i, j: j < 16, window=without_left), FORWARD + "window=1,*")
    assert (found.name, found.conditions) == ("window-keeps-the-first-keys", ())
    assert found.sentence.endswith("(16 keys).")
