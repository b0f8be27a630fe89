"""The gradients of a truth with their bounds, from the oracle's own O and LSE and from given ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flashverify.outputs import BACKWARD, INPUT_GRADIENTS
from flashverify.truth.clock import timed
from flashverify.truth.empty_rows import with_dlse_of_empty_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from flashverify.numerics import BackwardBounds, ForwardBounds, OutputBound, StrictBound
    from flashverify.truth.values import Truth

    Pairs = dict[str, tuple[torch.Tensor, OutputBound]]
    """Value and bound by output."""
    Found = tuple[Pairs, Pairs]
    """Of all gradients, and what is strictly asked of `dv`, empty where nothing is sharper so."""

__all__ = ["Found", "Given", "GradientMode", "Pairs", "bounded", "gradients_of", "strict_pair"]


class Given(NamedTuple):
    """What was last asked of a truth: the O and LSE, the oracle's gradients given them, and what `given` said; None where nothing is known but the gradients."""

    o: torch.Tensor
    lse: torch.Tensor
    values: Any
    found: Found | None


class GradientMode(NamedTuple):
    """What a backward starts from.

    Attributes:
        values: the oracle's gradients of it.
        o: float64.
        lse: float64, natural.
        forward: the bounds of the forward for what is not the subject's own.
        stored: which of `o` and `lse` are the subject's own.
    """

    values: Any
    o: torch.Tensor
    lse: torch.Tensor
    forward: ForwardBounds | None
    stored: frozenset[str]


@timed
def bounded(truth: Truth, modes: Sequence[GradientMode]) -> list[Found]:
    """The gradients of each mode with their bounds; the terms of all modes are held at once."""
    from flashverify.numerics.backward import Mode, bounds_of_modes

    i = truth.inputs
    assert i.do is not None
    asked = [
        Mode(
            o=mode.o,
            lse=mode.lse,
            forward=mode.forward,
            stored=mode.stored or None,
            **{name: getattr(mode.values, name) for name in INPUT_GRADIENTS},
        )
        for mode in modes
    ]
    bounds = bounds_of_modes(truth.problem, asked, do=i.do, dlse=i.dlse, relative_buckets=i.relative_buckets)
    return [_paired(truth, mode, each) for mode, each in zip(modes, bounds, strict=True)]


def _paired(truth: Truth, mode: GradientMode, bounds: BackwardBounds) -> Found:
    i, found = truth.inputs, gradients_of(mode.values)
    if i.dlse is not None and truth.form.stored_delta == "minus_dlse":
        found["delta"] = (found["delta"] - i.dlse.double()).masked_fill(truth.empty_rows, 0.0)
    pairs = {name: (value, getattr(bounds, name)) for name, value in found.items()}
    if truth.sums_sink and i.dlse is not None and "dsink" in pairs:
        pairs["dsink"] = with_dlse_of_empty_rows(truth, *pairs["dsink"], conditional="lse" in mode.stored)
    return pairs, strict_pair("dv", bounds.strict)


def strict_pair(name: str, found: StrictBound | None) -> Pairs:
    """The value and bound of a strictly asked output, empty where there is none."""
    return {} if found is None else {name: (found.value, found.bound)}


def gradients_of(values: Any) -> dict[str, torch.Tensor]:
    """The gradients that there are, by name."""
    return {name: found for name in BACKWARD if (found := getattr(values, name)) is not None}
