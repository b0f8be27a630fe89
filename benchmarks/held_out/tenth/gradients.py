"""Held-out defects of a backward, the tenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_FROM_DELTA = ("dq", "dk", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s10_delta_outside_the_brackets",
        file="device/softmax.py",
        before="    ds = p * (dp - delta)\n",
        after="    ds = p * dp - delta\n",
        outputs=("dq", "dk", "dbias", "drelative_bias"),
        modelled_on="brackets that are missing: dS is P * dP - delta, where P * (dP - delta) is meant: every visible pair of a row loses the whole delta, not its share; dV, dsink, O and LSE are right, and so is a row whose delta is 0",
        needs=("backward",),
    ),
    Mutant(
        name="s10_dk_of_the_next_queries",
        file="device/dkdv.py",
        before="                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]\n",
        after="                    q = load_tile(q_head, i + BLOCK_M, q_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n"
        "                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]\n",
        outputs=("dk",),
        modelled_on="a pipeline that has fetched one tile too far: dK sums dS of a tile of queries times the queries of the tile behind it, those behind the last query being 0: with a single tile dK is 0; dV, dQ and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s10_delta_of_o_and_o",
        file="device/delta.py",
        before="    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)\n",
        after="    delta = tl.sum(o.to(tl.float32) * o.to(tl.float32), 1)\n",
        outputs=_FROM_DELTA,
        modelled_on="one name for another: delta is rowsum(O * O), where rowsum(dO * O) is meant, less dLSE: delta, dQ, dK and the gradients of biases and sinks are wrong; dV is right",
        needs=("backward",),
    ),
    Mutant(
        name="s10_dsink_without_its_weight",
        file="reductions.py",
        before="    return -(weight * torch.where(counts, delta, 0.0)).sum((0, 2)).to(torch.float32)\n",
        after="    return -torch.where(counts, delta.double(), 0.0).sum((0, 2)).to(torch.float32)\n",
        outputs=("dsink",),
        modelled_on="a gradient without the weight of what it is of: every row that sees a key gives its whole delta to the sink, with the right sign, not the share exp(sink - LSE) of it; all other gradients are right",
        needs=("backward", "sink"),
    ),
    Mutant(
        name="s10_cap_slope_without_a_square",
        file="device/logits.py",
        before="    return c * (2.0 - c)\n",
        after="    return c\n",
        outputs=("dq", "dk"),
        modelled_on="Dao-AILab/flash-attention#2402: the derivative of the softcap is 1 - tanh |x|, where 1 - tanh(x)^2 is meant: dQ and dK are too small, by up to a half for logits above the cap; logits that are small against the cap are nearly right, and so are biases' gradients and dV",
        needs=("backward", "softcap"),
    ),
    Mutant(
        name="s10_ds_of_the_first_member_alone",
        file="device/dq.py",
        before="                    tl.store(ds_ptr + at, ds, mask=(i < q_end)[:, None] & (j < k_end)[None, :])\n",
        after="                    first = h % sizes.group == 0\n"
        "                    tl.store(ds_ptr + at, ds, mask=first & (i < q_end)[:, None] & (j < k_end)[None, :])\n",
        outputs=("dbias", "drelative_bias"),
        modelled_on="a store that one program of a group does for all: dS is stored for the first query head of each group alone, so that the gradients of a bias and of a relative bias are 0 for the others, or lack their share where heads share a bias; right without groups, and in dQ, dK and dV",
        needs=("backward", "groups"),
    ),
    Mutant(
        name="s10_delta_only_beside_dq",
        file="launch.py",
        before="        programs_of(call, call.heads, call.sq, call.rows, DELTA_ROWS),\n",
        after="        programs_of(call, call.heads, call.sq, call.rows, DELTA_ROWS) if needs[0] else 0,\n",
        outputs=("dk", "dbias", "dsink", "drelative_bias"),
        modelled_on="a first pass that is taken for a part of one gradient: where dQ is not wanted (queries that are frozen) delta is not computed, and dK and the gradients of biases and sinks read what the memory held; right where dQ is wanted too, and in dV",
        needs=("backward",),
    ),
    Mutant(
        name="s10_packed_keys_behind_the_rows",
        file="device/dkdv.py",
        before="    keep = (j < k_end)[:, None]\n    dk = ",
        after="    keep = (j < k_end)[:, None]\n"
        "    if sequences.cu_k is not None:\n"
        "        keep = (j < tl.minimum(k_end, q_end))[:, None]\n"
        "    dk = ",
        outputs=("dk", "dv"),
        modelled_on="jax-ml/jax bd9a10e4: the length of the queries used for that of the keys where gradients are written: dK and dV of a packed sequence are 0 for the keys from its number of queries on; sequences with as many queries as keys or more are right, and so are those that are not packed",
        needs=("backward", "packed"),
    ),
    Mutant(
        name="s10_dq_aligned_at_the_top_left",
        file="arguments.py",
        before="        align_end=int(mask.align_end),\n",
        after='        align_end=int(mask.align_end and (mask.tree or kind != "dq")),\n',
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="pytorch/pytorch#108108: two conventions of a causal mask in one kernel package: the kernel of dQ (and of the gradients of a bias and a relative bias) takes a bottom-right causal mask, and a window with it, for a top-left one; right where a sequence has as many keys as queries, for top-left masks, in the forward, dK and dV",
        needs=("backward", "causal"),
    ),
    Mutant(
        name="s10_far_pairs_at_one_end",
        file="reductions.py",
        before="    before, after = (torch.where(far[:, None], ds, 0.0) for far in (j <= position - reach, j >= position + reach))\n",
        after="    far = (j - position).abs() >= reach\n"
        "    before, after = torch.where(far[:, None], ds, 0.0), torch.zeros_like(ds)\n",
        outputs=("drelative_bias",),
        modelled_on="a distance without its sign in a clip: the gradient of a relative bias adds all pairs that are as far apart as the longest distance of the table, or farther, to the bucket of that distance before the row, also those of keys after it; nearer pairs, and causal masks, under which nothing is far after a row, are right",
        needs=("backward", "relative_bias"),
    ),
    Mutant(
        name="s10_dq_scaled_after_its_rounding",
        file="device/dq.py",
        before="    store_tile(dq_head, dq * terms.scale, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="    dq = dq.to(dq_view.ptr.dtype.element_ty).to(tl.float32)\n"
        "    store_tile(dq_head, dq * terms.scale, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        outputs=("dq",),
        modelled_on="precision: a scale that is multiplied to the dQ that was stored: dQ is rounded to its 16 bits before it is scaled and once more afterwards (infinite where the sum passes 65504 in fp16, coarse where it lies below 2^-14); fp32 is right, and so are scales that are powers of two, but at the ends of fp16",
        needs=("backward",),
    ),
    Mutant(
        name="s10_ds_of_rounded_weights",
        file="device/dkdv.py",
        before="                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)\n",
        after="                    pT = pT.to(q.dtype).to(tl.float32)\n"
        "                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)\n",
        outputs=("dk",),
        modelled_on="precision: the weights that were rounded for dV are used again for dS: dK is the sum of P * (dP - delta) with P in the dtype of q, so rounded once more, and P below 2^-25 are lost in fp16; fp32, dV and dQ are right",
        needs=("backward",),
    ),
)
