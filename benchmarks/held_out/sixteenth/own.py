"""Held-out defects of kernels that are not the bundled ones, the sixteenth set; see `benchmarks/README.md`.

Two kernels in Triton with forward and backward, one whose backward stores shares of dQ and one whose programs own a kv head, and two in plain
torch, differentiated by autograd, one that makes dense batches of packed sequences and one that gathers live blocks, in the folder `own`. They
are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s16_shares_a_kv_head_apart",
        file="sixteenth/own/shares.py",
        before="        shares = shares_ptr + (share * tl.num_programs(1) * group + bh) * rows * d\n",
        after="        shares = shares_ptr + (share * tl.num_programs(1) + bh) * rows * d\n",
        outputs=("dq",),
        modelled_on="XunhaoLai/native-sparse-attention-triton#27: kv heads counted where query heads are meant: the shares of dQ of two tiles of keys lie one kv head for each kv head apart, not one query head for each query head: with groups the shares of the second tile of keys and of later ones are added to dQ of other heads than theirs, and lie over shares of earlier tiles, which are lost; groups of one, one tile of keys, dK and dV are right",
        needs=("backward", "groups"),
    ),
    OwnDefect(
        name="s16_shares_in_the_dtype_of_q",
        file="sixteenth/own/shares.py",
        before="    shares = torch.zeros(tiles, *q.shape, dtype=torch.float32, device=q.device)\n",
        after="    shares = torch.zeros(tiles, *q.shape, dtype=q.dtype, device=q.device)\n",
        outputs=("dq",),
        modelled_on="precision: a buffer that is made like a tensor of the model: the share of every tile of keys in dQ is rounded to the dtype of q before the shares are added, which torch rounds as well, and before the scale (infinite beyond 65504 in fp16); fp32, dK, dV and dsink are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s16_dq_goes_on_from_tile_to_tile",
        file="sixteenth/own/owned.py",
        before="    for member in range(group):\n"
        "        h = hk * group + member\n"
        "        bh = b * heads + h\n"
        "        plane = bias_ptr\n"
        "        if bias_ptr is not None:\n"
        "            plane = bias_ptr + b * bias_batch + h * bias_head\n"
        "        for first in range(0, rows, BLOCK):\n"
        "            i = first + tl.arange(0, BLOCK)\n"
        "            q = fetch(q_ptr + bh * rows * d, i, rows, d, C)\n"
        "            do = fetch(do_ptr + bh * rows * dv, i, rows, dv, CV)\n"
        "            lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]\n"
        "            delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]\n"
        "            dq = tl.zeros([BLOCK, C], tl.float32)\n",
        after="    dq = tl.zeros([BLOCK, C], tl.float32)\n"
        "    for member in range(group):\n"
        "        h = hk * group + member\n"
        "        bh = b * heads + h\n"
        "        plane = bias_ptr\n"
        "        if bias_ptr is not None:\n"
        "            plane = bias_ptr + b * bias_batch + h * bias_head\n"
        "        for first in range(0, rows, BLOCK):\n"
        "            i = first + tl.arange(0, BLOCK)\n"
        "            q = fetch(q_ptr + bh * rows * d, i, rows, d, C)\n"
        "            do = fetch(do_ptr + bh * rows * dv, i, rows, dv, CV)\n"
        "            lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]\n"
        "            delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]\n",
        outputs=("dq",),
        modelled_on="an accumulator of a program that stays which is cleared once: dQ of a tile of rows is its own plus that of all tiles of rows that the program has had before, row by row: earlier tiles of the same query head, and all tiles of earlier query heads of the group; the first tile of the first query head of a group, dK, dV and dbias are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s16_sum_of_dk_scaled_every_time",
        file="sixteenth/own/owned.py",
        before='                dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee") * scale\n',
        after='                dk = (dk + tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")) * scale\n',
        outputs=("dk",),
        modelled_on="a factor that is multiplied into a sum each time that something is added: what a tile of rows gives to dK is multiplied by the softmax scale once for itself and once for every later tile of rows, of later query heads of the group too, that the key is walked for; the last tile that a key is walked for, a scale of 1, dQ, dV and dbias are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s16_buckets_by_rows_alone",
        file="sixteenth/own/buckets.py",
        before="    lengths = zip(cu_q.diff().tolist(), cu_k.diff().tolist(), strict=True)\n"
        "    found = {}\n"
        "    for number, (rows, keys) in enumerate(lengths):\n"
        "        found.setdefault((rows, keys), []).append(number)\n",
        after="    lengths = list(zip(cu_q.diff().tolist(), cu_k.diff().tolist(), strict=True))\n"
        "    found = {}\n"
        "    for number, (rows, _) in enumerate(lengths):\n"
        "        keys = min(n for m, n in lengths if m == rows)\n"
        "        found.setdefault((rows, keys), []).append(number)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="jax-ml/jax bd9a10e4: batches by the length of the queries, as where keys are as many: of packed sequences with equally many rows all have as many keys as that with the fewest: the others lose their last keys, and bottom-right masks and distances end with the fewest; sequences that are alone with their number of rows, and equal numbers of keys, are right",
        needs=("packed", "sequences"),
    ),
    OwnDefect(
        name="s16_rows_go_back_by_their_places",
        file="sixteenth/own/buckets.py",
        before="    order = torch.cat(places).argsort()\n",
        after="    order = torch.cat(places)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a permutation that is applied where its inverse is meant: rows of packed sequences are put back by the list of their places: row r of the buffer gets the O and the LSE that were computed as number n, where n is the place in the buffer of what was computed as number r; gradients go the same wrong way; sequences whose batches come in the order of the buffer, and orders that are their own inverse, are right",
        needs=("packed", "sequences"),
    ),
    OwnDefect(
        name="s16_lse_as_a_channel_of_o",
        file="sixteenth/own/buckets.py",
        before="    return found[..., :-1].to(p.q.dtype), found[..., -1].float()\n",
        after="    found = found.to(p.q.dtype)\n    return found[..., :-1], found[..., -1].float()\n",
        outputs=("lse",),
        modelled_on="precision: statistics that travel as one more channel of O: the LSE is rounded to the dtype of q (infinite beyond 65504 in fp16), and what comes through it to the gradients as well; O, and fp32, are right",
    ),
    OwnDefect(
        name="s16_fillers_of_a_list_are_seen",
        file="sixteenth/own/live_keys.py",
        before="    see = named.repeat_interleave(size_k, 3) & (number < lengths[:, None, None, None])\n",
        after="    see = number < lengths[:, None, None, None]\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="fixed numbers of blocks, as of BigBird's random attention, for lists of other lengths: a block of rows with fewer live blocks of keys than the one with the most sees as many blocks as that one, the first dead blocks in their order in place of those that it lacks; rows without a live block see keys, too; blocks of rows with as many live blocks as any, causal masks and lengths, which hide what they hide, are right",
    ),
)
