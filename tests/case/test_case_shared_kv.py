"""K and V in one buffer: V is the first channels of K, bit for bit and in the same memory."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings

from flashverify.case import Case, Storage, Supports, parse_case, standard_matrix
from flashverify.case.memory.materialize import materialize
from flashverify.case.space.strategies import cases
from flashverify.errors import UsageError

TEXT = "fv1 batch=2 seq_q=2 seq_k=5 dim_qk=24 klen=5,2 gap=8 padding=nan kv=shared backward=no"
SHARED = Supports(kv=("shared",), backward=False, masks=("key_lengths",), page_sizes=(4,), heads_kv=(1,))


@pytest.mark.parametrize("more", ["", " page_size=4", " layout=bshd expand=yes regime=v-constant"])
def test_v_is_a_view_of_the_first_channels_of_k(more):
    problem, arena = materialize(parse_case(TEXT + more))

    pairs = [(problem.k, problem.v)] + ([] if problem.pages is None else [(problem.pages.k, problem.pages.v)])
    for k, v in pairs:
        assert v.data_ptr() == k.data_ptr()
        assert v.stride() == k.stride()
        assert torch.equal(v.view(torch.int16), k[..., :16].view(torch.int16))
    problem.v[0, 0, 0, 0] = 3.0
    assert [damage.tensor for damage in arena.damage()] == ["k"]


def test_the_padding_of_v_is_that_of_k_and_its_values_stay():
    nan, zero = (materialize(parse_case(TEXT), padding=padding)[0] for padding in ("nan", "zero"))

    assert torch.isnan(nan.v[1, 0, 2:]).all()
    assert not zero.v[1, 0, 2:].any()
    assert torch.equal(nan.v[:, :, :2], zero.v[:, :, :2])


def test_an_edit_of_k_is_one_of_v():
    problem, _ = materialize(parse_case(TEXT + " edits=k:0,0,1,3:7"))

    assert problem.v[0, 0, 1, 3] == 7


def test_what_is_given_for_v_is_left_aside():
    problem, _ = materialize(parse_case(TEXT))

    other = dataclasses.replace(problem, k=problem.k * 2, v=problem.v * 5)

    assert torch.equal(other.v[0], problem.k[0, :, :, :16] * 2)


def test_a_text_keeps_it():
    assert str(parse_case(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim_qk": 8, "dim_v": 16}, "dim_v=16 is not accepted: <= dim_qk=8"),
        ({"grad": Case().grad}, "backward='yes' is not accepted: no with kv=shared"),
    ],
)
def test_a_case_that_cannot_share_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(parse_case(TEXT), **changes)


def test_an_edit_of_v_and_another_word_are_refused():
    with pytest.raises(UsageError, match="edit tensor='v' is not accepted: one that the case has: q, k"):
        parse_case(TEXT + " edits=v:0,0,0,0:1")
    with pytest.raises(UsageError, match="kv='both' is not accepted: one of"):
        Storage(kv="both")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"kv": ()}, "kv"),
        ({"kv": ("one",)}, "kv"),
        ({"dim_pairs": ()}, "dim_pairs"),
        ({"dim_pairs": ((8,),)}, "dim_pairs"),
        ({"dim_pairs": ((8, 16),), "kv": ("shared",)}, "one with dim_v <= dim_qk"),
        ({"heads_kv": (0,)}, "heads_kv"),
    ],
)
def test_a_declaration_that_is_not_accepted_is_named(declared, message):
    with pytest.raises(UsageError, match=message):
        Supports(**declared)


@pytest.mark.parametrize(
    ("supports", "reason"),
    [
        (dataclasses.replace(SHARED, kv=("separate",)), "kv=shared, it has ('separate',)"),
        (dataclasses.replace(SHARED, heads_kv=(2,)), "heads_kv=1, it has 2"),
        (dataclasses.replace(SHARED, dim_pairs=((576, 512),)), "dim_qk=24, dim_v=16, it has [(576, 512)]"),
    ],
)
def test_a_subject_that_does_not_take_it_refuses(supports, reason):
    assert supports.refusal(parse_case(TEXT)) == reason


def drawn(supports, count=15):
    found = []

    @settings(max_examples=count, database=None, derandomize=True)
    @given(cases(supports))
    def collect(case):
        found.append(case)

    collect()
    return found


def test_draws_stay_inside_the_declaration():
    wanted = dataclasses.replace(SHARED, dim_pairs=((40, 32), (24, 16), (16, 16)))

    for case in drawn(wanted):
        assert case.storage.kv == "shared"
        assert case.heads_kv == 1
        assert (case.dim_qk, case.dim_v) in wanted.dim_pairs
        assert not any(edit.tensor == "v" for edit in case.values.edits)


def test_a_subject_that_takes_both_gets_both():
    kinds = {case.storage.kv for case in drawn(Supports(kv=("separate", "shared")))}

    assert kinds == {"separate", "shared"}


def test_the_fixed_matrix_moves_into_the_declaration():
    found = standard_matrix(dataclasses.replace(SHARED, dim_pairs=((40, 32), (24, 16))), device="cpu")

    assert len(found) > 100
    assert {(case.storage.kv, case.heads_kv, case.grad.backward) for case in found} == {("shared", 1, False)}
