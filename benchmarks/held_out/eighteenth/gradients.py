"""Held-out defects of gradients, the eighteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s18_sinks_of_as_many_rows_as_the_longest",
        file="reductions.py",
        before="        counts = counts & (torch.arange(lse2.shape[2], device=lse2.device) < cu_q[-1])\n",
        after="        counts = counts & (torch.arange(lse2.shape[2], device=lse2.device) < cu_q.diff().max())\n",
        outputs=("dsink",),
        modelled_on="the longest of packed sequences where all of them together are meant: the gradient of the sinks sums the first rows of the buffer alone, as many as the longest packed sequence has; what later rows give is lost; one packed sequence, problems that are not packed, and all other gradients are right",
        needs=("backward", "sink", "packed"),
    ),
    Mutant(
        name="s18_first_rows_belong_to_the_sequence_before",
        file="reductions.py",
        before="    sequence = torch.searchsorted(packed.cu_q[1:], i, right=True, out_int32=True).clamp(max=packed.sequences - 1)\n",
        after="    sequence = torch.searchsorted(packed.cu_q[1:], i, out_int32=True).clamp(max=packed.sequences - 1)\n",
        outputs=("drelative_bias",),
        modelled_on="a search for limits that counts a limit to the wrong side: in the gradient of a relative bias the first row of each packed sequence but the first is taken for a row of the sequence before, so that its distances are measured from where that one starts (and ends) and its pairs go to other buckets; all other rows, problems that are not packed, the forward, and all other gradients are right",
        needs=("backward", "relative_bias", "packed"),
    ),
    Mutant(
        name="s18_ds_of_all_sequences_from_row_0",
        file="device/dq.py",
        before="                    at = row_numbers(stats, b, h, q0, i)[:, None] * sizes.sk + j[None, :]\n",
        after="                    at = row_numbers(stats, b, h, 0, i)[:, None] * sizes.sk + j[None, :]\n",
        outputs=("dbias", "drelative_bias"),
        modelled_on="a store that forgets where the sequence starts: dS of every packed sequence, which dbias and drelative_bias are made of, is stored in the rows of the first one, where later sequences overwrite earlier ones, and the rows of the others hold 0; dq, dk and dv, and problems that are not packed are right",
        needs=("backward", "packed"),
    ),
    Mutant(
        name="s18_draws_by_the_row_of_the_buffer",
        file="device/dkdv.py",
        before="                        keepT = keep_tile_transposed(i, n0, stream, dropout, BLOCK_N)\n",
        after="                        keepT = keep_tile_transposed(q0 + i, n0, stream, dropout, BLOCK_N)\n",
        outputs=("dk", "dv"),
        modelled_on="dropout masks of the backward that are not those of the forward: the kernel of dK and dV draws for the row of the packed buffer, where the forward and dQ draw for the row of the sequence: with dropout other pairs of all packed sequences but the first are dropped than in the forward; problems that are not packed and dQ are right",
        needs=("backward", "dropout", "packed"),
    ),
    Mutant(
        name="s18_bits_of_the_first_sequence_in_dq",
        file="device/dq.py",
        before="        bits = head_of(mask.bits, b, h, q0, False)\n",
        after="        bits = head_of(mask.bits, b * 0, h, q0, False)\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="a mask whose pointer is moved to its head and not to its sequence: the kernel of dQ, and so dbias and drelative_bias, reads the bits of the first sequence of the batch for all of them, where bitmaps or trees are of each sequence; bits that all share, packed sequences, the forward, dK and dV are right",
        needs=("backward", "sequences"),
    ),
    Mutant(
        name="s18_full_tiles_as_far_as_the_last_key_reaches",
        file="device/schedule.py",
        before="        sure_to = key_end(start, sq, band, MASK)\n",
        after="        sure_to = key_end(last, sq, band, MASK)\n",
        outputs=("dk", "dv"),
        modelled_on="tiles that are taken for full: in the kernel of dK and dV the tiles of queries that need no mask end where the last key of the tile of keys leaves the window and not where the first one does: in tiles between the two the left side of a window is not masked, and queries behind the window of a key, or padded queries' neighbours, give to its dK and dV; without a left side, and in tiles that are masked for another reason, such as one that a causal mask or a right side cuts, it is right, and so are the forward and dQ",
        needs=("backward", "window"),
    ),
    Mutant(
        name="s18_lse_of_padded_rows_is_read",
        file="device/dkdv.py",
        before='                    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[None, :]  # [1, BLOCK_M]\n',
        after='                    lse2 = tl.load(lse2_ptrs, mask=i < sq, other=float("inf"))[None, :]  # [1, BLOCK_M]\n',
        outputs=("dk", "dv"),
        modelled_on="tile-ai/tilelang#2461: the LSE of padded rows in the backward: the kernel of dK and dV reads the LSE that the forward has stored in rows behind the query length, which is -inf, in place of +inf: in a tile that is not masked their weights are infinite, and dK and dV of all its keys NaN, from 0 * inf; without query lengths, where the tile is masked, and in dQ it is right",
        needs=("backward", "query_lengths"),
    ),
    Mutant(
        name="s18_slope_of_the_cap_without_the_square",
        file="device/logits.py",
        before="    return c * (2.0 - c)\n",
        after="    return c\n",
        outputs=("dq", "dk"),
        modelled_on="the derivative of tanh without its square: with softcap dS is multiplied by 1 - |tanh(x)| in place of 1 - tanh(x)^2, too small by the factor 1 + |tanh(x)|, in dQ and dK; logits far below the cap are nearly right, and the forward, dV, dbias, dsink and problems without softcap are right",
        needs=("backward", "softcap"),
    ),
    Mutant(
        name="s18_selected_dk_in_base_2",
        file="device/selected_backward.py",
        before="    store_rows(dk_ptr, dk * scale, j.to(tl.int64) * dk_view.row, rows, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="    store_rows(dk_ptr, dk * scale_log2, j.to(tl.int64) * dk_view.row, rows, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        outputs=("dk",),
        modelled_on="the scale of the base-2 logits in a gradient: where keys are selected by blocks, dK is multiplied by scale * log2(e) in place of the scale, and so too large by the factor 1.4427; O, LSE, dQ and dV are right",
        subject="bundled-selected",
        needs=("backward",),
    ),
    Mutant(
        name="s18_values_of_heads_dealt_in_turn_in_dq",
        file="device/dq.py",
        before="    v_head = head_of(v_view, b, h // sizes.group, k0, ALIGNED)\n",
        after="    v_head = head_of(v_view, b, h % sizes.kv_heads, k0, ALIGNED)\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="PSAL-POSTECH/ONNXim#34: a kv head by the wrong division: the kernel of dQ takes the values of kv head h mod kv heads, where its keys are those of h // group: with groups and several kv heads dP, and so dQ, dbias and drelative_bias, are those of other values; groups of one, one kv head, the forward, dK and dV are right",
        needs=("backward", "groups", "kv_heads"),
    ),
    Mutant(
        name="s18_dlse_of_rows_without_keys_in_delta",
        file="device/delta.py",
        before="    if stats.dlse is not None:\n"
        "        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0, i), mask=i < q_end, other=0.0)\n"
        '    lse2 = tl.load(row_ptrs(stats.lse2, stats, b, h, q0, i), mask=i < q_end, other=float("-inf"))\n'
        '    delta = tl.where(lse2 == float("-inf"), 0.0, delta)\n',
        after='    lse2 = tl.load(row_ptrs(stats.lse2, stats, b, h, q0, i), mask=i < q_end, other=float("-inf"))\n'
        '    delta = tl.where(lse2 == float("-inf"), 0.0, delta)\n'
        "    if stats.dlse is not None:\n"
        "        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0, i), mask=i < q_end, other=0.0)\n",
        outputs=("delta",),
        modelled_on="a guard that stands before what it guards: the delta of a row that sees no key is -dLSE of the row in place of 0; rows that see a key, padded rows, problems without dLSE, and all gradients are right",
        needs=("backward",),
    ),
)
