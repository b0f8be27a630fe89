"""How far a loss and a gradient may be from the float64 twin, to first order, where every element of attention is within its bound.

The twin runs with an error added at each place where the subject's may have one; all of these are 0. The derivative of a number by each of
them, times the bound of that error, summed over magnitudes, is how far the number may be off: errors may all have the worst sign. Errors
are those of O, dQ, dK and dV, the casts of q, k, v and dO to the input dtype, and over several steps the rounding of the
weights to fp32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.formats import FORMATS
from flashverify.training.attention import ErrorVariables, Exact
from flashverify.training.model import loss_of, moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.training.attention import Call
    from flashverify.training.settings import Settings
    from flashverify.truth import Inputs

__all__ = ["Lesson", "band", "error_bounds", "loss_bands", "twin_graph"]

Bounds = dict[str, torch.Tensor]


class Lesson:
    """One step as any attention repeats it.

    Args:
        tokens: `[B, S + 1]`.
        inputs: of each layer, what `Exact` needs.
        bounds: of each layer, of the errors by name.
    """

    def __init__(self, tokens: torch.Tensor, inputs: list[Inputs], bounds: list[Bounds]) -> None:
        self.tokens, self.inputs, self.bounds = tokens, inputs, bounds


def error_bounds(call: Call, outputs: Bounds) -> Bounds:
    """The bound of every error of `ErrorVariables`: of the outputs as they were judged, of the casts half a spacing."""
    form = FORMATS[call.problem.case.dtype]
    given = {name: getattr(call.problem, name).double().abs() for name in ("q", "k", "v", "do")}
    casts = {name: x * (form.u * (1 + 2 * form.u)) + form.min_subnormal / 2 for name, x in given.items()}
    return casts | outputs


def twin_graph(
    weights: Sequence[torch.Tensor], lesson: Lesson, heads: int
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], list[torch.Tensor], list[torch.Tensor]]:
    """Loss, gradients of the weights, the error variables and their bounds; the graph is kept for derivatives of all of them.

    Args:
        weights: that require a gradient.
        lesson: the step.
        heads: of the model.
    """
    attention = ErrorVariables(Exact(lesson.inputs))
    loss = loss_of(weights, lesson.tokens, attention, heads)
    gradients = torch.autograd.grad(loss, list(weights), create_graph=True)
    errors = [x for layer in attention.errors for x in layer.values()]
    bounds = [
        bound[name].to(loss.device)
        for layer, bound in zip(attention.errors, lesson.bounds, strict=True)
        for name in layer
    ]
    return loss, gradients, errors, bounds


def band(number: torch.Tensor, errors: list[torch.Tensor], bounds: list[torch.Tensor]) -> float:
    """How far a number may be off to first order; infinite where it depends on an element without a bound."""
    slopes = torch.autograd.grad(number, errors, retain_graph=True, allow_unused=True)
    parts = [
        torch.where(slope == 0, 0.0, slope.abs() * bound).sum()
        for slope, bound in zip(slopes, bounds, strict=True)
        if slope is not None
    ]
    return float(torch.stack(parts).sum()) if parts else 0.0


def loss_bands(start: Sequence[torch.Tensor], lessons: list[Lesson], settings: Settings) -> list[float]:
    """The band of the summed loss of each step of a training from `start`, whose every step may err.

    Args:
        start: the weights before the first step.
        lessons: the steps.
        settings: of the training.
    """
    weights = list(start)
    momentum = [torch.zeros_like(w) for w in weights]
    errors: list[torch.Tensor] = []
    bounds: list[torch.Tensor] = []
    bands = []
    for number, lesson in enumerate(lessons):
        rounding = [torch.zeros_like(w, requires_grad=True) for w in weights]
        weights = [w + e for w, e in zip(weights, rounding, strict=True)]
        if number:
            errors += rounding
            bounds += [w.detach().abs() * (FORMATS["fp32"].u * (1 + 1e-6)) for w in weights]
        loss, gradients, more, their = twin_graph(weights, lesson, settings.heads)
        errors, bounds = errors + more, bounds + their
        bands.append(band(loss, errors, bounds))
        characters = lesson.tokens[:, 1:].numel()
        weights, momentum = moved(weights, momentum, [g / characters for g in gradients], settings.rate)
    return bands
