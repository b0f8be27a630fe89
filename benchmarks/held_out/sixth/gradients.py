"""Held-out defects of gradients, the sixth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s6_bits_of_the_first_member_in_dkdv",
        file="device/dkdv.py",
        before="            bits = head_of(mask.bits, b, h, q0, False)\n",
        after="            bits = head_of(mask.bits, b, hk * sizes.group, q0, False)\n",
        outputs=("dk", "dv"),
        modelled_on="the kernel of dK and dV masks all query heads of a group by the bitmap of the first one: dK and dV are wrong with groups where heads have bitmaps of their own; a shared bitmap, a group of one, the forward and dQ are right",
        needs=("bitmap", "groups", "backward"),
    ),
    Mutant(
        name="s6_draws_by_the_kv_heads_in_dkdv",
        file="device/dkdv.py",
        before="                        stream = b * sizes.heads + h\n",
        after="                        stream = b * sizes.kv_heads + h\n",
        outputs=("dk", "dv"),
        modelled_on="dropout under groups: the kernel of dK and dV numbers its draws by b * kv heads + h, forward and dQ by b * heads + h: from the second sequence on dK and dV drop other pairs than were dropped; the first sequence, and as many kv heads as query heads, are right",
        needs=("dropout", "groups", "sequences", "backward"),
    ),
    Mutant(
        name="s6_dk_of_128_channels",
        file="device/dkdv.py",
        before="    store_tile(dk_head, dk * terms.scale, j, sk, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="    store_tile(dk_head, dk * terms.scale, j, sk, tl.minimum(sizes.d8, 16), BLOCK_D, False, ALIGNED)\n",
        outputs=("dk",),
        modelled_on="a kernel written for head dims up to 128: the channels of dK from 128 on are not written; dK for D up to 128, and dQ and dV for every D, are right",
        needs=("backward",),
    ),
    Mutant(
        name="s6_delta_of_rounded_products",
        file="device/delta.py",
        before="    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)\n",
        after="    delta = tl.sum((o * do).to(tl.float32), 1)\n",
        outputs=("delta", "dq", "dk", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: delta sums products of dO and O that are rounded to their 16 bits (infinite beyond 65504 in fp16), so delta, dQ, dK and the gradients of bias and sink are imprecise; fp32, dV and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s6_dbias_times_the_scale",
        file="device/dq.py",
        before="                    tl.store(ds_ptr + at, ds, mask=",
        after="                    tl.store(ds_ptr + at, ds * terms.scale, mask=",
        outputs=("dbias", "drelative_bias"),
        modelled_on="the gradient of what is added behind the scale is multiplied by the scale: dbias and the gradient of the relative bias are too small (or large) by that factor; right for a scale of 1, and dQ, dK and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="s6_bucket_of_its_last_distance",
        file="reductions.py",
        before="    numbers = torch.arange(count, device=ds.device)[:, None]\n"
        "    member = buckets[far - reach : far + reach + 1] == numbers  # [buckets, distances]\n"
        "    return torch.stack([torch.where(member, sums, 0.0).sum(-1) for sums in total]).to(torch.float32)\n",
        after="    table = torch.zeros(heads, count, dtype=torch.float64, device=ds.device)\n"
        "    for place, bucket in enumerate(buckets[far - reach : far + reach + 1].tolist()):\n"
        "        table[:, bucket] = total[:, place]\n"
        "    return table.to(torch.float32)\n",
        outputs=("drelative_bias",),
        modelled_on="a scatter that overwrites where it is to add: the gradient of a bucket of the relative bias is that of its last distance (the largest j - i, as far as the longer of rows and keys reaches) alone, the other distances of the bucket give nothing; right for buckets of one distance, and all other outputs are right",
        needs=("relative_bias", "backward"),
    ),
    Mutant(
        name="s6_padded_keys_weigh_in_dq",
        file="device/dq.py",
        before="            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n",
        after="            room = k_end if BITS & MASK else n0 + BLOCK_N\n"
        "            see = visible(i[:, None], j[None, :], q_end, room, band, bits, bits_start, MASK, part != FULL)\n",
        outputs=("dq",),
        modelled_on="the kernel of dQ does not mask the keys behind the last one of a last tile that is not whole: they stand with a key of 0 and so a product of 0, which changes nothing until exp(0 - LSE) overflows: dQ of rows whose LSE lies below -88.7, and of rows without keys whose tile has some, is inf times 0 = NaN; whole last tiles, larger LSEs, rows that a causal mask keeps from those keys, masks with bits, dK, dV and the gradients of a bias and a relative bias are right",
        needs=("backward",),
    ),
    Mutant(
        name="s6_dlse_of_the_call_before",
        file="launch.py",
        before="        dlse = dlse.contiguous()\n",
        after="        dlse = dlse.contiguous()\n"
        "    seen = _launch.__dict__.setdefault(str(rows), [None])\n"
        "    dlse = seen[0] = dlse if dlse is not None else seen[0]\n",
        outputs=("dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="state: a backward without a gradient through the LSE takes that of the last backward with as many batches, heads and rows that had one; right in the first such call, in calls that have one, and in dV",
        needs=("backward",),
    ),
    Mutant(
        name="s6_unnamed_blocks_unwritten",
        file="device/selected_backward.py",
        before="    rows = (slot < selected.keys) & (j < sizes.sk)\n",
        after="    rows = (slot < selected.keys) & (j < sizes.sk) & (count > 0)\n",
        outputs=("dk", "dv"),
        modelled_on="chosen keys: dK and dV of a block that no list names are not written, where 0 is right; blocks that a list names, the forward and dQ are right",
        subject="bundled-selected",
        needs=("backward",),
    ),
)
