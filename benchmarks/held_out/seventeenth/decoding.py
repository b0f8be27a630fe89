"""Held-out defects of decoding, latent, quantised and chosen keys, the seventeenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s17_sink_where_the_first_split_saw",
        file="decode.py",
        before="    lse2[-1] = torch.where((lse2[:-1] != -torch.inf).any(0), sink2, -torch.inf)\n",
        after="    lse2[-1] = torch.where(lse2[0] != -torch.inf, sink2, -torch.inf)\n",
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention#2842, an empty split taken for an empty row: in decoding the sink is left out of every row that sees no key in the first split, though it sees some in a later one: rows of a sequence with fewer tiles of keys than splits, whose first split is empty, and rows whose keys all lie behind it; one split, rows that see a key in the first split, rows that see none at all, and all without a sink are right",
        subject="bundled-decode",
        needs=("sink",),
    ),
    Mutant(
        name="s17_splits_from_the_first_key",
        file="device/decode.py",
        before="    low = first + (tiles * split // splits).to(tl.int32)\n"
        "    high = first + (tiles * (split + 1) // splits).to(tl.int32)\n",
        after="    low = (tiles * split // splits).to(tl.int32)\n    high = (tiles * (split + 1) // splits).to(tl.int32)\n",
        outputs=("o", "lse"),
        modelled_on="ikawrakow/ik_llama.cpp#2186: the tiles that a window reaches are counted and then dealt out from key 0 on: where the window of a tile of rows begins n whole tiles of keys behind the first key, its last n tiles of keys belong to no split (all of them where it reaches n or fewer), with one split as well, in decoding over values, a latent cache and codes; windows that begin in the first tile of keys, and all without a left side, are right",
        subject="bundled-decode",
        needs=("window",),
    ),
    Mutant(
        name="s17_scales_by_the_key_of_the_sequence",
        file="device/quantised/codes.py",
        before="    return load_groups(codes.scale, b, hk, page, slot, keep, codes.keys_per_scale)\n",
        after="    return load_groups(codes.scale, b, hk, page, j, keep, codes.keys_per_scale)\n",
        outputs=("o", "lse"),
        modelled_on="ROCm/aiter 9ecb1ed6, a scale by another index than its code: of scales that lie in the pages of a cache, the group is counted from the first key of the sequence, not from the first key of the page, and added to the place of the page: keys from the second page of a sequence on have the scales of other pages, or what lies behind the last; codes and zero points are read at the right place; the first page of a sequence, one scale a head or for all, and codes without pages are right",
        subject="bundled-quantised-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s17_weights_beyond_e4m3",
        file="device/quantised/attention.py",
        before="WEIGHT_FACTOR = tl.constexpr(256.0)\n",
        after="WEIGHT_FACTOR = tl.constexpr(512.0)\n",
        outputs=("o",),
        modelled_on="Dao-AILab/flash-attention#2694: weights multiplied by a factor that takes the largest of them out of e4m3: with products of weights and V in fp8, a weight exp(z - m) above 464 / 512 of its tile, always that of the key with the largest logit, leaves the 448 that e4m3 holds, and O has NaN or too little of these keys; the LSE, and modes that multiply in the type of q, are right",
        subject="bundled-quantised",
        needs=("e4m3",),
    ),
    Mutant(
        name="s17_scale_of_a_head_of_the_first_sequence",
        file="device/quantised/codes.py",
        before="    offset = b.to(tl.int64) * codes.scale.batch + hk.to(tl.int64) * codes.scale.head\n"
        "    return tl.load(codes.scale.ptr + offset, mask=keep, other=0)\n",
        after="    offset = hk.to(tl.int64) * codes.scale.head\n"
        "    return tl.load(codes.scale.ptr + offset, mask=keep, other=0)\n",
        outputs=("o", "lse"),
        modelled_on="a scale per sequence and head read by the head alone: where one scale serves a head and multiplies the logit or the result (not in the mode in which scale and code make the operand), K and V of every sequence have the scale that the head has in the first sequence, in prefill and decoding; the first sequence, one scale for the whole tensor, scales of groups of keys (unless one group holds all of them), and scales in pages are right",
        subject="bundled-quantised-decode",
        needs=("head_scales", "sequences"),
    ),
    Mutant(
        name="s17_lists_counted_without_the_last",
        file="device/selected_forward.py",
        before="    number = list_number(selected, b, hk, n, tl.cdiv(sizes.sq, selected.rows))\n",
        after="    number = list_number(selected, b, hk, n, sizes.sq // selected.rows)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="flagos-ai/FlagGems#3759, a count rounded down where the layout rounds up: where the last list of a kv head has fewer rows than the others, the forward takes the lists of a head for one shorter than they are, and walks for the n-th kv head, counted through the sequences, the list that is n before the right one (with a list of another head among them); the backward walks the right lists, with the O and LSE of the forward; queries that are a multiple of the rows of a list, the first head of the first sequence, and lists that all heads and sequences share are right",
        subject="bundled-selected",
        needs=("selection",),
    ),
    Mutant(
        name="s17_latent_parts_in_natural_units",
        file="latent.py",
        before="        launch_merge(parts, parts_lse, o, lse, base2=True, lse_scale=_LN_2)\n",
        after="        launch_merge(parts, parts_lse, o, lse, lse_scale=_LN_2)\n",
        outputs=("o", "lse"),
        modelled_on="sgl-project/sglang#40903: parts with an LSE of base 2 merged as if it were natural: over a latent cache with two splits or more a part weighs e, not 2, to the power of its LSE of base 2, and the LSE is the natural logarithm of a sum of such powers, times ln 2: the parts of large LSE weigh too much in O, and the LSE is too small; one split, rows whose keys all lie in one split, decoding over K and V and over codes are right",
        subject="bundled-latent",
    ),
)
