"""What the sinks may be instead of the declared ones, by formulas of the case."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Sink = Callable[[Effect, Tensor], Tensor]
    """Of an effect and the declared sinks `[B, Hq, Sq]`, others."""

__all__ = ["sink_forms"]

_LOG2E = 1.0 / math.log(2.0)


def sink_forms(effect: Effect) -> Iterator[tuple[str, Sink]]:
    """Sinks in words, to follow `the sink in effect is`, and their values."""
    if effect.scene.case.logits.softcap:
        yield "under the softcap, as a logit is", lambda e, x: _cap(e) * torch.tanh(x / _cap(e))
        yield "clamped at the softcap", lambda e, x: torch.minimum(torch.maximum(x, -_cap(e)), _cap(e))
        yield "the declared one times the softcap", lambda e, x: x * _cap(e)
        yield "the declared one over the softcap", lambda e, x: x / _cap(e)
        yield "the softcap times the tanh of the declared one", lambda e, x: _cap(e) * torch.tanh(x)
        yield "the tanh of the declared one over the softcap", lambda e, x: torch.tanh(x / _cap(e))
    yield "the declared one times the scale", lambda e, x: x * e.scene.inputs.scale
    yield "the declared one over the scale", lambda e, x: x / (e.scene.inputs.scale or math.nan)
    yield "the declared one times sqrt(D)", lambda e, x: x * math.sqrt(e.scene.case.dim_qk)
    yield "the declared one times log2(e)", lambda _, x: x * _LOG2E
    yield "the declared one times ln 2", lambda _, x: x / _LOG2E
    yield "minus the declared one", lambda _, x: -x
    yield "the magnitude of the declared one", lambda _, x: x.abs()
    yield "the declared one where it is positive, else 0", lambda _, x: x.clamp(min=0)
    yield "the declared one where it is negative, else 0", lambda _, x: x.clamp(max=0)
    yield "the exponential of the declared one", lambda _, x: x.exp()
    yield "the logarithm of the declared one", lambda _, x: x.log()
    yield "the tanh of the declared one", lambda _, x: torch.tanh(x)
    yield "the declared one rounded to a whole number", lambda _, x: x.round()
    yield "the square of the declared one", lambda _, x: x * x
    yield "the mean of all heads", lambda _, x: x.mean(1, keepdim=True).expand_as(x)
    yield "the largest of all heads", lambda _, x: x.amax(1, keepdim=True).expand_as(x)
    yield "the sum of all heads", lambda _, x: x.sum(1, keepdim=True).expand_as(x)
    for words, of in _GROUPS:
        yield f"the {words} of the heads of its group", lambda e, x, f=of: _of_group(e, x, f)  # type: ignore[misc]
    for words, other in _ELSEWHERE:
        yield f"that of query head {words}", lambda e, x, f=other: x.gather(1, f(e, x) % x.shape[1])  # type: ignore[misc]
    for words, count in _COUNTS:
        yield f"the declared one plus the logarithm of {words}", lambda e, x, f=count: x + f(e).log()  # type: ignore[misc]
        yield f"the declared one minus the logarithm of {words}", lambda e, x, f=count: x - f(e).log()  # type: ignore[misc]
    yield "the largest logit of the row", lambda e, x: _largest(e).expand_as(x)
    yield "the declared one above the largest logit of the row", lambda e, x: x + _largest(e)
    yield "the declared one below the largest logit of the row", lambda e, x: _largest(e) - x
    yield "the declared one, at most the largest logit of the row", lambda e, x: torch.minimum(x, _largest(e))
    yield "the declared one, at least the largest logit of the row", lambda e, x: torch.maximum(x, _largest(e))


def _cap(effect: Effect) -> Tensor:
    return torch.tensor(effect.scene.case.logits.softcap or math.nan, dtype=torch.float64)


def _largest(effect: Effect) -> Tensor:
    return effect.logits.masked_fill(~effect.visible, -math.inf).amax(-1)


def _of_group(effect: Effect, x: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    group = effect.scene.group
    return of(x.reshape(x.shape[0], -1, group, x.shape[2])).expand(-1, -1, group, -1).flatten(1, 2)


_GROUPS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("mean", lambda x: x.mean(2, keepdim=True)),
    ("sum", lambda x: x.sum(2, keepdim=True)),
    ("largest one", lambda x: x.amax(2, keepdim=True)),
)


def _heads(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1]).view(1, -1, 1).expand_as(x)


_ELSEWHERE: tuple[tuple[str, Callable[[Effect, Tensor], Tensor]], ...] = (
    ("i, the number of the row, modulo Hq", lambda e, x: e.scene.at.row[:, None].expand_as(x)),
    ("b, the number of the sequence, modulo Hq", lambda e, x: e.scene.at.row_sequence[:, None].expand_as(x)),
    ("(h + i) modulo Hq", lambda e, x: _heads(x) + e.scene.at.row[:, None]),
    ("(h + b) modulo Hq", lambda e, x: _heads(x) + e.scene.at.row_sequence[:, None]),
    ("h ^ 1", lambda _, x: _heads(x) ^ 1),
    ("Hq - 1 - h", lambda _, x: x.shape[1] - 1 - _heads(x)),
    ("h // 2", lambda _, x: _heads(x) // 2),
    ("2 * h modulo Hq", lambda _, x: 2 * _heads(x)),
    (
        "h % group * Hkv + h // group",
        lambda e, x: _heads(x) % e.scene.group * e.scene.case.heads_kv + _heads(x) // e.scene.group,
    ),
    (
        "h % Hkv * group + h // Hkv",
        lambda e, x: _heads(x) % e.scene.case.heads_kv * e.scene.group + _heads(x) // e.scene.case.heads_kv,
    ),
)
_COUNTS: tuple[tuple[str, Callable[[Effect], Tensor]], ...] = (
    ("the number of keys that the row sees", lambda e: e.visible.sum(-1).double()),
    ("the number of keys", lambda e: e.scene.at.keys[:, None].double()),
    ("the number of rows", lambda e: e.scene.at.rows[:, None].double()),
    ("the size of a group", lambda e: torch.tensor(float(e.scene.group))),
    ("the number of query heads", lambda e: torch.tensor(float(e.scene.case.heads_q))),
    ("the number of splits", lambda e: torch.tensor(float(max(e.scene.form.n_splits, 1)))),
    ("D", lambda e: torch.tensor(float(e.scene.case.dim_qk))),
)
"""Numbers that something that is added so often brings in."""
