"""FlashInfer's wrappers, planned and run, and its single calls: LSE in base 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, declare
from flashverify.adapters.features import left_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["flashinfer_decode", "flashinfer_prefill", "flashinfer_ragged", "flashinfer_single"]

_WORKSPACE = 1 << 27
_SPLITS = 128
_COMMON: dict[str, Any] = {
    "dtypes": ("fp16", "bf16"),
    "causal": ("bottom-right",),
    "window_sides": ("left",),
    "window_alignments": ("bottom-right",),
    "logits": ("softcap",),
    "equal_dims": True,
    "backward": False,
    "unaligned": False,
}
_PAGED: dict[str, Any] = {**_COMMON, "page_sizes": (16,), "always_paged": True}
_CONTRACT: dict[str, Any] = {"lse_base": "2", "empty_row_lse": None}


def flashinfer_decode(
    wrapper: Callable[..., Any],
    *,
    kv_layout: str = "NHD",
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `wrapper(workspace, kv_layout).plan(indptr, indices, last_page_len, ...)` and `run`, as `BatchDecodeWithPagedKVCacheWrapper` is.

    Args:
        wrapper: makes the object, from 128 MiB of uint8 and the layout.
        kv_layout: `NHD` or `HND`.
        name: in reports; that of the wrapper by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default the widest one with 128 splits of the keys.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace, such as `page_sizes`.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x = p.paged("flashinfer-nhd" if kv_layout == "NHD" else "flashinfer-hnd")
        made = wrapper(_workspace(x.q), kv_layout)
        sizes = (p.case.heads_q, p.case.heads_kv, p.case.dim_qk, x.page_size)
        made.plan(x.indptr, x.indices, x.last_page_len, *sizes, q_data_type=x.q.dtype, **_modifiers(p))
        o, lse = made.run(x.q, (x.k_cache, x.v_cache), return_lse=True)
        return p.outputs(o, lse, "thd", "th")

    return declare(
        call,
        wrapper,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={**_PAGED, "masks": ("key_lengths", "window"), "seq_q": (1,)},
        contract=_CONTRACT,
        form=_form,
    )


def flashinfer_prefill(
    wrapper: Callable[..., Any],
    *,
    kv_layout: str = "NHD",
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `wrapper(workspace, kv_layout).plan(qo_indptr, indptr, indices, last_page_len, ...)` and `run`, as `BatchPrefillWithPagedKVCacheWrapper` is.

    Args:
        wrapper: makes the object, from 128 MiB of uint8 and the layout.
        kv_layout: `NHD` or `HND`.
        name: in reports; that of the wrapper by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default the widest one with 128 splits of the keys.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace, such as `page_sizes`.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x = p.paged("flashinfer-nhd" if kv_layout == "NHD" else "flashinfer-hnd")
        made = wrapper(_workspace(x.q), kv_layout)
        sizes = (p.case.heads_q, p.case.heads_kv, p.case.dim_qk, x.page_size)
        lists = (x.qo_indptr, x.indptr, x.indices, x.last_page_len)
        made.plan(*lists, *sizes, causal=p.causal is not None, q_data_type=x.q.dtype, **_modifiers(p))
        o, lse = made.run(x.q, (x.k_cache, x.v_cache), return_lse=True)
        return p.outputs(o, lse, "thd", "th")

    return declare(
        call,
        wrapper,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={**_PAGED, "masks": ("causal", "key_lengths", "window")},
        contract=_CONTRACT,
        form=_form,
    )


def flashinfer_ragged(
    wrapper: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `wrapper(workspace, "NHD").plan(qo_indptr, kv_indptr, ...)` and `run(q, k, v)`, as `BatchPrefillWithRaggedKVCacheWrapper` is.

    Args:
        wrapper: makes the object, from 128 MiB of uint8 and the layout.
        name: in reports; that of the wrapper by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default the widest one with 128 splits of the keys.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x = p.varlen()
        made = wrapper(_workspace(x.q), "NHD")
        sizes = (p.case.heads_q, p.case.heads_kv, p.case.dim_qk)
        given = {"causal": p.causal is not None, "q_data_type": x.q.dtype, **_modifiers(p)}
        made.plan(x.cu_seqlens_q, x.cu_seqlens_k, *sizes, **given)
        o, lse = made.run(x.q, x.k, x.v, return_lse=True)
        return p.outputs(o, lse, "thd", "th")

    return declare(
        call,
        wrapper,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={**_COMMON, "masks": ("packed", "causal", "key_lengths", "query_lengths", "window")},
        contract={**_CONTRACT, "padding": "undefined"},
        form=_form,
    )


def flashinfer_single(
    kernel: Callable[..., Any],
    *,
    decode: bool = False,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `single_prefill_with_kv_cache(q, k, v, causal=, ...)`, or of `single_decode_with_kv_cache`: one sequence, NHD.

    Args:
        kernel: the function, called with `return_lse=True`.
        decode: q is `[Hq, D]`, and there is no mask but a window.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default the widest one with 128 splits of the keys.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x = p.bshd()
        given = {**_modifiers(p), "return_lse": True, **({} if decode else {"causal": p.causal is not None})}
        o, lse = kernel(x.q[0, 0] if decode else x.q[0], x.k[0], x.v[0], **given)
        return p.outputs(o.view(1, *p.case.shape_o[2:0:-1], -1), lse.view(1, p.case.seq_q, -1), "bshd", "bsh")

    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            **_COMMON,
            "masks": ("window",) if decode else ("causal", "window"),
            **({"seq_q": (1,)} if decode else {}),
            "also": lambda case: None if case.batch == 1 else f"batch={case.batch}: the function takes one sequence",
        },
        contract=_CONTRACT,
        form=_form,
    )


def _workspace(q: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.empty(_WORKSPACE, dtype=torch.uint8, device=q.device)


def _modifiers(p: Problem) -> dict[str, Any]:
    return {"sm_scale": p.scale, "window_left": left_of(p), "logits_soft_cap": p.softcap or 0.0}


def _form(case: Case) -> Form:
    from flashverify.numerics.form import Form

    return Form(dot=case.precision, lse_base="2", n_splits=_SPLITS, max_source="apart", softcap="approx")
