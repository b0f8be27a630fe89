from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from flashverify_kernels.dispatch import dispatched, ops
from flashverify_kernels.flatten import flatten
from flashverify_kernels.launch import backward, forward
from flashverify_kernels.options import Options
from flashverify_kernels.plain import NotPlainError
from flashverify_kernels.relative import RelativeBias
from flashverify_kernels.validation import check_call


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
        result = forward(q, k, v, options)  # which holds the terms; autograd sees them as inputs
        ctx.save_for_backward(q, k, v, *result, *options.tables())  # the tables are saved so that a change is noticed
        ctx.options = options
        ctx.set_materialize_grads(False)
        return (result.o, result.lse_natural()) if with_lse else result.o

    @staticmethod
    def backward(
        ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | None, ...]:
        return (_gradients_once if torch.is_grad_enabled() else _gradients)(ctx, do, dlse)


def _gradients(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """Of the inputs of `_Attention.forward`."""
    q, k, v, o, lse2, *_ = ctx.saved_tensors
    needs = ctx.needs_input_grad[2:]
    if do is None and dlse is None:
        return (None,) * (2 + len(needs))
    do = torch.zeros_like(o) if do is None else do
    result = backward(do, q, k, v, o, lse2, ctx.options, dlse=dlse, needs=(*needs, False, False, False)[:6])
    found = (None, None, result.dq, result.dk, result.dv, result.dbias, result.dsink, result.drelative_bias)
    return found[: 2 + len(needs)]


_gradients_once: Any = once_differentiable(_gradients)
"""The same where somebody differentiates the gradients, which is an error."""


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
        result = forward(q, k, v, options)
        return result.o, result.lse_natural() if with_lse else None
    apply: Any = _apply if _never_wrapped(q, k, v, *terms) else _Attention.apply
    found: Any = apply(options, with_lse, q, k, v, *terms)
    return found if with_lse else (found, None)


def _no_graph(*inputs: object) -> bool:
    """Whether nobody differentiates the call, backward or forward, and no transform of functions sees it."""
    if torch.is_grad_enabled():
        for x in inputs:
            if isinstance(x, torch.Tensor) and x.requires_grad:
                return False
    return forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active()


def _never_wrapped(*inputs: object) -> bool:
    """Whether no transform of functions is at work or has left a wrapper behind."""
    for x in inputs:
        if not (x is None or (isinstance(x, torch.Tensor) and not torch._C._functorch.is_functorch_wrapped_tensor(x))):
            return False
    return not torch._C._are_functorch_transforms_active()


def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    """The same through the dispatcher."""
    try:
        values = flatten(options)
    except NotPlainError:
        check_call(q, k, v, options)
        raise
    o, lse, _ = ops.attention_forward(q, k, v, *values)
    return o, lse
