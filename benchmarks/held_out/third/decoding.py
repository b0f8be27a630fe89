"""Held-out defects of decoding, pages, splits and merges, the third set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="t_one_query_has_no_left_side",
        file="masking.py",
        before="    left, right = _check_window(options.window, extent)\n",
        after="    left, right = _check_window(options.window, extent)\n    left = None if extent.max_q == 1 else left\n",
        outputs=("o", "lse"),
        modelled_on="the left side of a window is ignored where there is a single query per sequence; two queries and more are right",
        subject="bundled-decode",
        needs=("window",),
    ),
    Mutant(
        name="t_slot_by_a_power_of_two",
        file="device/pages.py",
        before="        slot = j % page_size\n",
        after="        slot = j & (page_size - 1)\n",
        outputs=("o", "lse"),
        modelled_on="the slot of a key in its page is j & (page_size - 1): keys land in other slots where the page size is no power of two",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="t_sink_once_per_split",
        file="decode.py",
        before="    sink2 = (sink * _LOG2_E).clamp(-largest, largest)[:, None]\n",
        after="    sink2 = (sink * _LOG2_E + math.log2(len(parts) - 1)).clamp(-largest, largest)[:, None]\n",
        outputs=("o", "lse"),
        modelled_on="the sink is counted once per split: a sink too large by log(splits); a single split is right",
        subject="bundled-decode",
        needs=("sink", "launch"),
    ),
    Mutant(
        name="t_splits_overlap_by_a_tile",
        file="device/decode.py",
        before="    high = first + (tiles * (split + 1) // splits).to(tl.int32)\n",
        after="    high = first + ((tiles * (split + 1) + splits - 1) // splits).to(tl.int32)\n",
        outputs=("o", "lse"),
        modelled_on="a split ends at the ceiling where the next one starts at the floor: neighbouring splits count one tile of keys twice where the splits do not divide the tiles",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="t_lengths_of_the_first_call",
        file="decode.py",
        before="            k_lengths_ptr=options.key_lengths,\n",
        after="            k_lengths_ptr=None\n"
        "            if options.key_lengths is None\n"
        "            else decode_forward.__dict__.setdefault(\n"
        '                f"{options.key_lengths.data_ptr()} {call.batch} {call.sk}", options.key_lengths.clone()\n'
        "            ),\n",
        outputs=("o", "lse"),
        modelled_on="key lengths are remembered by their address, batch and room: a later call whose lengths at the same address have changed computes with those of the first",
        subject="bundled-decode",
        needs=("key_lengths",),
    ),
    Mutant(
        name="t_small_partials_left_out",
        file="device/merge.py",
        before="        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]\n        o = load_partials",
        after="        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]\n        w = tl.where(w < 0.03125, 0.0, w)\n        o = load_partials",
        outputs=("o",),
        modelled_on="a merge leaves out the O of a partial whose weight is below 1/32, though the weight stays in the LSE and in the sum; right where all partials weigh more",
        subject="bundled-chunked",
    ),
    Mutant(
        name="t_latent_rotary_part_of_batch_0",
        file="device/latent.py",
        before="        rope_ptr = kv_ptr + sizes.dv8 * 8\n",
        after="        rope_ptr = kv_view.ptr + hk.to(tl.int64) * kv_view.head + sizes.dv8 * 8\n",
        outputs=("o", "lse"),
        modelled_on="latent cache without pages: the rotary part of the keys is that of batch 0 for every batch (the pointer is taken before the batch is added); right with pages, one batch, or no rotary channels",
        subject="bundled-latent",
    ),
    Mutant(
        name="t_default_scale_of_the_padded_head",
        file="validation.py",
        before="        return 1 / math.sqrt(d)\n",
        after="        return 1 / math.sqrt(1 << (d - 1).bit_length())\n",
        outputs=("o", "lse"),
        modelled_on="latent cache: the default scale is 1 / sqrt of the channels of q rounded up to a power of two; right where they are one and where a scale is given",
        subject="bundled-latent",
    ),
)
