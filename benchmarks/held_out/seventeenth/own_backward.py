"""Held-out defects of backwards that are not the bundled ones, the seventeenth set; see `benchmarks/README.md`.

A kernel in Triton that keeps the maximum and the sum of its softmax apart and takes its delta from P dP, and one in plain torch with a backward
by hand that goes by chunks of rows, in the folder `own`. They are planted by themselves, as those of the sixteenth set.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s17_dlse_after_delta_is_stored",
        file="seventeenth/own/backward_bands.py",
        before="    if dlse_ptr is not None:\n"
        "        delta -= tl.load(dlse_ptr + bh * rows + i, mask=i < rows, other=0.0)\n"
        "    tl.store(delta_ptr + bh * rows + i, delta, mask=i < rows)\n",
        after="    tl.store(delta_ptr + bh * rows + i, delta, mask=i < rows)\n"
        "    if dlse_ptr is not None:\n"
        "        delta -= tl.load(dlse_ptr + bh * rows + i, mask=i < rows, other=0.0)\n",
        outputs=("dk",),
        modelled_on="Dao-AILab/flash-attention#2706 (review): two statements in the wrong order: the sum of P dP goes to memory before the gradient of the LSE is subtracted from it, so that the kernel of dK and dV works without that gradient: dK lacks its share P dLSE; dQ, which has it in registers, dV, and all gradients of calls without a gradient of the LSE are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s17_distances_of_dkdv_without_the_shift",
        file="seventeenth/own/backward_bands.py",
        before="        see = seen(place, j[None, :], keys, left, right, LEFT, RIGHT) & (i < rows)[:, None]\n"
        "        p = normal(scores(q, k, place, j[None, :], scale, slope), m, total, see)\n",
        after="        see = seen(place, j[None, :], keys, left, right, LEFT, RIGHT) & (i < rows)[:, None]\n"
        "        p = normal(scores(q, k, i[:, None], j[None, :], scale, slope), m, total, see)\n",
        outputs=("dk", "dv"),
        modelled_on="vllm-project/vllm#945: distances from another row than that of the mask: dK and dV take the distances of ALiBi from the number of the row, where the forward and dQ take them from its place among the keys: with ALiBi under a bottom-right causal mask and other numbers of rows and keys the weights of dK and dV are too large or too small, by one factor for the keys up to the row's own number and by growing ones for those behind it; as many rows as keys, top-left and no causal masks, calls without ALiBi, and dQ are right",
        needs=("backward", "alibi", "causal"),
    ),
    OwnDefect(
        name="s17_slope_of_the_cap_behind_the_bias",
        file="seventeenth/own/backward_chunks.py",
        before="            ds = ds * (1 - (dot / p.softcap) ** 2)\n",
        after="            ds = ds * (1 - (s / p.softcap) ** 2)\n",
        outputs=("dq", "dk"),
        modelled_on="Dao-AILab/flash-attention#2402: the derivative of a softcap from a value that is no longer the capped one: the backward takes 1 - (S / cap)^2 of logits that have the bias in them already: with a softcap and a bias dQ and dK are wrong, of the wrong sign where the sum is more than the cap; a softcap alone, a bias alone, the forward, dV and dbias are right",
        needs=("backward", "softcap", "bias"),
    ),
    OwnDefect(
        name="s17_members_summed_as_if_tiled",
        file="seventeenth/own/backward_chunks.py",
        before="    dk, dv = (x.unflatten(1, (p.k.shape[1], -1)).sum(2) for x in (dk, dv))\n",
        after="    dk, dv = (x.unflatten(1, (-1, p.k.shape[1])).sum(1) for x in (dk, dv))\n",
        outputs=("dk", "dv"),
        modelled_on="HazyResearch/HipKittens#22: heads repeated in one order and summed in the other: the forward gives neighbouring query heads to a kv head, the backward adds every Hkv-th query head to it: with groups of several query heads and several kv heads dK and dV of a kv head are sums over query heads that mostly belong to others; groups of one, one kv head, and dQ are right",
        needs=("backward", "groups", "kv_heads"),
    ),
)
