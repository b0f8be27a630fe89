"""Defects of precision: a sum, a weight or a statistic in a format that is too narrow for it."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["PRECISION"]

_KEPT = "(-1 if {0} == tl.float32 else -8192 if {0} == tl.float16 else -65536)"
"""The bits of an fp32 number that its truncation to a dtype keeps, all in fp32 itself; a normal fp16 number has the last 10 of 23."""


def _truncated(weights: str, dtype: str) -> str:
    """`weights`, fp32, cut off where a cast to `dtype` would round."""
    return f"({weights}.to(tl.int32, bitcast=True) & {_KEPT.format(dtype)}).to(tl.float32, bitcast=True).to({dtype})"


PRECISION = (
    Mutant(
        name="delta_in_the_input_dtype",
        file="device/delta.py",
        before="delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)",
        after="delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1).to(o.dtype).to(tl.float32)",
        outputs=("delta",),
        modelled_on="ROCm/aiter#3070: a delta with the noise of 16 bits, amplified in every gradient that it reaches",
        needs=("backward",),
    ),
    Mutant(
        name="accumulator_in_the_input_dtype",
        file="device/forward.py",
        before="acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)",
        after="acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)"
        ".to(v.dtype).to(tl.float32)",
        outputs=("o",),
        modelled_on="thu-ml/SageAttention: the product of weights and values accumulated in fp16",
    ),
    Mutant(
        name="dv_accumulated_in_the_input_dtype",
        file="device/dkdv.py",
        before="dv = tl.dot(wT.to(do.dtype), do, dv, input_precision=PRECISION)",
        after="dv = tl.dot(wT.to(do.dtype), do, dv, input_precision=PRECISION).to(do.dtype).to(tl.float32)",
        outputs=("dv",),
        modelled_on="zhuzilin/ring-flash-attention#42: partial results accumulated in bf16, an error that grows with their number",
        needs=("backward",),
    ),
    Mutant(
        name="weights_truncated",
        file="device/forward.py",
        before="acc = tl.dot(p.to(v.dtype), v,",
        after=f"acc = tl.dot({_truncated('p', 'v.dtype')}, v,",
        outputs=("o",),
        modelled_on="weights cut off where they are to be rounded: every one too small",
    ),
    Mutant(
        name="weights_of_dv_truncated",
        file="device/dkdv.py",
        before="dv = tl.dot(wT.to(do.dtype), do,",
        after=f"dv = tl.dot({_truncated('wT', 'do.dtype')}, do,",
        outputs=("dv",),
        modelled_on="the same in the backward",
        needs=("backward",),
    ),
    Mutant(
        name="dq_accumulated_in_the_input_dtype",
        file="device/dq.py",
        before="dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)",
        after="dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION).to(k.dtype).to(tl.float32)",
        outputs=("dq",),
        modelled_on="a dQ that key blocks add to in 16 bits, such as one of atomic additions",
        needs=("backward",),
    ),
    Mutant(
        name="ds_truncated",
        file="device/dq.py",
        before="dq = tl.dot(ds.to(k.dtype), k,",
        after=f"dq = tl.dot({_truncated('ds', 'k.dtype')}, k,",
        outputs=("dq",),
        modelled_on="dS cut off where it is to be rounded: every share of dQ too small",
        needs=("backward",),
    ),
    Mutant(
        name="logits_in_the_input_dtype",
        file="device/forward.py",
        before="dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)",
        after="dot = tl.dot(q, tl.trans(k), input_precision=PRECISION).to(q.dtype).to(tl.float32)",
        outputs=("o", "lse"),
        modelled_on="ModelTC/lightllm b5815a48: logits kept in the dtype of q",
    ),
    Mutant(
        name="row_sum_in_bf16",
        file="device/softmax.py",
        before="return p, m_new, l_i * alpha + tl.sum(p, 1), alpha",
        after="return p, m_new, (l_i * alpha + tl.sum(p, 1)).to(tl.bfloat16).to(tl.float32), alpha",
        outputs=("o", "lse"),
        modelled_on="sonos/tract#2586: a row sum in 16 bits, which stops growing",
    ),
    Mutant(
        name="row_sum_of_rounded_weights",
        file="device/softmax.py",
        before="return p, m_new, l_i * alpha + tl.sum(p, 1), alpha",
        after="return p, m_new, l_i * alpha + tl.sum(p.to(tl.bfloat16).to(tl.float32), 1), alpha",
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention#2721: numerator and denominator disagree on whether weights are rounded",
    ),
    Mutant(
        name="lse_in_the_input_dtype",
        file="device/forward.py",
        before="tl.store(row_ptrs(stats.lse2, stats, b, h, q0, i), lse2, mask=i < sq)",
        after="tl.store(row_ptrs(stats.lse2, stats, b, h, q0, i), lse2.to(q.dtype), mask=i < sq)",
        outputs=("lse",),
        modelled_on="tile-ai/tilelang#328: an LSE in fp16",
    ),
    Mutant(
        name="log2_of_e_in_five_digits",
        file="terms.py",
        before="LOG2_E = math.log2(math.e)",
        after="LOG2_E = 1.4427",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="ROCm/aiter a549dbd4: a scale multiplied by 1.4427, which is log2(e) to five digits",
    ),
)
