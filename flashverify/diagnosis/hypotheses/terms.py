"""Wrong semantics of what is done to logits: softcap, ALiBi, bias, sinks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.modifiers.alibi import acting_slopes
from flashverify.checks.passes.logits import products
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import exchanged, of_heads_open
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = ["TERMS", "split_biases", "with_biases"]

_LN2 = math.log(2.0)


def split_biases(scene: Scene) -> tuple[Tensor | None, Tensor | None]:
    """The additive bias and the term of ALiBi of the declared problem; None of those that it has not."""
    rest = list(scene.inputs.biases)
    bias = rest.pop(0) if scene.problem.bias is not None else None
    return bias, rest.pop(0) if scene.problem.slopes is not None else None


def with_biases(scene: Scene, bias: Tensor | None, alibi: Tensor | None) -> Inputs:
    """The declared problem with another additive bias and another term of ALiBi; None drops one."""
    given = sum(x is not None for x in split_biases(scene))
    return replace(scene.inputs, biases=(*(x for x in (bias, alibi) if x is not None), *scene.inputs.biases[given:]))


def _bias(change: Callable[[Tensor], Tensor | None]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        bias, alibi = split_biases(scene)
        if bias is not None:
            changed = change(bias)
            inputs = with_biases(scene, changed, alibi)
            yield Alternative(inputs=inputs if changed is not None else replace(inputs, bias_shape=None))

    return build


def _exchanged_bias(scene: Scene) -> Iterator[Alternative]:
    bias, alibi = split_biases(scene)
    p = scene.problem.bias
    if bias is not None and p is not None and p.shape[0] * p.shape[1] > 1:
        changed, lost = exchanged(bias, scene.case.batch, scene.case.heads_q)
        yield Alternative(inputs=with_biases(scene, changed, alibi), finish=of_heads_open(scene, lost))


def _alibi(change: Callable[[Scene, Tensor, Tensor], Tensor | None]) -> Callable[[Scene], Iterator[Alternative]]:
    """A function of the slopes `[Hq, 1, 1]` and the signed distance row - key `[B, 1, Sq, Sk]`, in place of -slope |distance|."""

    def build(scene: Scene) -> Iterator[Alternative]:
        bias, alibi = split_biases(scene)
        if alibi is None or scene.problem.slopes is None:
            return
        at = scene.at
        distance = (at.row + at.shift)[:, None, :, None] - at.key[:, None, None, :]
        changed = change(scene, acting_slopes(scene.problem.slopes).view(-1, 1, 1), distance.double())
        yield Alternative(inputs=with_biases(scene, bias, changed))

    return build


def _without_shift(scene: Scene, slope: Tensor, distance: Tensor) -> Tensor:
    found: Tensor = -slope * (distance - scene.at.shift[:, None, :, None]).abs()
    return found


def _kv_slope(scene: Scene, slope: Tensor, distance: Tensor) -> Tensor:
    return -slope[torch.arange(len(slope)) // scene.group] * distance.abs()


def _next_slope(scene: Scene, slope: Tensor, distance: Tensor) -> Tensor:
    found: Tensor = -slope / 2.0 ** (8.0 / scene.case.heads_q) * distance.abs()
    return found


def _cap(kind: str) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        i, cap = scene.inputs, scene.inputs.softcap
        if not cap:
            return
        x = products(i)
        if kind == "missing":
            yield Alternative(inputs=replace(i, softcap=None))
        elif kind == "slope":
            # the capped logits as linear ones plus a constant: their weights, without the derivative of the cap
            constant = cap * torch.tanh(x / cap) - x
            yield Alternative(inputs=replace(i, softcap=None, biases=(*i.biases, constant)))
        elif kind == "after" and i.biases:
            whole = x
            for bias in i.biases:
                whole = whole + bias.double()
            yield Alternative(inputs=replace(i, softcap=None, biases=(cap * torch.tanh(whole / cap) - x,)))
        elif kind == "overflow":
            # exp2 of 2 log2(e) |x / cap| is infinite from 2^128 on
            hot = (x.abs() / cap) * 2.0 / _LN2 > 127.9
            if i.visible is not None:
                hot = hot & i.visible
            rows = hot.any(-1)
            keys = hot.any(-2).reshape(hot.shape[0], scene.case.heads_kv, scene.group, hot.shape[3]).any(2)

            def finish(found: Expectations) -> Expectations:
                where = {"o": rows.unsqueeze(-1), "lse": rows, "dq": rows.unsqueeze(-1)}
                where |= {"dk": keys.unsqueeze(-1), "dv": keys.unsqueeze(-1)}
                return {n: x.not_finite(where[n]) if n in where else x for n, x in found.items()}

            if bool(rows.any()):
                yield Alternative(finish=finish)

    return build


def _sink(kind: str) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        i = scene.inputs
        if i.sink is None:
            return
        if kind == "missing":
            yield Alternative(inputs=replace(i, sink=None))
        elif kind == "base":
            yield Alternative(inputs=replace(i, sink=i.sink * _LN2))
        elif kind == "kv-head" and scene.group > 1:
            yield Alternative(inputs=replace(i, sink=i.sink[torch.arange(len(i.sink)) // scene.group]))
        elif kind == "first" and len(i.sink) > 1:
            yield Alternative(inputs=replace(i, sink=i.sink[:1].expand_as(i.sink)))
        elif kind == "empty":
            empty = scene.truth.empty_rows
            sink = (i.sink.double() / scene.unit).view(1, -1, 1).expand(empty.shape)

            def in_empty(found: Expectations) -> Expectations:
                if "lse" not in found:
                    return found
                lse = found["lse"]
                value = torch.where(empty, sink, lse.value)
                near = torch.where(empty, sink.abs() * 2.0**-20, lse.total)
                return found | {"lse": replace(lse, value=value, total=near)}

            yield Alternative(finish=in_empty)

    return build


TERMS = (
    Semantics(name="softcap-missing", sentence="the logits are not capped", build=_cap("missing")),
    Semantics(
        name="softcap-after-bias", sentence="the bias is added before the cap, not after it", build=_cap("after")
    ),
    Semantics(
        name="softcap-slope-missing",
        sentence="the gradient lacks the derivative of the softcap",
        build=_cap("slope"),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="softcap-overflow",
        sentence="the tanh of the softcap is a ratio of exponentials that overflow: inf / inf",
        build=_cap("overflow"),
    ),
    Semantics(name="bias-missing", sentence="the bias is not added", build=_bias(lambda _b: None)),
    Semantics(
        name="bias-without-log2e",
        sentence="the bias is added to base-2 logits without the factor log2(e)",
        build=_bias(lambda b: b * _LN2),
    ),
    Semantics(
        name="bias-with-log2e",
        sentence="the bias is multiplied by log2(e) once too often",
        build=_bias(lambda b: b / _LN2),
    ),
    Semantics(name="bias-sign", sentence="the bias is subtracted", build=_bias(lambda b: -b)),
    Semantics(
        name="bias-first-head",
        sentence="every head gets the bias of the first one",
        build=_bias(lambda b: b[:, :1].expand(b.shape)),
    ),
    Semantics(
        name="bias-batch-head-exchanged",
        sentence="the strides of the bias over batches and heads are exchanged",
        build=_exchanged_bias,
    ),
    Semantics(name="alibi-missing", sentence="ALiBi is not added", build=_alibi(lambda _s, _slope, _x: None)),
    Semantics(
        name="alibi-sign", sentence="ALiBi has the wrong sign", build=_alibi(lambda _s, slope, x: slope * x.abs())
    ),
    Semantics(
        name="alibi-signed-distance",
        sentence="ALiBi takes the signed distance, so that keys after a row gain",
        build=_alibi(lambda _s, slope, x: -slope * x),
    ),
    Semantics(
        name="alibi-without-shift",
        sentence="ALiBi measures distances from the top-left diagonal, where the bottom-right one is declared",
        build=_alibi(_without_shift),
    ),
    Semantics(
        name="alibi-off-by-one",
        sentence="ALiBi measures a distance one too large",
        build=_alibi(lambda _s, slope, x: -slope * (x + 1).abs()),
    ),
    Semantics(
        name="alibi-slope-of-kv-head",
        sentence="ALiBi takes the slope of the query head with the number of the kv head",
        build=_alibi(_kv_slope),
    ),
    Semantics(
        name="alibi-slope-of-next-head", sentence="ALiBi takes the slope of the next head", build=_alibi(_next_slope)
    ),
    Semantics(
        name="alibi-without-log2e",
        sentence="ALiBi is added to base-2 logits without the factor log2(e)",
        build=_alibi(lambda _s, slope, x: -slope * x.abs() * _LN2),
    ),
    Semantics(name="sink-missing", sentence="the sink is left out", build=_sink("missing")),
    Semantics(
        name="sink-without-log2e",
        sentence="the sink joins base-2 logits without the factor log2(e)",
        build=_sink("base"),
    ),
    Semantics(
        name="sink-of-kv-head",
        sentence="the sink is that of the query head with the number of the kv head",
        build=_sink("kv-head"),
    ),
    Semantics(
        name="sink-first-head",
        sentence="every head gets the sink of the first one",
        build=_sink("first"),
    ),
    Semantics(
        name="sink-in-empty-rows",
        sentence="the sink counts in rows that see no key: their LSE is the sink",
        build=_sink("empty"),
        outputs=FORWARD,
    ),
)
