"""Held-out defects of decoding, pages, splits, merges and other caches, the fifth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="f5_empty_split_in_the_place_of_the_first_sequence",
        file="device/decode.py",
        before="    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h\n",
        after="    at = tl.where(split_start < split_stop, b, 0)  # an empty split says so and leaves\n"
        "    lse_row = (split.to(tl.int64) * batch + at) * sizes.heads + h\n",
        outputs=("o", "lse"),
        modelled_on="an early exit of split decoding that writes to the slot of another sequence: a split without keys stores its LSE of -inf in the place of the first sequence of the batch, which loses that split (with one split, its LSE), and its own LSE is not written; right with a batch of one, and where every split of every sequence has keys",
        subject="bundled-decode",
        needs=("sequences",),
    ),
    Mutant(
        name="f5_window_by_whole_pages",
        file="device/decode.py",
        before="            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)\n",
        after="            if LOWER & MASK and PAGED != CONTIGUOUS:\n"
        "                whole = tl.cdiv(k_begin, pages.size) * pages.size\n"
        "                see = see & (j >= whole)[None, :]\n"
        "                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, True)\n"
        "            else:\n"
        "                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)\n",
        outputs=("o", "lse"),
        modelled_on="a cache that rolls page by page: decoding with pages and a left side of a window hides the keys of the page in which the window of the first query of the tile begins, unless it begins with the page: rows lose up to a page of keys at the left edge; pages of one key, caches without pages and windows that begin at key 0 are right",
        subject="bundled-decode",
        needs=("paged", "window"),
    ),
    Mutant(
        name="f5_sinks_of_the_first_call",
        file="decode.py",
        before="    sink2 = (sink * _LOG2_E).clamp(-largest, largest)[:, None]\n",
        after="    made = (sink * _LOG2_E).clamp(-largest, largest)[:, None]\n"
        "    sink2 = _take_sink.__dict__.setdefault(str(sink.shape[0]), made)\n",
        outputs=("o", "lse"),
        modelled_on="decoding converts the sinks of a number of heads to base 2 once and keeps them: later calls with as many query heads have the sinks of the first one; the first call, and calls without a sink, are right",
        subject="bundled-decode",
        needs=("sink",),
    ),
    Mutant(
        name="f5_merge_of_at_most_sixteen_parts",
        file="device/merge.py",
        before="        lse = load_lse(lse_ptr, p, r, parts, rows)\n"
        "        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]\n"
        "        o = load_partials",
        after="        lse = load_lse(lse_ptr, p, r, tl.minimum(parts, 16), rows)\n"
        "        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]\n"
        "        o = load_partials",
        outputs=("o",),
        modelled_on="a list of partial results that is capped: a merge leaves partials from the seventeenth on out of O, whose other weights stay as they are (O is too small, or 0 where all keys are in those); the LSE counts all, and 16 partials or fewer are right",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="f5_latent_product_rounded",
        file="device/latent.py",
        before="                dot = tl.dot(q_rope, tl.trans(k_rope), dot, input_precision=PRECISION)\n",
        after="                dot = tl.dot(q_rope, tl.trans(k_rope), dot.to(kv.dtype).to(tl.float32), input_precision=PRECISION)\n",
        outputs=("o", "lse"),
        modelled_on="precision: latent cache: the product of the latent channels is rounded to the dtype of q before that of the rotary channels is added: logits are imprecise in 16 bits (infinite beyond 65504 in fp16); fp32 and caches without rotary channels are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="f5_scale_of_the_block_before",
        file="quantised/cache.py",
        before="            scale=Scales(self.scale, *self._group_steps(self.scale)),\n",
        after="            scale=Scales(\n"
        "                given := self.scale\n"
        "                if self.paged or self.scale.shape[2] < 2 or self.codes.shape[2] % self.keys_per_scale == 0\n"
        "                else torch.cat([self.scale[..., :-1], self.scale[..., -2:-1]], -1),\n"
        "                *self._group_steps(given),\n"
        "            ),\n",
        outputs=("o", "lse"),
        modelled_on="scales counted by whole blocks: where the keys are no multiple of those that share a scale, the keys of the last block, which is not whole, are read with the scale of the block before it, of K and of V; zero points are their own; right where blocks divide the keys, with a single block, and for one scale a key, a head or a tensor",
        subject="bundled-quantised",
        needs=("shared_scales",),
    ),
    Mutant(
        name="f5_ring_pieces_overwritten_in_the_first_step",
        file="ring/passes.py",
        before="            if part.piece in begun:\n",
        after="            if step and part.piece in begun:\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="a ring step that overwrites O and LSE where it is to merge them: in the first step a rank that has several pieces of keys (zigzag) keeps what it found over the last of them that a row's piece sees and loses the ones before; contiguous and striped parts have one piece and are right, and so are rows that see one of the rank's own pieces",
        subject="bundled-ring",
        needs=("launch",),
    ),
    Mutant(
        name="f5_lists_of_a_sequence_one_head_on",
        file="selection.py",
        before="        batch=heads if batch > 1 else 0,\n",
        after="        batch=1 if batch > 1 else 0,\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a stride that counts one head where it is to count all: where each sequence and each kv head has lists of its own, kv head h of sequence b takes the lists at b + h, not at b * heads + h, in all kernels; right for the first sequence, and where sequences or heads share lists",
        subject="bundled-selected",
        needs=("sequences", "kv_heads"),
    ),
)
