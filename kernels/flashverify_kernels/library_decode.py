"""Decoding and merging as operators of PyTorch: opaque to compilers, with shapes for them; merging with autograd."""

from collections.abc import Sequence
from typing import Any

import torch

from flashverify_kernels.decode import decode_forward
from flashverify_kernels.decode_validation import check_decode
from flashverify_kernels.dispatch import NAMESPACE, symbolic
from flashverify_kernels.flatten import DECODE_SCHEMA, parameter, unflatten_decode
from flashverify_kernels.library import attention_outputs
from flashverify_kernels.merge import check_merge, dense_rows, launch_merge_backward, merge_forward


@torch.library.custom_op(
    f"{NAMESPACE}::decode",
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {DECODE_SCHEMA}) -> (Tensor, Tensor)",
)
def _decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *values: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """O and the natural LSE; without a backward."""
    return decode_forward(q, k, v, unflatten_decode(values))


@_decode.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *values: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if not symbolic(q, k, v, *values):
        check_decode(q, k, v, unflatten_decode(values))
    return attention_outputs(q, v, values[parameter(DECODE_SCHEMA, "layout")])


@torch.library.custom_op(
    f"{NAMESPACE}::merge",
    mutates_args=(),
    schema="(Tensor o, Tensor lse, bool allow_interpreted_bf16) -> (Tensor, Tensor)",
)
def _merge(o: torch.Tensor, lse: torch.Tensor, allow_interpreted_bf16: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The merged O and its natural LSE."""
    check_merge(o, lse, allow_interpreted_bf16)
    return merge_forward(o, lse)


@_merge.register_fake
def _(o: torch.Tensor, lse: torch.Tensor, allow_interpreted_bf16: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if not symbolic(o, lse):
        check_merge(o, lse, allow_interpreted_bf16)
    return o.new_empty(o.shape[1:]), lse.new_empty(lse.shape[1:])


@torch.library.custom_op(
    f"{NAMESPACE}::merge_backward",
    mutates_args=(),
    schema="(Tensor? do, Tensor? dlse, Tensor o, Tensor lse, bool[] needs) -> Tensor[]",
)
def _merge_backward(
    do: torch.Tensor | None, dlse: torch.Tensor | None, o: torch.Tensor, lse: torch.Tensor, needs: Sequence[bool]
) -> list[torch.Tensor]:
    """Those of the gradients of O and LSE that are needed."""
    d_o, d_lse = needs
    found = launch_merge_backward(do, dlse, dense_rows(o), lse.contiguous(), needs=(d_o, d_lse))
    return [x for x in found if x is not None]


@_merge_backward.register_fake
def _(
    _do: torch.Tensor | None, _dlse: torch.Tensor | None, o: torch.Tensor, lse: torch.Tensor, needs: Sequence[bool]
) -> list[torch.Tensor]:
    return [x.new_empty(x.shape) for x, needed in zip((o, lse), needs, strict=True) if needed]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:  # noqa: ARG001
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:2])


def _differentiate(
    ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
    if do is None and dlse is None:
        return None, None, None
    needs = list(ctx.needs_input_grad[:2])
    found = iter(_merge_backward(do, dlse, *ctx.saved_tensors, needs))
    d_o, d_lse = (next(found) if needed else None for needed in needs)
    return d_o, d_lse, None


_merge.register_autograd(_differentiate, setup_context=_save)
