"""Defects of strides, buffers and tables: where a value is found, and whose it is."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["STORAGE"]

_VIEW = 'return {f"{name}_view": view(x) for'
_PAST_THE_LAST = "counts = counts & (torch.arange(lse2.shape[2], device=lse2.device) < cu_q[-1])"

STORAGE = (
    Mutant(
        name="do_by_the_strides_of_o",
        file="arguments.py",
        before=_VIEW,
        after=_VIEW.replace("view(x)", 'View(x, *strides(tensors.get("o", x) if name == "do" else x))'),
        outputs=("delta", "dq", "dk", "do_view"),
        modelled_on="Dao-AILab/flash-attention#355: the backward ignores the strides of dO",
        needs=("backward",),
    ),
    Mutant(
        name="v_by_the_strides_of_k",
        file="arguments.py",
        before=_VIEW,
        after=_VIEW.replace("view(x)", 'View(x, *strides(tensors["k"] if name == "v" else x))'),
        outputs=("o", "dq", "dk", "dv", "v_view"),
        modelled_on="ROCm/pytorch#3230: V laid out otherwise than K",
    ),
    Mutant(
        name="offsets_of_16_bits",
        file="device/pages.py",
        before="offset = slot.to(tl.int64) * stride_slot",
        after="offset = (slot.to(tl.int64) * stride_slot).to(tl.int16).to(tl.int64)",
        outputs=("o", "lse", "k_view", "v_view"),
        modelled_on="facebookresearch/xformers#719: a cast to 16 bits, wrong for long sequences only",
        subject="bundled-decode",
    ),
    Mutant(
        name="lengths_of_the_first_call",
        file="arguments.py",
        before="k_lengths=options.key_lengths,",
        after="k_lengths=options.key_lengths\n        if options.key_lengths is None\n        else vars(sequences_of).setdefault(options.key_lengths.shape, options.key_lengths.clone()),",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="flashinfer-ai/flashinfer#1028: a buffer of the first plan kept for the next",
        needs=("key_lengths",),
        semantics="stale-key-lengths",
    ),
    Mutant(
        name="statistics_of_a_rounded_length",
        file="arguments.py",
        before="batch=0 if call.batch == 1 else call.heads * call.rows,",
        after="batch=0 if call.batch == 1 else call.heads * -(-call.rows // 16) * 16,",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "stats.lse2", "stats.delta"),
        modelled_on="ROCm/flash-attention 16d5154a: the layout of the LSE is rounded in the writer and not in the reader",
        needs=("sequences",),
    ),
    Mutant(
        name="delta_by_the_grid_of_the_forward",
        file="launch.py",
        before="programs_of(call, call.heads, call.sq, call.rows, DELTA_ROWS),",
        after='programs_of(call, call.heads, call.sq, call.rows, call.configs["forward"].block_m),',
        outputs=("delta", "dq", "dk"),
        modelled_on="triton-lang/triton#2020: the rows of delta that another grid's tiles do not reach are never computed",
        semantics="not-written",
        needs=("backward", "launch"),
    ),
    Mutant(
        name="dsink_counts_rows_of_no_sequence",
        file="reductions.py",
        before=_PAST_THE_LAST,
        after=_PAST_THE_LAST.replace("cu_q[-1]", "lse2.shape[2]"),
        outputs=("dsink",),
        modelled_on="fla-org/flash-linear-attention#892: rows behind the last packed sequence, never written, are summed",
        needs=("packed", "sink", "backward"),
    ),
    Mutant(
        name="pages_of_keys_that_are_not_read",
        file="device/pages.py",
        before="page = tl.load(table_ptr + j // page_size, mask=keep, other=0)",
        after="page = tl.load(table_ptr + j // page_size)",
        outputs=("pages", "o"),
        modelled_on="vllm-project/vllm#40074: the lanes of masked keys compute a page beyond the table",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="partials_of_the_last_split",
        file="device/decode.py",
        before="o_offset = split.to(tl.int64) * o_view.part + b.to(tl.int64) * o_view.batch",
        after="o_offset = (splits - 1).to(tl.int64) * o_view.part + b.to(tl.int64) * o_view.batch",
        outputs=("o", "o_view"),
        modelled_on="fla-org/flash-linear-attention#1031: every program stores at one place; the others are never written",
        subject="bundled-decode",
    ),
    Mutant(
        name="partials_rounded_to_the_output",
        file="decode.py",
        before="parts = torch.empty((count, *o.shape), dtype=torch.float32, device=o.device)",
        after="parts = torch.empty((count, *o.shape), dtype=q.dtype, device=o.device)",
        outputs=("o",),
        modelled_on="zhuzilin/ring-flash-attention#42: partial outputs kept in 16 bits",
        subject="bundled-decode",
    ),
)
