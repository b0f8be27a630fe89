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
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        _bias: torch.Tensor | None,
        _sink: torch.Tensor | None,
        _table: torch.Tensor | None,
        options: Options,
        with_lse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        result = forward(
            q, k, v, options
        )  # which holds the bias, the sinks and the table; autograd sees them as inputs
        ctx.save_for_backward(q, k, v, *result, *options.tables())  # the tables are saved so that a change is noticed
        ctx.options = options
        ctx.set_materialize_grads(False)
        return result.o, result.lse_natural() if with_lse else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        q, k, v, o, lse2, *_ = ctx.saved_tensors
        if do is None and dlse is None:
            return (None,) * 8
        do = torch.zeros_like(o) if do is None else do
        result = backward(do, q, k, v, o, lse2, ctx.options, dlse=dlse, needs=ctx.needs_input_grad[:6])
        return result.dq, result.dk, result.dv, result.dbias, result.dsink, result.drelative_bias, None, None


def differentiable(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options, *, with_lse: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """O and the natural LSE, both differentiable in q, k, v, the bias, the sinks and the relative bias.

    Without `with_lse` the LSE may be None.
    """
    if dispatched(q, k, v):
        return _operator(q, k, v, options)
    relative = options.relative_bias
    inputs = (q, k, v, options.bias, options.sink, relative.table if isinstance(relative, RelativeBias) else None)
    if _no_graph(inputs):  # a node of autograd takes the CPU 20 microseconds
        result = forward(q, k, v, options)
        return result.o, result.lse_natural() if with_lse else None
    o, lse = _Attention.apply(*inputs, options, with_lse)  # type: ignore[no-untyped-call]
    return o, lse


def _no_graph(inputs: tuple[object, ...]) -> bool:
    """Whether nobody differentiates the call, backward or forward, and no transform of functions sees it."""
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return False
    return forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active()


def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    """The same through the dispatcher."""
    try:
        values = flatten(options)
    except NotPlainError:
        check_call(q, k, v, options)
        raise
    o, lse, _ = ops.attention_forward(q, k, v, *values)
    return o, lse
