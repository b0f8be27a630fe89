"""Callables with the signatures of `flash_attn`: batches, tokens with cumulative lengths, and a cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, accepts, declare, first_two
from flashverify.adapters.features import refusal_of_alibi, window_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["flash_attn", "flash_attn_varlen", "flash_attn_with_kvcache"]

_LSE_FLAGS = ("return_attn_probs", "return_softmax_lse", "return_lse")


def flash_attn(
    kernel: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q, k, v, softmax_scale=, causal=, ...)` on `[B, S, H, D]`, as `flash_attn_func` is; gradients by autograd.

    `window_size`, `softcap` and `alibi_slopes` are declared where the callable has a parameter of this name. Causal, windows and ALiBi
    are aligned at the last key. The LSE is asked for by `return_attn_probs`, `return_softmax_lse` or `return_lse`, and must be
    `[B, H, S]`; a callable with none of them is declared without an LSE.

    Args:
        kernel: returns O, or a sequence that begins with O and the LSE.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; that of FlashAttention 2 by default.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """
    flag = _lse_flag(kernel)

    def call(p: Problem) -> Any:
        x = p.bshd()
        o, lse = first_two(kernel(x.q, x.k, x.v, **_arguments(p, kernel, flag)))
        return p.outputs(o, lse if mine.contract.lse_base else None, "bshd")

    mine = declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={**_supports(kernel), "masks": ("causal", *_window(kernel))},
        contract=_contract(flag),
        form=_form,
    )
    return mine


def flash_attn_varlen(
    kernel: Callable[..., Any],
    *,
    lse_layout: str = "ht",
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q, k, v, cu_seqlens_q=, cu_seqlens_k=, max_seqlen_q=, max_seqlen_k=, ...)` on tokens, as `flash_attn_varlen_func` is.

    Dense problems, with or without declared lengths, are given as sequences too. The rest is as for `flash_attn`.

    Args:
        kernel: returns O `[T, H, D]`, or a sequence that begins with O and the LSE.
        lse_layout: of its LSE, `ht` or `th`.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; that of FlashAttention 2 by default.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """
    flag = _lse_flag(kernel)

    def call(p: Problem) -> Any:
        x = p.varlen()
        lengths = {n: getattr(x, n) for n in ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")}
        o, lse = first_two(kernel(x.q, x.k, x.v, **lengths, **_arguments(p, kernel, flag)))
        return p.outputs(o, lse if mine.contract.lse_base else None, "thd", lse_layout)

    mine = declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            **_supports(kernel),
            "masks": ("packed", "causal", "key_lengths", "query_lengths", *_window(kernel)),
        },
        contract={**_contract(flag), "padding": "undefined"},
        form=_form,
    )
    return mine


def flash_attn_with_kvcache(
    kernel: Callable[..., Any],
    *,
    paged: bool = True,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q, k_cache, v_cache, cache_seqlens=, block_table=, ...)`, as `flash_attn_with_kvcache` is; forward only.

    Args:
        kernel: returns O `[B, S, H, D]`, or a sequence that begins with O and the LSE `[B, H, S]`.
        paged: the cache is in pages of 256 keys, with a table; otherwise it is `[B, S, H, D]`, with lengths.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default that of FlashAttention 2 with as many splits of the keys as it may make.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace, such as `page_sizes`.

    Raises:
        UsageError: a field is not accepted.
    """
    flag = _lse_flag(kernel)

    def call(p: Problem) -> Any:
        given = _arguments(p, kernel, flag)
        if paged:
            x = p.paged("flash-attn")
            found = kernel(x.q, x.k_cache, x.v_cache, cache_seqlens=x.cache_seqlens, block_table=x.block_table, **given)
        else:
            y = p.bshd()
            found = kernel(y.q, y.k, y.v, cache_seqlens=_lengths(p), **given)
        o, lse = first_two(found)
        return p.outputs(o, lse if mine.contract.lse_base else None, "bshd")

    mine = declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            **_supports(kernel),
            "masks": ("key_lengths", "causal", *_window(kernel)),
            "backward": False,
            **({"page_sizes": (256,), "always_paged": True} if paged else {}),
        },
        contract={**_contract(flag), "reads_outputs": None},
        form=_split_form,
    )
    return mine


def _supports(kernel: Callable[..., Any]) -> dict[str, Any]:
    modifiers = {"softcap": "softcap", "alibi_slopes": "alibi"}
    return {
        "dtypes": ("fp16", "bf16"),
        "causal": ("bottom-right",),
        "window_alignments": ("bottom-right",),
        "logits": tuple(field for parameter, field in modifiers.items() if accepts(kernel, parameter)),
        "equal_dims": True,
        "unaligned": False,
        "also": refusal_of_alibi,
    }


def _window(kernel: Callable[..., Any]) -> tuple[str, ...]:
    return ("window",) if accepts(kernel, "window_size") else ()


def _lse_flag(kernel: Callable[..., Any]) -> str | None:
    return next((flag for flag in _LSE_FLAGS if accepts(kernel, flag)), None)


def _contract(flag: str | None) -> dict[str, Any]:
    """What the signature says; rows without keys are left open, for releases differ in their LSE."""
    return {
        "lse_base": None if flag is None else "e",
        "reads_outputs": None if flag is None else True,
        "empty_row_lse": None,
    }


def _arguments(p: Problem, kernel: Callable[..., Any], flag: str | None) -> dict[str, Any]:
    given: dict[str, Any] = {"softmax_scale": p.scale, "causal": p.causal is not None}
    if accepts(kernel, "window_size"):
        given["window_size"] = window_of(p)
    if p.softcap is not None:
        given["softcap"] = p.softcap
    if p.slopes is not None:
        given["alibi_slopes"] = p.slopes
    return given if flag is None else {**given, flag: True}


def _lengths(p: Problem) -> torch.Tensor:
    import torch

    if p.key_lengths is not None:
        return p.key_lengths
    return torch.full((p.case.batch,), p.case.seq_k, dtype=torch.int32, device=p.q.device)


def _form(case: Case) -> Form:
    """The maximum times the scale is rounded apart; each query head's dK and dV are rounded before their sum; the tanh is the GPU's."""
    from flashverify.numerics.form import Form

    partial = "fp32" if case.heads_q == case.heads_kv else "input"
    return Form(dot=case.precision, max_source="apart", gqa_partial=partial, softcap="approx")


def _split_form(case: Case) -> Form:
    import dataclasses

    return dataclasses.replace(_form(case), n_splits=max(1, min(128, math.ceil(case.seq_k / 64))))
