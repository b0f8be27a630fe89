"""Strategies that are made once for the same values, and never for equal ones that are others."""

import math

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from flashverify.case.space.sampling import choosing, one_in, sampled_from


def drawn(strategy, examples=30):
    found = []

    @seed(5)
    @settings(max_examples=examples, phases=[Phase.generate], database=None)
    @given(strategy)
    def body(value):
        found.append(value)

    body()
    return found


def test_the_same_values_give_the_same_strategy():
    assert sampled_from((1, "a")) is sampled_from([1, "a"])
    assert one_in(3) is one_in(3)
    assert sampled_from((1, 2)) is not sampled_from((2, 1))


@pytest.mark.parametrize(
    "values", [(0, 1), (False, True), (0.0, 1.0), (-0.0, 1.0), ((0, 1),), ((False, True),)], ids=str
)
def test_values_that_are_equal_and_others_are_told_apart(values):
    for value in drawn(sampled_from(values)):
        assert repr(value) in map(repr, values)


def test_what_has_no_hash_and_nan_are_drawn_too():
    assert {str(x) for x in drawn(sampled_from([[1], [2]]))} == {"[1]", "[2]"}
    assert any(math.isnan(x) for x in drawn(sampled_from((math.nan, 1.0))))


@st.composite
def several(draw, way):
    """Draws of each kind: of kept strategies and of others, one after another."""
    draw = way(draw)
    kept = sampled_from(("a", "b", "c", "d", "e"))
    return (
        draw(kept),
        draw(sampled_from((7,))),
        draw(kept.filter(lambda x: x != "b")),
        draw(one_in(3)),
        draw(st.integers(0, 9)),
        draw(sampled_from(range(100))),
        draw(sampled_from(([1], [2]))),
        draw(st.booleans()),
    )


def test_choosing_draws_what_the_strategies_draw():
    ways = [drawn(several(way), 10) for way in (lambda draw: draw, choosing)]
    assert ways[0] == ways[1]
    assert len({str(x) for x in ways[0]}) > 5


def test_choosing_makes_one_choice_of_a_kept_strategy_and_leaves_others_alone():
    class Source:
        def draw(self, strategy):
            return strategy

        def draw_integer(self, low, high):
            assert low == 0
            spans.append("choice")
            return high

        def start_span(self, label):
            spans.append(label)

        def stop_span(self):
            spans.append("end")

    spans = []

    chosen = choosing(Source().draw)
    assert chosen(sampled_from((1, 2, 3))) == 3
    assert spans == [sampled_from((1, 2, 3)).label, "choice", "end"]
    assert chosen(sampled_from(("only",))) == "only"
    assert "choice" not in spans[3:]
    other = st.sampled_from((1, 2, 3))
    assert chosen(other) is other


def test_a_draw_that_is_no_method_of_a_source_stays_as_it_is():
    def draw(strategy):
        return strategy

    assert choosing(draw) is draw
