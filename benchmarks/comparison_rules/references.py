"""What the rules compare with: attention written out in a given precision, as the suites that are compared write it.

- `fp32`, `low`: `attention_ref` of FlashAttention (tests/test_flash_attn.py) with `upcast=True`, and with `upcast=False,
  reorder_ops=True`, where every operation is rounded to the dtype of the inputs and the scale is multiplied into k.
- `eager`, `golden`: the eager path of FlexAttention (torch/_higher_order_ops/flex_attention.py, `math_attention` and
  `sdpa_dense_backward`) in the dtype of the inputs, with fp32 scores and softmax, and in float64.

Masks, biases, softcap, sinks and dropout come from the case itself, so every suite is given a right reference for options
that it does not have. Products of 16-bit operands are accumulated in fp32 and rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from flashverify.formats import FORMATS
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

__all__ = ["DTYPES", "Outputs", "References"]

Outputs = dict[str, torch.Tensor]
"""o, lse and, with a backward, dq, dk, dv and where there are any dbias and dsink."""

DTYPES = {name: entry.dtype for name, entry in FORMATS.items() if entry.of_kernels}


class References:
    """The references of one problem; each is computed when it is first asked for.

    Args:
        problem: the problem, on the CPU.
        cached: whether the kernel is one for decoding from a cache, for which FlashAttention has another rule.
    """

    def __init__(self, problem: Problem, *, cached: bool = False) -> None:
        case = problem.case
        self.dtype = case.dtype
        self.cached = cached
        self.softcap = case.logits.softcap is not None
        self.alibi = case.logits.alibi
        self._dense = _Dense.of(problem)

    @cached_property
    def fp32(self) -> Outputs:
        """In fp32, rounded to the dtype of the inputs; LSE fp32."""
        return _run(self._dense, DTYPES[self.dtype], _flash_steps(torch.float32, reorder=False))

    @cached_property
    def low(self) -> Outputs:
        """In the dtype of the inputs."""
        dtype = DTYPES[self.dtype]
        return _run(self._dense, dtype, _flash_steps(dtype, reorder=True))

    @cached_property
    def eager(self) -> Outputs:
        """In the dtype of the inputs, with the scores in fp32."""
        return _run(self._dense, DTYPES[self.dtype], _FLEX)

    @cached_property
    def golden(self) -> Outputs:
        """In float64."""
        return _run(self._dense, torch.float64, _FLEX)


@dataclass(frozen=True, slots=True)
class _Dense:
    """The problem in float64, NaN and infinities included, padding as zeros."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor | None
    dlse: torch.Tensor | None
    scale: float
    visible: torch.Tensor
    softcap: float | None
    distances: tuple[torch.Tensor, ...]
    bias: torch.Tensor | None
    sink: torch.Tensor | None
    keep: torch.Tensor | None
    dropout: float

    @classmethod
    def of(cls, problem: Problem) -> _Dense:
        case = problem.case
        inputs = inputs_of(problem)[0].dense()
        shape = (case.batch, case.heads_q, case.seq_q, case.seq_k)
        biases = [_pairs(bias, shape) for bias in inputs.biases]
        visible = torch.ones(shape, dtype=torch.bool) if inputs.visible is None else _pairs(inputs.visible, shape)
        return cls(
            q=_inside(problem.q, case.rows_inside),
            k=_inside(problem.k, case.keys_inside),
            v=_inside(problem.v, case.keys_inside),
            do=None if problem.do is None else _inside(problem.do, case.rows_inside),
            dlse=None if problem.dlse is None else _inside(problem.dlse, case.rows_inside),
            scale=inputs.scale,
            visible=visible.expand(shape),
            softcap=inputs.softcap,
            distances=tuple(biases[problem.bias is not None :]),
            bias=biases[0] if problem.bias is not None else None,
            sink=None if inputs.sink is None else inputs.sink.double(),
            keep=None if inputs.keep is None else _pairs(inputs.keep, shape),
            dropout=inputs.dropout,
        )


def _pairs(value: Any, shape: tuple[int, ...]) -> torch.Tensor:
    found: torch.Tensor = value(slice(0, shape[2]), slice(0, shape[3])) if callable(value) else value
    return found


def _inside(tensor: torch.Tensor, lengths: tuple[int, ...] | None) -> torch.Tensor:
    """In float64, zeros from the declared lengths on (axis 2)."""
    wide = tensor.double()
    if lengths is None:
        return wide
    limit = torch.tensor(lengths).view(-1, *[1] * (wide.dim() - 1))
    return wide.where(torch.arange(wide.shape[2]).view(-1, *[1] * (wide.dim() - 3)) < limit, 0.0)


class _Round(torch.autograd.Function):
    """Rounds values to one dtype and gradients to another, and keeps the dtype of the tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, values: torch.dtype, gradients: torch.dtype) -> torch.Tensor:
        ctx.gradients = gradients
        return x.to(values).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (grad,) = grads
        return grad.to(ctx.gradients).to(grad.dtype), None, None


@dataclass(frozen=True, slots=True)
class _Steps:
    """How attention is computed.

    Attributes:
        inside: precision of scores and softmax; None: float64 of float64 inputs, fp32 of all others.
        products: what the two products and the weights are rounded to; None: the dtype of the inputs.
        scale: whether the scale goes to `q`, to `k` or to the `scores`.
    """

    inside: torch.dtype | None
    products: torch.dtype | None
    scale: str


def _flash_steps(inside: torch.dtype, *, reorder: bool) -> _Steps:
    return _Steps(inside=inside, products=inside, scale="k" if reorder else "q")


_FLEX = _Steps(inside=None, products=None, scale="scores")


def _run(p: _Dense, dtype: torch.dtype, steps: _Steps) -> Outputs:
    """Outputs in `dtype`, the LSE in the precision of the scores."""
    carrier = torch.float64 if dtype == torch.float64 else torch.float32
    inside, products = steps.inside or carrier, steps.products or dtype
    step = inside if inside.itemsize == 2 else carrier

    def leaf(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        return x.to(kind).to(carrier).requires_grad_()

    def rounded(x: torch.Tensor, values: torch.dtype, gradients: torch.dtype) -> torch.Tensor:
        return _Round.apply(x, values, gradients)  # type: ignore[no-any-return, no-untyped-call]

    q, k, v = leaf(p.q, dtype), leaf(p.k, dtype), leaf(p.v, dtype)
    bias = None if p.bias is None else leaf(p.bias, dtype)
    sink = None if p.sink is None else leaf(p.sink, carrier)
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = (rounded(x.repeat_interleave(group, 1), products, products) for x in (k, v))
    wide_q = q
    if steps.scale == "q":
        wide_q = rounded(q * p.scale, step, step)
    elif steps.scale == "k":
        wide_k = rounded(wide_k * p.scale, step, step)
    scores = rounded(wide_q @ wide_k.transpose(2, 3), products, products)
    if steps.scale == "scores":
        scores = scores * p.scale
    if p.softcap is not None:
        scores = rounded(torch.tanh(rounded(scores / p.softcap, step, step)), step, step) * p.softcap
    for added in (*((bias,) if bias is not None else ()), *(x.to(carrier) for x in p.distances)):
        scores = scores + added
    scores = scores.masked_fill(~p.visible, -math.inf)
    empty = ~p.visible.any(-1, keepdim=True)
    columns = scores if sink is None else torch.cat([scores, sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    weights = torch.softmax(columns.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)[..., : scores.shape[3]]
    weights = rounded(weights, products, inside)
    lse = torch.logsumexp(columns.masked_fill(empty, 0.0), -1).masked_fill(empty[..., 0], -math.inf)
    if p.keep is not None:
        weights = weights.masked_fill(~p.keep, 0.0)
        wide_v = rounded(wide_v * (1.0 / (1.0 - p.dropout)), step, step)
    o = rounded(weights @ wide_v, products, carrier)
    found = {"o": o.detach().to(dtype), "lse": lse.detach()}
    if p.do is None:
        return found
    total = (o * p.do.to(dtype).to(carrier)).sum()
    if p.dlse is not None:
        total = total + (lse.masked_fill(empty[..., 0], 0.0) * p.dlse.to(carrier)).sum()
    leaves = {"dq": (q, dtype), "dk": (k, dtype), "dv": (v, dtype)}
    leaves |= {"dbias": (bias, dtype)} if bias is not None else {}
    leaves |= {"dsink": (sink, carrier)} if sink is not None else {}
    gradients = torch.autograd.grad(total, [x for x, _ in leaves.values()])
    return found | {name: g.to(kind) for (name, (_, kind)), g in zip(leaves.items(), gradients, strict=True)}
