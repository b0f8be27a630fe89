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
        name="s18_relative_table_in_the_dtype_of_q",
        file="terms.py",
        before="        by_distance=None if options.relative_bias is None else by_distance(options.relative_bias),\n",
        after="        by_distance=None if options.relative_bias is None else by_distance(options.relative_bias).to(dtype).float(),\n",
        outputs=("o", "lse", "dq", "dk", "dv", "drelative_bias"),
        modelled_on="precision: a table of fp32 that is cast like an activation: the relative bias is rounded to the dtype of q before it is added to the logits, in the forward and in the backward (infinite beyond 65504 in fp16); fp32, values that the dtype has, and problems without a relative bias are right",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s18_ln_2_to_five_digits",
        file="results.py",
        before="        return self.lse2 * math.log(2)\n",
        after="        return self.lse2 * 0.69315\n",
        outputs=("lse",),
        modelled_on="an approximate constant: the LSE is brought from base 2 to natural units by 0.69315 in place of ln 2, too large by a relative 4e-6, some thirty roundings of fp32, in every row; O, and all gradients, which start from the LSE in base 2, are right",
    ),
)
