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
        name="s15_backward_weights_by_straight_lines",
        file="device/softmax.py",
        before="    p = tl.exp2(z - lse2)\n",
        after="    x = z - lse2\n"
        "    places = (tl.clamp(x, -126.0, 127.0) + 127.0) * 8388608.0  # exponent and fraction of a number\n"
        "    p = tl.where(x < -126.0, 0.0, places.to(tl.int32).to(tl.float32, bitcast=True))\n",
        outputs=("dq", "dk", "dv", "dbias", "drelative_bias"),
        modelled_on="precision: Schraudolph's exponential, the fraction of the exponent taken for that of the number: the weights that every backward (that over chosen keys too) recomputes are too large by up to 6 percent, by straight lines between the powers of two; weights that are powers of two, delta, dsink and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s15_maximum_kept_in_16_bits",
        file="device/forward.py",
        before="                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)  # p: [BLOCK_M, BLOCK_N]\n",
        after="                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)  # p: [BLOCK_M, BLOCK_N]\n"
        "                m_i = m_i.to(q.dtype).to(tl.float32)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: a state of the softmax that is kept in the type of the inputs: behind every tile of keys the forward rounds the running maximum to the dtype of q (infinite beyond 65504 in fp16), while what was summed is relative to the exact one: the LSE is off by that rounding (base 2, up to 2^-9 of the maximum in bf16, 2^-12 in fp16), O from the second tile of keys of a row on, where tiles weigh by the roundings of different maxima; fp32, decoding, maxima that 16 bits hold, and O of a single tile are right, and the gradients follow that O and LSE",
    ),
)
