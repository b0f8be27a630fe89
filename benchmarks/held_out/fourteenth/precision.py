"""Held-out defects of precision, the fourteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s14_keys_by_way_of_int8",
        file="device/forward.py",
        before="                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        after="                step = tl.max(tl.max(tl.abs(k.to(tl.float32)), 1), 0) / 127.0\n"
        "                step = tl.where(step == 0.0, 1.0, step)\n"
        "                k = (tl.floor(k.to(tl.float32) / step + 0.5) * step).to(k.dtype)\n"
        "                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        outputs=_EVERY,
        modelled_on="precision: SageAttention, which multiplies keys in int8, where exact products are declared: the forward rounds the keys of each tile to 255 steps up to the largest of them: logits are off by up to a 254th of it times the sum of the magnitudes of q; keys that are 0 or the largest are right, and the backward has the right keys and the LSE of the others",
    ),
    Mutant(
        name="s14_log_of_the_row_sum_by_a_parabola",
        file="device/softmax.py",
        before="    return divisor, m_i + tl.log2(divisor)\n",
        after="    bits = divisor.to(tl.int32, bitcast=True)\n"
        "    part = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)  # from 1 to 2\n"
        "    log2 = ((bits >> 23) - 128).to(tl.float32) + (2.0 - part * (1.0 / 3.0)) * part - 2.0 / 3.0\n"
        "    return divisor, m_i + log2\n",
        outputs=("lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: a fast logarithm, the exponent and a parabola of the fraction: the LSE is off by up to 0.01 in base 2, in every kernel, and gradients by up to 0.7 percent with it; row sums that are powers of two (one key, equal logits of 2, 4, 8 keys), and O, are right",
    ),
    Mutant(
        name="s14_sum_of_fp8_products_in_bf16",
        file="device/quantised/attention.py",
        before="        acc += tl.dot((p * WEIGHT_FACTOR).to(tl.float8e4nv), x.to(tl.float8e4nv, bitcast=True))\n",
        after="        acc += tl.dot((p * WEIGHT_FACTOR).to(tl.float8e4nv), x.to(tl.float8e4nv, bitcast=True))\n"
        "        acc = acc.to(tl.bfloat16).to(tl.float32)\n",
        outputs=("o",),
        modelled_on="precision: SageAttention's accumulator of 16 bits: where weights and values are multiplied in fp8, the accumulator is rounded to bf16 behind every tile of keys; the LSE is right, and so are all other ways to multiply codes, and sums that bf16 holds",
        subject="bundled-quantised",
    ),
    Mutant(
        name="s14_relative_table_in_bf16",
        file="relative.py",
        before="    return relative.table[:, clamped_buckets(relative).long()].contiguous()\n",
        after="    return relative.table[:, clamped_buckets(relative).long()].bfloat16().float().contiguous()\n",
        outputs=_EVERY,
        modelled_on="precision: T5's table of biases, which is cast to the type of the model with all other weights: the relative bias of a pair is rounded to bf16 before it is added, in all kernels and dtypes; tables whose numbers bf16 holds, and all without one, are right",
        needs=("relative_bias",),
    ),
)
