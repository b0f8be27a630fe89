"""What a training showed, as plain data; JSON has null where a number is not finite."""

from __future__ import annotations

import msgspec

from flashverify.training.settings import Settings

__all__ = ["Finding", "GradientNorm", "Judged", "Record", "Step"]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One output of the subject in one layer of one step, against float64 given the same q, k, v and dO.

    Attributes:
        layer: its number.
        output: its name.
        ratio: the largest error over its bound.
        error: norm of the error over that of the exact values.
        bound: norm of the bounds over that of the exact values.
        low: the common fraction that the output has too much, of all steps so far, lies at or above this.
        high: and at or below this.
    """

    layer: int
    output: str
    ratio: float
    error: float
    bound: float
    low: float
    high: float


class GradientNorm(msgspec.Struct, frozen=True, kw_only=True):
    """The gradient of one weight, against that of the float64 twin at the same weights.

    Attributes:
        weight: its name, with the number of the layer.
        norm: of the gradient by the subject.
        exact: norm of the twin's.
        off: their difference along the twin's, signed.
        band: how large it may be, to first order.
    """

    weight: str
    norm: float
    exact: float
    off: float
    band: float


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step; losses are means per character, in nats.

    Attributes:
        number: of the step, from 0.
        loss: of the training with the subject.
        same_weights: of the float64 twin at the same weights.
        same_band: how far the two may be apart, to first order.
        float64: of a training of its own in float64, from the same start.
        plain: likewise with plain attention in the input dtype.
        outputs: of each layer.
        gradients: of the weights through which the gradients of attention enter.
    """

    number: int
    loss: float
    same_weights: float
    same_band: float
    float64: float
    plain: float
    outputs: tuple[Judged, ...]
    gradients: tuple[GradientNorm, ...]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a right subject does not do, where it was first seen.

    Attributes:
        kind: `accuracy` and `nonfinite` (an element), `systematic` (a fraction over all steps), `gradient` (of a weight), `loss`, `exception`.
        step: its number.
        what: the output or the weight.
        message: one sentence with numbers.
        layer: None where it concerns no one layer.
    """

    kind: str
    step: int
    what: str
    message: str
    layer: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, tag="record"):
    """A training.

    Attributes:
        settings: how it was asked for.
        subject: its name.
        evidence: what it ran on.
        case: the attention problem of a layer, as text.
        steps: that were taken.
        loss_band: how far `loss` may be from `float64` at the first steps, to first order, per character.
        findings: each once.
        interrupted: somebody ended it.
        seconds: of all of it.
    """

    settings: Settings
    subject: str
    evidence: str
    case: str
    steps: tuple[Step, ...]
    loss_band: tuple[float, ...]
    findings: tuple[Finding, ...]
    interrupted: bool
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 with findings, 3 where no step was judged, else 0."""
        return 1 if self.findings else 0 if self.steps else 3
