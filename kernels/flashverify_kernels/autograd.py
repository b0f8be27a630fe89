from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from flashverify_kernels.dispatch import dispatched, ops
from flashverify_kernels.flatten import flatten
from flashverify_kernels.launch import backward, forward
from flashverify_kernels.plain import NotPlainError
from flashverify_kernels.plans import others_of, recalled
from flashverify_kernels.relative import RelativeBias
from flashverify_kernels.results import ForwardResult
from flashverify_kernels.validation import check_call

if TYPE_CHECKING:
    from collections.abc import Hashable

    from flashverify_kernels.options import Options


class _Attention(torch.autograd.Function):
    """Saves and unpacks; the launchers compute. O in the layout of q, and the natural LSE where it is asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        options: Options,
        with_lse: bool,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *_terms: torch.Tensor | None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        o, lse2 = _computed(q, k, v, options)  # which hold the terms; autograd sees them as inputs
        ctx.save_for_backward(q, k, v, o, lse2, *options.tables())  # the tables are saved so that a change is noticed
        ctx.options = options
        ctx.set_materialize_grads(False)
        return (o, ForwardResult(o, lse2).lse_natural()) if with_lse else o

    @staticmethod
    def backward(
        ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | None, ...]:
        return (_gradients_once if torch.is_grad_enabled() else _gradients)(ctx, do, dlse)


def _gradients(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """Of the inputs of `_Attention.forward`."""
    q, k, v, o, lse2, *_ = ctx.saved_tensors
    count, needs, others = _wanted(ctx.needs_input_grad)
    if do is None and dlse is None:
        return (None,) * count
    if do is not None and dlse is None:
        recent = recalled("backward", [do, q, k, v, o, lse2], ctx.options, others)
        if recent is not None:
            dq, dk, dv, _delta, *more = recent
            return (None, None, dq, dk, dv, *more)[:count]
    do = torch.zeros_like(o) if do is None else do
    result = backward(do, q, k, v, o, lse2, ctx.options, dlse=dlse, needs=needs)
    found = (None, None, result.dq, result.dk, result.dv, result.dbias, result.dsink, result.drelative_bias)
    return found[:count]


@functools.cache
def _wanted(needed: tuple[bool, ...]) -> tuple[int, tuple[bool, ...], Hashable]:
    """How many inputs there are, which gradients the backward is asked for, and that in the key of its plans."""
    needs = (*needed[2:], False, False, False)[:6]
    return len(needed), needs, others_of(needs)


def _computed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options) -> Any:
    """O and the base-2 LSE."""
    found = recalled("forward", [q, k, v], options)
    return forward(q, k, v, options) if found is None else found


_gradients_once: Any = once_differentiable(_gradients)
"""The same where somebody differentiates the gradients, which is an error."""


_recording = torch.is_grad_enabled
_transformed = torch._C._are_functorch_transforms_active
_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_apply: Any = super(torch.autograd.Function, _Attention).apply
"""What `_Attention.apply` calls when it has unwrapped its arguments, which takes the CPU 4 microseconds."""


def differentiable(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options, *, with_lse: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """O and the natural LSE, both differentiable in q, k, v, the bias, the sinks and the relative bias.

    Without `with_lse` the LSE may be None.
    """
    if dispatched(q, k, v):
        return _operator(q, k, v, options)
    relative = options.relative_bias
    terms: tuple[torch.Tensor | None, ...] = ()
    if options.bias is not None or options.sink is not None or relative is not None:
        terms = options.bias, options.sink, relative.table if isinstance(relative, RelativeBias) else None
    if _no_graph(q, k, v, *terms):  # a node of autograd takes the CPU 20 microseconds
        o, lse2 = _computed(q, k, v, options)
        return o, ForwardResult(o, lse2).lse_natural() if with_lse else None
    apply: Any = _apply if _never_wrapped(q, k, v, *terms) else _Attention.apply
    found: Any = apply(options, with_lse, q, k, v, *terms)
    return found if with_lse else (found, None)


def _no_graph(*inputs: object) -> bool:
    """Whether nobody differentiates the call, backward or forward, and no transform of functions sees it."""
    if _recording():
        for x in inputs:
            if isinstance(x, torch.Tensor) and x.requires_grad:
                return False
    return forward_ad._current_level < 0 and not _transformed()


def _never_wrapped(*inputs: object) -> bool:
    """Whether no transform of functions is at work or has left a wrapper behind."""
    for x in inputs:
        if x is not None and (not isinstance(x, torch.Tensor) or _wrapped(x)):
            return False
    return not _transformed()


def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    """The same through the dispatcher."""
    try:
        values = flatten(options)
    except NotPlainError:
        check_call(q, k, v, options)
        raise
    o, lse, _ = ops.attention_forward(q, k, v, *values)
    return o, lse
