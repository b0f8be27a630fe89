"""Three narrow subjects: their cases are drawn inside what they declare, every check stays there, and a planted leak is met."""

import dataclasses

import pytest
import torch

from flashverify import Supports, judge_case, subject
from flashverify.campaign.worker import search
from flashverify.case import format_case, parse_case
from flashverify.case.space.matrix import standard_matrix
from flashverify.case.space.strategies import cases
from flashverify.judge.verdict import Status
from tests.fast_tier import fast_one_in
from tests.subjects.declared.subjects import DIMS, LEAKY, packed_decode, square_tiles, tile_pairs

SUBJECTS = {"packed_decode": packed_decode, "square_tiles": square_tiles}


def draw(supports, count, seed=0):
    return search.draw(cases(supports), count, seed)


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_right_narrow_subject_is_judged_and_found_right(name):
    kernel = SUBJECTS[name]
    smallest = sorted(draw(kernel.supports, 6, 5), key=lambda c: c.batch * c.heads_q * c.seq_q * c.seq_k)[:2]
    for case in smallest:
        result = judge_case(kernel, case, checks=("accuracy", "nonfinite", "padding"))

        assert result.verdicts
        assert not result.failures, format_case(case)


def recorded(kernel):
    """The subject, and the cases that it is given."""
    seen = []

    def function(p):
        seen.append(p.case)
        return kernel.function(p)

    return dataclasses.replace(kernel, function=function), seen


@pytest.mark.slow
@pytest.mark.parametrize("heads", fast_one_in(1, [(8, 2), (8, 8)], kept=2))
def test_no_check_gives_a_subject_what_it_does_not_declare(heads):
    kernel, seen = recorded(square_tiles)
    text = "fv1 batch=2 heads_q={} heads_kv={} seq_q=128 seq_k=128 dtype=fp32 causal=top-left"
    result = judge_case(kernel, parse_case(text.format(*heads)))  # it asserts its sizes and strides

    assert {verdict.status for verdict in result.verdicts} == {Status.PASS}
    assert len(seen) > 5
    assert {kernel.supports.refusal(case) for case in seen} == {None}
    assert {case.batch for case in seen} == {1, 2}  # a sequence alone is inside the declaration, a head is not


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_every_check_gives_contiguous_tensors_to_a_subject_that_takes_no_others(layout):
    def function(p):
        given = [x if layout == "bhsd" else x.transpose(1, 2) for x in (p.q, p.k, p.v, p.do) if x is not None]
        assert all(x.is_contiguous() for x in given)
        s = p.q @ p.k.mT * p.scale
        return torch.softmax(s, -1) @ p.v, torch.logsumexp(s, -1)

    supports = Supports(dtypes=("fp32",), gqa=False, contiguous=True, layouts=(layout,))
    kernel = subject(name="strict", supports=supports, device="cpu")(function)
    text = f"fv1 batch=2 heads_q=2 heads_kv=2 seq_q=9 seq_k=20 dtype=fp32 layout={layout} padding=nan"

    assert {verdict.status for verdict in judge_case(kernel, parse_case(text)).verdicts} == {Status.PASS}


WITHOUT = {
    "packed_decode": Supports(
        **DIMS, masks=("packed", "causal", "window"), causal=("bottom-right",), max_seq_q=4, backward=False
    ),
    "square_tiles": Supports(**DIMS, masks=("causal",), rectangular_causal=False, gaps=False, expand=False),
}
"""What could be declared of the same subjects by single switches; the rest would be up to `also`."""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", fast_one_in(2, SUBJECTS, kept=2))
def test_draws_need_no_rejection(name):
    narrow = SUBJECTS[name].supports
    wide = draw(WITHOUT[name], 60)

    assert sum(narrow.refusal(case) is None for case in wide) < 12
    assert len(draw(narrow, 60)) == 60
    assert not [c for c in standard_matrix(WITHOUT[name], device="cpu") if narrow.refusal(c) is None]
    assert len(standard_matrix(narrow, device="cpu")) >= 90


def leaks(case):
    """Whether the planted tiles show: keys behind the row in the tile of 128 that begins before the second tile of rows."""
    return dict(case.launch) == LEAKY and case.mask.causal is not None and case.seq_q > 64 and case.seq_k > 65


@pytest.mark.slow
def test_the_pair_of_tiles_that_leaks_is_drawn_and_found():
    rare, even = (  # of even draws one in 130 leaks
        [case for case in draw(tile_pairs(even=even).supports, 400, 1) if leaks(case)] for even in (False, True)
    )
    found = even[0]
    assert len(even) > len(rare)
    kernel = tile_pairs(even=True)
    case = dataclasses.replace(found, values=parse_case("fv1 seed=1").values)

    assert judge_case(kernel, case, checks=("accuracy",)).failures
    assert not judge_case(kernel, dataclasses.replace(case, launch=()), checks=("accuracy",)).failures
