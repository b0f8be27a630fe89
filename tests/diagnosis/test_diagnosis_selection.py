"""The problems that wrong readings of chosen keys, and of a V in the buffer of K, lead to."""

import math
from types import SimpleNamespace

import pytest
import torch

from flashverify.case import parse_case
from flashverify.case.masks.positions import positions
from flashverify.case.memory.materialize import materialize
from flashverify.diagnosis.hypotheses.selection import SELECTIONS
from flashverify.diagnosis.hypotheses.shared_kv import SHARED_KV
from flashverify.truth import inputs_of

TEXT = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=3 seq_k=7 dim_qk=8 dim_v=8 selected=5,1,2,170,4,1,1"
READINGS = {
    "selection-ignored": lambda lists, b, h, i: range(4),
    "selection-minus-one-as-first": lambda lists, b, h, i: [max(c, 0) for c in lists[b][h][i]],
    "selection-minus-one-as-last": lambda lists, b, h, i: [3 if c < 0 else c for c in lists[b][h][i]],
    "selection-of-row-before": lambda lists, b, h, i: lists[b][h][max(i - 1, 0)],
    "selection-of-row-after": lambda lists, b, h, i: lists[b][h][min(i + 1, 2)],
    "selection-of-first-head": lambda lists, b, h, i: lists[b][0][i],
    "selection-of-first-sequence": lambda lists, b, h, i: lists[0][h][i],
}


def scene(text):
    case = parse_case(text)
    problem, _ = materialize(case)
    inputs, _ = inputs_of(problem)
    group = case.heads_q // case.heads_kv
    return SimpleNamespace(case=case, at=positions(case), inputs=inputs, group=group), problem


def alternatives(semantics, name, found):
    (wrong,) = [each for each in semantics if each.name == name]
    return list(wrong.build(found))


@pytest.mark.parametrize("name", READINGS)
def test_a_wrong_reading_has_the_mask_of_its_sentence(name):
    found, problem = scene(TEXT)
    lists = problem.selection.tolist()

    alternative, *_of_keys = alternatives(SELECTIONS, name, found)

    table = alternative.inputs.visible.expand(2, 4, 3, 7)
    for b, h, i in torch.cartesian_prod(torch.arange(2), torch.arange(4), torch.arange(3)).tolist():
        named = set(READINGS[name](lists, b, h // 2, i))
        assert table[b, h, i].tolist() == [j // 2 in named for j in range(7)]


def test_a_block_that_counts_twice_has_the_logarithm_of_its_number():
    found, problem = scene(TEXT)

    (alternative,) = alternatives(SELECTIONS, "selection-duplicates-twice", found)

    row = problem.selection[1, 1, 2].tolist()
    bias = alternative.inputs.biases[-1].expand(2, 4, 3, 7)[1, 3, 2]
    assert bias.tolist() == [math.log(max(row.count(j // 2), 1)) for j in range(7)]


def test_entries_of_minus_one_count_the_last_block_once_each_in_the_gradients_of_keys():
    found, problem = scene("fv1 seq_q=3 seq_k=7 dim_qk=8 dim_v=8 selected=5,1,2,170,4,1,1")

    _, of_keys = alternatives(SELECTIONS, "selection-minus-one-as-last", found)

    weights = of_keys.inputs.biases[-1].exp() * of_keys.inputs.visible
    for i, row in enumerate(problem.selection[0, 0].tolist()):
        distinct = {c for c in row if c >= 0}
        more = len(row) - len(distinct)
        expected = [(j // 2 in distinct) + (more if j // 2 == 3 else 0) for j in range(7)]
        torch.testing.assert_close(weights[0, 0, i], torch.tensor(expected, dtype=torch.float64))
    assert of_keys.outputs == ("dk", "dv")


def test_the_last_block_of_a_list_is_that_of_either_order():
    found, problem = scene(TEXT)
    row = [c for c in problem.selection[0, 1, 1].tolist() if c >= 0]

    given, given_of_several, ascending, ascending_of_several = alternatives(SELECTIONS, "selection-last-lost", found)

    assert len(set(row)) > 1
    for each, left in (
        (given, row[:-1]),
        (given_of_several, row[:-1]),
        (ascending, sorted(set(row))[:-1]),
        (ascending_of_several, sorted(set(row))[:-1]),
    ):
        table = each.inputs.visible.expand(2, 4, 3, 7)[0, 2, 1]
        assert table.tolist() == [j // 2 in left for j in range(7)]


def test_a_list_of_a_single_block_may_keep_it():
    found, problem = scene("fv1 seq_q=3 seq_k=7 dim_qk=8 dim_v=8 selected=1,1,2,170,4 backward=no")
    named = (problem.selection >= 0).any(-1)[0, 0]
    wrong = next(each for each in SELECTIONS if each.name == "selection-last-lost")
    lost, kept = (each.inputs.visible.expand(1, 1, 3, 7)[0, 0].any(-1) for each in list(wrong.build(found))[:2])

    assert bool(named.any())
    assert not bool(lost.any())
    assert torch.equal(kept, named)


def test_other_parts_of_the_buffer_are_those_of_their_sentences():
    found, problem = scene("fv1 seq_q=2 seq_k=3 dim_qk=24 dim_v=16 kv=shared backward=no")
    k = problem.k.double()

    (last,) = alternatives(SHARED_KV, "shared-v-last-channels", found)
    (without,) = alternatives(SHARED_KV, "shared-k-without-rest", found)
    (scaled,) = alternatives(SHARED_KV, "scale-by-dim-v", found)
    (first,) = alternatives(SHARED_KV, "shared-rest-first-in-q", found)

    assert torch.equal(last.inputs.v.double(), k[..., 8:])
    assert torch.equal(without.inputs.k[..., :16].double(), k[..., :16])
    assert not without.inputs.k[..., 16:].any()
    assert scaled.inputs.scale == 0.25
    q = problem.q.double()
    assert torch.equal(first.inputs.q.double(), torch.cat([q[..., 8:], q[..., :8]], -1))


def test_a_case_without_them_has_none():
    found, _ = scene("fv1 seq_q=2 seq_k=3")

    assert not [a for each in (*SELECTIONS, *SHARED_KV) for a in each.build(found)]
