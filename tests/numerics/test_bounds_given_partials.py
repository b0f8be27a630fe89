"""The bound of a merge that is given its parts (docs/bounds.md, section 5): close to what an adverse merge errs by, and sharper than that of split-KV."""

import pytest
import torch

from flashverify import Form, adapters, judge_case, parse_case

U = 2.0**-24
SIZES = "batch=2 heads_q=2 heads_kv=2 seq_q=9 seq_k=24 dim_qk=64 dim_v=8 backward=no"
CASES = [
    f"fv1 {SIZES} dtype={dtype} regime={regime} launch=splits:{splits}"
    for dtype in ("fp32", "bf16")
    for regime, splits in (("normal", 2), ("normal", 5), ("logits-1e4", 5), ("v-cancelling", 2))
]


def adverse(o, lse):
    """The merge in float64 with the worst that the form allows of each step, in the direction of the first channel."""
    sign = torch.sign(o[..., :1].double() - o[..., :1].double().mean(1, keepdim=True)).squeeze(-1)
    lse = lse.double()
    stored = lse + 2 * U * lse.abs() * sign  # read back, and converted
    gap = stored - stored.amax(1, keepdim=True)
    weight = torch.exp2(gap * (1 + 3 * U * sign)) * (1 + 5 * U * sign)
    total = weight.sum(1) * (1 + 2 * U)
    merged = (weight.unsqueeze(-1) * o.double()).sum(1) / total.unsqueeze(-1) * (1 + 4 * U)
    found = stored.amax(1) + total.log2() * (1 + U) + 2.0**-22
    return merged.to(o.dtype), (found * (1 + 2 * U)).float()


def judged(kernel, text, **given):
    result = judge_case(
        adapters.merge_states(kernel, device="cpu", **given), parse_case(text), checks=("accuracy", "nonfinite")
    )
    return result, {stats.output: float.fromhex(stats.worst) for stats in result.stats}


def test_an_adverse_merge_stays_within_the_bound_and_comes_close():
    worst = {"o": 0.0, "lse": 0.0}
    for text in CASES:
        result, ratios = judged(adverse, text)
        assert result.failures == ()
        worst = {name: max(ratio, ratios[name]) for name, ratio in worst.items()}

    assert all(ratio > 0.2 for ratio in worst.values()), worst


def adverse_step(out, lse, block_out, block_lse):
    """A step of a ring, likewise: the running O and LSE are in fp32."""
    block_lse = block_lse.transpose(1, 2).unsqueeze(-1)
    if out is None:
        return block_out.float(), block_lse
    sign = torch.sign(block_out[..., :1].double() - out[..., :1])
    signed = ((lse.double(), -sign), (block_lse.double(), sign))
    largest = torch.maximum(lse, block_lse).double()
    old, new = (torch.exp((x * (1 + s * U) - largest) * (1 + 3 * U * s)) * (1 + 5 * U * s) for x, s in signed)
    total = (old + new) * (1 + 2 * U)
    merged = (old * out + new * block_out.double()) / total * (1 + 4 * U)
    return merged.float(), ((largest + total.log() * (1 + 2 * U) + 2.0**-22) * (1 + U)).float()


def test_an_adverse_ring_stays_within_the_bound():
    ring, worst = adapters.ring_merge(adverse_step, device="cpu"), 0.0
    for text in CASES:
        case = parse_case(text.replace("splits:2", "blocks:2").replace("splits:5", "blocks:4"))
        result = judge_case(ring, case, checks=("accuracy", "nonfinite"))
        assert result.failures == ()
        worst = max(worst, *(float.fromhex(stats.worst) for stats in result.stats))

    assert worst > 0.05


def test_a_chain_of_merges_stays_within_the_bound_of_its_length_and_comes_close():
    def chain(case):
        parts = dict(case.launch)["blocks"]
        fields = {"n_splits": parts, "n_merges": parts - 1, "partial_dtype": case.dtype, "partial_lse_base": "e"}
        return Form(partials="given", kappa=0.0, **fields)

    ring, worst = adapters.ring_merge(adverse_step, device="cpu", form=chain), {"o": 0.0, "lse": 0.0}
    for text in CASES:
        case = parse_case(text.replace("splits:2", "blocks:2").replace("splits:5", "blocks:4"))
        result = judge_case(ring, case, checks=("accuracy", "nonfinite"))
        assert result.failures == ()
        worst |= {stats.output: max(worst[stats.output], float.fromhex(stats.worst)) for stats in result.stats}

    assert all(ratio > 0.2 for ratio in worst.values()), worst


def test_every_merge_of_a_chain_is_charged():
    """Steps that each turn the LSE by three more roundings are within the bound of their number, not of one."""

    def careless(out, lse, block_out, block_lse):
        out, lse = adverse_step(out, lse, block_out, block_lse)
        return out, lse * (1 + 3 * U)

    def form(merges):
        return Form(
            n_splits=4, n_merges=merges, partial_dtype="fp32", partial_lse_base="e", partials="given", kappa=0.0
        )

    case = parse_case(f"fv1 {SIZES} dtype=fp32 regime=logits-1e4 launch=blocks:4")
    failing = [
        bool(judge_case(adapters.ring_merge(careless, device="cpu", form=form(n)), case, checks=("accuracy",)).failures)
        for n in (1, 3)
    ]
    assert failing == [True, False]


def coarse(o, lse):
    """A merge whose LSE is off by a relative 2^-18."""
    merged, total = adverse(o, lse)
    return merged, total * (1 + 2.0**-18)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_merge_is_charged_no_logits(dtype):
    text = f"fv1 {SIZES} dtype={dtype} regime=v-positive launch=splits:2"
    computed = Form(lse_base="2", n_splits=2, partial_dtype=dtype, partial_lse_base="2")

    assert {v.output for v in judged(coarse, text)[0].failures} == {"lse"}
    assert judged(coarse, text, form=computed)[0].failures == ()
