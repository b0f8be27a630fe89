"""Attention in float64 with the roundings of a kernel at single steps, tile after tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits, modified, products
from flashverify.diagnosis.precision.rounding import same, to_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.rounding import Rounding
    from flashverify.truth import Inputs

__all__ = ["Steps", "backward", "declared", "forward"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """What is rounded where; every step is exact unless it is given a rounding.

    Attributes:
        q, k, v, do: the operands.
        scaled_q: Q times the scale, where it is folded into Q.
        product: the products of Q and K, before their scale.
        logit: the logits.
        unit: of the logits and of the LSE where they are rounded: 1 for natural ones, log 2 for base-2 ones.
        p: the weights that meet V, or dO in the gradient of V; beside the running maximum in the forward.
        summed: the weights that the row sum adds.
        row_sum: the row sum after each tile.
        alpha: the factors of a rescale.
        accumulator: O before its division, dQ, dK and dV, after each tile.
        delta: rowsum(dO * O).
        dp: the gradient of the weights.
        ds: the gradient of the logits.
        read_lse: the LSE that the backward reads.
        lse: the LSE that is returned.
        o: O that is returned.
        gradient: dQ, dK and dV that are returned.
        through_group: the accumulator of dK and dV goes through the heads of a group, not only through the rows of one.
        tile: keys of a tile in the forward and in dQ, rows of one in dK and dV; None for all at once.
    """

    q: Rounding = same
    k: Rounding = same
    v: Rounding = same
    do: Rounding = same
    scaled_q: Rounding | None = None
    product: Rounding | None = None
    logit: Rounding = same
    unit: float = 1.0
    p: Rounding = same
    summed: Rounding = same
    row_sum: Rounding = same
    alpha: Rounding = same
    accumulator: Rounding = same
    delta: Rounding = same
    dp: Rounding = same
    ds: Rounding = same
    read_lse: Rounding = same
    lse: Rounding = same
    o: Rounding = same
    gradient: Rounding = same
    through_group: bool = False
    tile: int | None = None


def _operands(inputs: Inputs, steps: Steps) -> Inputs:
    q, k, v = steps.q(inputs.q.double()), steps.k(inputs.k.double()), steps.v(inputs.v.double())
    if steps.scaled_q is not None and inputs.scale:
        q = steps.scaled_q(q * inputs.scale) / inputs.scale
    return replace(inputs, q=q, k=k, v=v, do=None if inputs.do is None else steps.do(inputs.do.double()))


def _logits(inputs: Inputs, steps: Steps) -> Tensor:
    z = logits(inputs)
    if steps.product is not None and inputs.scale:
        z = modified(steps.product(products(inputs) / inputs.scale) * inputs.scale, inputs, inputs.biases)
        z = z if inputs.visible is None else z.masked_fill(~inputs.visible, -torch.inf)
    return steps.logit(z / steps.unit) * steps.unit


def _tiles(count: int, size: int | None) -> list[slice]:
    step = size or max(count, 1)
    return [slice(at, min(at + step, count)) for at in range(0, count, step)]


def forward(scene: Scene, steps: Steps) -> dict[str, Tensor]:
    """O and LSE, the latter in the units of the subject."""
    i = _operands(scene.inputs, steps)
    z = _logits(i, steps)
    v = i.v.repeat_interleave(scene.group, 1)
    keep = 1.0 if i.keep is None else i.keep.double() / (1.0 - i.dropout)
    top = torch.full_like(z[..., :1], -torch.inf)
    total, acc = torch.zeros_like(top), torch.zeros_like(v[:, :, :1].expand(*z.shape[:3], -1))
    for keys in _tiles(z.shape[-1], steps.tile):
        new = torch.maximum(top, z[..., keys].amax(-1, keepdim=True))
        pivot = new.masked_fill(new == -torch.inf, 0.0)
        alpha = steps.alpha(torch.where(top == -torch.inf, 0.0, (top - pivot).exp()))
        weights = (z[..., keys] - pivot).exp()
        kept = weights if isinstance(keep, float) else weights * keep[..., keys]
        total = steps.row_sum(total * alpha + steps.summed(weights).sum(-1, keepdim=True))
        acc = steps.accumulator(acc * alpha + steps.p(kept) @ v[:, :, keys])
        top = new
    some = top != -torch.inf
    pivot = top.masked_fill(~some, 0.0)
    if i.sink is not None:
        total = total + (i.sink.double().view(1, -1, 1, 1) - pivot).exp() * some
    o = acc / torch.where(some, total, 1.0)
    lse = torch.where(some, pivot + total.log(), -torch.inf).squeeze(-1)
    unit = scene.unit if steps.unit == 1.0 else steps.unit
    return {"o": steps.o(o), "lse": steps.lse(lse / unit) * (unit / scene.unit)}


def backward(scene: Scene, steps: Steps) -> dict[str, Tensor]:
    """Delta, dQ, dK and dV, given the subject's own O and LSE; none where there is nothing to start from."""
    if scene.inputs.do is None or scene.o is None or scene.lse is None:
        return {}
    i = _operands(scene.inputs, steps)
    assert i.do is not None
    do = i.do
    k, v = (x.repeat_interleave(scene.group, 1) for x in (i.k, i.v))
    empty = scene.truth.empty_rows.unsqueeze(-1)
    lse = steps.read_lse(scene.lse.double()).unsqueeze(-1).masked_fill(empty, 0.0)
    weights = (_logits(i, steps) - lse).exp()
    keep = torch.ones_like(weights) if i.keep is None else i.keep.double() / (1.0 - i.dropout)
    delta = steps.delta((do * scene.o.double().masked_fill(empty, 0.0)).sum(-1))
    shift = delta if i.dlse is None else delta - i.dlse.double().masked_fill(empty.squeeze(-1), 0.0)
    ds = weights * (steps.dp(do @ v.mT) * keep - shift.unsqueeze(-1))
    if i.softcap:
        ds = ds * (1.0 - torch.tanh(products(i) / i.softcap) ** 2)
    p, ds = steps.p(weights * keep), steps.ds(ds)

    def summed(parts: list[Tensor]) -> Tensor:
        total = torch.zeros_like(parts[0])
        for part in parts:
            total = steps.accumulator(total + part)
        return total

    keys, rows = _tiles(k.shape[2], steps.tile), _tiles(do.shape[2], steps.tile)
    if not keys or not rows:
        return {}

    def of_keys(left: Tensor, right: Tensor) -> Tensor:
        """Rows summed tile by tile, heads of a group afterwards or in the same accumulator."""
        parts = [left[:, :, at].mT @ right[:, :, at] for at in rows]
        grouped = [x.reshape(x.shape[0], -1, scene.group, *x.shape[2:]) for x in parts]
        if steps.through_group:
            return summed([x[:, :, head] for head in range(scene.group) for x in grouped])
        return summed(grouped).sum(2)

    dq = summed([ds[..., at] @ k[:, :, at] for at in keys]) * i.scale
    dk, dv = of_keys(ds, i.q) * i.scale, of_keys(p, do)
    stored = delta if scene.form.stored_delta == "plain" else shift
    found = {"dq": dq, "dk": dk, "dv": dv}
    return {"delta": stored} | {name: steps.gradient(x) for name, x in found.items()}


def declared(scene: Scene) -> Steps:
    """The roundings of a kernel that keeps to its form: weights, dS and outputs in the dtype of the case."""
    narrow = to_dtype(scene.case.dtype)
    if scene.case.dtype == "fp32":
        return Steps(o=narrow, lse=narrow, gradient=narrow, tile=scene.form.block_n)
    lse = to_dtype("fp32")
    summed = narrow if scene.form.row_sum == "rounded" else same
    return Steps(p=narrow, ds=narrow, summed=summed, o=narrow, lse=lse, gradient=narrow, tile=scene.form.block_n)
