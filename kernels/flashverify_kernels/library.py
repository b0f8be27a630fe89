"""Attention as operators of PyTorch: opaque to compilers, with shapes for them and with autograd.

`attention_forward` and `attention_backward` take what `flatten` makes of options; `autograd` calls them.

Where all sizes are known, the shapes are computed after every check of the arguments that needs no values; those that do, and
all checks of sizes that are not known yet, are left to the launch.
"""

from collections.abc import Sequence
from typing import Any

import torch

from flashverify_kernels.dispatch import NAMESPACE, symbolic
from flashverify_kernels.flatten import (
    ATTENTION_SCHEMA,
    ATTENTION_TENSORS,
    parameter,
    unflatten,
)
from flashverify_kernels.launch import backward, forward
from flashverify_kernels.options import Layout
from flashverify_kernels.validation import axes, check_call

_DIFFERENTIABLE = 6  # q, k, v, the bias, the sinks and the table of a relative bias


@torch.library.custom_op(
    f"{NAMESPACE}::attention_forward",
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {ATTENTION_SCHEMA}) -> (Tensor, Tensor, Tensor)",
)
def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *values: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """O, the natural LSE, and the base-2 LSE, which is for the backward and not differentiable."""
    result = forward(q, k, v, unflatten(values))
    return result.o, result.lse_natural(), result.lse2


@_attention.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *values: Any) -> tuple[torch.Tensor, ...]:
    if not symbolic(q, k, v, *values):
        check_call(q, k, v, unflatten(values))
    o, lse = attention_outputs(q, v, values[parameter(ATTENTION_SCHEMA, "layout")])
    return o, lse, torch.empty_like(lse)


@torch.library.custom_op(
    f"{NAMESPACE}::attention_backward",
    mutates_args=(),
    schema="(Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse2, bool[] needs, "
    f"{ATTENTION_SCHEMA}) -> Tensor[]",
)
def _attention_backward(
    do: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse2: torch.Tensor,
    needs: Sequence[bool],
    *values: Any,
) -> list[torch.Tensor]:
    """Those of the gradients of q, k, v, the bias, the sinks and the relative bias that are needed."""
    result = backward(do, q, k, v, o, lse2, unflatten(values), dlse=dlse, needs=tuple(needs))
    found = (result.dq, result.dk, result.dv, result.dbias, result.dsink, result.drelative_bias)
    return [x for x in found if x is not None]


@_attention_backward.register_fake
def _(
    _do: torch.Tensor,
    _dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    _o: torch.Tensor,
    _lse2: torch.Tensor,
    needs: Sequence[bool],
    *values: Any,
) -> list[torch.Tensor]:
    if not symbolic(q, k, v, *values):
        check_call(q, k, v, unflatten(values))
    inputs = (q, k, v, *values[: _DIFFERENTIABLE - 3])
    return [x.new_empty(x.shape) for x, needed in zip(inputs, needs, strict=True) if needed]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    tensors = 3 + ATTENTION_TENSORS
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(output[0], output[2], *inputs[:tensors])
    ctx.rest = inputs[tensors:]


def _differentiate(
    ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None, _dlse2: None
) -> tuple[torch.Tensor | None, ...]:
    o, lse2, q, k, v, *tables = ctx.saved_tensors
    count = 3 + len(tables) + len(ctx.rest)
    if do is None and dlse is None:
        return (None,) * count
    do = torch.zeros_like(o) if do is None else do
    needs = list(ctx.needs_input_grad[:_DIFFERENTIABLE])
    found = iter(_attention_backward(do, dlse, q, k, v, o, lse2, needs, *tables, *ctx.rest))
    return (*(next(found) if needed else None for needed in needs), *(None,) * (count - _DIFFERENTIABLE))


_attention.register_autograd(_differentiate, setup_context=_save)


def attention_outputs(q: torch.Tensor, v: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE without content, from the shapes of q and v alone."""
    batch, heads, rows = (q.shape[a] for a in axes(layout)[:3])
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty((batch, heads, rows), dtype=torch.float32)
