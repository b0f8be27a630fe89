"""Held-out defects of launching, the seventeenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s17_tiles_of_packed_keys_counted_by_rows",
        file="launch.py",
        before='                programs_of(call, call.kv_heads, call.sk, call.keys, call.configs["dkdv"].block_n),\n',
        after='                programs_of(call, call.kv_heads, call.sk, call.rows, call.configs["dkdv"].block_n),\n',
        outputs=("dk", "dv"),
        modelled_on="triton-lang/triton#2020: a grid that is counted from another axis: the kernel of dK and dV of packed sequences has programs for as many tiles as the queries of the batch fill: where the packed keys fill more tiles than the packed queries, the tiles of the last sequences and heads are never computed, and their dK and dV hold what was in memory; fewer keys than queries, as many of both, batches, the forward and dQ are right",
        needs=("backward", "packed"),
    ),
    Mutant(
        name="s17_wide_window_cut_at_the_other_length",
        file="masking.py",
        before="    far_left, far_right = (extent.max_k, extent.max_q) if align_end else (extent.max_q, extent.max_k)\n",
        after="    far_left, far_right = (extent.max_q, extent.max_k) if align_end else (extent.max_k, extent.max_q)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="NVIDIA/TransformerEngine#1197: a side of a window that is clamped to the wrong length: sides that are wider than the longest sequence are cut to the keys where the queries bound them and the other way round: aligned at the first key, a left side wider than the keys is too narrow where there are more queries than keys, and a right side wider than the queries where there are more keys; under a bottom-right causal mask a left side wider than the queries where there are more keys; rows then do not see keys at the far ends of their windows, in the forward and all gradients; as many queries as keys, narrower sides, and calls without a window are right",
        needs=("window",),
    ),
)
