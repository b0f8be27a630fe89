"""Heads with regimes of their own: a defect of one regime is seen in one head of many, and no head hides what another shows."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.case.heads import head_regimes
from flashverify.checks import Plan, judge_case
from flashverify.checks.relations import ranges
from flashverify.subjects import Contract, Gradients
from tests.checks.naive import SUPPORTS, attention, make
from tests.checks.test_engine import Wrapped
from tests.checks.test_relations import broken, rounded, subject

MANY = "fv1 batch=2 heads_q=4 heads_kv=4 seq_q=6 seq_k=9 dtype=fp32 regime=normal,zeros,ties,{},integers,v-positive,tiny,spikes"
UNFIT = parse_case(
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=6 seq_k=9 dtype=bf16 regime=subnormal,normal,integers,normal seed=1"
)
"""The first head has values that no factor of 2 leaves normal."""
UNMASKED = dataclasses.replace(SUPPORTS, masks=())
PROMISED = pytest.mark.parametrize("promised", [True, None], ids=["bitwise", "within bounds"])


def capped(p):
    """The attention with logits cut at 2000, as a kernel that reserves larger ones for its mask."""
    k, v = (x.repeat_interleave(p.case.heads_q // p.case.heads_kv, 1) for x in (p.k, p.v))
    s = ((p.q @ k.mT) * p.scale).clamp(-2000.0, 2000.0)
    return torch.softmax(s, -1) @ v, s.logsumexp(-1)


@pytest.mark.parametrize("regime", ["logits-1e4", "near-ties-1e4", "sentinels"])
def test_a_defect_of_one_regime_is_seen_in_its_head_alone(regime):
    case = parse_case(MANY.format(regime))
    failures = judge_case(make(capped, supports=UNMASKED), case, Plan.run()).failures
    where = {v.index[0] * case.heads_kv + v.index[1] for v in failures if v.output in ("o", "lse") and len(v.index) > 2}

    assert {head_regimes(case).index(regime)} == where


def test_without_that_regime_the_defect_shows_nowhere():
    assert not judge_case(make(capped, supports=UNMASKED), parse_case(MANY.format("one-hot")), Plan.run()).failures


@pytest.mark.one_in(2)
@pytest.mark.parametrize("regime", ["logits-1e4", "overflow", "subnormal", "large"])
def test_a_right_subject_passes_beside_every_extreme(regime):
    assert not judge_case(make(), parse_case(MANY.format(regime)), Plan.run()).failures


@PROMISED
def test_v_is_doubled_in_the_heads_whose_values_allow_it(promised):
    contract = Contract(deterministic=promised)

    def offset(p):
        o, lse = rounded(p)
        return (o.float() + 2.0**-7).to(o.dtype), lse

    assert broken(subject(contract=contract), UNFIT, ("double-v",)) == set()
    assert broken(subject(offset, contract=contract), UNFIT, ("double-v",)) == {("double-v", "o")}


@PROMISED
def test_do_is_doubled_in_the_heads_whose_values_allow_it(promised):
    contract = Contract(deterministic=promised)

    def backward(problem, g):
        return Gradients(g.dq, g.dk.clamp(-0.25, 0.25), g.dv)

    right = subject(contract=contract)
    assert broken(right, UNFIT, ("double-do",)) == set()
    assert broken(Wrapped(backward=backward, inner=right), UNFIT, ("double-do",)) == {("double-do", "dk")}


def test_each_head_has_a_grid_and_a_range_of_its_own():
    x = torch.tensor([[2.0, 6.0], [0.0, 0.0], [2.0**-126, 1.0], [3.0e38, 1.0]]).view(2, 2, 2, 1)

    assert ranges.grid(x, 2).tolist() == [[1.0, math.inf], [-126.0, 0.0]]
    assert ranges.fits(x, "fp32", 2).tolist() == [[True, True], [True, False]]
    assert ranges.grid(x, 1).tolist() == [[1.0], [-126.0]]


@pytest.mark.parametrize("regime", ["normal", "large,normal"])
def test_a_huge_query_of_another_head_leaves_hidden_keys_huge(regime):
    def additive(p):
        rows, keys, head = torch.arange(p.case.seq_q).view(-1, 1), torch.arange(p.case.seq_k), torch.arange(2)
        hidden = keys > rows + p.case.seq_k - p.case.seq_q
        s = (p.q @ p.k.mT) * p.scale
        s = s.where(~hidden, torch.where(head.view(-1, 1, 1) == 0, -math.inf, s - 1e5))
        return torch.softmax(s, -1) @ p.v, s.logsumexp(-1)

    case = parse_case(
        f"fv1 heads_q=2 heads_kv=2 seq_q=2 seq_k=2 dtype=fp32 causal=bottom-right regime={regime} backward=no seed=1"
    )
    supports = dataclasses.replace(SUPPORTS, backward=False)

    assert {("hidden-keys", "o"), ("hidden-keys", "lse")} <= broken(
        make(additive, supports=supports), case, ("hidden-keys",)
    )
    assert broken(make(supports=supports), case, ("hidden-keys",)) == set()


def test_padding_that_counts_where_it_is_finite_shows_in_one_pass_of_mixed_poisons():
    """A kernel that skips what is not finite and takes the rest of a tile for keys."""

    def scaled(p):
        o, lse = attention(p)
        finite = p.v.abs().where(p.v.isfinite(), 0.0).amax((2, 3), keepdim=True)
        return o * (1 + 2.0**-22 * (finite > 8)), lse

    case = parse_case("fv1 batch=3 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 klen=9,4,7 dtype=fp32 padding=nan seed=5")

    def failing(subject, poison):
        judged = judge_case(subject, case, Plan(checks=("padding",), questions={"padding": (poison,)}))
        return {(v.error, v.output) for v in judged.failures}

    assert ("padding", "o") in failing(make(scaled), "mixed")
    assert failing(make(scaled), "inf") == set()
    assert failing(make(), "mixed") == set()
