"""Callables with the signatures of vLLM's Triton attention: the unified kernel over pages, and the prefill over a cached prefix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, accepts, declare
from flashverify.adapters.features import left_of, refusal_of_alibi
from flashverify.adapters.new_tokens import last_keys, too_few_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["vllm_prefix_prefill", "vllm_unified_attention"]

_PAGED: dict[str, Any] = {
    "dtypes": ("fp16", "bf16"),
    "required_masks": ("causal",),
    "causal": ("bottom-right",),
    "window_alignments": ("bottom-right",),
    "window_sides": ("left",),
    "page_sizes": (16, 32),
    "always_paged": True,
    "equal_dims": True,
    "backward": False,
    "unaligned": False,
}


def vllm_unified_attention(
    kernel: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q=, k=, v=, out=, cu_seqlens_q=, ..., block_table=, ...)`, as `unified_attention` is: prefill and decoding over pages.

    Always causal, aligned at the last key. Windows to the left, softcap, ALiBi and sinks are declared where the callable takes
    `window_size`, `softcap`, `alibi_slopes` and `sinks`. Forward only, without an LSE.

    Args:
        kernel: writes into `out`.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default the widest one, with as many splits of the keys as tiles of 16.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace, such as `page_sizes`.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x = p.paged("vllm")
        o = _empty_as(p, x.q)
        given: dict[str, Any] = {
            "q": x.q,
            "k": x.key_cache,
            "v": x.value_cache,
            "out": o,
            "cu_seqlens_q": x.query_start_loc,
            "max_seqlen_q": x.max_query_len,
            "seqused_k": x.seq_lens,
            "max_seqlen_k": x.max_seq_len,
            "softmax_scale": p.scale,
            "causal": True,
            "window_size": (left_of(p), 0 if left_of(p) >= 0 else -1),
            "block_table": x.block_table,
            "softcap": p.softcap or 0.0,
            "q_descale": None,
            "k_descale": None,
            "v_descale": None,
        }
        given |= {n: t for n, t in (("alibi_slopes", p.slopes), ("sinks", p.sink)) if t is not None}
        kernel(**{n: value for n, value in given.items() if accepts(kernel, n)})
        return p.outputs(o, None, "thd")

    words = {"softcap": "softcap", "alibi_slopes": "alibi", "sinks": "sink"}
    window = ("window",) if accepts(kernel, "window_size") else ()
    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            **_PAGED,
            "masks": ("causal", "key_lengths", *window),
            "logits": tuple(field for parameter, field in words.items() if accepts(kernel, parameter)),
            "also": refusal_of_alibi,
        },
        contract={"lse_base": None},
        form=_form,
    )


def vllm_prefix_prefill(
    kernel: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q=, k=, v=, o=, k_cache=, v_cache=, b_loc=, ...)`, as `context_attention_fwd` of vLLM's prefix prefill is.

    The last Sq keys of each sequence are given as new tokens, those before them in pages of the layout `vllm-x`. Every sequence has as
    many keys as rows at least. Always causal, aligned at the last key; forward only, without an LSE.

    Args:
        kernel: writes into `o`.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; the widest one by default.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace, such as `page_sizes`.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x = p.paged("vllm-x")
        o = _empty_as(p, x.q)
        k, v = (last_keys(t, x.seq_lens, p.case.seq_q) for t in (p.k, p.v))
        one = p.q.new_ones((), dtype=p.q.float().dtype)
        given: dict[str, Any] = {
            "q": x.q,
            "k": k,
            "v": v,
            "o": o,
            "kv_cache_dtype": "auto",
            "k_cache": x.key_cache,
            "v_cache": x.value_cache,
            "b_loc": x.block_table,
            "b_start_loc": x.query_start_loc,
            "b_seq_len": x.seq_lens,
            "max_seq_len": x.max_seq_len,
            "max_input_len": x.max_query_len,
            "k_scale": one,
            "v_scale": one,
            "alibi_slopes": p.slopes,
            "sliding_window": left_of(p) + 1,
            "sm_scale": p.scale,
        }
        kernel(**{n: value for n, value in given.items() if accepts(kernel, n)})
        return p.outputs(o, None, "thd")

    window = ("window",) if accepts(kernel, "sliding_window") else ()
    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            **_PAGED,
            "masks": ("causal", "key_lengths", *window),
            "logits": ("alibi",) if accepts(kernel, "alibi_slopes") else (),
            "dim_multiple": 16,
            "also": lambda case: refusal_of_alibi(case) or too_few_keys(case),
        },
        contract={"lse_base": None},
        form=lambda case: _form(case, splits=False),
    )


def _empty_as(p: Problem, q: torch.Tensor) -> torch.Tensor:
    """Memory for O, `[T, Hq, Dv]`."""
    return q.new_empty(q.shape[0], q.shape[1], p.case.dim_v)


def _form(case: Case, *, splits: bool = True) -> Form:
    """Decoding may split the keys."""
    from flashverify.numerics.form import Form

    return Form(dot=case.precision, n_splits=max(1, min(64, math.ceil(case.seq_k / 16))) if splits else 1)
