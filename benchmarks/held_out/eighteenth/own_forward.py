"""Held-out defects of forward kernels that are not the bundled ones, the eighteenth set; see `benchmarks/README.md`.

One in Triton with forward and backward, which computes logits of keys by rows, and one in plain torch, forward only, which folds chunks of keys
pairwise, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed
bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s18_columns_end_at_the_diagonal_despite_a_prefix",
        file="eighteenth/own/forward_columns.py",
        before="        stop = tl.minimum(n, tl.maximum(first + BLOCK + shift, prefix))\n",
        after="        stop = tl.minimum(n, first + BLOCK + shift)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a prefix language model on top of a causal kernel, whose mask was extended and whose walk was not: the forward walks the tiles of keys up to the diagonal of its tile of rows, so that keys of the prefix in later tiles are lost from O and the LSE of all its rows, which have O = 0 and LSE = -inf where the walk is empty; the backward walks the whole prefix, with the weights that this LSE gives; tiles of rows whose last diagonal or last tile of keys reaches the end of the prefix, and all without a prefix are right",
        needs=("causal", "prefix_lengths"),
    ),
    OwnDefect(
        name="s18_columns_backward_begins_at_the_row_of_the_key",
        file="eighteenth/own/forward_columns.py",
        before="tl.maximum(start - shift, 0) // BLOCK * BLOCK)\n",
        after="start // BLOCK * BLOCK)\n",
        outputs=("dq", "dk", "dv"),
        modelled_on="a walk that was right for as many rows as keys: the backward of a tile of keys begins at the tile of rows with the number of its first key, without the shift of a causal mask that ends at the last key: with more keys than rows earlier rows that see these keys are left out of dK and dV, and these keys out of dQ of those rows; tiles of keys behind the number of rows have dK = dV = 0; the first tile of keys, tiles that begin in the prefix, a diagonal from the first key, keys no more than rows, O and the LSE are right",
        needs=("backward", "causal"),
    ),
    OwnDefect(
        name="s18_folds_lose_an_odd_chunk",
        file="eighteenth/own/forward_folds.py",
        before="        if len(parts) % 2:\n            folded.append(parts[-1])\n",
        after="",
        outputs=("o", "lse"),
        modelled_on="a pairwise reduction for powers of two: where an odd number of results is folded, at any level of the fold, the last one has no partner and is lost: of three chunks of keys the third, of five the fifth, of six the fifth and sixth, are missing from O and the LSE; rows that see nothing but these keys have O = 0 and LSE = -inf; one, two, four or eight chunks, and rows that see no key of the lost ones are right",
    ),
    OwnDefect(
        name="s18_folds_cap_the_bias_too",
        file="eighteenth/own/forward_folds.py",
        before="    if p.softcap is not None:\n"
        "        s = p.softcap * torch.tanh(s / p.softcap)\n"
        "    if p.bias is not None:\n"
        "        s = s + packed_rows(p.bias, kv_heads)[..., start:stop].float()\n",
        after="    if p.bias is not None:\n"
        "        s = s + packed_rows(p.bias, kv_heads)[..., start:stop].float()\n"
        "    if p.softcap is not None:\n"
        "        s = p.softcap * torch.tanh(s / p.softcap)\n",
        outputs=("o", "lse"),
        modelled_on="two steps of a logit in the other order, as implementations differ: with a softcap and a bias the bias is added before the cap, not after it, so that the sum is capped and a bias never takes a logit past the cap; slopes still come after it; a bias of 0, sums that are far below the cap, a softcap without a bias, and a bias without a softcap are right",
        needs=("softcap", "bias"),
    ),
)
