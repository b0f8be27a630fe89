"""Held-out defects of precision, the fifteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s15_weights_by_way_of_e4m3",
        file="device/forward.py",
        before="                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)",
        after="                p = p.to(tl.float8e4nv).to(tl.float32)\n"
        "                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: FlashAttention-3's fp8 forward, whose weights are cast to e4m3: whatever the dtype, the weights are rounded to three bits behind the leading one before the product with V (those below 2^-10 of the largest are 0), while the row sum counts them whole; the LSE and dV are right, dQ and dK follow the O that is imprecise; weights that are powers of two down to 2^-9 are right",
    ),
    Mutant(
        name="s15_latent_sum_in_the_dtype_of_the_cache",
        file="device/latent.py",
        before="            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)\n",
        after="            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)\n"
        "            acc = acc.to(kv.dtype).to(tl.float32)\n",
        outputs=("o",),
        modelled_on="thu-ml/SageAttention: precision: an accumulator of 16 bits: latent cache: what is summed of O, not yet divided, is rounded to the dtype of the cache behind every tile of keys (infinite beyond 65504 in fp16); the LSE and fp32 are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="s15_merge_gradient_by_a_difference",
        file="device/merge.py",
        before="            change = tl.sum(do[None, :, :] * (part - o[None, :, :]), 2) + dlse[None, :]\n",
        after="            stored = o.to(partials.ptr.dtype.element_ty).to(tl.float32)\n"
        "            delta = tl.sum(do * stored, 1)\n"
        "            change = tl.sum(do[None, :, :] * part, 2) - delta[None, :] + dlse[None, :]\n",
        outputs=("dq", "dk"),
        modelled_on="ROCm/aiter#3070: precision: a delta of the O that was stored in 16 bits: the backward of a merge takes dO . O_p - dO . O with O rounded to the dtype of the parts, where dO . (O_p - O) in fp32 is meant: the gradient through the LSE of a part, and so dQ and dK of attention over chunks of keys, are imprecise where parts are nearly equal, in 16 bits most; dV, O and LSE are right",
        subject="bundled-chunked",
        needs=("backward",),
    ),
    Mutant(
        name="s15_argument_of_the_cap_in_16_bits",
        file="device/logits.py",
        before="else tanh(dot * terms.cap_ratio) * terms.cap_log2\n",
        after="else tanh((dot * terms.cap_ratio).to(tl.float16).to(tl.float32)) * terms.cap_log2\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: a tanh of two halves at once: under a softcap the argument of the tanh, the scaled product over the cap, is rounded to fp16 in all kernels: logits are off by up to a relative 2^-11 of that argument (and 0 for arguments below 2^-25); the derivative takes the exact argument; arguments that fp16 holds, and all without a softcap, are right",
        needs=("softcap",),
    ),
)
