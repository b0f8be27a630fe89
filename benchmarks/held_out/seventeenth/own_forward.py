"""Held-out defects of kernels that are not the bundled ones, the seventeenth set, first half; see `benchmarks/README.md`.

A kernel in Triton with forward and backward, ALiBi and causal masks, and one in plain torch, forward only, over packed sequences with a
pivot that lags behind the maximum, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which
`as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s17_slopes_first_row_of_a_square",
        file="seventeenth/own/slopes.py",
        before="    begin = tl.maximum(start - shift, 0) // BM * BM if CAUSAL else 0\n",
        after="    begin = start // BM * BM if CAUSAL else 0\n",
        outputs=("dk", "dv"),
        modelled_on="zzhhjjj/gemma-triton-flash-attn#9, as many rows as keys taken for granted: dK and dV of a tile of keys are summed from the row of the number of its first key on, whatever the diagonal: under a bottom-right causal mask with more keys that count than rows, rows before that one, which see the tile, are left out (all of them where the tile begins behind the last row); dQ, O, the LSE, top-left masks, as many keys as rows or fewer, the first tile of keys, and all without a causal mask are right",
        needs=("backward", "causal"),
    ),
    OwnDefect(
        name="s17_slopes_dp_from_the_stride_of_k",
        file="seventeenth/own/slopes.py",
        before="        v = tile(v_ptr + kv * keys * dv, j, count, dv, CV)\n"
        "        see = seen(i, j, rows, count, shift, CAUSAL)\n"
        "        p = tl.where(see, tl.exp(scores(q, k, i, j, shift, scale, slope) - lse), 0.0)\n",
        after="        v = tile(v_ptr + kv * keys * d, j, count, dv, CV)\n"
        "        see = seen(i, j, rows, count, shift, CAUSAL)\n"
        "        p = tl.where(see, tl.exp(scores(q, k, i, j, shift, scale, slope) - lse), 0.0)\n",
        outputs=("dq",),
        modelled_on="ROCm/flash-attention 6c556328: the head stride of K serves for V in the kernel of dQ alone: dP of every kv head but the first of the first sequence is taken from a V that begins keys * (D - Dv) elements too late (too early where Dv is larger) for each kv head before it, in another head or behind the last; O, the LSE, dK and dV, a Dv equal to D, and the first kv head of the first sequence are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s17_lagging_shift_of_the_longest",
        file="seventeenth/own/lagging.py",
        before="        shift = k.shape[1] - q.shape[2] if",
        after="        shift = p.max_k - p.max_q if",
        outputs=("o", "lse"),
        modelled_on="flashinfer and others, a batch's longest lengths where each sequence has its own: the bottom-right diagonal of a causal mask or a window of every packed sequence is moved by the keys of the longest sequence minus the rows of the one that has most rows, not by its own keys minus its own rows: sequences whose difference is another see keys too many or too few; a single sequence, sequences of equal differences, and top-left masks are right",
        needs=("sequences",),
    ),
    OwnDefect(
        name="s17_lagging_lse_from_the_maximum",
        file="seventeenth/own/lagging.py",
        before="    lse = torch.where(total == 0.0, -torch.inf, pivot + torch.log(total))\n",
        after="    lse = torch.where(total == 0.0, -torch.inf, best + torch.log(total))\n",
        outputs=("lse",),
        modelled_on="a rescale that is put off, as in FlashAttention-4, and an LSE that forgets it: the LSE adds to the logarithm of the row sum the true maximum, not the pivot from which the sum was taken: it is too large by what the maximum has risen since the last rescale, at most 6, in rows whose maximum rises in a chunk of keys behind the one that last moved the pivot; O, rows whose maximum lies in the chunk that last moved the pivot, and sequences of up to 24 keys are right",
    ),
)
