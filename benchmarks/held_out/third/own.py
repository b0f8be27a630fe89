"""Held-out defects of a Triton forward and of an attention in plain torch that belong to this set, in the folder `own`; see `benchmarks/README.md`.

They are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="t_maximum_starts_at_minus_1e4",
        file="third/own/tiled.py",
        before='    m = tl.full([BLOCK], float("-inf"), tl.float32)\n',
        after="    m = tl.full([BLOCK], -10000.0, tl.float32)\n",
        outputs=("o", "lse"),
        modelled_on="the running maximum starts at -10000: a row whose logits all lie below it by more than 100 or so has O = 0 and LSE -10000, and so has a row without keys",
    ),
    OwnDefect(
        name="t_group_rounded_to_a_power_of_two",
        file="third/own/tiled.py",
        before="    group = heads // k.shape[2]\n",
        after="    group = triton.next_power_of_2(heads // k.shape[2])\n",
        outputs=("o", "lse"),
        modelled_on="the kv head is h // (group rounded up to a power of two): wrong for groups of 3, 5, 6 and 7 with more than one kv head",
        needs=("groups",),
    ),
    OwnDefect(
        name="t_lse_rows_rounded_to_the_tile",
        file="third/own/tiled.py",
        before="    lse_room = rows\n",
        after="    lse_room = triton.cdiv(rows, block) * block\n",
        outputs=("lse",),
        modelled_on="the LSE is written with a stride between heads that is rounded up to the tile of rows, and read without: from the second head on it is that of other rows, or unwritten, where the rows are no multiple of the tile",
    ),
    OwnDefect(
        name="t_causal_end_without_the_prefix",
        file="third/own/tiled.py",
        before="        stop = tl.minimum(n, (tile + 1) * BLOCK + shift)\n",
        after="        stop = tl.minimum(n, (tile + 1) * BLOCK)\n",
        outputs=("o", "lse"),
        modelled_on="the causal loop over keys ends by the row's number without the keys before the first row (the cached prefix): tiles of keys are lost where there are more keys than rows",
        needs=("causal",),
    ),
    OwnDefect(
        name="t_empty_rows_by_the_tile",
        file="third/own/tiled.py",
        before="    divisor = tl.where(total == 0.0, 1.0, total)\n",
        after="    divisor = tl.where(tl.sum(total, 0) == 0.0, 1.0, total)\n",
        outputs=("o", "lse"),
        modelled_on="the guard against rows without keys asks whether the whole tile of rows has none: O of an empty row beside others that see keys is 0 / 0 = NaN",
    ),
    OwnDefect(
        name="t_window_after_the_softmax",
        file="third/own/by_hand.py",
        before="        s = terms(wide_q @ wide_k.mT * p.scale, p, see)\n",
        after="        s = terms(wide_q @ wide_k.mT * p.scale, p, visible(p, window=False))\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the window is applied after the softmax: hidden weights are set to 0 and the others not normalised again; the LSE is that without the window",
        needs=("window",),
    ),
    OwnDefect(
        name="t_cap_after_the_mask",
        file="third/own/by_hand.py",
        before="    return s.masked_fill(~see, -torch.inf)\n",
        after="    return s.masked_fill(~see, -torch.inf if p.softcap is None else -p.softcap)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the softcap is applied after the mask, so hidden keys keep the logit -softcap and take part; right without a softcap or without hidden keys",
        needs=("softcap",),
    ),
    OwnDefect(
        name="t_alibi_from_the_first_key",
        file="third/own/by_hand.py",
        before="        at = torch.arange(rows)[:, None] + shift_of(p, n[:, None, None])\n",
        after="        at = torch.arange(rows)[:, None] + 0 * n[:, None, None]\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="ALiBi measures distances from row i, not from i + keys - rows, under a bottom-right mask with other numbers of keys than rows",
        needs=("alibi", "causal"),
    ),
    OwnDefect(
        name="t_backward_with_the_default_scale",
        file="third/own/by_hand.py",
        before="        scale = p.scale\n",
        after="        scale = q.shape[3] ** -0.5\n",
        outputs=("dq", "dk", "dv"),
        modelled_on="the backward computes with the default scale whatever scale was given; right with the default",
        semantics="scale-default",
    ),
    OwnDefect(
        name="t_last_chunk_rescaled_twice",
        file="third/own/by_hand.py",
        before="            total = total * alpha + weights.sum(-1)\n",
        after="            total = total * alpha + weights.sum(-1)\n"
        "            alpha = alpha * alpha if start and part.shape[3] < CHUNK else alpha\n",
        outputs=("o", "dq", "dk"),
        modelled_on="a last chunk of keys that is not whole rescales the accumulator twice (alpha squared), the row sum once: O is wrong where the keys are no multiple of 16, more than 16, and the maximum lies in the last chunk",
    ),
    OwnDefect(
        name="t_backward_weights_without_the_sink",
        file="third/own/by_hand.py",
        before="        weights = torch.exp(terms(dot, p, see) - pivot[..., None])\n",
        after="        weights = torch.exp(terms(dot, p, see) - pivot[..., None])\n"
        "        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-30) if p.sink is not None else weights\n",
        outputs=("dq", "dk", "dv"),
        modelled_on="the backward normalises its weights over the keys alone: with a sink they sum to 1, not to 1 minus the weight of the sink",
        needs=("sink",),
    ),
    OwnDefect(
        name="t_shift_of_the_first_keys",
        file="third/own/by_hand.py",
        before='    return n - p.q.shape[2] if alignment == "bottom-right" else 0 * n\n',
        after='    return _SHIFTS.setdefault((p.q.shape[2], p.q.shape[0], n.dim()), n - p.q.shape[2]) if alignment == "bottom-right" else 0 * n\n',
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the shift of a bottom-right mask is kept by batch and number of rows: a later call with as many rows and other keys or key lengths has the mask of the first",
        needs=("causal",),
    ),
)
