from typing import Any

import torch
from torch.autograd.function import once_differentiable

from flashverify_kernels.dispatch import dispatched, ops
from flashverify_kernels.flatten import flatten
from flashverify_kernels.launch import backward, forward
from flashverify_kernels.options import Options
from flashverify_kernels.plain import NotPlainError
from flashverify_kernels.relative import RelativeBias
from flashverify_kernels.validation import check_call


class _Attention(torch.autograd.Function):
    """Saves and unpacks; the launchers compute. O in the layout of q, and the natural LSE."""

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
    ) -> tuple[torch.Tensor, torch.Tensor]:
        result = forward(
            q, k, v, options
        )  # which holds the bias, the sinks and the table; autograd sees them as inputs
        ctx.save_for_backward(q, k, v, *result, *options.tables())  # the tables are saved so that a change is noticed
        ctx.options = options
        ctx.set_materialize_grads(False)
        return result.o, result.lse_natural()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        q, k, v, o, lse2, *_ = ctx.saved_tensors
        if do is None and dlse is None:
            return (None,) * 7
        do = torch.zeros_like(o) if do is None else do
        result = backward(do, q, k, v, o, lse2, ctx.options, dlse=dlse, needs=ctx.needs_input_grad[:6])
        return result.dq, result.dk, result.dv, result.dbias, result.dsink, result.drelative_bias, None


def differentiable(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """O and the natural LSE, both differentiable in q, k, v, the bias, the sinks and the relative bias."""
    if dispatched(q, k, v):
        return _operator(q, k, v, options)
    relative = options.relative_bias
    table = relative.table if isinstance(relative, RelativeBias) else None
    o, lse = _Attention.apply(q, k, v, options.bias, options.sink, table, options)  # type: ignore[no-untyped-call]
    return o, lse


def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    """The same through the dispatcher."""
    try:
        values = flatten(options)
    except NotPlainError:
        check_call(q, k, v, options)
        raise
    o, lse, _ = ops.attention_forward(q, k, v, *values)
    return o, lse
