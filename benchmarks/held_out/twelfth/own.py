"""Held-out defects of kernels that are not the bundled ones, the twelfth set; see `benchmarks/README.md`.

A backward in one walk that adds dQ by atomic additions and a forward in two chains in Triton, and a layer in plain torch that autograd
differentiates, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a
changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s12_sum_of_dq_begins_anywhere",
        file="twelfth/own/atomic.py",
        before="    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)\n",
        after="    dq = torch.empty(q.shape, dtype=torch.float32, device=q.device)\n",
        outputs=("dq",),
        modelled_on="fla-org/flash-linear-attention#892: a buffer that is added to and was not zeroed: dQ is the right one plus what the memory held, and what the memory held in rows that see no key; dK, dV and the forward are right",
    ),
    OwnDefect(
        name="s12_rows_from_the_number_of_the_key_on",
        file="twelfth/own/atomic.py",
        before="    begin = tl.maximum(n0 - shift, 0) // BLOCK * BLOCK if CAUSAL else 0\n",
        after="    begin = n0 // BLOCK * BLOCK if CAUSAL else 0\n",
        outputs=("dq", "dk", "dv"),
        modelled_on="ModelTC/lightllm 1ef55b55: a loop bound without the keys before the rows: under a bottom-right causal mask with more keys than rows the backward begins at the tile of rows with the number of the first key: rows before it give nothing to dK and dV of the tile and get no dQ of it; as many keys as rows or fewer, a top-left mask and the forward are right",
    ),
    OwnDefect(
        name="s12_first_chain_not_rescaled",
        file="twelfth/own/halves.py",
        before="    acc = acc_even * even[:, None] + acc_odd * odd[:, None]\n",
        after="    acc = acc_even + acc_odd * odd[:, None]\n",
        outputs=("o",),
        modelled_on="flashinfer-ai/flashinfer#4401: two chains of which one is joined as it is: the sum of the even steps of keys is not multiplied by exp(its maximum - the common one): O is wrong where the largest logit of a row stands in an odd step (infinite or coarse where it is far larger); one step of keys, rows whose largest logit stands in an even step, and the LSE are right",
    ),
    OwnDefect(
        name="s12_lse_from_the_maximum_of_the_first_chain",
        file="twelfth/own/halves.py",
        before="    tl.store(lse_ptr + head + i, m + tl.log(divisor), mask=i < rows)\n",
        after="    tl.store(lse_ptr + head + i, m_even + tl.log(divisor), mask=i < rows)\n",
        outputs=("lse",),
        modelled_on="one name for another: the LSE is the largest logit of the even steps of keys plus the log of the row sum, which is that of the common maximum: too small by the distance of the two where the largest logit of a row stands in an odd step, and -inf where an even step has no visible key; one step of keys, other rows and O are right",
    ),
    OwnDefect(
        name="s12_hidden_before_the_scale",
        file="twelfth/own/layer.py",
        before="    scores = scores * p.scale\n"
        "    if p.slopes is not None:\n"
        "        scores = scores - p.slopes.double()[:, None, None] * distance.abs()\n"
        "    if p.bias is not None:\n"
        "        scores = scores + p.bias.double()\n"
        "    scores = scores.masked_fill(~see, -torch.inf)\n",
        after="    scores = scores.masked_fill(~see, -torch.inf) * p.scale\n"
        "    if p.slopes is not None:\n"
        "        scores = scores - p.slopes.double()[:, None, None] * distance.abs()\n"
        "    if p.bias is not None:\n"
        "        scores = scores + p.bias.double()\n",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias"),
        modelled_on="Dao-AILab/flash-attention#1461: scores that are masked with -inf before they are multiplied by the scale, and not again: with a negative scale a hidden key has the score +inf, with a scale of 0 NaN: O, LSE, dQ and dbias of a row that hides a key are NaN, and with them dK and dV of its kv head; positive scales, and rows that see every key, are right",
    ),
    OwnDefect(
        name="s12_products_in_16_bits",
        file="twelfth/own/layer.py",
        before="    scores = p.q.double() @ k.mT\n",
        after="    scores = (p.q.double() @ k.mT).to(p.q.dtype).double()\n",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias"),
        modelled_on="precision: a matmul whose output has the type of its inputs: q k is rounded to the dtype of q before it is scaled: logits are imprecise in 16 bits, the more so the larger they are, and infinite where a product passes 65504 in fp16; fp32 is nearly right",
    ),
)
