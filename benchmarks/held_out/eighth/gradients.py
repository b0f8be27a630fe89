"""Held-out defects of gradients, the eighth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s8_dlse_with_the_other_sign",
        file="device/delta.py",
        before="        delta -= tl.load(row_ptrs(stats.dlse,",
        after="        delta += tl.load(row_ptrs(stats.dlse,",
        outputs=("dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a sign: delta = rowsum(dO * O) + dLSE, where the gradient of the LSE is to be subtracted: it counts with the other sign in all gradients but dV; without one all is right",
        needs=("backward",),
    ),
    Mutant(
        name="s8_dlse_by_rows_then_heads",
        file="launch.py",
        before="        dlse = dlse.contiguous()\n",
        after="        dlse = dlse.transpose(1, 2).contiguous().view(rows)\n",
        outputs=("dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="vllm-project/vllm#57012: statistics laid out as (rows, heads) and read as (heads, rows): the gradient through the LSE belongs to other rows and heads of the same sequence; right with one head or one row, and without a gradient through the LSE; dV is right",
        needs=("backward",),
    ),
    Mutant(
        name="s8_dbias_without_delta",
        file="device/dq.py",
        before="                    tl.store(ds_ptr + at, ds, mask=(i < q_end)[:, None] & (j < k_end)[None, :])\n",
        after="                    early = tl.where(p == 0.0, 0.0, p * dp)\n"
        "                    tl.store(ds_ptr + at, early, mask=(i < q_end)[:, None] & (j < k_end)[None, :])\n",
        outputs=("dbias", "drelative_bias"),
        modelled_on="a value that is stored one line too early: the gradients of the bias and of the relative bias sum P * dP, without P * delta; all other gradients are right",
        needs=("backward",),
    ),
    Mutant(
        name="s8_dsink_summed_over_the_group",
        file="launch.py",
        before="        None if sink is None or not needs[4] else sink_gradient(sink, lse2, delta, sequences.cu_q),\n",
        after="        None\n"
        "        if sink is None or not needs[4]\n"
        "        else sink_gradient(sink, lse2, delta, sequences.cu_q)\n"
        "        .view(call.kv_heads, -1)\n"
        "        .sum(1)\n"
        "        .repeat_interleave(call.heads // call.kv_heads),\n",
        outputs=("dsink",),
        modelled_on="a gradient reduced as those of k and v are: the gradient of the sink is summed over the query heads of each group, and every head of the group gets that sum; right without groups",
        needs=("sink", "groups", "backward"),
    ),
    Mutant(
        name="s8_draws_reshaped_in_dkdv",
        file="device/dropout.py",
        before="    return tl.trans(keep_tile(i, n0, stream, draws, BLOCK_N))\n",
        after="    return tl.reshape(keep_tile(i, n0, stream, draws, BLOCK_N), [BLOCK_N, i.shape[0]])\n",
        outputs=("dk", "dv"),
        modelled_on="pytorch/pytorch#190717: a reshape where a transpose is meant: the kernel of dK and dV drops a tile's pairs by draws that belong to other pairs of the tile; forward and dQ drop as declared; without dropout all is right",
        needs=("dropout", "backward"),
    ),
    Mutant(
        name="s8_square_bias_transposed_in_dkdv",
        file="device/logits.py",
        before="    bias = tl.load(bias_ptr + (i.to(tl.int64) * stride_row + j), mask=keep, other=0.0)\n",
        after="    row, key = i, j\n"
        "    if i.shape[0] == 1:  # a transposed tile\n"
        "        row, key = tl.where(sq == k_end, j, i), tl.where(sq == k_end, i, j)\n"
        "    bias = tl.load(bias_ptr + (row.to(tl.int64) * stride_row + key), mask=keep, other=0.0)\n",
        outputs=("dk", "dv"),
        modelled_on="a plane that is transposed once too often: where a sequence has as many rows as keys the kernel of dK and dV adds to the logit of row i and key j the bias of row j and key i; other shapes and symmetric biases are right, and so are forward, dQ and dbias",
        needs=("bias", "backward"),
    ),
    Mutant(
        name="s8_dk_of_the_channels_of_v",
        file="device/dkdv.py",
        before="    store_tile(dk_head, dk * terms.scale, j, sk, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="    store_tile(dk_head, dk * terms.scale, j, sk, tl.minimum(sizes.d8, sizes.dv8), BLOCK_D, False, ALIGNED)\n",
        outputs=("dk",),
        modelled_on="pytorch/pytorch#133495: the head dimension of V taken for that of K: where D > Dv the channels of dK from Dv on are not written, so what the memory held stays; D up to Dv is right, and so are dQ and dV",
        needs=("backward",),
    ),
    Mutant(
        name="s8_selected_lengths_ignored_in_dkdv",
        file="device/selected_backward.py",
        before="    keep = (slot < selected.keys) & (j < k_end)\n",
        after="    keep = (slot < selected.keys) & (j < sizes.sk)\n",
        outputs=("dk", "dv"),
        modelled_on="chosen keys: the kernel of dK and dV does not ask the key length: keys of a chosen block behind it are read, and get gradients where 0 is right; keys within the length are right, and so are dQ and calls without key lengths",
        subject="bundled-selected",
        needs=("key_lengths", "backward"),
    ),
    Mutant(
        name="s8_single_row_without_delta_in_dk",
        file="device/dkdv.py",
        before="                    delta = tl.load(delta_ptrs, mask=i < q_end, other=0.0)[None, :]",
        after="                    delta = tl.load(delta_ptrs, mask=(i < q_end) & (q_end > 1), other=0.0)[None, :]",
        outputs=("dk",),
        modelled_on="NVIDIA/cudnn-frontend#1072: a path of its own for a single query: where a sequence has one row dK is computed with a delta of 0, so without the rank-one part of the softmax's derivative; two rows and more are right, and so are dQ and dV",
        needs=("backward",),
    ),
    Mutant(
        name="s8_drelative_of_the_mirrored_distance",
        file="reductions.py",
        before="torch.where(member, sums, 0.0).sum(-1) for sums in total])",
        after="torch.where(member, sums, 0.0).sum(-1) for sums in total.flip(-1)])",
        outputs=("drelative_bias",),
        modelled_on="a sign of the distance in the gradient alone: dS of a pair is added to the bucket of the opposite distance, row - key for key - row, in the gradient of the relative bias; the forward reads the right one, and all other gradients are right",
        needs=("relative_bias", "backward"),
    ),
    Mutant(
        name="s8_alibi_not_passed_to_dq",
        file="arguments.py",
        before="        slopes=terms.slopes,\n",
        after='        slopes=None if kind == "dq" and isinstance(call, CheckedCall) else terms.slopes,\n',
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="Dao-AILab/flash-attention#2424: a modifier of the logits that one backward kernel is not handed: the kernel of dQ (and of the gradient of a bias) recomputes the weights without ALiBi from the LSE with it; dK and dV are right, and so is all without slopes",
        needs=("alibi", "backward"),
    ),
    Mutant(
        name="s8_dq_of_no_keys_unwritten",
        file="device/dq.py",
        before="    store_tile(dq_head, dq * terms.scale, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="    store_tile(dq_head, dq * terms.scale, i, tl.where(k_end > 0, sq, 0), sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        outputs=("dq",),
        modelled_on="Dao-AILab/flash-attention#2562: a program that leaves early: the rows of a sequence without keys (packed, or by a key length of 0) have no dQ written, where 0 is right; sequences with a key are right",
        needs=("backward",),
    ),
    Mutant(
        name="s8_ds_of_fp32_in_bf16",
        file="device/dkdv.py",
        before="                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]\n",
        after="                    if q.dtype == tl.float32:\n"
        "                        dsT = dsT.to(tl.bfloat16).to(tl.float32)\n"
        "                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]\n",
        outputs=("dk",),
        modelled_on="precision: of fp32 inputs dS is rounded to bf16 before the product that makes dK, as a matrix unit of 16 bits takes it: dK has bf16's precision; fp16 and bf16 inputs are right, and so are dQ and dV",
        needs=("backward",),
    ),
)
