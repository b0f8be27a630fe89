"""Callables with the signature of Triton's tutorial 06, fused attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, declare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["triton_tutorial"]


def triton_tutorial(
    kernel: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject of `kernel(q, k, v, causal, sm_scale)` on `[B, H, S, D]` that returns O alone, as `attention` of the tutorial is.

    Declared as the tutorial says it: fp16, as many keys as rows, in multiples of 128, a head dim that is a power of two from 16 on, contiguous
    tensors, positive scales. A kernel that takes more says so: `seq_multiple=1`, `square=False`, `dtypes=("fp16", "bf16")`.

    Args:
        kernel: the function; gradients by autograd.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; that of the tutorial by default.
        contract: fields of `Contract` to replace.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: a field is not accepted.
    """

    def call(p: Problem) -> Any:
        return kernel(p.q, p.k, p.v, p.causal is not None, p.scale)

    return declare(
        call,
        kernel,
        Changes(name=name, device=device, form=form, contract=contract, supports=supports),
        supports={
            "dtypes": ("fp16",),
            "masks": ("causal",),
            "causal": ("top-left",),
            "square": True,
            "seq_multiple": 128,
            "gqa": False,
            "equal_dims": True,
            "dim_multiple": 16,
            "layouts": ("bhsd",),
            "contiguous": True,
            "unaligned": False,
            "also": _refusal,
        },
        contract={"lse_base": None},
        form=_form,
    )


def _form(case: Case) -> Form:
    """The maximum times the scale is rounded apart; the backward multiplies K by the scale in the input dtype, and uses it for dQ."""
    from flashverify.numerics.form import Form

    return Form(dot=case.precision, max_source="apart", prescale_bwd="k", grad_uses_prescaled=True)


def _refusal(case: Case) -> str | None:
    dim = case.dim_qk
    return f"dim_qk={dim}: the kernel takes powers of two" if dim & (dim - 1) else None
