"""The steps of attention that a kernel may round, and what is rounded in each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.precision.eight_bits import declared_cast
from flashverify.diagnosis.precision.rounding import same, to_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.products import Rounded
    from flashverify.diagnosis.precision.rounding import Rounding
    from flashverify.truth import Inputs

__all__ = ["Steps", "declared", "logits_of", "operands", "tiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What is rounded where; every step is exact unless it is given a rounding.

    Attributes:
        settings: the problem, whose scale, softcap or p of dropout is another one.
        q, k, v, do, dlse: the operands.
        centred_k: K minus its mean over the keys, in place of K where it is given.
        scaled_q: Q times the scale, where it is folded into Q.
        scaled_k: K times the scale, where it is folded into K.
        product: the products of Q and K, before their scale.
        scaled_product: the same after their scale.
        part_product: the sum over the first channels, before the others are added.
        channels: of each part of such a sum, rounded after every part but the last; None for all at once.
        tanh: the tanh of a softcap.
        terms: each bias that is added to a logit: of a bias, ALiBi and a relative bias.
        slopes: the slopes of ALiBi.
        sink: the logit of the sink.
        capped: the logits after a softcap, before what is added to them.
        logit: the logits.
        exponent: a logit minus the running maximum in the forward, minus the LSE in the backward.
        unit: of the logits and of the LSE where they are rounded: 1 for natural ones, log 2 for base-2 ones.
        p: the weights that meet V, or dO in the gradient of V; beside the running maximum in the forward.
        p_of_ds: the weights that dS is made from.
        undropped: the weights that are kept, before 1 / (1 - p) multiplies them.
        p_normalised: the weights that meet V, divided by the row sum, in place of `p`.
        summed: the weights that the row sum adds.
        row_sum: the row sum after each tile.
        alpha: the factors of a rescale of the row sum.
        alpha_of_o: those of the accumulator of O.
        accumulator: O before its division, dQ, dK and dV, after each tile.
        code_sum: the same of O before the scale of V, which one head or the tensor has.
        undivided: O before its division, at the end.
        divisor, reciprocal: what O is divided by, and its reciprocal.
        part_o, part_lse, part_weight: of the pieces of keys that are merged: O, the LSE, the weight.
        part_exponent: the LSE of such a piece minus the largest one, in its weight.
        delta_product: the products that delta sums.
        delta: rowsum(dO * O).
        shift: delta minus the gradient through the LSE.
        read_o: O that delta reads.
        scaled_do: dO times 1 / (1 - p), in place of dP times it.
        scaled_v: V times 1 / (1 - p), likewise, and in O in place of the weights.
        dp: the gradient of the weights.
        kept_dp: the same after dropout.
        centred_dp: dP minus delta, plus dLSE.
        raw_ds: dS before the derivative of the softcap.
        slope: the derivative of a softcap.
        scaled_ds: dS times the scale, where its products with K and Q get no other.
        ds: the gradient of the logits, in its products with K and Q.
        ds_summed: the same, where the gradients of a bias and a relative bias sum it.
        bias_sum: the gradient of a bias after each sequence and head.
        sink_weight, sink_term: the weight of the sink in dsink, and its product with a row's gradient.
        read_lse: the LSE that the backward reads.
        lse: the LSE that is returned.
        o: O that is returned.
        member: dK and dV of each query head of a group.
        share: what each tile adds to dQ, dK or dV.
        unscaled: dQ and dK before their scale.
        gradient: dQ, dK, dV and dbias that are returned.
        inside: by a product what is done to its operands in it alone.
        through_group: the accumulator of dK and dV goes through the heads of a group, not only through the rows of one.
        tile: keys of a tile in the forward and in dQ, rows of one in dK and dV; None for all at once.
        rows: that have one maximum together; None for one row.
        piece: keys of a piece that is merged; None for one piece.
        splits: pieces that are merged, of whole tiles; None where `piece` says it.
    """

    settings: Callable[[Inputs], Inputs] | None = None
    q: Rounding = same
    k: Rounding = same
    v: Rounding = same
    do: Rounding = same
    dlse: Rounding = same
    centred_k: Rounding | None = None
    scaled_q: Rounding | None = None
    scaled_k: Rounding | None = None
    product: Rounding | None = None
    scaled_product: Rounding = same
    part_product: Rounding = same
    channels: int | None = None
    tanh: Rounding | None = None
    terms: Rounding = same
    slopes: Rounding = same
    sink: Rounding = same
    capped: Rounding = same
    logit: Rounding = same
    exponent: Rounding = same
    unit: float = 1.0
    p: Rounding = same
    p_of_ds: Rounding = same
    undropped: Rounding = same
    p_normalised: Rounding | None = None
    summed: Rounding = same
    row_sum: Rounding = same
    alpha: Rounding = same
    alpha_of_o: Rounding = same
    accumulator: Rounding = same
    code_sum: Rounding = same
    undivided: Rounding = same
    divisor: Rounding = same
    reciprocal: Rounding | None = None
    part_o: Rounding = same
    part_lse: Rounding = same
    part_exponent: Rounding = same
    part_weight: Rounding = same
    delta_product: Rounding = same
    delta: Rounding = same
    shift: Rounding = same
    read_o: Rounding = same
    scaled_do: Rounding | None = None
    scaled_v: Rounding | None = None
    dp: Rounding = same
    kept_dp: Rounding = same
    centred_dp: Rounding = same
    raw_ds: Rounding = same
    slope: Rounding = same
    scaled_ds: Rounding | None = None
    ds: Rounding = same
    ds_summed: Rounding = same
    bias_sum: Rounding = same
    sink_weight: Rounding = same
    sink_term: Rounding = same
    read_lse: Rounding = same
    lse: Rounding = same
    o: Rounding = same
    member: Rounding = same
    share: Rounding = same
    unscaled: Rounding = same
    gradient: Rounding = same
    inside: Mapping[str, Rounded] = field(default_factory=dict)
    through_group: bool = False
    tile: int | None = None
    rows: int | None = None
    piece: int | None = None
    splits: int | None = None


def declared(scene: Scene) -> Steps:
    """The roundings of a kernel that keeps to its form: weights, dS and outputs in the dtype of the case."""
    narrow, form, split = to_dtype(scene.case.dtype), scene.form, _splits(scene)
    cast = narrow if form.p_dtype is None else partial(declared_cast, scene)
    if scene.case.dtype == "fp32":
        p = same if form.p_dtype is None else cast
        return Steps(p=p, o=narrow, lse=narrow, gradient=narrow, tile=form.block_n, splits=split)
    rounded = Steps(p=cast, ds=narrow, o=narrow, lse=to_dtype("fp32"), gradient=narrow)
    summed = narrow if form.row_sum == "rounded" else same
    return replace(rounded, summed=summed, tile=form.block_n, splits=split)


def _splits(scene: Scene) -> int | None:
    """Pieces of the keys that are merged; None where there is one."""
    launched = dict(scene.case.launch).get("n_splits", 0)
    splits = launched or scene.form.n_splits - scene.case.logits.sink
    return splits if splits > 1 else None


def operands(scene: Scene, steps: Steps) -> Inputs:
    """The problem of a run with its operands and terms rounded, float64."""
    inputs = scene.inputs if steps.settings is None else steps.settings(scene.inputs)
    q, k, v = steps.q(inputs.q.double()), steps.k(inputs.k.double()), steps.v(inputs.v.double())
    if steps.centred_k is not None and k.shape[2]:
        mean = k.mean(2, keepdim=True)
        k = steps.centred_k(k - mean) + mean
    if steps.scaled_q is not None and inputs.scale:
        q = steps.scaled_q(q * inputs.scale) / inputs.scale
    if steps.scaled_k is not None and inputs.scale:
        k = steps.scaled_k(k * inputs.scale) / inputs.scale
    biases = tuple(steps.terms(bias.double()) for bias in inputs.biases) if steps.terms is not same else inputs.biases
    slopes = scene.problem.slopes
    if steps.slopes is not same and slopes is not None:
        given = slopes.double().cpu()
        change = (steps.slopes(given) / given).nan_to_num(1.0, 1.0, 1.0).view(1, -1, 1, 1)
        place = int(scene.problem.bias is not None)
        biases = tuple(bias * change if number == place else bias for number, bias in enumerate(biases))
    return replace(
        inputs,
        q=q,
        k=k,
        v=v,
        biases=biases,
        sink=None if inputs.sink is None else steps.sink(inputs.sink.double()),
        do=None if inputs.do is None else steps.do(inputs.do.double()),
        dlse=None if inputs.dlse is None else steps.dlse(inputs.dlse.double()),
    )


def logits_of(inputs: Inputs, steps: Steps) -> Tensor:
    """The logits `[B, Hq, Sq, Sk]` of `operands`, float64, natural units, -inf at invisible pairs."""
    if steps.tanh is None and steps.capped is same:
        z = modified(_scaled(inputs, steps), inputs, inputs.biases)
    else:
        capped = steps.capped(_capped(_scaled(inputs, steps), inputs, steps))
        z = modified(capped, replace(inputs, softcap=None), inputs.biases)
    z = z if inputs.visible is None else z.masked_fill(~inputs.visible, float("-inf"))
    return steps.logit(z / steps.unit) * steps.unit


def _scaled(inputs: Inputs, steps: Steps) -> Tensor:
    """The scaled products."""
    if not inputs.scale or (steps.product is None and steps.channels is None):
        return steps.scaled_product(products(inputs))
    dots = products(inputs) / inputs.scale
    if steps.channels is not None:
        dots = _in_parts(inputs, steps, steps.channels)
    return steps.scaled_product((dots if steps.product is None else steps.product(dots)) * inputs.scale)


def _in_parts(inputs: Inputs, steps: Steps, channels: int) -> Tensor:
    """The products of Q and K, summed over so many channels at a time."""
    q, k = inputs.q.double(), inputs.k.double().repeat_interleave(inputs.q.shape[1] // inputs.k.shape[1], 1)
    parts = [q[..., at] @ k[..., at].mT for at in tiles(q.shape[-1], channels)]
    total = parts[0]
    for part in parts[1:]:
        total = steps.part_product(total) + part
    return total


def _capped(scaled: Tensor, inputs: Inputs, steps: Steps) -> Tensor:
    """The scaled products after the softcap."""
    if not inputs.softcap:
        return scaled
    tanh = (scaled / inputs.softcap).tanh()
    return inputs.softcap * (tanh if steps.tanh is None else steps.tanh(tanh))


def tiles(count: int, size: int | None, first: int = 0) -> list[slice]:
    """`count` keys or rows from `first` on, in tiles of `size`; all at once where it is None."""
    step = size or max(count, 1)
    return [slice(at, min(at + step, first + count)) for at in range(first, first + count, step)]
