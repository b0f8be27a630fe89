"""Merges in steps, as ring attention makes them: a running O and LSE take in the partial result of one block of keys after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, accepts, declare
from flashverify.adapters.merges import evenly
from flashverify.adapters.partials import handed_over, partial_results

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["ring_merge"]

_BLOCKS = ("blocks", (1, 2, 3, 4))


def ring_merge(
    kernel: Callable[..., Any],
    *,
    zigzag: bool = False,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(out, lse, block_out, block_lse)` that returns (out, lse), as `update_out_and_lse` of ring attention is.

    `block_out` is `[B, S, H, D]` in the input dtype, `block_lse` `[B, H, S]` fp32, natural. The first call has None for `out` and `lse`. The last
    `out` may be in fp32, and its LSE `[B, S, H, 1]` or `[B, H, S]`. The launch parameter `blocks` is the number of blocks of keys.

    Args:
        kernel: one step.
        zigzag: blocks come in the order first, last, second, last but one, and so on. Of a block of which the first half of the rows sees
            nothing, the second half alone is given, with `slice_=(slice(None), slice(half, None))`, where the callable takes it.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default that of as many merges in fp32 as there are steps.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """
    sliced = zigzag and accepts(kernel, "slice_")

    def call(p: Problem) -> Any:
        import torch

        out, lse = None, None
        for o_part, lse_part in _in_order(partial_results(p, evenly(p, _count(p.case))), zigzag=zigzag):
            block = handed_over("block_out", o_part.transpose(1, 2), p.q.dtype, kept=False)
            block_lse = handed_over("block_lse", lse_part, torch.float32, kept=False)
            half = p.case.seq_q // 2
            if sliced and out is not None and half and bool(lse_part[:, :, :half].isneginf().all()):
                rows = (slice(None), slice(half, None))
                out, lse = kernel(out, lse, block[:, half:], block_lse[:, :, half:], slice_=rows)
            else:
                out, lse = kernel(out, lse, block, block_lse)
        assert out is not None
        assert lse is not None
        if lse.dim() == 4:
            return p.outputs(out.to(p.q.dtype), lse.squeeze(-1), "bshd", "bsh")
        return p.outputs(out.to(p.q.dtype), lse, "bshd")

    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            "masks": ("causal", "key_lengths"),
            "causal": ("bottom-right",),
            "dtypes": ("fp16", "bf16", "fp32"),
            "non_finite": False,
            "layouts": ("bhsd",),
            "contiguous": True,
            "backward": False,
            "launch": (_BLOCKS,),
            "even_launches": False,
            "compiles": False,
            "also": _refusal,
        },
        contract={},
        form=_form,
    )


def _in_order(
    parts: list[tuple[torch.Tensor, torch.Tensor]], *, zigzag: bool
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if not zigzag:
        return parts
    return [parts[n // 2] if n % 2 == 0 else parts[-1 - n // 2] for n in range(len(parts))]


def _form(case: Case) -> Form:
    """Each step rounds the running LSE, takes an exponential and a logarithm of it, and rounds the running O.

    The roundings of the LSE are `u |L|` each, at most `u (|S| + (m - S) + log n)` for a key with logit S: they are in kappa and gap_c, the
    constants of a step in `exp_eps`, the roundings of O in `normalise`.
    """
    from flashverify.numerics.form import Form

    steps = _count(case) - 1
    return Form(
        n_splits=_count(case),
        partial_dtype=case.dtype,
        partial_lse_base="e",
        kappa=8.0 * steps,
        gap_c=3.0 + 8.0 * steps,
        exp_eps=5.0 + 64.0 * steps,
        normalise="every_block",
        architecture="ieee",
    )


def _count(case: Case) -> int:
    return dict(case.launch).get("blocks", 2)


def _refusal(case: Case) -> str | None:
    """Why a case is left out, or None."""
    if any(abs(edit.value) >= 1e30 for edit in case.values.edits) or abs(case.softmax_scale) >= 1e30:
        return "an element of 1e30 or more: the LSE of a partial may leave fp32"
    return None
