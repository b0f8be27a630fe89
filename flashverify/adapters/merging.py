"""What the adapters of merges have in common: the parts as tokens, where the keys are cut, the declaration and the form."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, declare
from flashverify.adapters.partials import handed_over, partial_results
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = [
    "count_of",
    "declare_merge",
    "dtype_of",
    "evenly",
    "flat_parts",
    "halves",
    "handed",
    "of_the_case",
    "too_large",
]

_LOG2E = math.log2(math.e)


def evenly(p: Problem, count: int) -> list[tuple[int, int]]:
    """The keys in `count` ranges of nearly the same size."""
    cuts = [p.case.seq_k * n // count for n in range(count + 1)]
    return list(pairwise(cuts))


def _form(case: Case, *, lse_base: str, partial_dtype: str, splits: int) -> Form:
    """That of a merge in fp32 of `splits` partials: their O and LSE are rounded once, and nothing rounds a logit."""
    from flashverify.numerics.form import Form

    return Form(
        lse_base=lse_base,
        n_splits=splits,
        partial_dtype=case.dtype if partial_dtype == "input" else "fp32",
        partial_lse_base=lse_base,
        partials="given",
        kappa=0.0,
    )


def declare_merge(
    call: Any,
    kernel: Callable[..., Any],
    changes: Changes,
    lse_base: str,
    partial_dtype: str,
    given: Mapping[str, Any],
    splits: Callable[[Case], int],
) -> FunctionSubject:
    """The subject of a merge: every mask and modifier that partial results can have, launch parameters that cut the keys, the form of a merge.

    Args:
        call: takes a `Problem` and returns what a subject returns.
        kernel: the merge, for its name.
        changes: what the caller declares otherwise.
        lse_base: of the LSE that goes in and comes out.
        partial_dtype: `input` or `fp32`.
        given: further fields of `Supports`.
        splits: parts of a case.

    Raises:
        UsageError: the base or the dtype is unknown, or a field is not accepted.
    """
    if lse_base not in ("2", "e"):
        raise UsageError(f"lse_base={lse_base!r} is not accepted: '2' or 'e'")
    if partial_dtype not in ("input", "fp32"):
        raise UsageError(f"partial_dtype={partial_dtype!r} is not accepted: 'input' or 'fp32'")
    return declare(
        call,
        kernel,
        changes,
        supports={
            "masks": ("causal", "key_lengths", "window", "bitmap"),
            "logits": ("softcap", "bias"),
            "window_alignments": ("top-left", "bottom-right"),
            "non_finite": False,
            "layouts": ("bhsd",),
            "contiguous": True,
            "backward": False,
            "even_launches": False,
            "compiles": False,
            "also": too_large,
            **given,
        },
        contract={"lse_base": lse_base},
        form=lambda case: _form(case, lse_base=lse_base, partial_dtype=partial_dtype, splits=splits(case)),
    )


def handed(
    p: Problem, ranges: list[tuple[int, int]], axes: str, lse_base: str, partial_dtype: str, empty_lse: float
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """`flat_parts`, rounded and handed to the subject."""
    import torch

    dtype = dtype_of(p, partial_dtype)
    return [
        (handed_over("partial o", o, dtype), handed_over("partial lse", lse, torch.float32))
        for o, lse in flat_parts(p, ranges, axes, lse_base, empty_lse)
    ]


def flat_parts(
    p: Problem, ranges: list[tuple[int, int]], axes: str, lse_base: str, empty_lse: float
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Partials as tokens: O `[T, H, D]` and the LSE `[T, H]` or `[H, T]`, float64, in the base asked for."""
    factor = _LOG2E if lse_base == "2" else 1.0
    found = []
    for o, lse in partial_results(p, ranges):
        lse = (lse * factor).masked_fill(lse.isneginf(), empty_lse).transpose(1, 2).flatten(0, 1)
        found.append((o.transpose(1, 2).flatten(0, 1), lse if axes == "th" else lse.T))
    return found


def dtype_of(p: Problem, partial_dtype: str) -> torch.dtype:
    """Of partial outputs."""
    return p.q.dtype if partial_dtype == "input" else p.q.float().dtype


def of_the_case(p: Problem, o: torch.Tensor, partial_dtype: str) -> torch.Tensor:
    """O in the dtype of the case: a merge of fp32 partials returns fp32."""
    return o.to(p.q.dtype) if partial_dtype == "fp32" and o.dtype == p.q.float().dtype else o


def halves(p: Problem) -> list[tuple[int, int]]:
    """The keys in two ranges, cut where `first_percent` of the case says."""
    cut = p.case.seq_k * dict(p.case.launch).get("first_percent", 50) // 100
    return [(0, cut), (cut, p.case.seq_k)]


def count_of(case: Case) -> int:
    """Parts of a case."""
    return dict(case.launch).get("splits", 2)


def too_large(case: Case) -> str | None:
    """Why a case is left out, or None: partials are computed in float64, and handed over in fp32."""
    if any(abs(edit.value) >= 1e30 for edit in case.values.edits) or abs(case.softmax_scale) >= 1e30:
        return "an element of 1e30 or more: the LSE of a partial may leave fp32"
    return None
