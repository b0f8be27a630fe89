"""What `benchmarks/sight.py` judges: defects, lengths, dtypes and values, and the case of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.mutants.mutant import Mutant

__all__ = [
    "CHECKS",
    "CLEAN",
    "DEFECTS",
    "DTYPES",
    "LENGTHS",
    "OF_ROWS",
    "ROUNDED",
    "VALUES",
    "Values",
    "case_of",
    "mutants",
    "shape",
]

LENGTHS = {"interpreter": tuple(2**n for n in range(6, 14)), "cuda": tuple(2**n for n in range(6, 17))}
DTYPES = ("fp16", "bf16", "fp32")
REGIMES = ("normal", "negative", "v-positive", "ascending", "weight-ties", "near-ties-1e4", "outlier", "logits-1e2")
NARROW = ("near-ties-1e4", "ascending")
VALUES = (
    *((regime, 64, 0) for regime in REGIMES),
    *((regime, 16, 0) for regime in NARROW),
    *(("few-keys", 64, seed) for seed in (0, 1)),
)
"""Regimes, head dims and seeds, in turn: a matrix unit that truncates loses less of a short dot product, and nothing of an exact one."""
CHECKS = ("accuracy", "nonfinite", "statistics", "counting")
ROUNDED = """
weights_truncated weights_of_dv_truncated ds_truncated accumulator_in_the_input_dtype dq_accumulated_in_the_input_dtype
dk_accumulated_in_the_input_dtype dv_accumulated_in_the_input_dtype logits_in_the_input_dtype lse_in_the_input_dtype
""".split()  # noqa: SIM905
"""What rounds to the input dtype, and so is none in fp32."""
OTHERS = """
row_sum_in_bf16 row_sum_of_rounded_weights log2_of_e_in_five_digits alpha_not_applied last_tile_not_rescaled causal_off_by_one delta_missing dk_without_scale
lse_in_the_wrong_base running_max_starts_at_zero
""".split()  # noqa: SIM905
OF_ROWS = frozenset(
    ("weights_of_dv_truncated", "dk_accumulated_in_the_input_dtype", "dv_accumulated_in_the_input_dtype")
)
"""Defects of a sum over rows."""
CLEAN = "none"
DEFECTS = (CLEAN, *ROUNDED, *OTHERS)

Values = tuple[str, int, int]
"""A regime, a head dimension and a seed."""


def mutants() -> dict[str, Mutant]:
    """The defects by name: those of the bank, and two more."""
    from flashverify.mutants.bank import CURATED
    from flashverify.mutants.mutant import Mutant

    more = (
        Mutant(
            name="dk_accumulated_in_the_input_dtype",
            file="device/dkdv.py",
            before="dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)",
            after="dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION).to(q.dtype).to(tl.float32)",
            outputs=("dk",),
            modelled_on="a dK that query blocks add to in 16 bits",
        ),
        Mutant(
            name="last_tile_not_rescaled",
            file="device/forward.py",
            before="acc * alpha[:, None], input_precision",
            after="acc * tl.where(t + BLOCK_N >= stop, 1.0, alpha)[:, None], input_precision",
            outputs=("o",),
            modelled_on="the last step of a loop written by itself, without the rescale of the accumulator",
        ),
    )
    return {m.name: m for m in (*CURATED, *more)}


def shape(length: int, dim: int, *, of_rows: bool) -> str:
    """Sizes and mask of a case whose sums over rows, or else over keys, have `length` terms and three more."""
    heads, other = (2, 384) if length < 1024 else (2, 96) if length <= 8192 else (1, 128)
    rows, keys = (length + 3, other) if of_rows else (other, length + 3)
    causal = "bottom-right" if keys >= rows else "top-left"
    return f"heads_q={heads} heads_kv={heads} seq_q={rows} seq_k={keys} dim_qk={dim} dim_v={dim} causal={causal}"


def case_of(defect: str, length: int, dtype: str, values: Values, tiles: int = 0) -> Case:
    """The case of a place with one of `VALUES`, in tiles of the kernel's choice or of `tiles` rows and keys."""
    from flashverify import parse_case

    regime, dim, seed = values
    launch = f" launch=block_m:{tiles},block_n:{tiles}" if tiles else ""
    sizes = shape(length, dim, of_rows=defect in OF_ROWS)
    return parse_case(f"fv1 {sizes} dtype={dtype} regime={regime} seed={seed}{launch}")
