"""Held-out defects of gradients, the seventh set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s7_dq_by_the_ratio_of_the_cap",
        file="device/dq.py",
        before="    store_tile(dq_head, dq * terms.scale, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="    factor = terms.scale\n"
        "    if terms.cap_ratio is not None:\n"
        "        factor = terms.cap_ratio\n"
        "    store_tile(dq_head, dq * factor, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        outputs=("dq",),
        modelled_on="Dao-AILab/flash-attention#2402: with a softcap dQ is multiplied by scale / cap, the factor of the argument of the tanh, where the scale is meant: too small by the cap; right for a cap of 1 and without one, and so are dK and dV",
        needs=("softcap", "backward"),
    ),
    Mutant(
        name="s7_no_cap_slope_at_the_diagonal_in_dk",
        file="device/dkdv.py",
        before="                    dsT = dot_gradient(dsT, dotT, terms.cap_ratio)\n",
        after="                    if part == FULL:\n"
        "                        dsT = dot_gradient(dsT, dotT, terms.cap_ratio)\n",
        outputs=("dk",),
        modelled_on="Dao-AILab/flash-attention#2424: a modifier whose derivative one of two loops has: dK lacks the derivative of the softcap in the tiles that need a mask (at the diagonal, at the sides of a window, under bits); right in the others, so without a mask, and in dQ",
        needs=("softcap", "backward"),
    ),
    Mutant(
        name="s7_diagonal_tiles_counted_twice",
        file="device/schedule.py",
        before="    full_begin = tl.cdiv(sure_from, STEP) * STEP\n",
        after="    full_begin = tl.cdiv(sure_from, STEP) * STEP\n"
        "    if AXIS == QUERIES:\n"
        "        full_begin = tl.cdiv(sure_from, BLOCK_N) * BLOCK_N\n",
        outputs=("dk", "dv"),
        modelled_on="intel/intel-xpu-backend-for-triton#7317: the tile of the wrong axis in a loop bound: under a causal mask, a right side of a window or bits the walk of dK and dV over unmasked queries begins at a multiple of the tile of keys, where the masked one ends at a multiple of the tile of queries: rows between are counted twice where tiles of queries are the wider ones; right for tiles as wide or wider of keys",
        needs=("causal", "launch", "backward"),
    ),
    Mutant(
        name="s7_low_rows_taken_for_empty_in_dkdv",
        file="device/dkdv.py",
        before='                    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[None, :]  # [1, BLOCK_M]\n',
        after='                    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[None, :]\n'
        '                    lse2 = tl.where(lse2 < -126.0, float("inf"), lse2)\n',
        outputs=("dk", "dv"),
        modelled_on="flashinfer-ai/flashinfer#4401: a finite threshold in place of -inf: rows whose LSE lies below -87 (natural) are taken for rows without keys and give nothing to dK and dV; right for larger LSEs, in the forward and in dQ",
        needs=("backward",),
    ),
    Mutant(
        name="s7_lse_at_the_keys_of_the_sequence_in_dkdv",
        file="device/dkdv.py",
        before="                    lse2_ptrs = row_ptrs(stats.lse2, stats, b, h, q0, i)\n",
        after="                    lse2_ptrs = row_ptrs(stats.lse2, stats, b, h, k0, i)\n",
        outputs=("dk", "dv"),
        modelled_on="ModelTC/lightllm 0fdfb597: the start of a sequence among the keys used for one among the rows: packed sequences: the kernel of dK and dV reads the LSE from row cu_seqlens_k on; right where queries and keys of all sequences before are as many, for a single sequence, and in dQ",
        needs=("packed", "backward"),
    ),
    Mutant(
        name="s7_dv_scaled_once_per_member",
        file="device/dkdv.py",
        before="                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]\n"
        "\n"
        "    keep = (j < k_end)[:, None]\n"
        "    dk = tl.where(keep, dk, 0.0)\n"
        "    dv = tl.where(keep, dv, 0.0)\n"
        "    if dropout.keep_share is not None:\n"
        "        dv = dv / dropout.keep_share\n",
        after="                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)\n"
        "        if dropout.keep_share is not None:\n"
        "            dv = dv / dropout.keep_share\n"
        "\n"
        "    keep = (j < k_end)[:, None]\n"
        "    dk = tl.where(keep, dk, 0.0)\n"
        "    dv = tl.where(keep, dv, 0.0)\n",
        outputs=("dv",),
        modelled_on="a factor inside of a loop that belongs behind it: dropout under groups: the sum of dV is divided by 1 - p after every query head of the group, so that a head counts by that factor once more for every head behind it; a group of one, and no dropout, are right",
        needs=("dropout", "groups", "backward"),
    ),
    Mutant(
        name="s7_delta_of_the_kept_share",
        file="launch.py",
        before="    stats = statistics(call, lse2=lse2, delta=delta)\n",
        after="    if call.terms.dropout is not None:\n"
        "        delta *= 1 - call.terms.dropout.p\n"
        "    stats = statistics(call, lse2=lse2, delta=delta)\n",
        outputs=("delta", "dq", "dk", "dbias", "dsink", "drelative_bias"),
        modelled_on="delta of an O without the factor of dropout: rowsum(dO * O) - dLSE is multiplied by 1 - p although O holds 1 / (1 - p): delta, dQ, dK and the gradients of biases and sinks are wrong under dropout; dV is right, and so is all without dropout",
        needs=("dropout", "backward"),
    ),
    Mutant(
        name="s7_lse_converted_twice_in_dsink",
        file="reductions.py",
        before="    weight = torch.exp2(sink2 - torch.where(counts, lse2, torch.inf))\n",
        after="    weight = torch.exp2(sink2 - torch.where(counts, lse2, torch.inf) * LOG2_E)\n",
        outputs=("dsink",),
        modelled_on="vllm-project/vllm#28840: a base-2 LSE that is taken for a natural one: the gradient of the sink weighs a row by exp(sink) 2^(-1.44 LSE) with the LSE in base 2 already; right where the LSE is 0, and all other gradients are right",
        needs=("sink", "backward"),
    ),
    Mutant(
        name="s7_ds_of_interleaved_heads",
        file="device/dq.py",
        before="                    at = row_numbers(stats, b, h, q0, i)[:, None] * sizes.sk + j[None, :]\n",
        after="                    turn = h % sizes.kv_heads * sizes.group + h // sizes.kv_heads\n"
        "                    at = row_numbers(stats, b, turn, q0, i)[:, None] * sizes.sk + j[None, :]\n",
        outputs=("dbias", "drelative_bias"),
        modelled_on="XunhaoLai/native-sparse-attention-triton#27: heads numbered as (member, kv head) where (kv head, member) is meant: dS is stored under the number of another query head, so that dbias and the gradient of the relative bias change heads; right for one kv head, for a group of one, for a bias that heads share, and in dQ",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="s7_namers_of_a_block_capped",
        file="device/selected_backward.py",
        before="    count = (tl.load(begins_ptr + 1) - begin).to(tl.int32)\n",
        after="    count = tl.minimum((tl.load(begins_ptr + 1) - begin).to(tl.int32), 8)\n",
        outputs=("dk", "dv"),
        modelled_on="linkedin/Liger-Kernel 7ee2e852: an inverted index with room for eight: chosen keys: of the lists that name a block the first eight alone give to dK and dV of its keys; right for blocks that eight lists or fewer name, in the forward and in dQ",
        subject="bundled-selected",
        needs=("backward",),
    ),
    Mutant(
        name="s7_cap_slope_by_a_difference",
        file="device/logits.py",
        before="    c = _complement(tl.abs(x))\n    return c * (2.0 - c)\n",
        after="    t = tanh(x)\n    return 1.0 - t * t\n",
        outputs=("dq", "dk"),
        modelled_on="precision: the derivative of the softcap is 1 - tanh^2 in fp32, which cancels: dQ and dK are imprecise where logits exceed the cap some times over, and 0 from 9 times on; right for logits below the cap",
        needs=("softcap", "backward"),
    ),
    Mutant(
        name="s7_dlse_in_16_bits",
        file="launch.py",
        before="        dlse = dlse.contiguous()\n",
        after="        dlse = dlse.to(q.dtype).float().contiguous()\n",
        outputs=("delta", "dq", "dk", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: the gradient through the LSE is rounded to the dtype of q on its way into delta, as under autocast (infinite beyond 65504 in fp16); fp32 is right, and so is all without such a gradient",
        needs=("backward",),
    ),
)
