"""The training: a step with the subject, its judgement, and the same step by the twins."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING

import torch

from flashverify.case.case import Values
from flashverify.case.memory.materialize import materialize
from flashverify.errors import NoVerdictError
from flashverify.training.attention import Exact, OfSubject, Plain
from flashverify.training.band import Lesson, band, error_bounds, loss_bands, twin_graph
from flashverify.training.batches import CHARACTERS, batch_of
from flashverify.training.judging import Judging
from flashverify.training.layers import case_of
from flashverify.training.model import Weights, initial, names_of
from flashverify.training.record import Finding, GradientNorm, Judged, Record, Step
from flashverify.training.trainings import Training
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject
    from flashverify.training.settings import Settings

__all__ = ["Course", "train"]

_THROUGH_ATTENTION = ("wq", "wk", "wv")


class Course:
    """A training step by step.

    Args:
        subject: the kernel under test.
        settings: of the training.
    """

    def __init__(self, subject: Subject, settings: Settings) -> None:
        self._subject, self._settings, self.case = subject, settings, case_of(subject, settings)
        start = initial(settings, len(CHARACTERS))
        self._start, self._lessons, self._sums = start, list[Lesson](), list[tuple[float, float]]()
        self._own, self._plain = Training(start, settings, rounded=True), Training(start, settings, rounded=True)
        self._float64 = Training(start, settings, rounded=False)
        self._judging = Judging(subject, settings.layers)
        self.steps: list[Step] = []
        self.findings: dict[tuple[str, str, int | None], Finding] = {}

    def step(self) -> Step:
        """The next step, judged.

        Raises:
            Exception: whatever the subject raises.
        """
        settings, number = self._settings, len(self.steps)
        tokens = batch_of(settings, number)
        weights = self._own.weights
        attention = OfSubject(self._subject, [self._problem(number, layer) for layer in range(settings.layers)])
        loss, gradients = self._own.step(tokens, attention)
        judged, bounds = list[Judged](), list[dict[str, torch.Tensor]]()
        for layer, call in enumerate(attention.calls):
            found = self._judging.judge(number, layer, call)
            for finding in found.found:
                self._add(finding)
            judged += found.judged
            bounds.append(error_bounds(call, found.bounds))
        inputs = [inputs_of(call.problem)[0].dense() for call in attention.calls]
        lesson = Lesson(tokens, inputs, bounds)
        whole = len(judged) == 4 * settings.layers
        same, same_band, norms = self._same_weights(weights, lesson, gradients) if whole else (math.nan, math.inf, ())
        if whole and len(self._lessons) == number < settings.unrolled:
            self._lessons.append(lesson)
        free, plain = Exact(inputs), Plain(inputs, settings.dtype)
        sums = loss, same, self._float64.step(tokens, free)[0], self._plain.step(tokens, plain)[0]
        self._sums.append((loss, sums[2]))
        mean = [x / tokens[:, 1:].numel() for x in (*sums, same_band)]
        step = Step(
            number=number,
            loss=mean[0],
            same_weights=mean[1],
            float64=mean[2],
            plain=mean[3],
            same_band=mean[4],
            outputs=tuple(judged),
            gradients=norms,
        )
        self.steps.append(step)
        self._ask(step)
        return step

    def loss_band(self) -> tuple[float, ...]:
        """The band of the loss of the first steps, per character; a loss outside it becomes a finding."""
        bands = loss_bands(self._start, self._lessons, self._settings) if self._lessons else []
        characters = self._settings.batch * self._settings.length
        for number, (width, (loss, exact)) in enumerate(zip(bands, self._sums, strict=False)):
            if not abs(loss - exact) <= width:
                off, wide = (loss - exact) / characters, width / characters
                message = (
                    f"the loss of step {number} is {off:+.2g} off that of the training in float64; {wide:.2g} is what "
                    "all bounds together allow to first order"
                )
                self._add(Finding(kind="loss", step=number, what="loss", message=message))
        return tuple(width / characters for width in bands)

    def raised(self, error: Exception) -> None:
        """What the subject raises in a later step is a finding."""
        name, number = type(error).__name__, len(self.steps)
        message = f"step {number} raised {name}: {str(error)[:500]}"
        self._add(Finding(kind="exception", step=number, what=name, message=message))

    def _add(self, finding: Finding) -> None:
        self.findings.setdefault((finding.kind, finding.what, finding.layer), finding)

    def _problem(self, step: int, layer: int) -> Problem:
        """The problem of a layer without values: they come from the model. The seed of dropout differs in every layer of every step."""
        seed = (self._settings.seed * 1_000_003 + step) * 101 + layer
        case = dataclasses.replace(self.case, values=Values(regime="zeros", seed=seed % 2**64))
        return materialize(case, self._settings.device)[0]

    def _same_weights(
        self, weights: Weights, lesson: Lesson, gradients: tuple[torch.Tensor, ...]
    ) -> tuple[float, float, tuple[GradientNorm, ...]]:
        """The twin's loss at the subject's weights, its band, and each gradient that attention enters against the twin's."""
        leaves = [w.detach().requires_grad_() for w in weights]
        loss, exact, errors, bounds = twin_graph(leaves, lesson, self._settings.heads)
        norms = []
        for name, mine, twins in zip(names_of(self._settings), gradients, exact, strict=True):
            if name.rstrip("0123456789") not in _THROUGH_ATTENTION:
                continue
            size = twins.detach().norm()
            along = twins.detach() / size.clamp(min=1e-300)
            norms.append(
                GradientNorm(
                    weight=name,
                    norm=float(mine.norm()),
                    exact=float(size),
                    off=float((along * (mine - twins.detach())).sum()),
                    band=band((along * twins).sum(), errors, bounds),
                )
            )
        return float(loss.detach()), band(loss, errors, bounds), tuple(norms)

    def _ask(self, step: Step) -> None:
        """A loss or a gradient outside its band at the same weights becomes a finding."""
        if not abs(step.loss - step.same_weights) <= step.same_band:
            message = (
                f"the loss of step {step.number} is {step.loss - step.same_weights:+.2g} off that of the float64 twin at the same "
                f"weights; {step.same_band:.2g} is what all bounds together allow to first order"
            )
            self._add(Finding(kind="loss", step=step.number, what="loss at the same weights", message=message))
        for one in step.gradients:
            if not abs(one.off) <= one.band:
                message = (
                    f"the gradient of {one.weight} is {one.off / one.exact:+.2g} of its norm off the float64 twin's at the same weights; "
                    f"{one.band / one.exact:.2g} is what all bounds together allow to first order"
                )
                self._add(Finding(kind="gradient", step=step.number, what=one.weight, message=message))


def train(subject: Subject, settings: Settings, *, told: Callable[[Step], None], stopped: Callable[[], bool]) -> Record:
    """Trains until the steps are taken, the time is over, a loss is not finite or somebody stops it.

    Args:
        subject: the kernel under test.
        settings: of the training.
        told: called after every step.
        stopped: asked before every step: whether to end here.

    Raises:
        UsageError: the subject does not accept the layers of the model.
        NoVerdictError: it raised in the first step, or returned what the model cannot go on with.
    """
    started, course, interrupted = time.monotonic(), Course(subject, settings), False
    while _goes_on(course.steps, settings, time.monotonic() - started):
        interrupted = stopped()
        if interrupted:
            break
        try:
            told(course.step())
        except NoVerdictError as error:
            raise NoVerdictError(f"{settings.subject}: {error}") from error
        except Exception as error:
            if not course.steps:
                raise NoVerdictError(f"{settings.subject} raised {type(error).__name__}: {str(error)[:500]}") from error
            course.raised(error)
            break
    return Record(
        settings=settings,
        subject=subject.name,
        evidence=subject.evidence(),
        case=str(course.case),
        loss_band=course.loss_band(),
        steps=tuple(course.steps),
        findings=tuple(course.findings.values()),
        interrupted=interrupted,
        seconds=time.monotonic() - started,
    )


def _goes_on(steps: list[Step], settings: Settings, seconds: float) -> bool:
    if not steps:
        return True
    enough = settings.steps is not None and len(steps) >= settings.steps
    late = settings.minutes is not None and seconds >= settings.minutes * 60
    return not enough and not late and math.isfinite(steps[-1].loss)
