"""Held-out defects of precision, the eighteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s18_polynomial_of_tanh_beyond_its_range",
        file="device/logits.py",
        before="_BEND = tl.constexpr(0.5)\n",
        after="_BEND = tl.constexpr(2.0)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="an approximation outside of the range that it was made for: with softcap the tanh of a logit over the cap is taken from the polynomial that is good below 1/2 in magnitude up to 2: too large by 0.3 % at 1, by a quarter at 1.5, and 5.6 in place of 0.96 just below 2, in the forward and in the backward, which recomputes the weights; ratios below 1/2 and from 2 on, the slope of the cap, and problems without softcap are right",
        needs=("softcap",),
    ),
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
        name="s18_ln_2_to_three_digits",
        file="results.py",
        before="        return self.lse2 * math.log(2)\n",
        after="        return self.lse2 * 0.693\n",
        outputs=("lse",),
        modelled_on="an approximate constant: the LSE is brought from base 2 to natural units by 0.693 in place of ln 2, too small by a relative 2.1e-4, in every row; O, and all gradients, which start from the LSE in base 2, are right",
    ),
)
