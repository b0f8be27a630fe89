"""The pairwise matrix and the kinds of values over the features that a subject declares."""

import dataclasses
from collections import Counter

import pytest

from flashverify.case import Supports, standard_matrix
from flashverify.case.space.compile_keys import list_compile_keys
from flashverify.case.space.matrix import _case
from flashverify.case.space.matrix_features import large_features, listed, paged
from flashverify.case.space.optional_parts import all_extras, all_parts
from tests.case.feature_family import AXES, DECODE, FAMILY, packings, parts

DIMS, FORMATS = [(64, 64), (128, 128), (40, 40), (128, 64)], [("fp16", "ieee"), ("bf16", "ieee"), ("fp32", "tf32")]


def test_kinds_spread_over_the_features():
    kinds = list_compile_keys(FAMILY, DIMS, FORMATS, 128)
    met = Counter(name for kind in kinds for name in (*kind.parts, *kind.features))

    assert 100 <= len(kinds) <= 128
    assert all(met[name] >= 4 for name in (*FAMILY.masks, *FAMILY.logits, "dropout")), met
    assert {kind.dims for kind in kinds} == set(DIMS)
    assert sum(not kind.features and not kind.parts for kind in kinds) >= 4
    assert any(len(kind.features | kind.parts) >= 3 for kind in kinds)
    assert not any("packed" in kind.parts and {"key_lengths", "query_lengths"} & kind.parts for kind in kinds)


def test_page_sizes_take_turns():
    assert {None, 16, 64} == {kind.page_size for kind in list_compile_keys(DECODE, DIMS, FORMATS, 30)}


def test_a_subject_without_extras_has_no_extra_sets():
    assert [frozenset()] == all_extras(Supports(masks=("causal", "tree", "window", "key_lengths")))
    assert len(all_parts(Supports(masks=("causal", "tree", "window", "key_lengths")))) == 10


def test_every_entry_about_a_feature_is_a_case_on_its_own():
    base = "batch=1 heads_q=2 heads_kv=1 seq_q=33 seq_k=33 dim_qk=32 dim_v=32"
    entries = (*listed("features"), *large_features(), *listed("added"), *paged((16, 64)))

    assert [entry for entry in entries if _case([base, entry]) is None] == []
    assert len(set(entries)) == len(entries)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_matrix_has_every_feature_alone_and_in_company(device):
    matrix = standard_matrix(FAMILY, device=device)
    met = Counter(name for case in matrix for name in parts(case))

    assert all(FAMILY.refusal(case) is None for case in matrix)
    assert all(met[name] >= 7 for name in (*FAMILY.masks, *FAMILY.logits, "dropout")), met
    alone = {frozenset(parts(case)) for case in matrix}
    assert {frozenset({name}) for name in met} <= alone
    assert {name for case in matrix for name in packings(case)} >= AXES["packed"][1] - {"keys behind"}
    assert device == "cuda" or len(matrix) <= 460


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_matrix_of_a_decode_subject_is_paged_and_long(device):
    matrix = standard_matrix(DECODE, device=device)

    assert len(matrix) >= 150
    assert all(DECODE.refusal(case) is None for case in matrix)
    assert {None, 16, 64} == {case.storage.page_size for case in matrix}
    assert {1, 16} <= {case.seq_q for case in matrix}


def test_a_subject_that_needs_pages_has_a_matrix_too():
    needs = dataclasses.replace(DECODE, also=lambda case: None if case.storage.page_size else "contiguous")

    assert len(standard_matrix(needs, device="cpu")) >= 150
