"""Held-out defects of gradients, the seventeenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s17_dsink_is_the_mean_of_the_batch",
        file="reductions.py",
        before="    return -(weight * torch.where(counts, delta, 0.0)).sum((0, 2)).to(torch.float32)\n",
        after="    return -(weight * torch.where(counts, delta, 0.0)).sum(2).mean(0).to(torch.float32)\n",
        outputs=("dsink",),
        modelled_on="a loss that is averaged over the batch taken for the attention itself: the gradient of the sinks is summed over the rows of a sequence and then averaged over the batch, so that it is the right one divided by the number of batch entries; a batch of one, packed sequences (which are one batch), and all other gradients are right",
        needs=("backward", "sink", "sequences"),
    ),
    Mutant(
        name="s17_table_gradient_aligned_by_the_padded_rows",
        file="reductions.py",
        before="        return i + shift * (k - q)\n",
        after="        return i + shift * (k - rows)\n",
        outputs=("drelative_bias",),
        modelled_on="rows of the buffer where those of the sequence are meant: the gradient of the table of a relative bias counts distances under a bottom-right causal mask from the padded number of rows, not from the declared query length: with query lengths that are shorter than the buffer, what pairs give goes to buckets of keys too far ahead; top-left and no causal masks, full and no query lengths, packed sequences, key lengths alone, the forward, and all other gradients are right",
        needs=("backward", "relative_bias", "causal", "query_lengths"),
    ),
    Mutant(
        name="s17_ds_is_zeroed_for_masks_alone",
        file="launch.py",
        before="        ds = torch.zeros(*rows, call.sk, dtype=torch.float32, device=q.device)  # tiles never visited stay 0\n",
        after="        ds = (torch.zeros if call.mask.flags else torch.empty)(\n"
        "            *rows, call.sk, dtype=torch.float32, device=q.device\n"
        "        )  # without a mask every tile is visited\n",
        outputs=("dbias", "drelative_bias"),
        modelled_on="fla-org/flash-linear-attention#892: a buffer that is not zeroed where every tile is visited, which forgets that lengths leave parts of it unwritten as well: without causal mask, window, tree, bitmap and blocks, but with query lengths, key lengths or packed sequences, dS holds garbage at the rows and keys behind the lengths, which goes into the gradient of a bias there and into sums of a bias that is shared and of a relative bias; calls with any such mask, calls in which every row and key counts, and all other gradients are right",
        needs=("backward",),
    ),
    Mutant(
        name="s17_leading_tiles_of_two_sided_windows_in_dq",
        file="device/dq.py",
        before="    for part in tl.static_range(LEADING if (LOWER | BITS) & MASK == LOWER else FULL, TRAILING + 1):\n",
        after="    for part in tl.static_range(LEADING if (LOWER | UPPER | BITS) & MASK == LOWER else FULL, TRAILING + 1):\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="a segment of a loop that is left out of too many kernels: the walk of dQ over the keys leaves out the masked tiles before the full ones wherever the mask has a left and a right edge (a window with both sides, or a left side and a causal mask): rows of which some tile of keys is fully visible lose the keys of the tiles at the left edge in dQ and in dS; where no tile is full, left sides alone, right sides alone, the forward, dK and dV are right",
        needs=("backward", "window"),
    ),
    Mutant(
        name="s17_live_limits_squeezed_for_each_member",
        file="device/dkdv.py",
        before="        live, live_ptr = live_schedule(limits, mask.blocks, b, h, n0, sq, MASK, QUERIES)\n",
        after="        limits, live_ptr = live_schedule(limits, mask.blocks, b, h, n0, sq, MASK, QUERIES)\n"
        "        live = limits\n",
        outputs=("dk", "dv"),
        modelled_on="XunhaoLai/native-sparse-attention-triton git 1a88784: a loop variable that is overwritten and used again: in dK and dV of a block-sparse pattern the limits of the walk over the queries are translated into positions among live blocks from those of the query head before, not from those of the mask: the first query head of each kv head is right, the second and later ones of a group lose their last live blocks of queries (or walk others) where the pattern has dead blocks; groups of one, calls without blocks, the forward and dQ are right",
        needs=("backward", "blocks", "groups"),
    ),
    Mutant(
        name="s17_dropped_pairs_have_no_delta_in_dq",
        file="device/dq.py",
        before="                ds = score_gradient(p, dp, delta, see, part != FULL)  # [BLOCK_M, BLOCK_N]\n",
        after="                ds = score_gradient(p, dp, delta, see, part != FULL)  # [BLOCK_M, BLOCK_N]\n"
        "                if dropout.keep_share is not None:\n"
        "                    ds = drop(ds, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="HKUSTDial/flash-sparse-attention#109 (review): a dropped pair taken for one without a gradient: the kernel of dQ sets dS of dropped pairs to 0, where it is -P delta because the pair is still part of the softmax: dQ and the gradients of a bias and of a relative bias lack these shares with dropout; without dropout, the forward, dK, dV and dsink are right",
        needs=("backward", "dropout"),
    ),
    Mutant(
        name="s17_prefix_of_a_tree_by_the_declared_lengths",
        file="device/dkdv.py",
        before="    bits_start = mask.tree * band.high\n",
        after="    bits_start = mask.tree * (k_end - q_end)\n",
        outputs=("dk", "dv"),
        modelled_on="PaddlePaddle/FastDeploy#3514: where the nodes of a tree begin counted in two ways: dK and dV take the first key that a bit decides from the declared key and query lengths, the forward and dQ from the sizes of the tensors: with a tree and key or query lengths that differ in how much they leave out, the bits are read for other keys than theirs, so that nodes see wrong ones; trees without lengths, packed trees, calls without a tree, the forward and dQ are right",
        needs=("backward", "tree"),
    ),
    Mutant(
        name="s17_last_row_of_a_left_window",
        file="device/mask.py",
        before="    return tl.minimum(tl.maximum(j - band.low + 1, 0), sq) if LOWER & MASK else sq\n",
        after="    return tl.minimum(tl.maximum(j - band.low, 0), sq) if LOWER & MASK else sq\n",
        outputs=("dk", "dv"),
        modelled_on="an exclusive end taken for an inclusive one: with a left side of a window the walk over the queries of dK and dV ends one row early: the last row that sees the last key of a tile of keys is lost where it is the first row of a tile of queries; everywhere else that row is in a tile that is walked anyway, and right; masks without a left edge, the forward and dQ are right",
        needs=("backward", "window"),
    ),
    Mutant(
        name="s17_dlse_enters_one_step_of_the_ring",
        file="ring/passes.py",
        before="                dlse=None if dlse is None else dlse[:, :, part.rows],\n",
        after="                dlse=None if dlse is None or step else dlse[:, :, part.rows],  # once, or it counts for each rank\n",
        outputs=("dq", "dk", "delta"),
        modelled_on="zhuzilin/ring-flash-attention (backward): a share of the rows taken for one that must not be added twice: the gradient of the LSE goes into delta in the first step of the ring alone, the keys of the rank itself, where it belongs to the pairs of every step: dS of keys that come from other ranks lacks P dLSE, which shows in dQ and dK, and delta is that of the last step; a ring of one rank, calls without a gradient of the LSE, the forward and dV are right",
        subject="bundled-ring",
        needs=("backward",),
    ),
    Mutant(
        name="s17_begins_of_selected_blocks_an_entry_short",
        file="device/selected_backward.py",
        before="    begins_ptr = selected.begins + table * (blocks + 1) + block\n",
        after="    begins_ptr = selected.begins + table * blocks + block\n",
        outputs=("dk", "dv"),
        modelled_on="HazyResearch/HipKittens#22: a table of limits whose step is taken without its last entry: dK and dV of attention to selected blocks read where the lists of a block begin from tables that lie one entry per table too near: every sequence and kv head after the first with lists of its own takes the lists of earlier blocks (or none) for those of its block; lists that all sequences and heads share, the first table, the forward and dQ are right",
        subject="bundled-selected",
        needs=("backward",),
    ),
)
