"""Held-out defects of packed sequences, decoding, pages, other caches, chosen keys and merging, the eleventh set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s11_sequences_without_rows_left_out",
        file="arguments.py",
        before="    packed = options.packed\n    return Sequences(\n",
        after="    packed = options.packed\n"
        "    if packed is not None and bool(packed.cu_q.diff().any()):\n"
        "        some = torch.nn.functional.pad(packed.cu_q.diff() > 0, (1, 0), value=True)\n"
        "        limits = {name: getattr(packed, name)[some] for name in ('cu_q', 'cu_k')}\n"
        "        packed = type(packed)(**limits, max_q=packed.max_q, max_k=packed.max_k)\n"
        "    return Sequences(\n",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#1537: packed sequences without queries are taken out of both tables of limits: their keys become the first ones of the next sequence that has queries (behind the last one those of none, so that their dK and dV are not written), and the lengths of prefixes those of other sequences, in all kernels; right where every sequence has queries, and where none has",
        needs=("packed",),
    ),
    Mutant(
        name="s11_pages_by_head_then_slot",
        file="decode.py",
        before="            k_view=view(k),\n            v_view=view(v),\n",
        after="            k_view=view(k) if table is None else view(k)._replace(head=call.page_size * call.d, row=call.d),\n"
        "            v_view=view(v) if table is None else view(v)._replace(head=call.page_size * call.dv, row=call.dv),\n",
        outputs=("o", "lse"),
        modelled_on="two layouts of a page: decoding takes pages of [slot, head, channel] for pages of [head, slot, channel] without gaps: keys and values are those of other slots and heads; without gaps in the cache one kv head and pages of one key are right, and without pages all is",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s11_terms_by_the_slot_in_the_page",
        file="device/decode.py",
        before="            z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)\n",
        after="            z = logits(dot, i[:, None], slot[None, :], q_end, k_end, terms, head, part != FULL)\n",
        outputs=("o", "lse"),
        modelled_on="a place in a page used for the number of a key: with pages decoding takes the bias and the distance of ALiBi of the key that has the same slot in the first page; the first page is right, and so is all without pages, without bias and without ALiBi",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s11_merged_lse_of_a_mean",
        file="device/merge.py",
        before="(m + tl.log2(total) * from_log2) * lse_scale",
        after="(m + tl.log2(total / parts) * from_log2) * lse_scale",
        outputs=("lse",),
        modelled_on="a mean where a sum is meant: the merged LSE is the log of the mean of the exponentials of the partial ones, so too small by the log of their number; O is right, and so is what is not merged",
        subject="bundled-chunked",
    ),
    Mutant(
        name="s11_rotary_channels_taken_for_values",
        file="device/latent.py",
        before="            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)\n",
        after="            kv = load_rows(kv_ptr + rope8 * 8, offset, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n"
        "            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)\n",
        outputs=("o",),
        modelled_on="two orders of the channels of a latent cache: the values are taken to be the last channels of a key, behind the rotary ones, where they are the first ones: O is wrong by as many channels as the rotary part has; the LSE is right, and so are caches without rotary channels",
        subject="bundled-latent",
    ),
    Mutant(
        name="s11_int8_without_a_sign",
        file="device/quantised/codes.py",
        before="        number = ((wide ^ 0x80) | 0x6400).to(tl.float16, bitcast=True) - 1152.0  # the low bits of 1024 count ones\n",
        after="        number = (wide | 0x6400).to(tl.float16, bitcast=True) - 1024.0  # the low bits of 1024 count ones\n",
        outputs=("o", "lse"),
        modelled_on="bytes that are read as uint8: negative codes of int8, of K, V and q, are 256 too large (128 to 255 for -128 to -1); codes of 0 and above, and the other formats, are right",
        subject="bundled-quantised",
        needs=("int8",),
    ),
    Mutant(
        name="s11_one_scale_of_a_head_for_all_sequences",
        file="device/quantised/codes.py",
        before="    offset = b.to(tl.int64) * codes.scale.batch + hk.to(tl.int64) * codes.scale.head\n"
        "    return tl.load(codes.scale.ptr + offset, mask=keep, other=0)\n",
        after="    offset = hk.to(tl.int64) * codes.scale.head\n"
        "    return tl.load(codes.scale.ptr + offset, mask=keep, other=0)\n",
        outputs=("o", "lse"),
        modelled_on="a stride that is left out on one of two paths: where one scale serves all keys of a head, and is folded into the logit or the result, every sequence has that of the first one, of K and of V; right for one scale of the tensor, for scales of single keys and of blocks, in the mode that dequantises operands, and for the first sequence",
        subject="bundled-quantised-decode",
        needs=("head_scales", "sequences"),
    ),
    Mutant(
        name="s11_minus_one_is_the_last_block",
        file="selected.py",
        before="        found=prepared(selection),\n",
        after="        found=prepared(\n"
        "            Selection(\n"
        "                indices=selection.indices % max(-(-sk // selection.keys), 1), rows=selection.rows, keys=selection.keys\n"
        "            )\n"
        "        ),\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a filler that is an index too: an entry of -1 in a list of chosen blocks, which names nothing, names the last block, as an index from the end does, in all kernels; right for lists without -1, for those that name the last block anyway, and for rows from which a causal mask hides it",
        subject="bundled-selected",
    ),
)
