"""Merges of partial results: exact partials over ranges of the keys, rounded once, go in; what comes out is judged as attention over all keys."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, accepts, declare
from flashverify.adapters.partials import handed_over, partial_results
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["merge_attn_states", "merge_state", "merge_states"]

_LOG2E = math.log2(math.e)
_FIRST = ("first_percent", (0, 25, 50, 100))
_SPLITS = ("splits", (1, 2, 3, 5))


def merge_state(
    kernel: Callable[..., Any],
    *,
    lse_base: str = "2",
    partial_dtype: str = "input",
    empty_lse: float = float("-inf"),
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(o_a, lse_a, o_b, lse_b)` that returns (o, lse), as FlashInfer's `merge_state` and SGLang's `merge_state_triton` do.

    O is `[T, H, D]`, the LSE `[T, H]`. The keys are cut in two; the launch parameter `first_percent` says where, and one part may be empty.

    Args:
        kernel: the merge.
        lse_base: `2`, or `e` as SGLang's.
        partial_dtype: `input` rounds partial outputs to the dtype of the case, `fp32` to fp32.
        empty_lse: LSE of a row of a partial that sees no key; FlashAttention 2 writes +inf.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default that of a merge in fp32.
        contract: fields of `Contract` to replace, such as those of a row that sees no key in either part.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: an argument is not accepted.
    """

    def call(p: Problem) -> Any:
        (o_a, lse_a), (o_b, lse_b) = _handed(p, _halves(p), "th", lse_base, partial_dtype, empty_lse)
        o, lse = kernel(o_a, lse_a, o_b, lse_b)
        return p.outputs(_of_the_case(p, o, partial_dtype), lse, "thd", "th")

    changes = Changes(name=name, device=device, form=form, contract=contract, supports=supports)
    return _declare(call, kernel, changes, lse_base, partial_dtype, {"launch": (_FIRST,)}, lambda case: 2)  # noqa: ARG005


def merge_attn_states(
    kernel: Callable[..., Any],
    *,
    partial_dtype: str = "input",
    empty_lse: float = float("-inf"),
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse)`, as vLLM's `merge_attn_states` is.

    O is `[T, H, D]`, the natural LSE `[H, T]`; both results are written into what is given. The keys are cut as for `merge_state`.

    Args:
        kernel: the merge.
        partial_dtype: `input` rounds partial outputs to the dtype of the case, `fp32` to fp32.
        empty_lse: LSE of a row of a partial that sees no key; FlashAttention 2 writes +inf.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default that of a merge in fp32.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: an argument is not accepted.
    """

    def call(p: Problem) -> Any:
        import torch

        (prefix, prefix_lse), (suffix, suffix_lse) = _handed(p, _halves(p), "ht", "e", partial_dtype, empty_lse)
        o = torch.empty(prefix.shape, dtype=p.q.dtype, device=p.q.device)
        lse = torch.empty(prefix_lse.shape, dtype=torch.float32, device=p.q.device)
        given = {
            "output": o,
            "prefix_output": prefix,
            "prefix_lse": prefix_lse,
            "suffix_output": suffix,
            "suffix_lse": suffix_lse,
            "output_lse": lse,
        }
        kernel(**{n: value for n, value in given.items() if accepts(kernel, n)})
        return p.outputs(o, lse, "thd", "ht")

    changes = Changes(name=name, device=device, form=form, contract=contract, supports=supports)
    return _declare(call, kernel, changes, "e", partial_dtype, {"launch": (_FIRST,)}, lambda case: 2)  # noqa: ARG005


def merge_states(
    kernel: Callable[..., Any],
    *,
    lse_base: str = "2",
    partial_dtype: str = "input",
    empty_lse: float = float("-inf"),
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(o, lse)` on `[T, n, H, D]` and `[T, n, H]` that returns (o, lse), as FlashInfer's `merge_states` is.

    The launch parameter `splits` is n; keys are cut evenly, so there are empty parts where they are few.

    Args:
        kernel: the merge.
        lse_base: `2` or `e`.
        partial_dtype: `input` rounds partial outputs to the dtype of the case, `fp32` to fp32.
        empty_lse: LSE of a row of a partial that sees no key; FlashAttention 2 writes +inf.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default that of a merge in fp32.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: an argument is not accepted.
    """

    def call(p: Problem) -> Any:
        import torch

        parts = _flat(p, evenly(p, _count(p.case)), "th", lse_base, empty_lse)
        o = handed_over("partial o", torch.stack([o for o, _ in parts], 1), _dtype(p, partial_dtype))
        lse = handed_over("partial lse", torch.stack([lse for _, lse in parts], 1), torch.float32)
        merged, total = kernel(o, lse)
        return p.outputs(_of_the_case(p, merged, partial_dtype), total, "thd", "th")

    changes = Changes(name=name, device=device, form=form, contract=contract, supports=supports)
    return _declare(call, kernel, changes, lse_base, partial_dtype, {"launch": (_SPLITS,)}, _count)


def evenly(p: Problem, count: int) -> list[tuple[int, int]]:
    """The keys in `count` ranges of nearly the same size."""
    cuts = [p.case.seq_k * n // count for n in range(count + 1)]
    return list(pairwise(cuts))


def merge_form(case: Case, *, lse_base: str, partial_dtype: str, splits: int) -> Form:
    """That of a merge in fp32 of `splits` partials: their O and LSE are rounded once, and nothing rounds a logit."""
    from flashverify.numerics.form import Form

    return Form(
        lse_base=lse_base,
        n_splits=splits,
        partial_dtype=case.dtype if partial_dtype == "input" else "fp32",
        partial_lse_base=lse_base,
        kappa=0.0,
        architecture="ieee",
    )


def _declare(
    call: Any,
    kernel: Callable[..., Any],
    changes: Changes,
    lse_base: str,
    partial_dtype: str,
    given: Mapping[str, Any],
    splits: Callable[[Case], int],
) -> FunctionSubject:
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
            "also": _refusal,
            **given,
        },
        contract={"lse_base": lse_base},
        form=lambda case: merge_form(case, lse_base=lse_base, partial_dtype=partial_dtype, splits=splits(case)),
    )


def _handed(
    p: Problem, ranges: list[tuple[int, int]], axes: str, lse_base: str, partial_dtype: str, empty_lse: float
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    import torch

    dtype = _dtype(p, partial_dtype)
    return [
        (handed_over("partial o", o, dtype), handed_over("partial lse", lse, torch.float32))
        for o, lse in _flat(p, ranges, axes, lse_base, empty_lse)
    ]


def _flat(
    p: Problem, ranges: list[tuple[int, int]], axes: str, lse_base: str, empty_lse: float
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Partials as tokens: O `[T, H, D]` and the LSE `[T, H]` or `[H, T]`, float64, in the base asked for."""
    factor = _LOG2E if lse_base == "2" else 1.0
    found = []
    for o, lse in partial_results(p, ranges):
        lse = (lse * factor).masked_fill(lse.isneginf(), empty_lse).transpose(1, 2).flatten(0, 1)
        found.append((o.transpose(1, 2).flatten(0, 1), lse if axes == "th" else lse.T))
    return found


def _dtype(p: Problem, partial_dtype: str) -> torch.dtype:
    return p.q.dtype if partial_dtype == "input" else p.q.float().dtype


def _of_the_case(p: Problem, o: torch.Tensor, partial_dtype: str) -> torch.Tensor:
    """O in the dtype of the case: a merge of fp32 partials returns fp32."""
    return o.to(p.q.dtype) if partial_dtype == "fp32" and o.dtype == p.q.float().dtype else o


def _halves(p: Problem) -> list[tuple[int, int]]:
    cut = p.case.seq_k * dict(p.case.launch).get("first_percent", 50) // 100
    return [(0, cut), (cut, p.case.seq_k)]


def _count(case: Case) -> int:
    return dict(case.launch).get("splits", 2)


def _refusal(case: Case) -> str | None:
    """Why a case is left out, or None: partials are computed in float64, and handed over in fp32."""
    if any(abs(edit.value) >= 1e30 for edit in case.values.edits) or abs(case.softmax_scale) >= 1e30:
        return "an element of 1e30 or more: the LSE of a partial may leave fp32"
    return None
