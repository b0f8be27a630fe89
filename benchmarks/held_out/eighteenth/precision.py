"""Held-out defects of precision, the eighteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s18_dp_in_the_dtype_of_do",
        file="device/dq.py",
        before="                dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        after="                dp = tl.dot(do, tl.trans(v), input_precision=PRECISION).to(do.dtype).to(tl.float32)\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="ModelTC/lightllm#474: products stored in the dtype of the inputs: in the kernel of dQ, dP = dO V^T is rounded to the dtype of dO before delta is subtracted, which leaves its rounding error where the two nearly cancel, and an infinity beyond 65504 in fp16; fp32, the forward, dK and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="s18_sink_above_the_maximum_overflows",
        file="device/softmax.py",
        before="    m_new = tl.where(empty, m_i, tl.maximum(m_i, sink2))\n",
        after="    m_new = m_i\n",
        outputs=("o", "lse"),
        modelled_on="overflow of an intermediate value: the sink is taken into the sum of a row as exp2(sink - m) with the maximum m of the row's logits and not of the two: where a sink lies more than 128 in base 2 (some 88 in natural units) above all logits of a row, the sum and so the LSE are infinite, and O is 0; nearer sinks, rows without keys, and problems without sinks are right",
        needs=("sink",),
    ),
    Mutant(
        name="s18_ln_2_to_three_digits",
        file="results.py",
        before="        return self.lse2 * math.log(2)\n",
        after="        return self.lse2 * 0.693\n",
        outputs=("lse",),
        modelled_on="an approximate constant: the LSE is brought from base 2 to natural units by 0.693 in place of ln 2, too small by a relative 2.1e-4, in every row; O, and all gradients, which start from the LSE in base 2, are right",
    ),
)
