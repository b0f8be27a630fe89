"""Defects of q in codes."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["QUERIES"]

QUERIES = (
    Mutant(
        name="q_scale_missing",
        file="device/quantised/codes.py",
        before="            factor = scale\n",
        after="            factor = scale * 0.0 + 1.0\n",
        outputs=("o", "lse"),
        modelled_on="Q cast to fp8 with a scale that no logit is multiplied by",
        subject="bundled-quantised",
        semantics="codes-scale-missing",
        needs=("q_codes",),
    ),
    Mutant(
        name="q_scale_of_the_first_head",
        file="device/quantised/codes.py",
        before="h.to(tl.int64) * q_scale.head",
        after="(h * 0).to(tl.int64) * q_scale.head",
        outputs=("o", "lse"),
        modelled_on="one descale of Q read for a tile whose rows are of several heads",
        subject="bundled-quantised-decode",
        semantics="codes-scale-of-other-head",
        needs=("q_codes", "head_scales", "groups"),
    ),
    Mutant(
        name="q_scale_of_the_row_behind",
        file="device/quantised/codes.py",
        before="group = (i // q_scale.rows).to(tl.int64)",
        after="group = ((i + 1) // q_scale.rows).to(tl.int64)",
        outputs=("o", "lse", "q_scale"),
        modelled_on="scales of rows read by a count from 1",
        subject="bundled-quantised",
        semantics="codes-scale-of-neighbour",
        needs=("q_codes", "token_scales"),
    ),
    Mutant(
        name="q_scale_applied_twice",
        file="device/quantised/attention.py",
        before="z = z * q_factor[:, None]",
        after="z = z * (q_factor * q_factor)[:, None]",
        outputs=("o", "lse"),
        modelled_on="the scale of Q in the logit and in the scale of the softmax",
        subject="bundled-quantised",
        semantics="codes-scale-twice",
        needs=("q_codes",),
    ),
)
