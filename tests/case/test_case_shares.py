"""The shares of drawn cases that docs/search.md states."""

import re
from math import sqrt
from pathlib import Path

import pytest

from flashverify.campaign.worker import search
from flashverify.case import Supports
from flashverify.case.masks.tree import has_entry_trees
from flashverify.case.masks.tree_shapes import shape_of
from flashverify.case.space.seen import sees_something
from flashverify.case.space.strategies import cases
from flashverify.case.space.traits import sequences_of, tiles_of, trees_of

TABLE = Path(__file__).parents[2] / "docs" / "search.md"
DECODING = Supports(
    masks=("causal", "window", "key_lengths", "query_lengths", "packed", "tree"),
    banded_trees=True,
    entry_trees=True,
    empty=True,
    max_seq_q=24,
    backward=False,
)
FAMILY = Supports(
    masks=("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "blocks", "bitmap", "prefix_lengths"),
    entry_trees=True,
    logits=("softcap", "bias", "sink"),
    empty=True,
    launch=(("block_m", (16, 32, 64, 128)), ("block_n", (16, 32, 64, 128))),
    even_launches=False,
)


def everything(case):
    return [case]


def trees(case):
    return [(tree, before) for tree, before in trees_of(case) if len(tree) >= 4]


def spread(case):
    rows = [n for n, _ in sequences_of(case)] or [0]
    return max(rows) > 4 * sum(rows) / len(rows)


def windowed(case):
    return [case] * bool(case.mask.window)


OF_DECODING = {
    "one query under a window": (windowed, lambda c: {n for n, _ in sequences_of(c) if n} == {1} or c.seq_q == 1),
}
SHARES = {
    "several tiles of rows and of keys": (everything, lambda c: min(tiles_of(c)) > 1),
    "no visible pair": (
        everything,
        lambda c: not sees_something(c.mask, batch=c.batch, heads=c.heads_q, seq_q=c.seq_q, seq_k=c.seq_k),
    ),
    "one query or one key": (everything, lambda c: 1 in (c.seq_q, c.seq_k)),
    "a regime for each head": (everything, lambda c: c.values.mixed),
    "groups of more than 4 query heads": (everything, lambda c: c.heads_q // c.heads_kv > 4),
    "one root with branches": (trees, lambda tree: shape_of(tree[0]) in ("single root", "star", "binary")),
    "keys before the nodes": (trees, lambda tree: tree[1] > 0),
    "a tree for each entry": (
        lambda c: [c] * bool(c.mask.tree and c.mask.packed is None and min(c.batch, c.seq_q) > 1),
        lambda c: has_entry_trees(c.mask.tree),
    ),
    "a sequence of more than 4 means": (lambda c: [c] * bool(c.mask.packed), spread),
    "other softcaps than 1, 30 and 50": (
        lambda c: [c.logits.softcap] if c.logits.softcap else [],
        lambda cap: cap not in (1.0, 30.0, 50.0),
    ),
    "more than eight blocks of keys": (
        lambda c: [c] * bool(c.mask.blocks and not c.mask.packed),
        lambda c: c.seq_k > 8 * c.mask.blocks.keys,
    ),
    "a sliding window of blocks": (lambda c: [c.mask.blocks] if c.mask.blocks else [], lambda blocks: blocks.sliding),
}


@pytest.fixture(scope="module")
def drawn():
    return search.draw(cases(FAMILY), 1000, 0)  # one in 20 is a batch of entries that may have a tree each


@pytest.fixture(scope="module")
def drawn_of_decoding():
    return search.draw(cases(DECODING), 400, 0)


def stated():
    rows = re.findall(r"^\| (.+) \| (at least|at most) (\d+) % \| .+ \|$", TABLE.read_text(encoding="utf-8"), re.M)
    return {name: (kind, int(percent) / 100) for name, kind, percent in rows}


def test_the_table_states_every_share_that_is_measured():
    assert stated().keys() == SHARES.keys() | OF_DECODING.keys()


def holds(name, among, has, found):
    (kind, bound), answers = stated()[name], [bool(has(each)) for case in found for each in among(case)]
    share, margin = sum(answers) / len(answers), 3 * sqrt(bound * (1 - bound) / len(answers))

    assert len(answers) > 20
    assert share >= bound - margin if kind == "at least" else share <= bound + margin, (share, len(answers))


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", SHARES)
def test_draws_have_the_stated_share(drawn, name):
    holds(name, *SHARES[name], drawn)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_DECODING)
def test_draws_of_a_decoding_subject_have_the_stated_share(drawn_of_decoding, name):
    holds(name, *OF_DECODING[name], drawn_of_decoding)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_a_single_query_stands_with_a_window_that_hides_keys_on_its_left(drawn_of_decoding, packed):
    found = [c for c in drawn_of_decoding if c.mask.window and bool(c.mask.packed) is packed]
    keys = [(c.mask.window[0], k) for c in found for n, k in sequences_of(c) if n == 1]

    assert sum(left is not None and left + 1 < k for left, k in keys) >= 5


@pytest.mark.slow
def test_lengths_have_every_remainder_of_a_tile_and_every_part_meets_one_query_and_one_key(drawn):
    assert {case.seq_k % 16 for case in drawn} == {case.seq_q % 16 for case in drawn} == set(range(16))
    assert len({case.seq_k % 64 for case in drawn}) > 60
    for axis in ("seq_q", "seq_k"):
        met = {part for case in drawn if getattr(case, axis) == 1 for part in case.mask.parts()}
        assert len(met) >= 8, met
