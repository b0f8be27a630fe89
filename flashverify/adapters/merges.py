"""Merges of partial results: exact partials over ranges of the keys, rounded once, go in; what comes out is judged as attention over all keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, accepts
from flashverify.adapters.merging import (
    count_of,
    declare_merge,
    dtype_of,
    evenly,
    flat_parts,
    halves,
    handed,
    of_the_case,
)
from flashverify.adapters.partials import handed_over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.problem import Problem
    from flashverify.subjects.function import FunctionSubject

__all__ = ["merge_attn_states", "merge_state", "merge_states"]

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
        (o_a, lse_a), (o_b, lse_b) = handed(p, halves(p), "th", lse_base, partial_dtype, empty_lse)
        o, lse = kernel(o_a, lse_a, o_b, lse_b)
        return p.outputs(of_the_case(p, o, partial_dtype), lse, "thd", "th")

    changes = Changes(name=name, device=device, form=form, contract=contract, supports=supports)
    return declare_merge(call, kernel, changes, lse_base, partial_dtype, {"launch": (_FIRST,)}, lambda case: 2)  # noqa: ARG005


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

        (prefix, prefix_lse), (suffix, suffix_lse) = handed(p, halves(p), "ht", "e", partial_dtype, empty_lse)
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
    return declare_merge(call, kernel, changes, "e", partial_dtype, {"launch": (_FIRST,)}, lambda case: 2)  # noqa: ARG005


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

        parts = flat_parts(p, evenly(p, count_of(p.case)), "th", lse_base, empty_lse)
        o = handed_over("partial o", torch.stack([o for o, _ in parts], 1), dtype_of(p, partial_dtype))
        lse = handed_over("partial lse", torch.stack([lse for _, lse in parts], 1), torch.float32)
        merged, total = kernel(o, lse)
        return p.outputs(of_the_case(p, merged, partial_dtype), total, "thd", "th")

    changes = Changes(name=name, device=device, form=form, contract=contract, supports=supports)
    return declare_merge(call, kernel, changes, lse_base, partial_dtype, {"launch": (_SPLITS,)}, count_of)
