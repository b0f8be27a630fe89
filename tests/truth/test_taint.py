import dataclasses
import math

import pytest
import torch

from flashverify.case import Case, Edit, Grad, Mask, Values
from flashverify.case.memory.materialize import materialize
from flashverify.truth import clean

SHAPE = {"batch": 2, "heads_q": 4, "heads_kv": 2, "seq_q": 3, "seq_k": 5, "dim_qk": 8, "dim_v": 8}
# which outputs a non-finite element of each input reaches, within its (batch, kv head) group
REACH = {
    "q": {"o", "lse", "delta", "dq", "dk", "dv"},
    "k": {"o", "lse", "delta", "dq", "dk", "dv"},
    "v": {"o", "delta", "dq", "dk"},
    "do": {"delta", "dq", "dk", "dv"},
}


def problem(*edits, **axes):
    return materialize(Case(**SHAPE, values=Values(edits=edits), **axes), "cpu")[0]


def test_finite_inputs_have_no_taint():
    assert clean(problem()).taint == {}


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("tensor", REACH)
def test_taint_stays_in_its_group(tensor, value):
    heads = {"q": 3, "do": 3, "k": 1, "v": 1}  # query head 3 reads kv head 1
    tidy = clean(problem(Edit(tensor, (1, heads[tensor], 2, 0), value)))

    reached = {name for name, mask in tidy.taint.items() if bool(mask.any())}
    assert reached == REACH[tensor]
    for name in reached:
        mask = tidy.taint[name]
        first = mask.shape[1] // 2
        assert not bool(mask[0].any())
        assert not bool(mask[1, :first].any())
        assert bool(mask[1, first:].any())
    assert all(bool(torch.isfinite(x).all()) for x in (tidy.q, tidy.k, tidy.v, tidy.do))


def test_a_value_taints_its_channel_of_o_only():
    tidy = clean(problem(Edit("v", (0, 0, 1, 6), math.nan)))

    assert tidy.taint["o"][0, 0].flatten().tolist() == [channel == 6 for channel in range(8)]


def test_padding_taints_nothing_and_is_cleared():
    case = Case(**SHAPE, mask=Mask(key_lengths=(2, 5)))
    padded = materialize(case, "cpu", padding="nan")[0]
    assert bool(torch.isnan(padded.k[0, :, 2:]).all())

    tidy = clean(padded)

    assert tidy.taint == {}
    assert bool((tidy.k[0, :, 2:] == 0).all())


def test_dlse_taints_the_gradients_of_scores():
    given = problem(grad=Grad(dlse=True))
    dlse = given.dlse.clone()
    dlse[0, 0, 0] = math.nan

    taint = clean(dataclasses.replace(given, dlse=dlse)).taint

    assert {name for name, mask in taint.items() if bool(mask.any())} == {"dq", "dk"}


def test_an_empty_batch_with_lengths_is_clean():
    assert (
        clean(materialize(Case(batch=0, seq_q=3, seq_k=5, mask=Mask(key_lengths=(), query_lengths=())), "cpu")[0]).taint
        == {}
    )
