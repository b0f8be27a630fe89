"""Defects of weights in fp8."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["WEIGHTS"]

WEIGHTS = (
    Mutant(
        name="weights_beyond_e4m3",
        file="device/quantised/attention.py",
        before="WEIGHT_FACTOR = tl.constexpr(256.0)",
        after="WEIGHT_FACTOR = tl.constexpr(512.0)",
        outputs=("o",),
        modelled_on="Dao-AILab/flash-attention#2694: weights above 448 cut to it",
        subject="bundled-quantised",
        needs=("launch", "e4m3"),
    ),
    Mutant(
        name="weights_without_a_factor",
        file="device/quantised/attention.py",
        before="WEIGHT_FACTOR = tl.constexpr(256.0)",
        after="WEIGHT_FACTOR = tl.constexpr(1.0)",
        outputs=("o",),
        modelled_on="flashinfer-ai/flashinfer#5020: weights in e4m3 without a factor; tails vanish from the numerator alone",
        subject="bundled-quantised-decode",
        needs=("launch", "e4m3"),
    ),
    Mutant(
        name="weights_cut_to_e4m3",
        file="device/quantised/attention.py",
        before="(p * WEIGHT_FACTOR).to(tl.float8e4nv)",
        after="((p * WEIGHT_FACTOR).to(tl.int32, bitcast=True) & -1048576).to(tl.float32, bitcast=True).to(tl.float8e4nv)",
        outputs=("o",),
        modelled_on="ROCm/FlyDSL#1020: weights truncated on their way to e4m3, which the row sum counts whole",
        subject="bundled-quantised",
        needs=("launch", "e4m3"),
    ),
    Mutant(
        name="factor_left_in_the_result",
        file="device/quantised/attention.py",
        before="acc = acc * (1.0 / WEIGHT_FACTOR)",
        after="acc = acc * (1.0 / 448.0)",
        outputs=("o",),
        modelled_on="a factor of 256 taken for 448",
        subject="bundled-quantised",
        needs=("launch", "e4m3"),
    ),
)
