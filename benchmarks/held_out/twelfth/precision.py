"""Held-out defects of precision, the twelfth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s12_backward_logits_in_16_bits",
        file="device/dkdv.py",
        before="                    zT = logits(dotT, i[None, :], j[:, None], q_end, k_end, terms, head, True)\n",
        after="                    zT = logits(dotT, i[None, :], j[:, None], q_end, k_end, terms, head, True)\n"
        "                    zT = zT.to(q.dtype).to(tl.float32)\n",
        outputs=("dk", "dv"),
        modelled_on="ModelTC/lightllm b5815a48: precision: logits that the backward keeps in the dtype of q, and the forward in fp32: in the kernel of dK and dV logits (base 2) are rounded to 16 bits before the exponential (infinite beyond 65504 in fp16), so that weights are off by the more the larger the logit is; fp32, dQ and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s12_sum_with_the_bias_in_16_bits",
        file="device/logits.py",
        before="        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)\n",
        after="        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)\n"
        "        z = z.to(terms.bias.ptr.dtype.element_ty).to(tl.float32)\n",
        outputs=_EVERY,
        modelled_on="precision: a sum that takes the type of the bias: beside a bias logits (base 2) are rounded to the dtype of the bias after it is added (infinite beyond 65504 in fp16), in all kernels; fp32 is right, and so is all without a bias",
        needs=("bias",),
    ),
    Mutant(
        name="s12_kept_share_in_bf16",
        file="arguments.py",
        before="        keep_share=1 - drop.p,\n",
        after="        keep_share=float(torch.tensor(1 - drop.p, dtype=torch.bfloat16)),\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: a probability that is cast with its model: under dropout O and dV are divided by 1 - p rounded to bf16, so off by up to 0.2 percent, and dQ and dK follow the O that is imprecise; the factor of dP, which pairs are dropped, the LSE, and p whose 1 - p bf16 holds (1/2, 1/4) are right",
        needs=("dropout",),
    ),
)
