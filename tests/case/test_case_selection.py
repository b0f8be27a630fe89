"""Keys chosen by index: the lists, the mask that they mean, and what a subject may declare of them."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings

from flashverify.case import Selection, Selections, Supports, parse_case
from flashverify.case.masks.predicate import visible
from flashverify.case.masks.selection import SELECTION
from flashverify.case.memory.materialize import materialize
from flashverify.case.space.strategies import cases
from flashverify.errors import UsageError

SHAPE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=7 seq_k=11 dim_qk=8 dim_v=8"
ALL = slice(None)
SELECTED = Supports(masks=("selection", "causal"), required_masks=("selection",))


def by_definition(case, lists, b, h, i, j):
    """Whether row i of head h sees key j, in plain Python."""
    selection = case.mask.selection
    own = lists[b % lists.shape[0]][h // 2 % lists.shape[1]][i // selection.rows].tolist()
    keys = [key for c in own if c >= 0 for key in range(c * selection.keys, (c + 1) * selection.keys)]
    return j in keys and (case.mask.causal is None or j <= i + 4)


@pytest.mark.parametrize(
    ("rows", "keys", "flags", "more"),
    [
        (1, 1, (0, 0, 0), ""),
        (1, 3, (1, 1, 0), ""),
        (3, 1, (1, 0, 0), " causal=bottom-right"),
        (2, 4, (1, 1, 1), ""),
        (7, 64, (0, 1, 0), ""),
    ],
)
def test_a_row_sees_the_keys_of_the_blocks_that_its_list_names(rows, keys, flags, more):
    case = parse_case(f"{SHAPE} selected=6,{rows},{keys},160,3,{','.join(map(str, flags))}{more}")
    lists = materialize(case)[0].selection
    table = visible(case)(slice(0, 7), slice(0, 11)).expand(2, 4, 7, 11)

    for place in itertools.product(range(2), range(4), range(7), range(11)):
        assert bool(table[place]) == by_definition(case, lists, *place), place


def test_lists_have_padding_and_duplicates_and_are_those_of_each_kv_head():
    lists = materialize(parse_case(f"{SHAPE} selected=6,1,2,160,3,1,1"))[0].selection

    assert (lists.shape, lists.dtype) == ((2, 2, 7, 6), torch.int32)
    assert lists.min() == -1
    assert lists.max() == 5
    named = [row[row >= 0].tolist() for row in lists.reshape(-1, 6)]
    assert any(len(row) > len(set(row)) for row in named)
    assert any((row[:-1] < row[1:]).logical_and(row[:-1] == -1).any() for row in lists.reshape(-1, 6))
    assert not torch.equal(lists[0, 0], lists[0, 1])


def test_lists_without_gaps_and_duplicates_have_none():
    lists = materialize(parse_case(f"{SHAPE} selected=9,1,2,200,3,1,0,1"))[0].selection.reshape(-1, 9)

    for row in lists.tolist():
        count = sum(entry >= 0 for entry in row)
        assert row[count:] == [-1] * (9 - count)
        assert len(set(row[:count])) == count
    assert lists.shape[1] == 9


@pytest.mark.parametrize("text", ["selected=3,1,1,128,0", "selected=3,2,16,0,9,1", "selected=3,1,1,256,0,0,1,1"])
def test_a_text_keeps_it(text):
    assert text in str(parse_case(f"{SHAPE} {text}"))


@pytest.mark.parametrize("text", ["3,1,1,128", "0,1,1,128,0", "3,0,1,128,0", "3,1,1,300,0", "3,1,1,128,0,2"])
def test_a_value_that_is_not_accepted_is_refused(text):
    with pytest.raises(UsageError, match=r"selected|Selection"):
        parse_case(f"{SHAPE} selected={text}")


def test_no_keys_name_nothing():
    problem, _ = materialize(parse_case("fv1 seq_q=2 seq_k=0 selected=3,1,4,256,0"))

    assert problem.selection.tolist() == [[[[-1] * 3] * 2]]


@pytest.mark.parametrize(
    ("takes", "reason"),
    [
        (Selections(rows=(2,), keys=(4,)), "rows=1"),
        (Selections(keys=(2,)), "keys=4"),
        (Selections(keys=(4,), each=False), "of each batch entry"),
        (Selections(keys=(4,), scattered=False), "before a named block"),
        (Selections(keys=(4,), duplicates=False), "twice"),
        (Selections(keys=(4,)), None),
    ],
)
def test_a_subject_says_which_lists_it_takes(takes, reason):
    case = parse_case(f"{SHAPE} selected=3,1,4,128,0,1,1")

    found = dataclasses.replace(SELECTED, selections=takes).refusal(case)

    assert found is None if reason is None else reason in found


@pytest.mark.parametrize("sizes", [(), (0,), [1], ("1",)])
def test_sizes_that_are_not_accepted_are_refused(sizes):
    with pytest.raises(UsageError, match="a tuple of integers >= 1"):
        Selections(rows=sizes)


def test_draws_stay_inside_the_declaration():
    takes = Selections(rows=(1, 2), keys=(16, 4), scattered=False, duplicates=False)

    @settings(max_examples=40, database=None, derandomize=True)
    @given(cases(dataclasses.replace(SELECTED, selections=takes)))
    def check(case):
        selection = case.mask.selection
        assert selection.keys in (16, 4)
        assert selection.rows in (1, 2)
        assert selection.distinct
        assert not selection.scattered

    check()


def test_simpler_values_are_smaller_and_accepted():
    value = Selection(8, 4, 16, 100, 9, each=True, scattered=True, distinct=True)

    found = list(SELECTION.simpler(value))

    assert Selection(8, 1, 16, 100, 9, each=True, scattered=True, distinct=True) in found
    assert Selection(1, 4, 16, 100, 9, each=True, scattered=True, distinct=True) in found
    assert all(other != value for other in found)
