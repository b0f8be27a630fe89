"""Held-out defects of kernels that are not the bundled ones, the eleventh set; see `benchmarks/README.md`.

Attention as a matrix of logits in plain torch, attention in slices of the values in Triton, and decoding over the cache of the first paged
attention kernels in Triton, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which `as_a_user.py`
runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s11_lse_without_the_bias",
        file="eleventh/own/eager.py",
        before="    return (weights / divisor @ v).to(p.q.dtype), lse[..., 0].float()\n",
        after="    if p.bias is not None:\n"
        "        plain = (s - p.bias.double()).masked_fill(~see, -torch.inf)\n"
        "        lse = torch.where(total == 0, -torch.inf, torch.logsumexp(plain.masked_fill(total == 0, 0.0), -1, keepdim=True))\n"
        "    return (weights / divisor @ v).to(p.q.dtype), lse[..., 0].float()\n",
        outputs=("lse", "dq", "dk", "dbias"),
        modelled_on="an LSE of other logits than those of O: with a bias the LSE is that of the logits without it, and what comes through it reaches dQ and dK by weights without the bias, and dbias not at all; O, dV and calls without a bias are right",
    ),
    OwnDefect(
        name="s11_hidden_keys_minus_10000",
        file="eleventh/own/eager.py",
        before="    s = logits(p, k).masked_fill(~see, -torch.inf)\n",
        after="    s = logits(p, k) - 10000.0 * ~see\n",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias"),
        modelled_on="vllm-project/vllm#4405: a mask that is added as -10000: a row that sees no key has the softmax over all of them, hidden ones and padding, with an LSE of about -10000; rows that see a key are right unless a hidden logit lies some 10000 above its visible ones",
    ),
    OwnDefect(
        name="s11_product_of_the_last_chunk",
        file="eleventh/own/slices.py",
        before='            dot += tl.dot(q, tl.trans(k), input_precision="ieee")\n',
        after='            dot = tl.dot(q, tl.trans(k), input_precision="ieee")\n',
        outputs=("o", "lse"),
        modelled_on="a sum that is set where it is to be added: for head dims above 32 the logits are the product of the last up to 32 channels alone; head dims up to 32 are right",
    ),
    OwnDefect(
        name="s11_slices_stored_over_the_first",
        file="eleventh/own/slices.py",
        before="    c = piece * SLICE + tl.arange(0, SLICE)[None, :]\n",
        after="    c = tl.arange(0, SLICE)[None, :]\n",
        outputs=("o",),
        modelled_on="fla-org/flash-linear-attention#1031: every slice of the values is stored at the offset of the first one: the first 32 channels of O hold another slice's, and those from 32 on what the memory held; up to 32 channels of V, and the LSE, are right",
    ),
    OwnDefect(
        name="s11_words_of_eight_elements",
        file="eleventh/own/x_cache.py",
        before="SLOPES=p.slopes is not None, X=x.key_cache.shape[4], STEP=STEP,\n",
        after="SLOPES=p.slopes is not None, X=8, STEP=STEP,\n",
        outputs=("o", "lse"),
        modelled_on="16 bytes that are taken for eight elements in every type: in fp32, where they are four, the channels of keys are read from other slots and other channels of the page; 16 bits and the values are right",
    ),
    OwnDefect(
        name="s11_values_sixteen_slots_apart",
        file="eleventh/own/x_cache.py",
        before="cv[None, :] * size\n",
        after="cv[None, :] * 16\n",
        outputs=("o",),
        modelled_on="gittensor-ai-lab/sparkinfer#425: a size that is written into the kernel: the channels of the values are read as if pages had 16 slots: O is wrong for other page sizes; pages of 16 keys and the LSE are right",
    ),
)
