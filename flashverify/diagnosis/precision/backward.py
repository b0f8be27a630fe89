"""The gradients in float64 with the roundings of a kernel at single steps, given the subject's own O and LSE."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.checks.passes.logits import products
from flashverify.diagnosis.precision.products import logit_operands, times
from flashverify.diagnosis.precision.rounding import same
from flashverify.diagnosis.precision.steps import logits_of, operands, tiles

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.steps import Steps
    from flashverify.truth import Inputs

__all__ = ["backward"]


class _Rows(NamedTuple):
    """What each row has, `[B, Hq, Sq]`: delta, what is subtracted from dP, and the natural LSE, 0 where it sees no key."""

    delta: Tensor
    shift: Tensor
    lse: Tensor
    empty: Tensor


def backward(scene: Scene, steps: Steps, names: frozenset[str]) -> dict[str, Tensor]:
    """The gradients `names` that there are, and delta; none where there is nothing to start from."""
    if scene.inputs.do is None or scene.o is None or scene.lse is None:
        return {}
    i = operands(scene, steps)
    assert i.do is not None
    rows = _rows(scene, i, steps)
    found = {"delta": rows.delta if scene.form.stored_delta == "plain" else rows.shift}
    if names == {"delta"}:
        return found
    if i.sink is not None:
        weight = steps.sink_weight((i.sink.view(1, -1, 1) - rows.lse).exp() * ~rows.empty)
        found["dsink"] = -steps.sink_term(weight * rows.shift).sum((0, 2))
    if not i.k.shape[2] or not i.do.shape[2] or names <= found.keys():
        return found
    logit = logit_operands(i, steps)
    z = logits_of(logit, steps)
    weights = (steps.unit * steps.exponent((z - rows.lse.unsqueeze(-1)) / steps.unit)).exp()
    keep = torch.ones_like(weights) if i.keep is None else i.keep.double() / (1.0 - i.dropout)
    centred = steps.kept_dp(_kept_dp(scene, i, keep, steps)) - rows.shift.unsqueeze(-1)
    ds = steps.p_of_ds(weights) * steps.centred_dp(centred)
    found |= _of_terms(i, ds, steps)
    if i.softcap:
        tanh = torch.tanh(products(logit) / i.softcap)
        ds = steps.raw_ds(ds) * steps.slope(1.0 - (tanh if steps.tanh is None else steps.tanh(tanh)) ** 2)
    if steps.scaled_ds is not None and i.scale:
        ds = steps.scaled_ds(ds * i.scale) / i.scale
    if names & {"dq", "dk", "dv"}:
        found |= _of_operands(scene, i, steps.p(steps.undropped(weights) * keep), steps.ds(ds), steps)
    return found


def _kept_dp(scene: Scene, i: Inputs, keep: Tensor, steps: Steps) -> Tensor:
    """DP after dropout, whose factor an operand may hold in place of the product."""
    assert i.do is not None
    do, v, share = i.do, i.v.repeat_interleave(scene.group, 1), 1.0 - i.dropout
    if steps.scaled_do is None and steps.scaled_v is None:
        return steps.dp(times("dp", do, v.mT, steps)) * keep
    if steps.scaled_do is not None:
        do = steps.scaled_do(do / share)
    else:
        assert steps.scaled_v is not None
        v = steps.scaled_v(v / share)
    return steps.dp(times("dp", do, v.mT, steps)) * (keep * share)


def _rows(scene: Scene, i: Inputs, steps: Steps) -> _Rows:
    assert i.do is not None
    assert scene.o is not None
    assert scene.lse is not None
    empty = scene.truth.empty_rows
    lse = (steps.read_lse(scene.lse.double() / steps.unit) * steps.unit).masked_fill(empty, 0.0)
    o = steps.read_o(scene.o.double().masked_fill(empty.unsqueeze(-1), 0.0))
    delta = steps.delta(steps.delta_product(i.do * o).sum(-1))
    shift = delta if i.dlse is None else delta - i.dlse.masked_fill(empty, 0.0)
    return _Rows(delta, steps.shift(shift), lse, empty)


def _of_operands(scene: Scene, i: Inputs, p: Tensor, ds: Tensor, steps: Steps) -> dict[str, Tensor]:
    """dQ, dK and dV."""
    assert i.do is not None
    do, k = i.do, i.k.repeat_interleave(scene.group, 1)
    tile = None if steps.accumulator is same and steps.share is same else steps.tile

    def summed(parts: list[Tensor]) -> Tensor:
        total = torch.zeros_like(parts[0])
        for part in parts:
            total = steps.accumulator(total + steps.share(part))
        return total

    def of_keys(name: str, left: Tensor, right: Tensor, factor: float) -> Tensor:
        """Rows summed tile by tile, heads of a group afterwards or in the same accumulator."""
        parts = [times(name, left[:, :, at].mT, right[:, :, at], steps) for at in tiles(do.shape[2], tile)]
        grouped = [x.reshape(x.shape[0], -1, scene.group, *x.shape[2:]) for x in parts]
        if steps.through_group:
            return summed([x[:, :, head] for head in range(scene.group) for x in grouped]) * factor
        return steps.member(summed(grouped) * factor).sum(2)

    unscaled = steps.unscaled
    dq = unscaled(summed([times("dq", ds[..., at], k[:, :, at], steps) for at in tiles(k.shape[2], tile)])) * i.scale
    dk = of_keys("dk", ds, i.q, i.scale) if unscaled is same else unscaled(of_keys("dk", ds, i.q, 1.0)) * i.scale
    found = {"dq": dq, "dk": dk, "dv": of_keys("dv", p, do, 1.0)}
    return {name: steps.gradient(x) for name, x in found.items()}


def _of_terms(i: Inputs, ds: Tensor, steps: Steps) -> dict[str, Tensor]:
    """The gradients of a bias and of a relative bias."""
    found: dict[str, Tensor] = {}
    narrow = steps.ds_summed(ds)
    if i.bias_shape is not None:
        shared = [axis for axis in range(2) if i.bias_shape[axis] == 1]
        if steps.bias_sum is same:
            total = narrow.sum(shared, keepdim=True) if shared else narrow
        else:
            total = narrow
            for axis in shared:
                total = _in_turn(total, axis, steps)
        found["dbias"] = steps.gradient(total)
    if i.relative_buckets is not None and i.bucket_count is not None:
        buckets = i.relative_buckets.long().expand_as(ds).transpose(0, 1).flatten(1)
        table = ds.new_zeros(ds.shape[1], i.bucket_count)
        found["drelative_bias"] = table.scatter_add(1, buckets, narrow.transpose(0, 1).flatten(1))
    return found


def _in_turn(x: Tensor, axis: int, steps: Steps) -> Tensor:
    """The sum along an axis, rounded after each term."""
    total = torch.zeros_like(x.narrow(axis, 0, 1))
    for number in range(x.shape[axis]):
        total = steps.bias_sum(total + x.narrow(axis, number, 1))
    return total
