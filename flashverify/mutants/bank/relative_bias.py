"""Defects of the relative position bias and of the sum that makes the gradient of its table."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["RELATIVE_BIAS"]

_EVERY = ("o", "lse", "dq", "dk", "dv")

RELATIVE_BIAS = (
    Mutant(
        name="relative_clipped_early",
        file="device/logits.py",
        before="tl.minimum(tl.maximum(j - position, -reach), reach)",
        after="tl.minimum(tl.maximum(j - position, 1 - reach), reach - 1)",
        outputs=_EVERY,
        modelled_on="the clip of relative positions taken as exclusive",
        semantics="relative-bias-clipped-early",
        needs=("relative_bias",),
    ),
    Mutant(
        name="relative_distance_with_the_other_sign",
        file="device/logits.py",
        before="tl.maximum(j - position, -reach)",
        after="tl.maximum(position - j, -reach)",
        outputs=_EVERY,
        modelled_on="relative positions as memory - query in one framework, query - memory in another",
        semantics="relative-bias-distance-sign",
        needs=("relative_bias",),
    ),
    Mutant(
        name="relative_of_the_first_head",
        file="device/logits.py",
        before="relative.ptr + (h.to(tl.int64) * relative.width",
        after="relative.ptr + (h.to(tl.int64) * 0 * relative.width",
        outputs=_EVERY,
        modelled_on="a bias per head that is broadcast over the heads",
        semantics="relative-bias-first-head",
        needs=("relative_bias", "groups"),
    ),
    Mutant(
        name="relative_in_the_wrong_base",
        file="device/logits.py",
        before="_clamp(bias * LOG2_E, _LARGEST)",
        after="_clamp(bias, _LARGEST)",
        outputs=_EVERY,
        modelled_on="meta-pytorch/segment-anything-fast#71: a bias added to base-2 logits without log2(e)",
        semantics="relative-bias-without-log2e",
        needs=("relative_bias",),
    ),
    Mutant(
        name="relative_without_the_shift",
        file="device/logits.py",
        before="terms.relative.width, i + head.shift, j,",
        after="terms.relative.width, i, j,",
        outputs=_EVERY,
        modelled_on="positions of decoded queries that count from 0, not from the end of the cache",
        semantics="relative-bias-without-shift",
        needs=("relative_bias", "causal"),
    ),
    Mutant(
        name="drelative_of_the_first_sequence",
        file="reductions.py",
        before="_by_distance(ds[:, :, first : first + step], positions[:,",
        after="_by_distance(ds[:1, :, first : first + step], positions[:1,",
        outputs=("drelative_bias",),
        modelled_on="HKUSTDial/flash-sparse-attention#193: the gradient of a broadcast bias overwritten instead of added up",
        semantics="drelative-bias-first-sequence",
        needs=("relative_bias", "sequences", "backward"),
    ),
    Mutant(
        name="drelative_gathers_the_first_sequence",
        file="reductions.py",
        before="[:, None].expand(*ds.shape[:2], -1, -1)",
        after="[:, None].expand(-1, ds.shape[1], -1, -1)",
        outputs=("drelative_bias",),
        modelled_on="an index with a batch axis of 1: torch.gather takes it as one entry, and broadcasts nothing",
        semantics="drelative-bias-first-sequence",
        needs=("relative_bias", "sequences", "backward"),
    ),
    Mutant(
        name="drelative_without_the_clipped_end",
        file="reductions.py",
        before="(j <= position - reach, j >= position + reach)",
        after="(j < position - reach, j >= position + reach)",
        outputs=("drelative_bias",),
        modelled_on="an inclusive bound taken as exclusive in the gradient alone",
        needs=("relative_bias", "backward"),
    ),
    Mutant(
        name="drelative_counts_packed_rows_through",
        file="reductions.py",
        before="return i - start[sequence] + shift",
        after="return i + shift",
        outputs=("drelative_bias",),
        modelled_on="positions of packed sequences counted through the whole batch",
        needs=("relative_bias", "packed", "backward"),
    ),
    Mutant(
        name="drelative_without_the_shift",
        file="reductions.py",
        before="return i + shift * (k - q)",
        after="return i + 0 * shift * (k - q)",
        outputs=("drelative_bias",),
        modelled_on="the forward aligned to the last key, the gradient to the first",
        needs=("relative_bias", "causal", "backward"),
    ),
)
