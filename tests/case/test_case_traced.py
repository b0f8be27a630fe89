"""Kinds of a subject that torch traces: what torch compiles anew for is the same in all cases of one."""

import dataclasses
import itertools

import pytest

from flashverify.campaign.worker.search import draw
from flashverify.case.space.strategies import GPU, all_kinds, cases
from flashverify.case.space.traced import class_of, lengths_of, moved
from flashverify.case.supports import Supports
from flashverify.case.text import parse_case

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


@pytest.mark.parametrize("left", [(2, 2), (1, 2), (2, 0)])
def test_lengths_of_classes_that_are_not_drawn_are_moved_to_the_nearest_that_is(kinds, left):
    most = frozenset(itertools.product(range(3), repeat=2)) - {left}
    for kind in (kinds[0], next(kind for kind in kinds if "window" in kind.parts and "packed" not in kind.parts)):
        without = dataclasses.replace(kind, traced=dataclasses.replace(kind.traced, without=most))
        drawn = draw(cases(TRACED, profile=GPU, kinds=[without]), 30, 2)

        assert len(drawn) == 30
        assert {class_of(lengths_of(case)) for case in drawn} == {left}
        assert len({lengths_of(case) for case in drawn}) > 8


def test_moved_lengths_keep_the_side_that_may_stay_and_are_those_that_the_subject_has(kinds):
    def at(lengths, without, parts=frozenset(), **changes):
        traced = dataclasses.replace(kinds[0].traced, without=frozenset(without))
        return moved(dataclasses.replace(TRACED, **changes), traced, parts, lengths)

    assert at((300, 9), {(2, 1)}) == (300, 137)
    assert at((300, 9), {(2, 1), (2, 2)}) == (48, 9)
    assert at((1, 300), {(0, 2)}) == (3, 300)
    assert at((1, 300), {(0, 2), (1, 2)}) == (1, 48)
    assert at((300, 9), {(1, 1)}) == (300, 9)
    assert at((300, 9), itertools.product(range(3), repeat=2)) == (300, 9)
    assert at((9, 9), {(1, 1)}, square=True) == (9, 9)
    assert at((9, 9), {(1, 1)}, frozenset({"tree"})) == (9, 9)
    assert at((9, 9), {(1, 1)}, frozenset({"packed"})) == (9, 9)
    assert at((9, 9), {(1, 1)}, frozenset({"causal"}), rectangular_causal=False) == (9, 9)
    assert at((9, 300), {(1, 2), (1, 1)}, max_seq_q=16) == (9, 300)


def test_classes_of_lengths_are_one_a_block_and_more():
    assert [class_of(lengths) for lengths in ((1, 2), (128, 129), (0, 1))] == [(0, 1), (1, 2), (0, 0)]


def test_rows_and_keys_behind_the_last_packed_sequence_do_not_count():
    assert lengths_of(parse_case("fv1 seq_q=200 seq_k=300 packed=0,3,5/0,1,7")) == (5, 7)
    assert lengths_of(parse_case("fv1 seq_q=200 seq_k=300")) == (200, 300)
