"""Defects of limits: where a walk ends, where the diagonal lies, what an argument turns on."""

from __future__ import annotations

from dataclasses import replace

from flashverify.mutants.bank.diagonal_leak import DIAGONAL_LEAK
from flashverify.mutants.mutant import Mutant

__all__ = ["EDGES"]

EDGES = (
    replace(DIAGONAL_LEAK, needs=(*DIAGONAL_LEAK.needs, "launch")),
    Mutant(
        name="last_full_tile_rounded_up",
        file="device/schedule.py",
        before="full_end = tl.maximum(sure_to, 0) // STEP * STEP",
        after="full_end = tl.cdiv(tl.maximum(sure_to, 0), STEP) * STEP",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="triton-lang/triton#8853: the part of a causal walk without a mask rounded up over the diagonal",
        semantics="padded-keys-zero-logits",
    ),
    Mutant(
        name="keys_before_the_chunk_uncounted",
        file="device/schedule.py",
        before="end = tl.where(start < sq, row_end(last, sq, k_end, band, MASK), 0)",
        after="end = tl.where(start < sq, tl.minimum(row_end(last, sq, k_end, band, MASK), start + BLOCK_M), 0)",
        outputs=("o", "lse", "dq"),
        modelled_on="ModelTC/lightllm 1ef55b55: the end of the walk ignores the keys that were there before the queries",
    ),
    Mutant(
        name="keys_counted_as_queries",
        file="arguments.py",
        before="sk=call.sk,",
        after="sk=call.sq,",
        outputs=("o", "lse", "dq", "dk", "dv", "k_view", "v_view", "dk_view", "dv_view"),
        modelled_on="jax-ml/jax bd9a10e4: the length of the queries taken for that of the keys",
        semantics="keys-as-many-as-queries",
    ),
    Mutant(
        name="diagonal_always_in_the_first_corner",
        file="masking.py",
        before='align_end = options.causal == "bottom-right"',
        after='align_end = options.causal == "bottom-right" and extent.max_q == extent.max_k',
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="thu-ml/SageAttention#372: top-left where bottom-right is asked for, seen only where lengths differ",
        semantics="causal-top-left",
        needs=("causal",),
    ),
    Mutant(
        name="causal_without_effect",
        file="masking.py",
        before="    if options.causal is not None:\n        right = 0\n",
        after="    if options.causal is not None:\n        align_end = align_end or right == 0\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="jax-ml/jax#19237: the flag is accepted and has no effect",
        semantics="causal-ignored",
        needs=("causal",),
    ),
    Mutant(
        name="window_dropped_for_one_query",
        file="masking.py",
        before="left, right = _check_window(options.window, extent)",
        after="left, right = _check_window(options.window if extent.max_q > 1 else None, extent)",
        outputs=("o", "lse"),
        modelled_on="karpathy/nanochat#452: a single query falls back to a path without the window",
        semantics="window-ignored-for-one-row",
        subject="bundled-decode",
        needs=("window",),
    ),
    Mutant(
        name="backward_always_causal",
        file="device/dq.py",
        before="p = weights(z, lse2, see, part != FULL)",
        after="p = weights(z, lse2, see & (j[None, :] <= i[:, None] + k_end - q_end), True)",
        outputs=("dq",),
        modelled_on="triton-lang/triton#4310: the backward knows causal masks only",
        semantics="causal-not-asked-for",
        needs=("backward",),
    ),
    Mutant(
        name="scale_of_natural_units",
        file="arguments.py",
        before="scale_log2=call.scale * LOG2_E,",
        after="scale_log2=call.scale,",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="ROCm/aiter a549dbd4: the scale without log2(e) in a kernel that works in base 2",
        semantics="log2e-missing",
    ),
    Mutant(
        name="cap_given_without_effect",
        file="terms.py",
        before="softcap=None if options.softcap is None else float(options.softcap),",
        after="softcap=None if options.softcap is None or options.causal is None else float(options.softcap),",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#1856: the condition of the cap is another one's",
        semantics="softcap-missing",
        needs=("softcap",),
    ),
    Mutant(
        name="gradients_of_no_queries_unwritten",
        file="launch.py",
        before='programs_of(call, call.kv_heads, call.sk, call.keys, call.configs["dkdv"].block_n),',
        after='programs_of(call, call.kv_heads, call.sk, call.keys, call.configs["dkdv"].block_n) * min(call.sq, 1),',
        outputs=("dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#2776: the backward of an empty Q is not launched, its gradients are not 0",
        semantics="not-written",
        needs=("backward",),
    ),
)
