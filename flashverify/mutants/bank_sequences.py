"""Defects of declared lengths and packed sequences."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["SEQUENCES"]

SEQUENCES = (
    Mutant(
        name="row_past_its_length_averages",
        file="device/forward.py",
        before="acc = tl.where((i < q_end)[:, None], acc, 0.0)",
        after="acc = acc",
        outputs=("o",),
        modelled_on="rows of padding come back as averages of V",
        needs=("query_lengths",),
    ),
    Mutant(
        name="keys_found_by_the_queries_of_others",
        file="device/forward.py",
        before="k_ptr = head_ptr(k_ptr, b, h // group, k0,",
        after="k_ptr = head_ptr(k_ptr, b, h // group, q0,",
        outputs=("o", "lse", "k_ptr"),
        modelled_on="packed sequences whose queries and keys have different lengths: one table used for both",
        needs=("packed",),
    ),
    Mutant(
        name="padded_rows_weigh_in_dkdv",
        file="device/dkdv.py",
        before='lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))',
        after='lse2 = tl.load(lse2_ptrs, mask=i < sq, other=float("inf"))',
        outputs=("dk", "dv"),
        modelled_on="tile-ai/tilelang#2461: the LSE of padded rows reaches the products",
        needs=("query_lengths", "backward"),
    ),
    Mutant(
        name="padded_rows_of_do_read",
        file="device/dkdv.py",
        before="do = load_tile(do_head, i, q_end,",
        after="do = load_tile(do_head, i, sq,",
        outputs=("dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#2374: padding multiplied by a weight of 0; 0 * NaN",
        needs=("query_lengths", "backward"),
    ),
    Mutant(
        name="padded_rows_keep_their_dq",
        file="device/dq.py",
        before='lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))',
        after='lse2 = tl.load(lse2_ptrs, mask=i < sq, other=float("inf"))',
        outputs=("dq",),
        modelled_on="Dao-AILab/flash-attention#2167: rows past the declared length are not zeroed",
        needs=("query_lengths", "backward"),
    ),
    Mutant(
        name="keys_of_others_in_dkdv",
        file="device/dkdv.py",
        before="k0, sk = span(cu_k_ptr, b, sk)",
        after="k0, _ = span(cu_q_ptr, b, sk)\n    _, sk = span(cu_k_ptr, b, sk)",
        outputs=("dk", "dv", "k_ptr", "v_ptr", "dk_ptr", "dv_ptr"),
        modelled_on="ModelTC/lightllm 0fdfb597: the start of keys and values taken from the table of the queries",
        needs=("packed", "backward"),
    ),
    Mutant(
        name="a_row_of_the_next_sequence",
        file="device/address.py",
        before="rows = tl.load(cu_ptr + b + 1) - first",
        after="rows = tl.load(cu_ptr + b + 1) - first + 1",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#1155: a sequence reads and writes over its end",
        needs=("packed",),
    ),
    Mutant(
        name="empty_sequence_has_a_row",
        file="device/address.py",
        before="rows = tl.load(cu_ptr + b + 1) - first",
        after="rows = tl.maximum(tl.load(cu_ptr + b + 1) - first, 1)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#2562: a sequence without rows or without keys",
        needs=("packed",),
    ),
    Mutant(
        name="longest_length_for_all",
        file="device/address.py",
        before="rows = tl.load(cu_ptr + b + 1) - first",
        after="rows = rows",
        outputs=("o", "lse", "dq", "dk", "dv", "q_ptr", "k_ptr", "v_ptr"),
        modelled_on="huggingface/transformers#46634: the limits of packed sequences are lost",
        needs=("packed",),
    ),
    Mutant(
        name="delta_past_the_end",
        file="device/delta.py",
        before="q0, sq = span(cu_q_ptr, b, sq)",
        after="q0, _ = span(cu_q_ptr, b, sq)",
        outputs=("delta", "delta_ptr", "o_ptr", "do_ptr", "lse2_ptr"),
        modelled_on="Dao-AILab/flash-attention#2333: the wasted tiles of the longest sequence's grid are not left early",
        needs=("packed", "backward"),
    ),
    Mutant(
        name="statistics_as_long_as_one_sequence",
        file="arguments.py",
        before='"stride_rowh": problem.rows',
        after='"stride_rowh": problem.sq',
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="Dao-AILab/flash-attention d11341fd: heads overwrite each other's LSE because a stride counts other rows",
        needs=("packed",),
    ),
)
