"""Callables with the signatures of SGLang's Triton attention: decoding in splits, extension of a cached prefix, and plain prefill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, accepts, declare
from flashverify.adapters.features import left_of
from flashverify.adapters.new_tokens import last_keys, too_few_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["sglang_decode", "sglang_extend", "sglang_prefill"]

_PAGED: dict[str, Any] = {
    "dtypes": ("fp16", "bf16"),
    "page_sizes": (1, 16),
    "always_paged": True,
    "backward": False,
    "unaligned": False,
}


def sglang_decode(
    kernel: Callable[..., Any],
    *,
    max_kv_splits: int = 8,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q, k_buffer, v_buffer, o, kv_indptr, kv_indices, attn_logits, attn_lse, ...)`, as `decode_attention_fwd` is.

    One query a sequence. Softcap and sinks are declared where the callable takes `logit_cap` and `sinks`. Forward only, without an LSE.

    Args:
        kernel: writes into `o`; scratch of partial results is given to it.
        max_kv_splits: splits of the keys that it is given room for, and asked for.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default the widest one with these splits, natural partial LSEs.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        import torch

        x = p.paged("sglang")
        heads, dim = p.case.heads_q, p.case.dim_v
        o = x.q.new_empty(len(x.q), heads, dim)
        room = torch.empty((len(x.q), heads, max_kv_splits, dim), dtype=torch.float32, device=x.q.device)
        given: dict[str, Any] = {
            "q": x.q,
            "k_buffer": x.k_buffer,
            "v_buffer": x.v_buffer,
            "o": o,
            "kv_indptr": x.kv_indptr,
            "kv_indices": x.kv_indices,
            "attn_logits": room,
            "attn_lse": torch.empty_like(room[..., 0]),
            "num_kv_splits": torch.full((len(x.q),), max_kv_splits, dtype=torch.int32, device=x.q.device),
            "max_kv_splits": max_kv_splits,
            "sm_scale": p.scale,
            "k_scale": 1.0,
            "v_scale": 1.0,
            "logit_cap": p.softcap or 0.0,
        }
        given |= {} if p.sink is None else {"sinks": p.sink}
        kernel(**{n: value for n, value in given.items() if accepts(kernel, n)})
        return p.outputs(o, None, "thd")

    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={**_PAGED, "masks": ("key_lengths",), "seq_q": (1,), "logits": _logits(kernel)},
        contract={"lse_base": None},
        form=lambda case: _form(case, splits=max_kv_splits),
    )


def sglang_extend(
    kernel: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, ...)`, as `extend_attention_fwd` is.

    The last Sq keys of each sequence are the new tokens, those before them the cached prefix. Every sequence has as many keys as rows at
    least. Always causal, aligned at the last key. Forward only, without an LSE.

    Args:
        kernel: writes into `o_extend`.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; the widest one by default.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x, rows = p.paged("sglang"), p.case.seq_q
        o = x.q.new_empty(len(x.q), p.case.heads_q, p.case.dim_v)
        prefix_indptr, prefix = _prefix(x.kv_indptr, x.kv_indices, rows)
        given: dict[str, Any] = {
            "q_extend": x.q,
            "k_extend": last_keys(p.k, x.seq_lens, rows),
            "v_extend": last_keys(p.v, x.seq_lens, rows),
            "o_extend": o,
            "k_buffer": x.k_buffer,
            "v_buffer": x.v_buffer,
            "qo_indptr": x.qo_indptr,
            "kv_indptr": prefix_indptr,
            "kv_indices": prefix,
            "custom_mask": None,
            "is_causal": True,
            "mask_indptr": None,
            "max_len_extend": rows,
            "k_scale": 1.0,
            "v_scale": 1.0,
            "sm_scale": p.scale,
            "logit_cap": p.softcap or 0.0,
            "sliding_window_size": left_of(p),
        }
        given |= {} if p.sink is None else {"sinks": p.sink}
        kernel(**{n: value for n, value in given.items() if accepts(kernel, n)})
        return p.outputs(o, None, "thd")

    window = ("window",) if accepts(kernel, "sliding_window_size") else ()
    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            **_PAGED,
            "masks": ("causal", "key_lengths", *window),
            "required_masks": ("causal",),
            "causal": ("bottom-right",),
            "window_sides": ("left",),
            "freed_pages": False,
            "logits": _logits(kernel),
            "also": too_few_keys,
        },
        contract={"lse_base": None},
        form=lambda case: _form(case, splits=1),
    )


def sglang_prefill(
    kernel: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q, k, v, o, b_start_loc, b_seq_len, max_input_len, is_causal=, sm_scale=)`, as SGLang's `context_attention_fwd` is.

    As many keys as rows in each sequence. Forward only, without an LSE.

    Args:
        kernel: writes into `o`, tokens `[T, H, D]`.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; the widest one by default.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x = p.varlen()
        o = x.q.new_empty(len(x.q), p.case.heads_q, p.case.dim_v)
        given: dict[str, Any] = {"is_causal": p.causal is not None, "sm_scale": p.scale}
        starts = x.cu_seqlens_q
        kernel(x.q, x.k, x.v, o, starts[:-1], starts[1:] - starts[:-1], x.max_seqlen_q, **given)
        return p.outputs(o, None, "thd")

    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            "dtypes": ("fp16", "bf16"),
            "masks": ("packed", "causal"),
            "causal": ("bottom-right",),
            "rectangular_causal": False,
            "square": True,
            "equal_dims": True,
            "backward": False,
            "unaligned": False,
            "also": _rectangular,
        },
        contract={"lse_base": None, "padding": "undefined"},
        form=lambda case: _form(case, splits=1),
    )


def _logits(kernel: Callable[..., Any]) -> tuple[str, ...]:
    words = {"logit_cap": "softcap", "sinks": "sink"}
    return tuple(field for parameter, field in words.items() if accepts(kernel, parameter))


def _prefix(indptr: Any, indices: Any, rows: int) -> tuple[Any, Any]:
    """`kv_indptr` and `kv_indices` without the last `rows` keys of each sequence; behind them lie the others."""
    import torch

    from flashverify.case.memory.handed import copied

    counts = indptr[1:] - indptr[:-1] - rows
    starts = torch.nn.functional.pad(counts.clamp(min=0).cumsum(0, dtype=torch.int32), (1, 0))
    place = torch.arange(len(indices), device=indices.device)
    sequence = torch.bucketize(place, indptr[1:].long(), right=True).clamp(max=len(counts) - 1)
    kept = (place < indptr[-1]) & (place - indptr.long()[sequence] < counts[sequence])
    order = torch.argsort((~kept).to(torch.uint8), stable=True)
    return copied("kv_indptr", starts), copied("kv_indices", indices[order])


def _rectangular(case: Case) -> str | None:
    packed = case.mask.packed
    if packed is not None and packed.cu_q != packed.cu_k:
        return "packed sequences with other numbers of rows than of keys"
    return None


def _form(case: Case, *, splits: int) -> Form:
    from flashverify.numerics.form import Form

    return Form(dot=case.precision, n_splits=splits, partial_lse_base="e")
