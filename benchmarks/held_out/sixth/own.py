"""Held-out defects of kernels that are not the bundled ones, the sixth set; see `benchmarks/README.md`.

Groups of heads forward and backward, and packed tokens, in Triton; a relative position bias with a backward by hand, and keys in int8, in
plain torch, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a
changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s6_group_sum_of_interleaved_heads",
        file="sixth/own/grouped.py",
        before="    return x.view(batch, kv_heads, heads // kv_heads, *x.shape[1:]).sum(2).to(like.dtype)\n",
        after="    return x.view(batch, heads // kv_heads, kv_heads, *x.shape[1:]).sum(1).to(like.dtype)\n",
        outputs=("dk", "dv"),
        modelled_on="a sum over the wrong axis of a view: dK and dV of kv head g are the sums over the query heads h with h % Hkv = g, not h // group = g: wrong with groups and more than one kv head; dQ and the forward are right",
        needs=("groups", "kv_heads", "backward"),
    ),
    OwnDefect(
        name="s6_diagonal_lost_in_dq",
        file="sixth/own/grouped.py",
        before="    acc = tl.zeros([BLOCK, C], tl.float32)\n"
        "    stop = tl.minimum(keys, (tile + 1) * BLOCK) if CAUSAL else keys\n",
        after="    acc = tl.zeros([BLOCK, C], tl.float32)\n"
        "    stop = tl.minimum(keys, tile * BLOCK) if CAUSAL else keys\n",
        outputs=("dq",),
        modelled_on="a walk that ends where the tile of rows begins: under a causal mask dQ lacks the keys from the first row of its tile on, unless the step of keys that begins before it reaches over them: the first tile of rows has a dQ of 0; without a causal mask, and in dK, dV and the forward, all is right",
        needs=("causal", "backward"),
    ),
    OwnDefect(
        name="s6_positions_within_the_chunk_in_the_backward",
        file="sixth/own/relative.py",
        before="                at = places(p, torch.arange(part.start, part.stop), n)\n"
        "                x, dx = q[b, :, part].float(), do[b, :, part].float()\n",
        after="                at = places(p, torch.arange(part.stop - part.start), n)\n"
        "                x, dx = q[b, :, part].float(), do[b, :, part].float()\n",
        outputs=("dq", "dk", "dv", "drelative_bias"),
        modelled_on="the backward counts rows from the first one of their chunk of 32: from row 32 on their distances to the keys, and their causal mask, are those of row i % 32; up to 32 rows, and without a relative bias and a causal mask, all is right, and so are O and LSE",
        needs=("backward",),
    ),
    OwnDefect(
        name="s6_table_gradient_of_the_last_chunk",
        file="sixth/own/relative.py",
        before="                    dtable.index_add_(1, buckets_of(p, at, n).flatten(), ds.double().flatten(1))\n",
        after="                    share = torch.zeros_like(dtable)\n"
        "                    dtable = share.index_add_(1, buckets_of(p, at, n).flatten(), ds.double().flatten(1))\n",
        outputs=("drelative_bias",),
        modelled_on="a gradient that is set where it is to be added: that of the relative bias is the share of the last chunk of rows of the last sequence with keys alone; one sequence of up to 32 rows, and all other outputs, are right",
        needs=("relative_bias", "backward"),
    ),
    OwnDefect(
        name="s6_zero_point_after_the_scale",
        file="sixth/own/codes.py",
        before="        x = x - zero[:, :, group, None].float()\n    return x * scale[:, :, group, None]\n",
        after="        return x * scale[:, :, group, None] - zero[:, :, group, None].float()\n    return x * scale[:, :, group, None]\n",
        outputs=("o", "lse"),
        modelled_on="a code stands for scale * code - zero, where scale * (code - zero) is declared, of K and of V; right without zero points, for zero points of 0 and for a scale of 1",
        needs=("zeros",),
    ),
    OwnDefect(
        name="s6_scale_counted_within_the_part",
        file="sixth/own/codes.py",
        before="    j = first + torch.arange(codes.shape[2])\n",
        after="    j = torch.arange(codes.shape[2])\n",
        outputs=("o", "lse"),
        modelled_on="the scale (and the zero point) of a key is looked up by its number within its part of 48 keys: from key 48 on those of the first keys of the sequence are taken, of K and of V; right for up to 48 keys, and for one scale a head or for all",
    ),
    OwnDefect(
        name="s6_no_boundary_without_causal",
        file="sixth/own/tokens.py",
        before="        see = there[None, :] & (row < rows)[:, None]\n",
        after="        see = (there | (not CAUSAL))[None, :] & (row < rows)[:, None]\n",
        outputs=("o", "lse"),
        modelled_on="a boundary that only the causal path asks: without a causal mask the places behind the last key of a sequence, up to the end of the step of keys, count as keys of 0 with values of 0: the LSE is too large and O too small; right where the keys are a multiple of the step, and under a causal mask",
    ),
    OwnDefect(
        name="s6_lse_of_the_unscaled_maximum",
        file="sixth/own/tokens.py",
        before="m * scale + tl.log(divisor)",
        after="m + tl.log(divisor)",
        outputs=("lse",),
        modelled_on="the LSE is the log of the row sum plus the largest q k, not the largest scaled logit; O is right, and so is the LSE for a scale of 1 and of rows without keys",
    ),
)
