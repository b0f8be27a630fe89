"""Trees with causal or a window: what is seen, who is given such cases, and how often they are drawn."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashverify.case import Supports
from flashverify.case.masks.predicate import visible
from flashverify.case.space.optional_parts import all_parts, draw_parts
from flashverify.case.text import parse_case

MASKS = ("causal", "window", "tree", "packed")
TAKES, REFUSES = (Supports(masks=MASKS, banded_trees=takes, backward=False) for takes in (True, False))
TREE = "fv1 seq_q=4 seq_k=6 tree=-1,0,0,1"


def seen(text):
    return visible(parse_case(text))(slice(0, 4), slice(0, 6))[0, 0].int().tolist()


@pytest.mark.parametrize(
    ("band", "rows"),
    [
        ("causal=top-left", ["100000", "110000", "111000", "111100"]),
        ("causal=bottom-right", ["111000", "111100", "111010", "111101"]),
        ("causal=bottom-right window=2,*", ["111000", "011100", "001010", "000101"]),
        ("window=1,0", ["100000", "110000", "011000", "001100"]),
    ],
)
def test_a_key_is_seen_where_the_tree_and_the_band_show_it(band, rows):
    assert ["".join(map(str, row)) for row in seen(f"{TREE} {band}")] == rows


def test_only_a_subject_that_declares_them_is_given_a_tree_with_a_band():
    case = parse_case(f"{TREE} causal=bottom-right backward=no")

    assert TAKES.refusal(case) is None
    assert REFUSES.refusal(case) == "mask parts ['causal', 'tree']: a tree with causal or a window"
    assert {"causal", "tree", "window"} in all_parts(TAKES)
    assert not any({"tree", band} <= parts for parts in all_parts(REFUSES) for band in ("causal", "window"))


def test_draws_hold_trees_with_each_band_and_both():
    found = Counter()

    @settings(max_examples=300, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.composite(draw_parts)(TAKES))
    def draw(parts):
        found[parts & {"causal", "window", "tree"}] += 1

    draw()
    trees = [found[frozenset({"tree", *band})] for band in ((), ("causal",), ("window",), ("causal", "window"))]
    assert all(trees)
    assert trees[0] > max(trees[1:])
