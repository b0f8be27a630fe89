"""Held-out defects of a backward, the thirteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s13_tiles_of_dq_by_the_tile_of_keys",
        file="device/dq.py",
        before="    m0 = tile * BLOCK_M\n",
        after="    m0 = tile * BLOCK_N\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="intel/intel-xpu-backend-for-triton#7317: a program number that is multiplied by the tile of the other axis: the tile t of dQ begins at row t times the tile of keys: where that is narrower than the tile of rows, the last rows have no dQ (nor dS), where it is wider, the rows between two tiles have none; tiles of equal sides, the first tile, dK and dV are right",
        needs=("backward", "launch"),
    ),
    Mutant(
        name="s13_delta_added_in_dk",
        file="device/dkdv.py",
        before="                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)\n",
        after="                    dsT = score_gradient(pT, dpT, -delta, see, part != FULL)\n",
        outputs=("dk",),
        modelled_on="two conventions of a sign, delta and minus delta, of which a kernel that writes one and a kernel that reads the other have each theirs: dK is the sum of P * (dP + delta) times the queries; dQ, dV and delta are right, and so are rows whose delta is 0",
        needs=("backward",),
    ),
    Mutant(
        name="s13_dv_with_the_slope_of_the_cap",
        file="device/dkdv.py",
        before="                    dv = tl.dot(wT.to(do.dtype), do, dv, input_precision=PRECISION)  # [BLOCK_N, BLOCK_DV]\n",
        after="                    wT = dot_gradient(wT, dotT, terms.cap_ratio)\n"
        "                    dv = tl.dot(wT.to(do.dtype), do, dv, input_precision=PRECISION)  # [BLOCK_N, BLOCK_DV]\n",
        outputs=("dv",),
        modelled_on="Dao-AILab/flash-attention#2402: a derivative that reaches a gradient it is no part of: under a softcap the weights of dV are multiplied by the derivative of the softcap, as those of dS are; dQ and dK are right, and so is dV without a softcap or where logits are small against it",
        needs=("backward", "softcap"),
    ),
    Mutant(
        name="s13_dlse_of_the_first_head",
        file="device/delta.py",
        before="        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0, i), mask=i < q_end, other=0.0)\n",
        after="        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h * 0, q0, i), mask=i < q_end, other=0.0)\n",
        outputs=("dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="an offset of a head that is added for two of three statistics: every query head takes the gradient through the LSE of the first head of its sequence: delta, dQ, dK and the gradients of biases and sinks are wrong in the other heads; dV, one head, and calls without such a gradient are right",
        needs=("backward",),
    ),
    Mutant(
        name="s13_dbias_summed_along_one_axis",
        file="reductions.py",
        before="        ds = ds.sum(shared, keepdim=True)\n",
        after="        ds = ds.sum(shared[0], keepdim=True).narrow(shared[-1], 0, 1)\n",
        outputs=("dbias",),
        modelled_on="HKUSTDial/flash-sparse-attention#193: a reduction that expects one axis to be shared: where sequences and heads share a bias, its gradient is the sum over the sequences of the first head alone; a bias that only one of the two share, one sequence, and one head are right",
        needs=("backward", "bias"),
    ),
    Mutant(
        name="s13_dsink_by_the_lse_without_it",
        file="reductions.py",
        before="    weight = torch.exp2(sink2 - torch.where(counts, lse2, torch.inf))\n",
        after="    weight = torch.exp2(sink2 - torch.where(counts, lse2, torch.inf))\n"
        "    weight = weight / (1 - weight)  # exp(sink) over the sum of the keys\n",
        outputs=("dsink",),
        modelled_on="NVIDIA/cudnn-frontend#421: the LSE of the keys alone where the one with the sink is meant: the gradient of the sink weighs a row by exp(sink - LSE of its keys), which is too large by 1 / (1 - the share of the sink); nearly right where the sink is small against the keys; all other gradients are right",
        needs=("backward", "sink"),
    ),
    Mutant(
        name="s13_drelative_reaches_as_far_as_the_rows",
        file="reductions.py",
        before="    reach = min(far, max(rows, keys))  # no visible pair is farther apart\n",
        after="    reach = min(far, rows)  # no visible pair is farther apart\n",
        outputs=("drelative_bias",),
        modelled_on="jax-ml/jax bd9a10e4: a limit that holds where there are as many keys as rows: in the gradient of a relative bias every pair that is farther apart than there are rows gives to the bucket of that distance, not of its own; as many rows as keys or more, tables that reach no farther than the rows, and the forward are right",
        needs=("backward", "relative_bias"),
    ),
    Mutant(
        name="s13_transposed_pattern_of_the_first_call",
        file="arguments.py",
        before='        tables = mask.blocks.along_queries if kind == "dkdv" else mask.blocks.along_keys\n',
        after='        tables = mask.blocks.along_queries if kind == "dkdv" else mask.blocks.along_keys\n'
        '        if kind == "dkdv":\n'
        "            tables = mask_parts.__dict__.setdefault(str((mask.block_size, tuple(tables.shape))), tables)\n",
        outputs=("dk", "dv"),
        modelled_on="flashinfer-ai/flashinfer#1028: state: the transposed form of a pattern of blocks, which the backward alone needs and which is made once and kept by its shape: dK and dV of a later call whose pattern has as many blocks of the same size walk the live blocks of the first such call; the first one, the forward and dQ are right",
        needs=("backward", "blocks"),
    ),
    Mutant(
        name="s13_offsets_of_lists_without_the_last_one",
        file="device/selected_backward.py",
        before="    begins_ptr = selected.begins + table * (blocks + 1) + block\n",
        after="    begins_ptr = selected.begins + table * blocks + block\n",
        outputs=("dk", "dv"),
        modelled_on="an index of rows in CSR form, which has one entry more than rows, and a stride that has not: chosen keys: where kv heads or sequences have lists of their own, the kernel of dK and dV finds the lists that name a block as many entries too early as there are kv heads (and sequences) with lists before; the first of them, and lists that all share, are right",
        subject="bundled-selected",
        needs=("kv_heads",),
    ),
)
