"""Each head of a case is a problem of its own: its values and bounds are those that it has without the other heads."""

import dataclasses

import pytest
import torch

from flashverify.case import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.numerics import Form, forward, prepare
from flashverify.truth import Truth, inputs_of

PLAIN = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=21 seq_k=37 dim_qk=16 dim_v=24"
CASES = (
    f"{PLAIN} regime=overflow,subnormal,normal,logits-1e5 seed=2",
    f"{PLAIN} dtype=bf16 causal=bottom-right klen=37,9 regime=large,tiny,spikes,v-cancelling dlse=yes seed=3",
    f"{PLAIN} dtype=fp32 precision=tf32x3 regime=overflow,tiny,subnormal,normal seed=4",
    f"{PLAIN} bitmap=128,5,1 bias=full sink=yes softcap=30 regime=negative,outlier,few-keys,subnormal-o seed=9",
    f"{PLAIN} dtype=bf16 dropout=0.3 window=9,4 regime=sentinels,weight-edges,delta-cancels,zeros seed=5",
    f"{PLAIN} regime=overflow,normal,tiny,shifted seed=12 edits=v:0,1,3,0:nan;q:1,0,2,0:inf",
)
FORMS = {
    "plain": Form(),
    "in order": Form(key_order="ascending", block_n=16),
    "narrow": Form(s_dtype="input", pv_dtype="input", dp_dtype="input", prescale_fwd="q", gqa_partial="input"),
    "splits": Form(n_splits=3, partial_dtype="fp16"),
    "from weights": Form(delta_from="p", ds_from="p_rounded"),
}
FLAGS = ("may_overflow", "may_flip", "must_overflow", "uninformative")


def of_head(inputs, entry, head, group):
    """The problem of one head of k of one batch entry."""
    rows = slice(head * group, (head + 1) * group)

    def pairs(x):
        if x is None:
            return None
        x = x.reshape((1,) * (4 - x.ndim) + x.shape)
        x = x if x.shape[0] == 1 else x[entry : entry + 1]
        return x if x.shape[1] == 1 else x[:, rows]

    def own(x, heads):
        return None if x is None else x[entry : entry + 1, heads]

    return dataclasses.replace(
        inputs,
        q=own(inputs.q, rows),
        k=own(inputs.k, slice(head, head + 1)),
        v=own(inputs.v, slice(head, head + 1)),
        do=own(inputs.do, rows),
        dlse=own(inputs.dlse, rows),
        visible=pairs(inputs.visible),
        biases=tuple(map(pairs, inputs.biases)),
        keep=pairs(inputs.keep),
        sink=None if inputs.sink is None else inputs.sink[rows],
    )


def everything(inputs, dtype, form, o, lse):
    """Values and bounds by mode and output."""
    truth = Truth(inputs, dtype, form)
    given, strict = truth.given(o, lse)
    found = {("end-to-end", name): pair for name, pair in (truth.forward() | truth.backward()).items()}
    found |= {("conditional", name): pair for name, pair in given.items()}
    return found | {("strict", name): pair for name, pair in (truth.strict() | strict).items()}


def differing(case, form):
    """Mode, output and place of what a head has otherwise beside the others."""
    problem, _ = materialize(case)
    inputs, group = inputs_of(problem)[0].dense().without_learned(), case.heads_q // case.heads_kv
    exact = Truth(inputs, case.dtype, form).forward()
    o, lse = (exact[name][0].nan_to_num(0.0, 0.0, 0.0) * (1 + 2.0**-12) for name in ("o", "lse"))
    whole, found = everything(inputs, case.dtype, form, o, lse), []
    for entry in range(case.batch):
        for head in range(case.heads_kv):
            rows = slice(head * group, (head + 1) * group)
            own = [x[entry : entry + 1, rows].contiguous() for x in (o, lse)]
            alone = everything(of_head(inputs, entry, head, group), case.dtype, form, *own)
            for (mode, name), (value, bound) in whole.items():
                if name not in ("o", "lse", "delta", "dq", "dk", "dv"):
                    continue
                place = (slice(entry, entry + 1), slice(head, head + 1) if name in ("dk", "dv") else rows)
                usual = "conditional" if name == "dv" else "end-to-end"  # of a head in which nothing is strict
                other = alone.get((mode, name)) or alone[usual, name]
                same = [
                    torch.equal(
                        getattr(bound, flag).expand(value.shape)[place], getattr(other[1], flag).expand(other[0].shape)
                    )
                    for flag in FLAGS
                ]
                same += [
                    torch.allclose(a[place], b, rtol=1e-9, atol=0.0, equal_nan=True)
                    for a, b in ((bound.bound, other[1].bound), (bound.self_error, other[1].self_error))
                ]
                if not all(same):
                    found.append((mode, name, entry, head))
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", CASES)
def test_the_bounds_of_a_head_follow_from_nothing_but_the_head(text, form):
    assert differing(parse_case(text), FORMS[form]) == []


def test_a_hull_over_all_heads_would_be_seen(monkeypatch):
    hull = prepare._hull
    monkeypatch.setattr(prepare, "_hull", lambda v, seen: tuple(x.amax(0, True).expand_as(x) for x in hull(v, seen)))

    assert differing(parse_case(CASES[0]), Form())


def test_a_limit_that_one_head_of_many_reaches_would_be_seen(monkeypatch):
    over = forward.accumulator_overflow
    monkeypatch.setattr(forward, "accumulator_overflow", lambda *given: over(*given).any().expand_as(given[-1]))

    assert differing(parse_case(f"{PLAIN} dtype=bf16 regime=overflow,normal seed=3"), Form())
