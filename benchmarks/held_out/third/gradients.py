"""Held-out defects of gradients, the third set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="t_prefix_tiles_chosen_causally",
        file="device/mask.py",
        before="    if PREFIX & MASK:\n        begin = tl.where(j < band.prefix, 0, begin)\n",
        after="",
        outputs=("dk", "dv"),
        modelled_on="prefix LM: the tiles of queries that dK and dV walk are still chosen by the causal mask: rows in tiles before the diagonal give nothing to keys of the prefix; forward and dQ are right, and so is one tile",
        needs=("prefix_lengths", "backward"),
    ),
    Mutant(
        name="t_cap_slope_at_the_capped_logit",
        file="device/logits.py",
        before="ds * tanh_slope(dot * cap_ratio))",
        after="ds * tanh_slope(tanh(dot * cap_ratio)))",
        outputs=("dq", "dk"),
        modelled_on="softcap: its derivative is taken at the capped logit, 1 - tanh(tanh(x))^2; small logits are nearly right",
        needs=("softcap", "backward"),
    ),
    Mutant(
        name="t_terms_of_interleaved_heads_in_dkdv",
        file="device/dkdv.py",
        before="head = head_terms(terms, b, hk.to(tl.int64) * sizes.group + member, q0, q_end, k_end)",
        after="head = head_terms(terms, b, hk.to(tl.int64) + member * sizes.kv_heads, q0, q_end, k_end)",
        outputs=("dk", "dv"),
        modelled_on="dK and dV take the ALiBi slope, the bias and the relative bias of query head member * Hkv + kv head (interleaved groups): wrong with groups, more than one kv head and one of these terms",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="t_dkdv_of_two_heads_of_a_group",
        file="device/dkdv.py",
        before="    for member in range(sizes.group):\n",
        after="    for member in range(tl.minimum(sizes.group, 2)):\n",
        outputs=("dk", "dv"),
        modelled_on="dK and dV sum over the first two query heads of a group: groups of three and more lose the others",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="t_do_by_the_strides_of_o",
        file="launch.py",
        before="        **views(tensors),\n        stats=statistics(call, lse2=lse2, delta=delta, dlse=dlse),\n",
        after='        o_view=views(tensors)["o_view"],\n'
        '        do_view=views(tensors)["o_view"]._replace(ptr=do),\n'
        "        stats=statistics(call, lse2=lse2, delta=delta, dlse=dlse),\n",
        outputs=("dq", "dk", "delta"),
        modelled_on="delta reads dO by the strides of O: dQ and dK are wrong where dO lies otherwise; dV is right",
        needs=("backward",),
    ),
    Mutant(
        name="t_dbias_behind_the_cap",
        file="device/dq.py",
        before="                if ds_ptr is not None:\n                    at =",
        after="                if ds_ptr is not None:\n                    ds = dot_gradient(ds, dot, terms.cap_ratio)\n                    at =",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="with a softcap and a bias (or relative bias) whose gradient is wanted, the derivative of the cap is multiplied into dS before dS is stored and again for dQ: dbias has it once too often, dQ twice; dK and dV are right, and so is one of the two alone",
        needs=("softcap", "bias", "backward"),
    ),
    Mutant(
        name="t_dsink_is_a_mean",
        file="reductions.py",
        before="    return -(weight * torch.where(counts, delta, 0.0)).sum((0, 2)).to(torch.float32)\n",
        after="    return -(weight * torch.where(counts, delta, 0.0)).sum(2).mean(0).to(torch.float32)\n",
        outputs=("dsink",),
        modelled_on="dsink is the mean over the batch, not the sum; one batch is right",
        needs=("sink", "backward"),
    ),
    Mutant(
        name="t_ds_kept_from_the_last_call",
        file="launch.py",
        before="        ds = torch.zeros(*rows, call.sk, dtype=torch.float32, device=q.device)  # tiles never visited stay 0\n",
        after="        ds = backward.__dict__.setdefault(\n"
        '            f"{rows} {call.sk} {q.device}", torch.zeros(*rows, call.sk, dtype=torch.float32, device=q.device)\n'
        "        )\n",
        outputs=("dbias", "drelative_bias"),
        modelled_on="the buffer of dS is kept for later calls of the same shape and not zeroed: dbias and drelative_bias of pairs in tiles that the mask skips, or past a length, are those of an earlier call",
        needs=("bias", "backward"),
    ),
    Mutant(
        name="t_delta_grid_of_the_forward",
        file="launch.py",
        before="        programs_of(call, call.heads, call.sq, call.rows, DELTA_ROWS),\n",
        after='        programs_of(call, call.heads, call.sq, call.rows, max(DELTA_ROWS, call.configs["forward"].block_m)),\n',
        outputs=("dq", "dk", "delta"),
        modelled_on="delta is launched with as many programs as the forward needs, though its tiles are 64 rows: where the forward has tiles of more rows, and there are more than 64, the delta of the last heads and batches is never written",
        needs=("launch", "backward"),
    ),
)
