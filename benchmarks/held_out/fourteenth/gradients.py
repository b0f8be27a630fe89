"""Held-out defects of a backward, the fourteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s14_schedule_of_dq_with_the_sides_exchanged",
        file="device/dq.py",
        before="    limits = tile_schedule(m0, q_end, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)\n",
        after="    limits = tile_schedule(m0, q_end, k_end, band, bits_start, BLOCK_N, BLOCK_M, MASK, KEYS)\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="triton-lang/triton#8853: limits of loops that hold where both sides of a tile are equal: dQ's walk over the keys is planned for tiles of as many rows as the tile has keys, in steps of as many keys as it has rows: with fewer keys than rows the last rows lose keys, with more keys than rows whole tiles reach over the diagonal or the end of the keys, or keys are walked twice; tiles of equal sides, dK, dV and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s14_dropped_pairs_with_the_other_sign",
        file="device/dq.py",
        before="                    dp = drop(dp * dropout.keep_scale, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        after="                    kept = keep_tile(i, n0, bh, dropout, BLOCK_N)\n"
        "                    dp = tl.where(kept, dp * dropout.keep_scale, 2.0 * delta)  # the sign of P says what is dropped\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="HKUSTDial/flash-sparse-attention#109: a sign bit that marks dropped pairs and is lost: dS of a dropped pair is P * delta, not -P * delta, in dQ and in the gradients of biases; dK, dV, kept pairs, rows whose delta is 0 and all without dropout are right",
        needs=("backward", "dropout"),
    ),
    Mutant(
        name="s14_delta_of_the_first_member_in_dk",
        file="device/dkdv.py",
        before="                    delta_ptrs = row_ptrs(stats.delta, stats, b, h, q0, i)\n",
        after="                    delta_ptrs = row_ptrs(stats.delta, stats, b, hk * sizes.group, q0, i)\n",
        outputs=("dk",),
        modelled_on="a pointer that is set before the loop over the heads of a group and not moved inside it: dK takes the delta of the first query head of each group for all of them; the LSE is that of each head, so that dV is right, and so are dQ and groups of one head",
        needs=("backward", "groups"),
    ),
    Mutant(
        name="s14_last_member_of_an_odd_group_lost",
        file="device/dkdv.py",
        before="    for member in range(sizes.group):\n",
        after="    for member in range(tl.maximum(sizes.group // 2 * 2, 1)):  # two in flight\n",
        outputs=("dk", "dv"),
        modelled_on="a loop over the heads of a group that is unrolled by two and has no rest: of groups of 3, 5, 7 query heads the last one gives nothing to dK and dV; groups of one head and of an even number, dQ and the forward are right",
        needs=("backward", "groups"),
    ),
    Mutant(
        name="s14_distances_shifted_the_other_way_in_dkdv",
        file="device/dkdv.py",
        before="hk.to(tl.int64) * sizes.group + member, q0, q_end, k_end)\n",
        after="hk.to(tl.int64) * sizes.group + member, q0, k_end, q_end)\n",
        outputs=("dk", "dv"),
        modelled_on="two lengths in the wrong order: dK and dV measure distances of ALiBi and of a relative bias from rows that are moved by rows minus keys, not keys minus rows, under a bottom-right mask; as many keys as rows, top-left masks, terms without a distance, dQ and the forward are right",
        needs=("backward", "causal"),
    ),
    Mutant(
        name="s14_dlse_of_the_first_packed_rows",
        file="device/delta.py",
        before="        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0, i), mask=i < q_end, other=0.0)\n",
        after="        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0 * 0, i), mask=i < q_end, other=0.0)\n",
        outputs=("dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="NVIDIA/cudnn-frontend#462: statistics of ragged sequences in two layouts: every packed sequence takes the gradient through the LSE of the first rows of the buffer: delta, dQ, dK and the gradients of biases and sinks of all sequences but the first are wrong; dV, sequences that are not packed, and calls without such a gradient are right",
        needs=("backward", "packed"),
    ),
    Mutant(
        name="s14_drelative_by_the_room_for_rows",
        file="reductions.py",
        before="            for size, lengths in ((rows, options.query_lengths), (keys, options.key_lengths))\n",
        after="            for size, lengths in ((rows, None), (keys, options.key_lengths))\n",
        outputs=("drelative_bias",),
        modelled_on="a diagonal that ends at the last row that there is room for: the gradient of a relative bias measures distances, under a bottom-right mask, as if all rows counted: with query lengths below the room its pairs give to the buckets of other distances; full or no query lengths, top-left masks, packed sequences, and the forward are right",
        needs=("backward", "relative_bias", "query_lengths", "causal"),
    ),
    Mutant(
        name="s14_ring_dk_of_the_last_visitor",
        file="ring/passes.py",
        before="            gradients[0][:, :, part.keys] += got.dk\n",
        after="            gradients[0][:, :, part.keys] = got.dk\n",
        outputs=("dk",),
        modelled_on="feifeibear/long-context-attention#176: a step of a ring that overwrites what it should add to: dK of a piece of keys is what the last piece of rows that sees it gave, and not the sum over those of all ranks; dV and dQ are right, and so are keys that one piece of rows alone sees, and one rank",
        subject="bundled-ring",
        needs=("backward",),
    ),
)
