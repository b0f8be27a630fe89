"""The defect of Triton's tutorial 06: what the x-ray's picture shows."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["DIAGONAL_LEAK"]

DIAGONAL_LEAK = Mutant(
    name="diagonal_leak",
    file="device/schedule.py",
    before="full_end = tl.maximum(sure_to, 0) // STEP * STEP",
    after="full_end = tl.maximum(sure_to, 0) // (BLOCK_M if AXIS == KEYS else STEP) * (BLOCK_M if AXIS == KEYS else STEP)",
    outputs=("o", "lse", "dq"),
    modelled_on="triton-lang/triton#8853: full tiles end at a multiple of BLOCK_M, which is none of BLOCK_N where BLOCK_M < BLOCK_N",
    semantics="edge-tile-unmasked",
    needs=("causal",),
)
"""Shows where a case's launch has block_m < block_n."""
