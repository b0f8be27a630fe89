"""Held-out defects of gradients, the fourth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="f4_live_blocks_by_the_strides_of_the_other_walk",
        file="arguments.py",
        before="    batch, head = (0, 0) if tables is None else strides(tables)[:2]\n",
        after="    batch, head = (0, 0) if mask.blocks is None else strides(mask.blocks.along_keys)[:2]\n",
        outputs=("dk", "dv"),
        modelled_on="the kernel of dK and dV reads its table of live blocks with the strides of the table of the forward: wrong after the first pattern where heads or batches have patterns of their own and there are not as many blocks of rows as of keys; the forward and dQ are right",
        needs=("blocks", "backward"),
    ),
    Mutant(
        name="f4_ring_dlse_in_the_first_step_alone",
        file="ring/passes.py",
        before="                dlse=None if dlse is None else dlse[:, :, part.rows],\n",
        after="                dlse=None if dlse is None or step else dlse[:, :, part.rows],\n",
        outputs=("dq", "dk", "delta"),
        modelled_on="ring attention: the gradient through the LSE counts in the first step alone, so for the keys that a rank starts with; for those of other ranks it is taken to be 0; one rank, dV and cases without such a gradient are right",
        subject="bundled-ring",
        needs=("backward",),
    ),
    Mutant(
        name="f4_dbias_summed_in_16_bits",
        file="reductions.py",
        before="        ds = ds.sum(shared, keepdim=True)\n",
        after="        ds = ds.to(bias.dtype).sum(shared, keepdim=True)\n",
        outputs=("dbias",),
        modelled_on="precision: dS is rounded to the dtype of the bias before it is summed over the axes that share a bias; right in fp32 and where nothing is shared",
        needs=("bias", "backward"),
    ),
    Mutant(
        name="f4_dp_rounded_before_delta",
        file="device/dkdv.py",
        before="                    pT = weights(zT, lse2, see, part != FULL)  # [BLOCK_N, BLOCK_M]\n",
        after="                    dpT = dpT.to(do.dtype).to(tl.float32)\n"
        "                    pT = weights(zT, lse2, see, part != FULL)  # [BLOCK_N, BLOCK_M]\n",
        outputs=("dk",),
        modelled_on="precision: in the kernel of dK and dV dP is rounded to the dtype of dO before delta is subtracted: dK is imprecise in 16 bits (and infinite or NaN where dP passes 65504 in fp16); dV, dQ and fp32 are right",
        needs=("backward",),
    ),
    Mutant(
        name="f4_dlse_of_a_base_2_lse",
        file="device/delta.py",
        before="        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0, i), mask=i < q_end, other=0.0)\n",
        after="        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0, i), mask=i < q_end, other=0.0) * 1.4426950408889634\n",
        outputs=("dq", "dk", "delta", "dsink", "dbias", "drelative_bias"),
        modelled_on="the gradient through the LSE is taken for one of a base-2 LSE: it counts log2(e) times; without such a gradient all is right, and so is dV",
        needs=("backward",),
    ),
    Mutant(
        name="f4_dsink_without_the_last_sequence",
        file="reductions.py",
        before="device=lse2.device) < cu_q[-1])\n",
        after="device=lse2.device) < cu_q[-2])\n",
        outputs=("dsink",),
        modelled_on="packed sequences: the rows of the last sequence give nothing to dsink (with one sequence it is 0); other gradients, and batches that are not packed, are right",
        needs=("packed", "sink", "backward"),
    ),
    Mutant(
        name="f4_delta_of_whole_tiles_alone",
        file="device/dkdv.py",
        before="delta = tl.load(delta_ptrs, mask=i < q_end, other=0.0)[None, :]",
        after="delta = tl.load(delta_ptrs, mask=i < q_end // BLOCK_M * BLOCK_M, other=0.0)[None, :]",
        outputs=("dk",),
        modelled_on="the kernel of dK takes delta to be 0 for the rows behind the last whole tile of queries; right where the queries are a multiple of the tile, and dQ and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="f4_rows_before_the_first_key_in_dkdv",
        file="device/mask.py",
        before="    begin = tl.minimum(tl.maximum(j - band.high, 0), sq) if UPPER & MASK else 0\n",
        after="    begin = tl.minimum(tl.maximum(j - tl.maximum(band.high, 0), 0), sq) if UPPER & MASK else 0\n",
        outputs=("dk", "dv"),
        modelled_on="dK and dV under a bottom-right mask with more queries than keys: the tiles of queries that need no mask are counted from a diagonal that starts at the first row, so rows that do not see a key take part in its gradients, and rows without keys make them NaN; right where Sq <= Sk, in tiles that are masked, and in the forward and dQ",
        needs=("causal", "backward"),
    ),
    Mutant(
        name="f4_last_full_tile_lost_at_128",
        file="device/dq.py",
        before="        start, stop = segment(limits, part)\n",
        after="        start, stop = segment(limits, part)\n"
        "        if part == FULL and BLOCK_D == 128:\n"
        "            stop = tl.where(stop - start > BLOCK_N, stop - BLOCK_N, stop)\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="dQ for D from 72 to 128: of two and more tiles of keys that need no mask the last one is left out, also of the gradients of a bias and a relative bias; other head dims, one whole tile, dK and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="f4_dlse_taken_as_contiguous",
        file="launch.py",
        before="        dlse = dlse.contiguous()\n",
        after="        dlse = dlse.as_strided(dlse.shape, (dlse.shape[1] * dlse.shape[2], dlse.shape[2], 1))\n",
        outputs=("dq", "dk", "delta", "dsink", "dbias", "drelative_bias"),
        modelled_on="the gradient through the LSE is read as if it were contiguous: wrong elements where it has other strides; contiguous ones, and dV, are right",
        needs=("backward",),
    ),
    Mutant(
        name="f4_selected_rows_without_the_group",
        file="device/selected_backward.py",
        before="    for lane in range(0, count * sizes.group * selected.rows, BLOCK_M):\n",
        after="    for lane in range(0, count * selected.rows, BLOCK_M):\n",
        outputs=("dk", "dv"),
        modelled_on="chosen keys: the walk of dK and dV over the packed rows of the lists that name a block ends as if there were one query head in a group: the rows behind (all but the first 1 / group, rounded up to a tile) are lost; a group of one, the forward and dQ are right",
        subject="bundled-selected",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="f4_drelative_adds_up_over_calls",
        file="reductions.py",
        before="    total = torch.zeros(heads, 2 * reach + 1, dtype=torch.float64, device=ds.device)\n",
        after="    total = table_gradient.__dict__.setdefault(\n"
        '        f"{heads} {reach} {ds.device}", torch.zeros(heads, 2 * reach + 1, dtype=torch.float64, device=ds.device)\n'
        "    )\n",
        outputs=("drelative_bias",),
        modelled_on="the buffer in which the gradient of the relative bias is summed is kept for later calls with as many heads and distances and not zeroed: from the second call on the gradients of earlier calls are added; the first call is right",
        needs=("relative_bias", "backward"),
    ),
)
