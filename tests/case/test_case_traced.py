"""Kinds of a subject that torch traces: what torch compiles anew for is the same in all cases of one."""

import dataclasses

import pytest

from flashverify.campaign.worker.search import draw
from flashverify.case.space.strategies import GPU, all_kinds, cases
from flashverify.case.supports import Supports

TRACED = Supports(
    masks=("causal", "window", "packed", "bitmap"),
    causal=("top-left", "bottom-right"),
    logits=("softcap", "alibi", "bias"),
    strided=True,
    transposed=True,
    traced=True,
)


@pytest.fixture(scope="module")
def kinds():
    return all_kinds(TRACED, GPU)


def compiled_for(case):
    storage = case.storage
    return (
        None if case.mask.packed else case.batch,
        (case.heads_q, case.heads_kv, case.scale, case.mask.causal, case.grad.backward),
        (storage.layout, storage.gap, storage.expand, storage.transposed, storage.strided),
    )


def test_the_cases_of_a_kind_have_what_torch_compiles_for_in_common(kinds):
    for number in range(0, 40, 4):
        kind = kinds[number]
        drawn = draw(cases(TRACED, profile=GPU, kinds=[kind]), 8, number)

        assert len({compiled_for(case) for case in drawn}) == 1, kind
        assert (drawn[0].heads_q, drawn[0].heads_kv) == kind.traced.heads[1:]
        assert len({(case.seq_q, case.seq_k, case.values.seed) for case in drawn}) > 4


def test_all_of_it_is_somewhere_in_the_list(kinds):
    found = [kind.traced for kind in kinds[:400]]

    assert {each.heads for each in found} >= set(GPU.heads)
    assert {each.causal for each in found} == {"top-left", "bottom-right"}
    assert {each.layout for each in found} == {"bhsd", "bshd"}
    assert {each.layout for each, kind in zip(found, kinds, strict=False) if "packed" in kind.parts} == {"bshd"}
    assert {each.backward for each in found} == {True, False}
    assert {each.scale for each in found} > {None, 1.0, 0.125}
    for name in ("gap", "expand", "transposed", "strided"):
        assert 0 < sum(bool(getattr(each, name)) for each in found) < 40
    assert sum(each.scale is None for each in found) > 300


def test_kinds_of_other_subjects_have_nothing_of_it():
    assert {kind.traced for kind in all_kinds(dataclasses.replace(TRACED, traced=False), GPU)} == {None}
