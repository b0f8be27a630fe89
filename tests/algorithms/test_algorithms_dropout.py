"""Dropout of the weights in Algorithms 2, 4 and 5: which pairs are kept, what it costs in memory, and defects that are found."""

from dataclasses import replace

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.interpreter import count
from flashverify.subjects import load_subject
from flashverify_kernels.algorithms import Setting, paper_backward, paper_forward, standard_forward, two_pass_forward
from flashverify_kernels.dropout import Dropout

CASES = {
    "paper-flash": "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=20 seq_k=37 dim_qk=16 dim_v=16 klen=33,37 dropout=0.4 dtype={}",
    "paper-block-sparse": "fv1 heads_q=2 seq_q=40 seq_k=64 dim_qk=16 dim_v=16 blocks=16,32,128,1 dropout=0.4 dtype={}",
}


def failures(name, dtype="fp32"):
    case = parse_case(CASES[name].format(dtype))
    return {v.output for v in judge_case(load_subject(name), case, Plan.only("accuracy", case)).failures}


def inputs(n=48, d=16):
    return [torch.randn(1, 2, n, d, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


def setting(drop):
    return Setting(scale=0.25, block_m=16, block_n=16, dropout=drop)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_fails_as_it_is(name, dtype):
    assert not failures(name, dtype)


WRONG = {
    "the backward keeps all": (lambda drop, backward: None if backward else drop, {"dq", "dk", "dv"}),
    "the backward draws anew": (
        lambda drop, backward: replace(drop, offset=drop.offset ^ backward),
        {"dq", "dk", "dv"},
    ),
    "another seed": (lambda drop, _: replace(drop, seed=drop.seed ^ 1 << 40), {"o", "dq", "dk", "dv"}),
    "another share": (lambda drop, _: replace(drop, p=drop.p + 0.03), {"o", "dq", "dk", "dv"}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("defect", WRONG)
def test_other_draws_are_found(monkeypatch, name, defect):
    subject = load_subject(name)
    function = subject._function
    change, outputs = WRONG[defect]

    def changed(kind):
        def run(*arguments):
            found = replace(arguments[-1], dropout=change(arguments[-1].dropout, kind == "backward"))
            return function(kind)(*arguments[:-1], found)

        return run

    monkeypatch.setattr(subject, "_function", changed)

    assert failures(name) == outputs


STEPS = {
    "P of dV is not dropped": ("p_dropped.to(do.dtype)", "p.to(do.dtype)", {"dv"}),
    "dV is not scaled": ("dv_j *= keep_scale", "dv_j *= 1.0", {"dv"}),
    "dP is not scaled": ("dp = tl.where(keep, dp * keep_scale, 0.0)", "dp = tl.where(keep, dp, 0.0)", {"dq", "dk"}),
    "dP is not dropped": ("dp = tl.where(keep, dp * keep_scale, 0.0)", "dp = dp * keep_scale", {"dq", "dk"}),
    "dS of the dropped P": ("p * (dp - delta[:, None])", "p_dropped * (dp - delta[:, None])", {"dq", "dk"}),
}


@pytest.mark.parametrize("defect", STEPS)
def test_a_wrong_step_of_algorithm_4_is_found(edited, defect):
    before, after, outputs = STEPS[defect]
    edited("paper_backward_kernel", before, after)

    assert failures("paper-flash") == outputs


def test_a_sum_of_the_weights_that_are_kept_alone_is_found(edited):
    edited(
        "paper_forward_kernel",
        "m_ij = tl.max(z, 1)",
        "z = tl.where(kept(i, j, n, seed, offset, threshold), z, float('-inf'))\n                m_ij = tl.max(z, 1)",
    )

    assert failures("paper-flash") >= {"o", "lse"}


def test_o_has_a_direction_where_the_factor_multiplies_the_weights_before_their_rounding(edited):
    q, k, v, _ = (x.to(torch.bfloat16) for x in inputs())
    v = v.abs()
    drop = Dropout(0.1, 3)

    def mean_error():
        wide = [x.float() for x in (q, k, v)]
        found, exact = (paper_forward(*x, setting(drop)).o.double() for x in ((q, k, v), wide))
        return float((found / exact - 1).mean())

    scaled_last = mean_error()
    edited("paper_forward_kernel", "pv = tl.dot(p.to(v.dtype), v,", "pv = tl.dot((p * keep_scale).to(v.dtype), v,")
    edited("paper_forward_kernel", "pv *= keep_scale", "pv *= 1.0")
    scaled_first = mean_error()

    assert abs(scaled_last) < 1e-4
    assert scaled_first < -2e-4  # 1 / 0.9 in bf16 is 0.16 % too small, and so is every largest weight, 1


def test_dropout_stores_no_mask():
    q, k, v, do = inputs()
    stores = []
    for drop in (None, Dropout(0.5, 1, 2)):
        with count() as launches:
            found = paper_forward(q, k, v, setting(drop))
            paper_backward(do, q, k, v, found, setting(drop))
        stores.append([{name: (x.loads, x.stores) for name, x in launch.traffic.items()} for launch in launches])

    assert stores[0] == stores[1]


def test_a_share_of_0_is_no_dropout_bit_for_bit():
    q, k, v, _ = inputs()

    assert torch.equal(paper_forward(q, k, v, setting(Dropout(0.0, 5))).o, paper_forward(q, k, v, setting(None)).o)


@pytest.mark.parametrize("forward", [standard_forward, two_pass_forward])
def test_the_other_algorithms_refuse_dropout(forward):
    q, k, v, _ = inputs()

    with pytest.raises(ValueError, match=r"only Algorithms 2, 4 and 5 drop weights, got Dropout\(p=0.5"):
        forward(q, k, v, setting(Dropout(0.5)))
