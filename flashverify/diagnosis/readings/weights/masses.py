"""What the weights of a row may be divided by, and what an LSE may be the logarithm of."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.case.masks.predicate import visible_parts
from flashverify.checks.passes.logits import modified
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.extents import tile_extents
from flashverify.diagnosis.readings.masks.hidden import hidden_by, hidden_words
from flashverify.diagnosis.readings.weights.dropped_sums import dropped_sums
from flashverify.diagnosis.readings.weights.models import GONE
from flashverify.diagnosis.readings.weights.other_sums import other_sums
from flashverify.diagnosis.readings.weights.sink_forms import sink_forms
from flashverify.diagnosis.readings.weights.term import HEADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Mass = Callable[[Effect, Tensor], Tensor]

__all__ = ["DECLARED_SUM", "LEFT_OUT", "LEFT_OUT_TERMS", "masses", "sink_in_effect", "sum_of"]


_SINKS, _NEAR = 4, 0.02
"""Different sinks by which a function or a formula of them shows, and how far relatively one in effect may be from row to row."""
_ROUGH, _READABLE = 50.0, 512.0
"""Times what a weight may be off, from which on a part of a row sum is known, and times the least readable weight, from which on the sum is."""
DECLARED_SUM = "is that of the declared weights"
LEFT_OUT = "takes in the keys that are left out, with the logit 0"
LEFT_OUT_TERMS = "takes in the keys that are left out, with a product of 0 and what is added to it"


def _terms(effect: Effect) -> Tensor:
    """The logits of products that are 0."""
    inputs = effect.scene.inputs
    return modified(torch.zeros_like(effect.logits), inputs, inputs.biases)


def _sink(effect: Effect) -> Tensor | None:
    sink = effect.scene.inputs.sink
    return None if sink is None else sink.double().view(1, -1, 1)


def sum_of(effect: Effect, logits: Tensor) -> Tensor:
    """Logarithm of the row sum that belongs to `logits`, the sink in it, `[B, Hq, Sq]`."""
    total, sink = logits.logsumexp(-1), _sink(effect)
    return total if sink is None else torch.where(total == -math.inf, total, torch.logaddexp(total, sink))


def masses(effect: Effect) -> Iterator[tuple[str, Mass]]:
    """Row sums, as logarithms `[B, Hq, Sq]` of an effect and the logits of its model; in words what each is, after `the row sum`.

    The first one belongs to the model's own weights and has no words.
    """
    yield "", sum_of
    yield DECLARED_SUM, lambda e, z: e.scene.truth.exact_lse
    yield LEFT_OUT, lambda e, z: torch.logaddexp(sum_of(e, z), (e.visible & (z == -math.inf)).sum(-1).double().log())
    yield (
        LEFT_OUT_TERMS,
        lambda e, z: torch.logaddexp(
            sum_of(e, z), _terms(e).expand_as(z).masked_fill(~e.visible | (z > -math.inf), -math.inf).logsumexp(-1)
        ),
    )
    if _sink(effect) is not None:
        yield "leaves out the sink", lambda e, z: z.logsumexp(-1)
        yield "counts the sink twice", lambda e, z: torch.logaddexp(sum_of(e, z), _with(_sink(e), z))
        for words, head in HEADS:
            yield (
                f"has the sink of {words}",
                partial(lambda e, z, h: torch.logaddexp(z.logsumexp(-1), _other(e, z, h)), h=head),
            )
    for name in (
        "",
        *(
            n
            for n in visible_parts(effect.scene.case)
            if n in ("keys", "causal", "left", "right", "sequence", "blocks", "bitmap", "tree")
        ),
    ):
        words = hidden_words(name)
        yield (
            f"takes in {words} with their own logits",
            partial(lambda e, z, n: torch.logaddexp(sum_of(e, z), _over(e, hidden_by(e.scene, n))), n=name),
        )
        yield (
            f"takes in {words} with the logit 0",
            partial(
                lambda e, z, n: torch.logaddexp(
                    sum_of(e, z), hidden_by(e.scene, n).expand_as(z).sum(-1).double().log()
                ),
                n=name,
            ),
        )
        yield (
            f"takes in {words} with the largest logit of the row",
            partial(
                lambda e, z, n: torch.logaddexp(
                    sum_of(e, z), hidden_by(e.scene, n).expand_as(z).sum(-1).double().log() + z.amax(-1)
                ),
                n=name,
            ),
        )
    for t in TILES:
        for extent in tile_extents(t):
            yield (
                f"leaves out {extent.words}",
                partial(lambda e, z, x: _sink_with(e, z.masked_fill(x.where(e.scene), -math.inf)), x=extent),
            )
            yield (
                f"counts {extent.words} twice",
                partial(
                    lambda e, z, x: torch.logaddexp(
                        sum_of(e, z), z.masked_fill(~x.where(e.scene), -math.inf).logsumexp(-1)
                    ),
                    x=extent,
                ),
            )
            yield (
                f"holds {extent.words} alone",
                partial(lambda e, z, x: z.masked_fill(~x.where(e.scene), -math.inf).logsumexp(-1), x=extent),
            )
        yield (
            f"has as many keys more, with the logit 0, as fill the last tile of {t}",
            partial(lambda e, z, t: torch.logaddexp(sum_of(e, z), _padding(e, t)), t=t),
        )
        yield (
            f"has as many keys more, with the largest logit of the row, as fill the last tile of {t}",
            partial(lambda e, z, t: torch.logaddexp(sum_of(e, z), _padding(e, t) + z.amax(-1)), t=t),
        )
    yield from dropped_sums(effect, sum_of, _sink_with)
    yield from other_sums(effect, sum_of)
    yield "has one more of the largest logit of the row", lambda e, z: torch.logaddexp(sum_of(e, z), z.amax(-1))
    yield (
        "has one more of the logit 0",
        lambda e, z: torch.logaddexp(sum_of(e, z), torch.zeros((), dtype=torch.float64)),
    )
    yield "is the weight of the largest logit alone", lambda e, z: z.amax(-1)
    yield "is 1", lambda e, z: torch.zeros_like(z[..., 0])
    yield "is that of the logits in base 2", lambda e, z: sum_of(e, z * math.log(2))
    yield (
        "is the number of keys times the largest weight",
        lambda e, z: z.amax(-1) + torch.isfinite(z).sum(-1).double().log(),
    )


def sink_in_effect(rows: Sequence[Any]) -> str:
    """In words, what the sinks are instead of the declared ones if nothing but them is wrong with the row sums; empty where that is not so.

    Args:
        rows: cases with an `effect`, its `logits` and the `shift` of its rows.
    """
    found, declared, places = [], [], []
    for row in rows:
        sink, total = _sink(row.effect), row.logits.logsumexp(-1)
        if sink is None:
            return ""
        share = (-row.shift).exp() - total.exp()
        rough, least = _ROUGH * row.effect.relative.squeeze(-1), _READABLE * row.effect.floor
        told = (share > rough.clamp(min=0.01) * total.exp()) & ((total + row.shift).exp() > least)
        heavy = told & (row.shift > GONE) & ~row.effect.open_rows
        found.append(share.clamp(min=1e-30).log()[heavy])
        declared.append(sink.expand_as(share)[heavy])
        places.append((row.effect, sink.expand_as(share), heavy))
    value, sinks = torch.cat(found), torch.cat(declared)
    if len(value) < 4:
        return ""
    for words, of, declared_is in (
        ("{:.4g} times the declared one", value / sinks, 1.0),
        ("the declared one {:+.4g}", value - sinks, 0.0),
        ("{:.4g}", value, math.nan),
    ):
        middle = of.median()
        near = _NEAR * (0.1 + middle.abs())
        if bool(((of - middle).abs() <= near).all()):
            return "" if abs(middle - declared_is) <= near else f"the sink in effect is {words.format(float(middle))}"
    for words, other in sink_forms(rows[0].effect) if len(torch.unique(sinks)) >= _SINKS else ():
        made = torch.cat([other(effect, sink)[heavy] for effect, sink, heavy in places])
        if bool(((made - value).abs() <= _NEAR * (0.1 + value.abs())).all()):
            return f"the sink in effect is {words}"
    return _as_a_function(value, sinks)


def _as_a_function(value: Tensor, sinks: Tensor) -> str:
    """That the sinks in effect are another function of the declared ones, with some of its values; empty where they are none."""
    found: list[tuple[float, float]] = []
    for sink in sorted(set(sinks.tolist())):
        mine = value[sinks == sink]
        middle = float(mine.median())
        if bool(((mine - middle).abs() > _NEAR * (0.1 + abs(middle))).any()):
            return ""
        found.append((sink, middle))
    if len(found) < _SINKS or len(value) < 2 * len(found):
        return ""
    if limit := _limit(found):
        return f"the sink in effect is {limit}"
    picked = (found[0], found[len(found) // 2], found[-1])
    return "the sink in effect is a function of the declared one: " + ", ".join(
        f"{y:.3g} for {x:.3g}" for x, y in picked
    )


def _limit(found: list[tuple[float, float]]) -> str:
    """The number that limits the sinks, in words; empty where none does."""
    off = [(x, y) for x, y in found if abs(y - x) > _NEAR * (0.1 + abs(x))]
    if off and len(off) < len(found) and all(abs(y - off[0][1]) <= _NEAR * (0.1 + abs(y)) for _, y in off):
        words = "at least" * all(y > x for x, y in off) or "at most" * all(y < x for x, y in off)
        return f"the declared one, {words} {off[0][1]:.3g}" if words else ""
    return ""


def _with(sink: Tensor | None, z: Tensor) -> Tensor:
    assert sink is not None
    return sink.expand(z.shape[:3])


def _other(effect: Effect, z: Tensor, head: Callable[[Effect, Tensor], Tensor]) -> Tensor:
    """The sink of another query head for each."""
    sink = _with(_sink(effect), z)
    return sink[:, head(effect, torch.arange(sink.shape[1])) % sink.shape[1]]


def _sink_with(effect: Effect, logits: Tensor) -> Tensor:
    total, sink = logits.logsumexp(-1), _sink(effect)
    return total if sink is None else torch.logaddexp(total, sink)


def _over(effect: Effect, pairs: Tensor) -> Tensor:
    return effect.logits.masked_fill(~pairs, -math.inf).logsumexp(-1)


def _padding(effect: Effect, t: int) -> Tensor:
    keys = effect.scene.at.keys[:, None, :]
    return (-keys % t).double().log()
