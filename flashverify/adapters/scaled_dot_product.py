"""torch's `scaled_dot_product_attention` as users call it: any backend, grouped heads, masks as tensors; no LSE."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, declare
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["sdpa"]

_BACKENDS = {
    "auto": None,
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
_MASKS = (None, "bool", "float")
_PARTS = ("causal", "window", "prefix_lengths", "bitmap", "blocks", "tree")
_ALIGNED: dict[str, Any] = {"unaligned": False, "expand": False}
_ON_GPU: dict[str, dict[str, Any]] = {
    "math": {},
    "flash": {"dtypes": ("fp16", "bf16"), "equal_dims": True, "rectangular_causal": False, **_ALIGNED},
    "efficient": {"gqa": False, "dim_max": 128, **_ALIGNED},
    "cudnn": {
        "dtypes": ("fp16", "bf16"),
        "dim_max": 128,
        "equal_dims": True,
        "rectangular_causal": False,
        "gaps": False,
        **_ALIGNED,
    },
}
"""What each backend takes on a GPU, beside what masks take from it."""
_HUGE = 1e30


def sdpa(
    backend: str = "auto",
    *,
    attn_mask: str | None = None,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject that calls `torch.nn.functional.scaled_dot_product_attention`; gradients by autograd.

    Without a mask, `is_causal` is given, which torch aligns top-left. With one, causal of both alignments, windows, prefixes, trees and
    patterns are in the tensor, and `is_causal` is not given. Declared lengths are no part of it: a weight of 0 does not keep a NaN out.

    Args:
        backend: `math`, `flash`, `efficient` or `cudnn`, each alone; `auto` lets torch choose.
        attn_mask: `bool` gives each mask as a bool tensor, `float` as -inf in the dtype of q, with the bias of the case added; None
            gives no tensor.
        name: in reports; `sdpa-<backend>[-<mask>]` by default.
        device: `auto`, `cpu` or `cuda`. `efficient` and `cudnn` are a GPU's.
        form: the numerical form; that of the backend by default.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: the backend or the kind of mask is unknown, or the backend takes no mask.
    """
    import torch

    if backend not in _BACKENDS:
        raise UsageError(f"backend={backend!r} is not accepted: one of {', '.join(_BACKENDS)}")
    if attn_mask not in _MASKS:
        raise UsageError(f"attn_mask={attn_mask!r} is not accepted: one of {', '.join(map(repr, _MASKS))}")
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if attn_mask is not None and backend == "flash" and where == "cuda":
        raise UsageError(f"attn_mask={attn_mask!r} is not accepted: the flash backend takes no mask on a GPU")
    if backend in ("efficient", "cudnn") and where == "cpu":
        raise UsageError(f"backend={backend!r} is not accepted on the CPU: one of auto, flash, math")
    masks = {"masks": ("causal",), "causal": ("top-left",)} if attn_mask is None else {"masks": _PARTS}
    logits = {"logits": ("bias",)} if attn_mask == "float" else {}
    taken = _ON_GPU.get(backend, {"equal_dims": True}) if where == "cuda" else {"equal_dims": True}
    given = {
        "compiles": False,
        "entry_trees": True,
        "window_alignments": ("top-left", "bottom-right"),
        **masks,
        **logits,
        **taken,
    }
    given["also"] = lambda case: _refusal(case, backend, where, added=attn_mask is not None)
    changes = Changes(
        name=name or "-".join(filter(None, ("sdpa", backend, attn_mask))),
        device=device,
        form=form,
        contract=contract,
        supports=supports,
    )
    return declare(
        lambda p: _call(p, _BACKENDS[backend], attn_mask),
        torch.nn.functional.scaled_dot_product_attention,
        changes,
        supports=given,
        contract={"lse_base": None},
        form=lambda case: _form(case, backend, where),
    )


def _call(p: Problem, backend: str | None, attn_mask: str | None) -> torch.Tensor:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    given: dict[str, Any] = {"scale": p.scale, "enable_gqa": p.case.heads_q != p.case.heads_kv}
    if attn_mask is None:
        given["is_causal"] = p.causal is not None
    else:
        given["attn_mask"] = _mask(p, attn_mask)
    chosen = contextlib.nullcontext() if backend is None else sdpa_kernel([getattr(SDPBackend, backend)])
    with chosen:
        return torch.nn.functional.scaled_dot_product_attention(p.q, p.k, p.v, **given)


def _mask(p: Problem, kind: str) -> torch.Tensor | None:
    """Every part of the mask as one tensor; of kind `float` with the bias."""
    import torch

    see = p.dense_mask()
    if kind == "bool" or (see is None and p.bias is None):
        return see
    bias = p.q.new_zeros(()) if p.bias is None else p.bias
    return bias if see is None else torch.where(see, bias, float("-inf"))


def _form(case: Case, backend: str, where: str) -> Form:
    from flashverify.adapters import torch_cpu, torch_cuda
    from flashverify.numerics.form import Form

    if backend == "math":
        # q and k are multiplied by the root of the scale in fp32 each, 16-bit inputs too.
        prescaled = {"prescale_fwd": "q", "prescale_bwd": "q", "grad_uses_prescaled": True}
        return Form(exp="exp", dot=case.precision, **(prescaled if case.dtype == "fp32" else {}))  # type: ignore[arg-type]
    if where == "cpu":
        return torch_cpu.TORCH_CPU.form(case)
    of = {"flash": torch_cuda.SDPA_FLASH, "efficient": torch_cuda.SDPA_EFFICIENT, "cudnn": torch_cuda.SDPA_CUDNN}
    if backend in of:
        return of[backend].form(case)
    return Form(dot=case.precision, max_source="apart", scale_ds="before", ds_from="p_rounded", gqa_partial="input")


def _refusal(case: Case, backend: str, where: str, *, added: bool) -> str | None:
    """Why a case is left out, or None.

    Args:
        case: the case.
        backend: of torch.
        where: `cpu` or `cuda`.
        added: whether torch adds the mask, as -inf, to the logits.
    """
    from flashverify.adapters.torch_cpu import TORCH_CPU

    added = (added and bool(case.mask.parts())) or (backend == "math" and case.mask.causal is not None)
    if added and any(abs(edit.value) >= _HUGE for edit in case.values.edits):
        return "an element of 1e30 or more: the mask is added, and inf - inf is NaN where the logit of a hidden key overflows"
    also = TORCH_CPU.supports.also if where == "cpu" and backend != "math" else None
    return None if also is None else also(case)
