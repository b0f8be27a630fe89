"""Held-out defects of packed sequences, decoding, pages, other caches and chosen keys, the twelfth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s12_first_programs_of_a_packed_sequence",
        file="device/order.py",
        before="(begin // BLOCK + tried <= place)",
        after="(begin // BLOCK + tried < place)",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#2194: a search for the sequence of a tile that is off by one at its limit: of the programs of a packed sequence, which go through its tiles head by head, the first ones, as many as there are heads, are given to the sequence before, behind whose end they compute nothing: the rows (dK and dV: the keys) of these tiles, those of the first heads, are what the memory held, in all kernels and in delta; the other tiles, the first sequence, and what is not packed are right",
        needs=("packed", "sequences"),
    ),
    Mutant(
        name="s12_lse_of_swapped_groups",
        file="device/decode.py",
        before="    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h\n",
        after="    swapped = r % sizes.group * sizes.kv_heads + hk\n"
        "    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + tl.where(sizes.sq == 1, swapped, h)\n",
        outputs=("o", "lse"),
        modelled_on="vllm-project/flash-attention#87: decoding of a single query that swaps its groups into rows, and writes the LSE in the order of the swapped heads: the LSE of member m of kv head g is stored for head m * kv heads + g, and the merge of several splits weighs O by it; right with several queries, without groups, with one kv head, and O with one split",
        subject="bundled-decode",
        needs=("groups", "kv_heads"),
    ),
    Mutant(
        name="s12_values_before_the_window_are_read",
        file="device/decode.py",
        before="            v = load_rows(v_ptr, v_offset, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        after="            v = load_rows(v_ptr, v_offset, j < k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        outputs=("o",),
        modelled_on="vllm-project/vllm#30887: values that are multiplied by 0: decoding with a left side of a window reads values for the keys that stand before the windows of all rows, in the tile of keys in which the first window begins, from page 0 where that tile is none of whole pages: O is NaN where these hold NaN or an infinity; finite ones change nothing; the LSE is right, and so is all without a window",
        subject="bundled-decode",
        needs=("window",),
    ),
    Mutant(
        name="s12_splits_counted_by_a_shift",
        file="device/decode.py",
        before="    low = first + (tiles * split // splits).to(tl.int32)\n"
        "    high = first + (tiles * (split + 1) // splits).to(tl.int32)\n",
        after="    pieces = tl.exp2(tl.ceil(tl.log2(splits.to(tl.float32)))).to(tl.int32)  # divided by a shift\n"
        "    low = first + (tiles * split // pieces).to(tl.int32)\n"
        "    high = first + (tiles * (split + 1) // pieces).to(tl.int32)\n",
        outputs=("o", "lse"),
        modelled_on="facebookresearch/xformers 3e4a1b4b: a division by a shift: decoding, of latent and quantised caches too, deals the tiles of keys out to as many splits as the next power of two, where fewer are launched: for 3, 5, 7, 20 splits the last tiles of keys are lost; numbers of splits that are powers of two are right",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="s12_member_by_a_mask",
        file="device/decode.py",
        before="    h = hk.to(tl.int64) * sizes.group + r % sizes.group\n",
        after="    h = hk.to(tl.int64) * sizes.group + (r & (sizes.group - 1))\n",
        outputs=("o", "lse"),
        modelled_on="HazyResearch/HipKittens#22: a remainder by a bit mask: in decoding the packed row r is of query head r & (group - 1) of its group, not r % group: in groups whose size is no power of two the heads whose number in the group has a bit that group - 1 lacks are not written (head 1 of 3, heads 2 and 3 of 6), and the others are right; so are groups of 1, 2, 4, 8 and 16",
        subject="bundled-decode",
        needs=("groups",),
    ),
    Mutant(
        name="s12_latent_tile_overwritten_by_the_next",
        file="device/latent.py",
        before="            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)\n",
        after="            n1 = n0 + tl.where(n0 + BLOCK_N < tl.minimum(stop, split_stop), BLOCK_N, 0)\n"
        "            j = n1 + tl.arange(0, BLOCK_N)\n"
        "            page, slot = places(table_ptr, n1, j, j < k_end, pages.size, PAGED)\n"
        "            offset = place_offsets(page, slot, kv_view.batch, kv_view.row, PAGED)\n"
        "            kv = load_rows(kv_ptr, offset, j < k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n"
        "            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)\n",
        outputs=("o",),
        modelled_on="ashalliants/ninfer-3090#49: latent cache: a buffer that is filled with the next tile before its last use: the weights of a tile of keys are multiplied by the values of the tile behind it, in each loop that has one; the last tile of each loop, a single one, and the LSE are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="s12_v_divided_by_its_scale",
        file="device/quantised/attention.py",
        before="        acc = acc * load_only_scale(v_codes, b, hk, k_end > 0)\n",
        after="        acc = acc / load_only_scale(v_codes, b, hk, k_end > 0)\n",
        outputs=("o",),
        modelled_on="TensorRT-LLM's kv_cache_scaling_factor, of which there is one from numbers to codes and one from codes to numbers: where one scale of V serves the whole head and multiplies the result, O is divided by it; scales of 1, of single keys and blocks, the mode that dequantises operands, and the LSE are right",
        subject="bundled-quantised-decode",
    ),
    Mutant(
        name="s12_k_scale_of_heads_in_turn",
        file="device/quantised/attention.py",
        before="    k_only = common_scale(k_codes, b, hk, k_end > 0, ONE_K)\n\n"
        "    band = band_of(b, sizes.sq, k_end, mask, MASK)\n"
        "    limits",
        after="    k_only = common_scale(k_codes, b, h % sizes.kv_heads, k_end > 0, ONE_K)\n\n"
        "    band = band_of(b, sizes.sq, k_end, mask, MASK)\n"
        "    limits",
        outputs=("o", "lse"),
        modelled_on="ModelTC/lightllm ddb2d10d: two ways to number the heads of one cache: the forward over codes takes the scale of K, where one serves all keys of a head, of kv head h % kv heads, and the codes of kv head h // group; right without groups, with one kv head, for one scale of the tensor and for scales of single keys and blocks; V is right",
        subject="bundled-quantised",
        needs=("groups", "kv_heads", "head_scales"),
    ),
    Mutant(
        name="s12_causal_by_the_place_in_the_list",
        file="device/selected_forward.py",
        before="        see = seen_pairs(i[:, None], j[None, :], inside[:, None], keep[None, :], shift, CAUSAL)",
        after="        at = lane + tl.arange(0, BLOCK_N)\n"
        "        see = seen_pairs(i[:, None], at[None, :], inside[:, None], keep[None, :], shift, CAUSAL)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="XunhaoLai/native-sparse-attention-triton c3afd54: chosen keys that are gathered and masked where they then lie: the forward asks the causal mask of the place of a key in the list (its block's place times the size of a block), not of its number, so that rows see chosen keys after them; the backward asks the number, with the LSE of the others; right without a causal mask, and for lists that name all blocks from the first on",
        subject="bundled-selected",
        needs=("causal",),
    ),
    Mutant(
        name="s12_lists_of_the_first_call",
        file="selected.py",
        before="        found=prepared(selection),\n",
        after="        found=selected_attention.__dict__.setdefault(\n"
        "            str((tuple(selection.indices.shape), selection.rows, selection.keys, sk)), prepared(selection)\n"
        "        ),\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="flashinfer-ai/flashinfer#1028: state: lists that are sorted once and kept: chosen keys: a call whose lists have the shape of those of an earlier one (sequences, heads, lists, entries, keys) sees the blocks of the first such call, forward and backward; the first one is right",
        subject="bundled-selected",
    ),
)
