"""Callables with the signature of xformers' `memory_efficient_attention`: masks are objects, or a tensor."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, declare, first_two

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["xformers_attention"]


def xformers_attention(
    kernel: Callable[..., Any],
    attn_bias: Any = None,
    *,
    lse: bool = False,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q, k, v, attn_bias=, scale=)` on `[B, S, H, D]`, as `memory_efficient_attention` is; gradients by autograd.

    Causal of both alignments and packed sequences are the objects `LowerTriangularMask`, `LowerTriangularFromBottomRightMask`,
    `BlockDiagonalMask`, `BlockDiagonalCausalMask` and `BlockDiagonalCausalFromBottomRightMask`. A bias is a tensor, and a mask beside
    it is -inf in it. Fewer kv heads are given as `[B, S, G, H, D]`, with a stride of 0.

    Args:
        kernel: the function. `memory_efficient_attention_forward_requires_grad` returns the LSE too: `lse=True, backward=False`.
        attn_bias: what has these classes, such as `xformers.ops.fmha.attn_bias`; None imports that module when a case needs it.
        lse: the kernel returns O and the natural LSE `[B, H, S]`.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; the widest one by default, with dS scaled before its cast.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        x, grouped = p.bshd(), p.case.heads_q != p.case.heads_kv
        rows, keys = _extents(p)
        given = [t[:, :n] for t, n in ((x.q, rows), (x.k, keys), (x.v, keys))]
        if grouped:
            group = p.case.heads_q // p.case.heads_kv
            given = [
                _split(given[0], 2, group),
                *(t.unsqueeze(3).expand(-1, -1, -1, group, -1) for t in given[1:]),
            ]
        o, found = first_two(kernel(*given, attn_bias=_bias(p, attn_bias, grouped=grouped), scale=p.scale))
        o = _to(o.flatten(2, 3) if grouped else o, 1, p.case.seq_q, 0.0)
        if not lse:
            return p.outputs(o, None, "bshd")
        found = found.flatten(1, 2) if found.dim() == 4 else found
        return p.outputs(o, _to(found[..., :rows], 2, p.case.seq_q, float("-inf")), "bshd")

    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            "masks": ("causal", "packed"),
            "logits": ("bias",),
            "unaligned": False,
            "also": _refusal,
        },
        contract={"lse_base": "e" if lse else None},
        form=_form,
    )


def _bias(p: Problem, classes: Any, *, grouped: bool) -> Any:
    """The object, the tensor, or None."""
    packed, causal = p.case.mask.packed, p.causal
    if p.bias is not None:
        import torch

        see = p.dense_mask()
        full = p.bias if see is None else torch.where(see, p.bias, float("-inf"))
        full = full.expand(p.case.batch, p.case.heads_q, -1, -1)
        return _split(full, 1, p.case.heads_q // p.case.heads_kv) if grouped else full
    if packed is None and causal is None:
        return None
    if classes is None:
        from importlib import import_module

        classes = import_module("xformers.ops.fmha.attn_bias")
    if packed is None:
        return classes.LowerTriangularMask() if causal == "top-left" else classes.LowerTriangularFromBottomRightMask()
    lengths = ([b - a for a, b in pairwise(cu)] for cu in (packed.cu_q, packed.cu_k))
    whole = classes.BlockDiagonalMask.from_seqlens(*lengths)
    if causal is None:
        return whole
    return whole.make_causal() if causal == "top-left" else whole.make_causal_from_bottomright()


def _split(x: torch.Tensor, axis: int, group: int) -> torch.Tensor:
    """The axis of query heads as two: groups, and the heads of each."""
    return x.reshape(*x.shape[:axis], x.shape[axis] // group, group, *x.shape[axis + 1 :])


def _extents(p: Problem) -> tuple[int, int]:
    """Rows and keys of all sequences: the masks cover these alone."""
    packed = p.case.mask.packed
    return (p.case.seq_q, p.case.seq_k) if packed is None else (packed.cu_q[-1], packed.cu_k[-1])


def _to(x: torch.Tensor, axis: int, size: int, value: float) -> torch.Tensor:
    """With `value` behind, up to `size` along an axis."""
    import torch

    missing = size - x.shape[axis]
    return torch.nn.functional.pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, missing), value=value) if missing else x


def _refusal(case: Case) -> str | None:
    """Why a case is left out, or None."""
    packed = case.mask.packed
    if packed is None:
        if case.mask.causal is not None and case.logits.bias is None and case.seq_q > case.seq_k:
            return "causal with more rows than keys"
        return None
    if case.logits.bias is not None:
        return "a bias with packed sequences: both are the one argument attn_bias"
    lengths = [[b - a for a, b in pairwise(cu)] for cu in (packed.cu_q, packed.cu_k)]
    if 0 in lengths[0] or 0 in lengths[1]:
        return "an empty packed sequence: from_seqlens takes none"
    if case.mask.causal == "bottom-right" and any(q > k for q, k in zip(*lengths, strict=True)):
        return "bottom-right causal with more rows than keys in a sequence: the mask refuses it"
    return None


def _form(case: Case) -> Form:
    from flashverify.numerics.form import Form

    partial = "fp32" if case.heads_q == case.heads_kv else "input"
    return Form(dot=case.precision, max_source="apart", scale_ds="before", ds_from="p_rounded", gqa_partial=partial)
