"""Held-out defects of a forward and its masks, the fourth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="f4_sign_bit_of_the_words",
        file="device/mask.py",
        before="            see = see & (((word >> (bit & 31)) & 1) != 0)",
        after="            word = tl.where(bit >= 0, word & 0x7FFFFFFF, word)\n"
        "            see = see & (((word >> (bit & 31)) & 1) != 0)",
        outputs=_EVERY,
        modelled_on="the highest bit of every word of a bitmap or tree is lost, in all kernels: no row sees the keys (of a tree the nodes) 31, 63, 95, ... counted from where the bits start; fewer than 32 of them are right",
        needs=("bitmap",),
    ),
    Mutant(
        name="f4_masked_tiles_are_not_dropped",
        file="device/forward.py",
        before="                if dropout.keep_share is not None:\n                    p = drop(",
        after="                if dropout.keep_share is not None and part == FULL:\n                    p = drop(",
        outputs=("o", "dq", "dk"),
        modelled_on="the forward drops no weights in the tiles that need a mask (those at the diagonal, at the edges of a window, and a last one that is not whole), though O is divided by 1 - p there too; whole tiles and the backward drop, LSE is right",
        needs=("dropout",),
    ),
    Mutant(
        name="f4_sink_is_scaled_too",
        file="device/forward.py",
        before="take_sink(m_i, l_i, head_sink(terms.sink, h))",
        after="take_sink(m_i, l_i, head_sink(terms.sink, h) * terms.scale)",
        outputs=(*_EVERY, "dsink"),
        modelled_on="the sink is multiplied by the softmax scale as the products are; right with a scale of 1 and for a sink of 0; the gradients follow the wrong LSE",
        needs=("sink",),
    ),
    Mutant(
        name="f4_maximum_of_the_whole_tile",
        file="device/softmax.py",
        before="    m_new = tl.maximum(m_i, tl.max(z, 1))\n",
        after="    top = tl.maximum(m_i, tl.max(z, 1))\n"
        '    m_new = tl.where(top == float("-inf"), top, tl.maximum(top, tl.max(top, 0)))\n',
        outputs=_EVERY,
        modelled_on="the running maximum is that of all rows of the tile, not of each row: rows whose logits lie far below those of another row of their tile lose precision, then all weights (O = 0 and a wrong LSE from about 126 below in base 2; in fp16, whose weights end earlier, O is imprecise from about 14 below); rows of like size are right",
    ),
    Mutant(
        name="f4_tail_of_one_key_skipped",
        file="device/forward.py",
        before="        start, stop = segment(limits, part)\n",
        after="        start, stop = segment(limits, part)\n        stop = stop - 1 if part == TRAILING else stop\n",
        outputs=_EVERY,
        modelled_on="the walk of the forward over the last, masked tiles of keys ends one key early: a last tile of which a single key is left (the keys, or the end of the diagonal of the tile of rows, one more than a multiple of the tile of keys; a single key) is skipped; all other tails are right",
    ),
    Mutant(
        name="f4_distances_by_the_ends_in_the_buffer",
        file="device/forward.py",
        before="    head = head_terms(terms, b, h, q0, q_end, k_end)\n",
        after="    head = head_terms(terms, b, h, q0, q0 + q_end, k0 + k_end)\n",
        outputs=_EVERY,
        modelled_on="packed sequences under a bottom-right causal mask: the forward shifts the distances of ALiBi and of the relative bias by the ends of the sequence in the buffers (cu_k - cu_q), not by its lengths; right for the first sequence, where queries and keys start at the same row, and in the backward, which starts from the wrong LSE",
        needs=("packed", "causal"),
    ),
    Mutant(
        name="f4_slopes_of_the_first_call",
        file="terms.py",
        before="        slopes=None if options.alibi_slopes is None else options.alibi_slopes.contiguous(),\n",
        after="        slopes=None\n"
        "        if options.alibi_slopes is None\n"
        "        else check_terms.__dict__.setdefault(str(extent.heads), options.alibi_slopes.detach().clone()),\n",
        outputs=_EVERY,
        modelled_on="the ALiBi slopes of the first call are kept for every later call with as many heads, forward and backward; the first call is right",
        needs=("alibi",),
    ),
    Mutant(
        name="f4_zero_points_of_k_for_v",
        file="quantised/attention.py",
        before="                v_codes=self.v.argument(self.table),\n",
        after="                v_codes=self.v.argument(self.table)._replace(zero=self.k.argument(self.table).zero),\n",
        outputs=("o",),
        modelled_on="the codes of V are taken relative to the zero points of K; right without zero points, and the LSE is right",
        subject="bundled-quantised",
        needs=("zeros",),
    ),
    Mutant(
        name="f4_list_ends_at_the_first_gap",
        file="selection.py",
        before="    ordered = selection.indices.sort(-1).values\n",
        after="    ended = (selection.indices < 0).cumsum(-1) > 0\n"
        "    ordered = selection.indices.masked_fill(ended, -1).sort(-1).values\n",
        outputs=_EVERY,
        modelled_on="a list of chosen blocks ends at its first -1: the blocks that are named behind it are not seen, in all kernels; right for lists whose -1 all stand at the end",
        subject="bundled-selected",
    ),
    Mutant(
        name="f4_ring_left_side_rounded_down",
        file="ring/sharding.py",
        before="    left = None if low is None else -(-(low + shift) // step)\n",
        after="    left = None if low is None else (low + shift) // step\n",
        outputs=_EVERY,
        modelled_on="ring attention over stripes: the left side of a window is rounded down between the stripes of two ranks, so that rows see a key before their window where the ranks do not divide the distance; contiguous and zigzag parts, and windows without a left side, are right",
        subject="bundled-ring",
        needs=("window",),
    ),
    Mutant(
        name="f4_tree_of_the_first_entry",
        file="tree.py",
        before="            return self.bits.view(batch, 1, rows, self.bits.shape[1])\n",
        after="            return self.bits.view(batch, 1, rows, self.bits.shape[1])[:1]\n",
        outputs=_EVERY,
        modelled_on="where each entry of a batch has a tree of its own, all have that of the first; one tree for all, packed trees and one entry are right",
        needs=("tree", "sequences"),
    ),
    Mutant(
        name="f4_alpha_in_the_dtype_of_v",
        file="device/forward.py",
        before="acc * alpha[:, None], input_precision",
        after="acc * alpha.to(v.dtype).to(tl.float32)[:, None], input_precision",
        outputs=("o",),
        modelled_on="precision: the factor that rescales the accumulator where the maximum grows is rounded to the dtype of V, that of the row sum is not: O is imprecise in 16 bits from the second tile of keys on; fp32, one tile and the LSE are right",
    ),
    Mutant(
        name="f4_tanh_ends_at_two",
        file="device/logits.py",
        before="    far = 1.0 - _complement(size)\n",
        after="    far = tl.where(size >= 2.0, 1.0, 1.0 - _complement(size))\n",
        outputs=_EVERY,
        modelled_on="softcap: the tanh of the logits is 1 in magnitude from an argument of 2 on (true value 0.964), in all kernels; its derivative is the right one; smaller logits are right",
        needs=("softcap",),
    ),
    Mutant(
        name="f4_latent_schedule_by_packed_rows",
        file="device/latent.py",
        before="    first = tile * BLOCK_M // sizes.group\n",
        after="    first = tile * BLOCK_M\n",
        outputs=("o", "lse"),
        modelled_on="latent cache: the first query of a tile of packed rows is taken to be the number of its first packed row, not that divided by the heads of the group: from the second tile on rows have no keys (O = 0, LSE -inf) where that number is past the last query of the tile, and lose the mask, or keys before their window, where it is not; the first tile, so few queries and heads, and a group of one are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="f4_left_side_of_zero_is_none",
        file="masking.py",
        before="    if left is not None:\n        flags |= LOWER.value\n",
        after="    if left:\n        flags |= LOWER.value\n",
        outputs=_EVERY,
        modelled_on="a window whose left side is 0 has no left side, in all kernels: rows see every key before them; every other left side is right",
        needs=("window",),
    ),
    Mutant(
        name="f4_terms_of_the_kv_head_in_the_forward",
        file="device/forward.py",
        before="    head = head_terms(terms, b, h, q0, q_end, k_end)\n",
        after="    head = head_terms(terms, b, h // sizes.group, q0, q_end, k_end)\n",
        outputs=_EVERY,
        modelled_on="the forward takes the ALiBi slope, the bias and the relative bias of the query head that has the number of the kv head; right without groups, for the first head, and for a bias that all heads share; the backward takes the right ones with the wrong LSE",
        needs=("groups",),
    ),
)
