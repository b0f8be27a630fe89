"""The backward of a problem in float64, step by step, so that a hypothesis can exchange one step; bounds follow from the declared ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.checks.passes.logits import logits, products
from flashverify.formats import FORMATS
from flashverify.outputs import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.expected import Expected
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = ["Change", "Steps", "changed", "gradients_of", "steps_of"]

_OF_DS = ("slope", "p", "dp", "delta", "dlse", "ds")
_VANISHING = 2.0**-20
"""Share of the largest sum of magnitudes below which a declared distance is one of the format, not of the weights."""
_LARGEST = 2.0**100
"""A sum of magnitudes from which on a step before it may overflow in fp32."""
Change = Any
"""A function of `Steps` that gives other ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """What the gradients are made of, float64. Heads of keys stand for each query head: B, Hq, rows, keys.

    Attributes:
        q, k, v, do, o: `[B, Hq, Sq or Sk, D or Dv]`; o is what delta is summed from, 0 in rows that see no key.
        lse: natural, `[B, Hq, Sq]`, 0 in rows that see no key.
        some: bool `[B, Hq, Sq]`, rows that see a key.
        x: scaled products `[B, Hq, Sq, Sk]`; z the logits, -inf at invisible pairs.
        p: weights of dS; p_dv those of dV, without dropout.
        kept: what dropout multiplies by, 0 or 1 / (1 - p), or ones.
        dp: dO V^T times `kept`; dp_size the same of magnitudes.
        delta, dlse: `[B, Hq, Sq]`; delta_size is the sum of magnitudes.
        slope: derivative of the softcap, or ones.
        ds: in place of p (dp - delta + dlse); None for that.
        dbias_ds: of which the gradients of biases are made; None for that dS.
        dq_keys, dk_rows, dv_rows: what dS, dS^T and P^T are multiplied by; None for k, q and do.
        scale: of dQ and dK.
        kv_head: the kv head that each query head's gradient is added to, `[Hq]`; weight is its factor there.
        sink_weight: `[B, Hq, Sq]`, weights of the sink; None without one.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor
    o: Tensor
    lse: Tensor
    some: Tensor
    x: Tensor
    z: Tensor
    p: Tensor
    p_dv: Tensor
    kept: Tensor
    dp: Tensor
    dp_size: Tensor
    delta: Tensor
    delta_size: Tensor
    dlse: Tensor
    slope: Tensor
    scale: float
    kv_head: Tensor
    weight: Tensor
    sink_weight: Tensor | None = None
    ds: Tensor | None = None
    dbias_ds: Tensor | None = None
    dq_keys: Tensor | None = None
    dk_rows: Tensor | None = None
    dv_rows: Tensor | None = None

    @property
    def see(self) -> Tensor:
        """Bool, visible pairs."""
        return self.z != -torch.inf

    def formula(self) -> Tensor:
        """P (dP - delta + dLSE)."""
        return self.p * (self.dp - self.delta.unsqueeze(-1) + self.dlse.unsqueeze(-1))


class _Part(NamedTuple):
    value: Tensor
    size: Tensor


def steps_of(inputs: Inputs, o: Tensor, lse: Tensor) -> Steps:
    """The declared steps of a problem with dO and dense pairs.

    Args:
        inputs: the problem.
        o: `[B, Hq, Sq, Dv]`, finite in rows that see a key.
        lse: natural, `[B, Hq, Sq]`, likewise.
    """
    assert inputs.do is not None
    group = inputs.q.shape[1] // inputs.k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (inputs.k, inputs.v))
    q, do = inputs.q.double(), inputs.do.double()
    x, z = products(inputs), logits(inputs)
    some = (z != -torch.inf).any(-1)
    o, lse = o.double().masked_fill(~some.unsqueeze(-1), 0.0), lse.double().masked_fill(~some, 0.0)
    kept = torch.ones_like(x)
    if inputs.keep is not None:
        kept = inputs.keep.expand_as(x).double() / (1.0 - inputs.dropout)
    p = (z - lse.unsqueeze(-1)).exp()
    dlse = torch.zeros_like(lse) if inputs.dlse is None else inputs.dlse.double().masked_fill(~some, 0.0)
    cap, sink = inputs.softcap, inputs.sink
    return Steps(
        q=q,
        k=k,
        v=v,
        do=do,
        o=o,
        lse=lse,
        some=some,
        x=x,
        z=z,
        p=p,
        p_dv=p,
        kept=kept,
        dp=(do @ v.mT) * kept,
        dp_size=(do.abs() @ v.abs().mT) * kept,
        delta=(do * o).sum(-1),
        delta_size=(do * o).abs().sum(-1),
        dlse=dlse,
        slope=1.0 - torch.tanh(x / cap) ** 2 if cap else torch.ones_like(x),
        scale=inputs.scale,
        kv_head=torch.arange(q.shape[1]) // group,
        weight=torch.ones(q.shape[1], dtype=torch.float64),
        sink_weight=None if sink is None else (sink.double().view(1, -1, 1) - lse).exp() * some,
    )


def changed(
    scene: Scene, inputs: Inputs, given: tuple[Tensor, Tensor], values: Expectations, change: Change
) -> Expectations:
    """The declared gradients `values` of a problem as they are with a step exchanged.

    Args:
        scene: whose outputs they are.
        inputs: the problem.
        given: O and the natural LSE that the backward reads.
        values: what is declared of `inputs`.
        change: of the steps.
    """
    declared = inputs is scene.inputs and given[0] is scene.o and given[1] is scene.lse
    if declared and "steps" in scene.memo:
        steps, before = scene.memo["steps"]
    else:
        steps = steps_of(inputs, *given)
        before = gradients_of(scene, inputs, steps)
        if declared:
            scene.memo["steps"] = steps, before
    after = gradients_of(scene, inputs, step := change(steps))
    told = "dv" in values and before["dv"].size.numel() and any(_exchanged(steps, step))
    least = _of_weights(values["dv"], before["dv"].size) if told else 0.0
    found = dict(values)
    for name, x in values.items():
        if name not in after:
            continue
        (old, size), (new, larger) = before[name], after[name]
        largest = _relative(x, size)
        ratio = torch.where(size > 0, largest, largest.max() if largest.numel() else 0.0)
        if (
            name in ("dq", "dk")
        ):  # where dS is near 0, as under a flat softcap or where dP = delta, it hides the roundings of P, which dV shows
            ratio = ratio.clamp(min=least)
        u = FORMATS[output(name).dtype_of(scene.case.dtype)].u
        total = torch.maximum(x.total, ratio * larger) + 2 * u * (new - old).abs()
        value, bad = x.value + (new - old), ~(torch.isfinite(new - old) & (larger < _LARGEST))
        found[name] = replace(
            x,
            value=torch.where(bad, x.value, value),
            total=torch.where(bad, torch.inf, total),
            lost=bad,
            strict=None,
        )
    return found


def _of_weights(dv: Expected, size: Tensor) -> Tensor:
    """The declared distance for each unit of weight, of the elements of dV that are no sums of vanishing weights alone."""
    return _relative(dv, size)[size >= _VANISHING * size.max()].amax()


def _exchanged(before: Steps, after: Steps) -> Iterator[bool]:
    """Of each step that dS is made of, whether another one stands for it."""
    return (getattr(before, name) is not getattr(after, name) for name in _OF_DS)


def _relative(x: Expected, size: Tensor) -> Tensor:
    """Of a gradient the declared distance for each unit of what it is summed from; 0 where that is 0 or not finite."""
    return torch.nan_to_num(x.total / size, 0.0, 0.0, 0.0)


def gradients_of(scene: Scene, inputs: Inputs, s: Steps) -> dict[str, _Part]:
    """Every gradient of the steps, and the sum of the magnitudes that it is made of."""
    ds = s.formula() if s.ds is None else s.ds
    row_size = torch.maximum(s.delta_size, s.delta.abs()) + s.dlse.abs()
    size = s.p * (torch.maximum(s.dp_size, s.dp.abs()) + row_size.unsqueeze(-1))
    if s.ds is not None:
        size = torch.maximum(size, ds.abs())
    inner, inner_size = ds * s.slope, size * s.slope.abs().clamp(min=1.0)
    keys, rows = s.k if s.dq_keys is None else s.dq_keys, s.q if s.dk_rows is None else s.dk_rows
    weights, do = s.p_dv * s.kept, s.do if s.dv_rows is None else s.dv_rows
    delta = s.delta - s.dlse if scene.form.stored_delta == "minus_dlse" else s.delta

    def summed(x: Tensor, factor: Tensor) -> Tensor:
        shape = (x.shape[0], inputs.k.shape[1], *x.shape[2:])
        return x.new_zeros(shape).index_add_(1, s.kv_head, x * factor.view(1, -1, 1, 1))

    def product(left: Tensor, right: Tensor, left_size: Tensor, add: Callable[..., Tensor] | None = None) -> _Part:
        value, whole = left @ right, left_size @ right.abs()
        return _Part(value, whole) if add is None else _Part(add(value, s.weight), add(whole, s.weight.abs()))

    found = {
        "delta": _Part(delta, row_size),
        "dq": product(s.scale * inner, keys, abs(s.scale) * inner_size),
        "dk": product(s.scale * inner.mT, rows, abs(s.scale) * inner_size.mT, summed),
        "dv": product(weights.mT, do, weights.mT, summed),
    }
    of_bias = _Part(ds if s.dbias_ds is None else s.dbias_ds, size)
    if inputs.bias_shape is not None:
        shared = [axis for axis in range(2) if inputs.bias_shape[axis] == 1]
        found["dbias"] = _Part(*(x.sum(shared, keepdim=True) if shared else x for x in of_bias))
    if inputs.relative_buckets is not None and inputs.bucket_count is not None:
        buckets = inputs.relative_buckets.long().expand_as(ds).transpose(0, 1).flatten(1)
        table = ds.new_zeros(ds.shape[1], inputs.bucket_count)
        parts = (x.transpose(0, 1).flatten(1) for x in of_bias)
        found["drelative_bias"] = _Part(*(table.scatter_add(1, buckets, x) for x in parts))
    if s.sink_weight is not None:
        value = s.sink_weight * (s.dlse - s.delta)
        found["dsink"] = _Part(value.sum((0, 2)), (s.sink_weight * row_size).sum((0, 2)))
    return found
