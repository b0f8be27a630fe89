"""Held-out defects of precision, the seventeenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s17_delta_of_products_in_low_precision",
        file="device/delta.py",
        before="    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)\n",
        after="    delta = tl.sum((o * do).to(tl.float32), 1)\n",
        outputs=("dq", "dk", "dbias", "dsink", "drelative_bias", "delta"),
        modelled_on="precision: a conversion after the product, not before it: each product of O and dO in delta is rounded to their dtype before the sum, infinite beyond 65504 and lost below 2^-24 in fp16; delta, and with it dQ, dK, dbias, dsink and drelative_bias, carry that error; fp32, the forward and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="s17_backward_reads_an_lse_in_the_dtype_of_q",
        file="launch.py",
        before="    lse2 = lse2.contiguous()\n",
        after="    lse2 = lse2.to(q.dtype).float().contiguous()  # as it is saved: half the memory\n",
        outputs=("dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="ModelTC/lightllm git b5815a48: a statistic kept in the dtype of the model: the backward works with an LSE that is rounded to the dtype of q: all weights of a row are too large or too small by one factor, up to 2^(|LSE| 2^-12) in fp16, and so are all gradients that it gives; the LSE that the forward returns is in fp32 and right; fp32 is right",
        needs=("backward",),
    ),
    Mutant(
        name="s17_sums_rounded_between_query_heads",
        file="device/dkdv.py",
        before="        h = hk * sizes.group + member\n",
        after="        h = hk * sizes.group + member\n"
        "        dk = dk.to(q_view.ptr.dtype.element_ty).to(tl.float32)\n"
        "        dv = dv.to(q_view.ptr.dtype.element_ty).to(tl.float32)\n",
        outputs=("dk", "dv"),
        modelled_on="zhuzilin/ring-flash-attention#42: a sum over parts that is kept in the dtype of the tensors: dK and dV of a kv head are rounded to the dtype of q after each query head of the group but the last, dK before its scale (infinite beyond 65504 in fp16); groups of one, fp32, the forward and dQ are right",
        needs=("backward", "groups"),
    ),
    Mutant(
        name="s17_slope_of_the_cap_by_a_growing_exponential",
        file="device/logits.py",
        before="    c = _complement(tl.abs(x))\n    return c * (2.0 - c)\n",
        after="    e = tl.exp2(tl.abs(x) * (2.0 * LOG2_E))\n    return 4.0 * e / ((1.0 + e) * (1.0 + e))\n",
        outputs=("dq", "dk"),
        modelled_on="vllm-project/vllm#56579: a hyperbolic function by exponentials that grow: the derivative of the softcap, 4 e / (1 + e)^2 with e = exp(2 |x|), is inf / inf, so NaN, in dQ and dK where a scaled product is more than about 44 times the cap and the pair has a weight; smaller products, whose derivative is right or 0, the forward, dV, and all without a softcap are right",
        needs=("backward", "softcap"),
    ),
)
