"""One output against the oracle: a census of non-finite values first, then the ratio of error to bound, element by element."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.judge.plain import plain_comparison, within
from flashverify.judge.summary import measured, unravel
from flashverify.judge.verdict import OutputStats, Status, Verdict, to_hex
from flashverify.judge.wrong_map import wrong_map
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.judge.summary import Summary
    from flashverify.numerics.result import OutputBound

__all__ = [
    "Comparison",
    "Part",
    "compare_output",
    "plainly_right",
    "right_elements",
    "statistics",
    "without_statistics",
]


@dataclass(frozen=True, slots=True)
class Part:
    """Some positions of an output along one axis.

    Attributes:
        axis: `row` or `key`.
        positions: their numbers in the whole output, ascending.
        size: of the axis in the whole output.
    """

    axis: str
    positions: tuple[int, ...]
    size: int

    def __str__(self) -> str:
        return f"{len(self.positions):,} of {self.size:,} {self.axis}s"

    def index(self, output: str, index: tuple[int, ...]) -> tuple[int, ...]:
        """The index in the whole output of an element of the part."""
        place = output_spec(output).axis(self.axis)
        return tuple(self.positions[i] if axis == place else i for axis, i in enumerate(index))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found about one output: its failures and how close it came to the bound."""

    stats: OutputStats
    verdicts: tuple[Verdict, ...]


def plainly_right(
    output: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: OutputBound,
    *,
    mode: str = "end-to-end",
    pinned: torch.Tensor | None = None,
    pinned_value: float = 0.0,
) -> Comparison | None:
    """A comparison without failures and without statistics where every element, exempt ones too, is within its bound; None where that is not so.

    It costs a tenth of `compare_output`, which decides everything else. The arguments are those of `compare_output`.
    """
    from flashverify.numerics.known_absent import nowhere

    fixed = None if pinned is None or nowhere(pinned) else pinned
    if (fixed is not None or not within(got.double(), expected, bound)) and not bool(
        right_elements(got, expected, bound, fixed, pinned_value).all()
    ):
        return None
    return without_statistics(output, mode, got.numel())


def right_elements(
    got: torch.Tensor, expected: torch.Tensor, bound: OutputBound, pinned: torch.Tensor | None, pinned_value: float
) -> torch.Tensor:
    """bool: the elements that are within their bound, exempt ones too, and hold the contract's value where it fixes one."""
    right = ((got.double() - expected).abs_() <= bound.total) & ~bound.must_overflow
    if pinned is not None:
        right &= ~pinned | (got == pinned_value)
    return right


def without_statistics(output: str, mode: str, elements: int) -> Comparison:
    """The comparison of a right output of which nothing else is asked."""
    return Comparison(OutputStats(output=output, mode=mode, elements=elements, exempt=0, uninformative=0), ())


def compare_output(
    output: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: OutputBound,
    *,
    mode: str = "end-to-end",
    taint: torch.Tensor | None = None,
    pinned: torch.Tensor | None = None,
    pinned_value: float = 0.0,
    undefined: torch.Tensor | None = None,
    exact: Callable[[], torch.Tensor] | None = None,
    part: Part | None = None,
) -> Comparison:
    """Judges every element of `got`.

    Args:
        output: its name.
        got: the subject's values, any float dtype.
        expected: the oracle's, float64, same shape and units.
        bound: of the subject's form, in the same units.
        mode: `end-to-end`, `conditional`, `strict` or `saturated`.
        taint: bool, broadcasts to `got`: elements that a non-finite input may have reached; nothing is asked of them.
        pinned: bool, broadcasts: elements that must equal `pinned_value` exactly (empty rows, padding).
        pinned_value: the contract's value there.
        undefined: bool, broadcasts: elements about which the contract says nothing.
        exact: of mode `strict`, where `expected` is what a correct kernel of the form returns: the exact values, float64.
        part: which positions of the whole output these are; None is all of them.

    Returns:
        The statistics over the judged elements and one failing verdict per class of error.
    """
    import torch

    x = got.double()
    plain = plain_comparison(
        x, expected, bound, taint=taint, pinned=pinned, pinned_value=pinned_value, undefined=undefined
    )
    if plain is not None:
        counted = (plain.exempt, plain.uninformative, plain.telling)
        return Comparison(statistics(output, mode, x.numel(), counted, plain.summary, plain.signed, part), ())
    free = bound.exempt
    for mask in (taint, undefined):
        free = free if mask is None else free | mask
    judged = ~(free if pinned is None else free | pinned)
    total, overflow = bound.total, bound.may_overflow | bound.must_overflow
    difference = x - expected
    signed = (difference / total).masked_fill_(difference == 0, 0.0)
    numeric, classes = judged, dict[str, torch.Tensor]()
    if x.is_cuda or not math.isfinite(float(x.sum())):  # to ask a GPU costs more than the census of what is finite
        size = x.abs()
        numeric, infinite = judged & (size < math.inf), size == math.inf
        right_sign = torch.sign(x) == torch.sign(expected)
        allowed = (bound.may_overflow & right_sign) | bound.may_flip
        classes = {"nan": judged & torch.isnan(x), "inf": judged & infinite & ~allowed}
    ratio = torch.where(numeric, signed.abs(), 0.0)
    classes |= {"finite": numeric & bound.must_overflow, "bound": ~((ratio <= 1) | bound.must_overflow)}
    if pinned is not None:
        classes["pinned"] = (pinned if undefined is None else pinned & ~undefined).expand_as(x) & (x != pinned_value)
        if taint is not None:
            classes["pinned"] = classes["pinned"] & ~taint
    inside = numeric & ~overflow
    masks = [free.expand_as(x), bound.uninformative & judged, inside, judged & ~(expected.abs() <= total)]
    amount = torch.where(inside, signed.clamp(-1, 1), 0.0).sum()
    bias, counts, (worst, index, median, p99) = measured(amount, [*masks, *classes.values()], ratio, judged)
    exempt, vague, summed, telling = counts[:4]
    failing = [name for name, count in zip(classes, counts[4:], strict=True) if count]
    counted, mean = (exempt, vague, telling), bias / summed if summed else None
    stats = statistics(output, mode, x.numel(), counted, (worst, index, median, p99), mean, part)
    truth = None if exact is None or not failing else exact()
    return Comparison(
        stats,
        tuple(_failure(name, output, mode, classes[name], x, expected, bound, ratio, truth, part) for name in failing),
    )


def statistics(
    output: str,
    mode: str,
    elements: int,
    counts: tuple[int, int, int],
    summary: Summary,
    signed: float | None,
    part: Part | None = None,
) -> OutputStats:
    """The statistics of an output.

    Args:
        output: its name.
        mode: of the comparison.
        elements: of the output.
        counts: elements that are exempt, whose bound says nothing, and that are larger than their bound.
        summary: the worst ratio, its place, the median and the 99th percentile.
        signed: mean of the errors relative to their bounds, with their signs; None of nothing.
        part: which positions of the whole output these are; None is all of them.
    """
    (exempt, vague, telling), (worst, index, median, p99) = counts, summary
    return OutputStats(
        output=output,
        mode=mode,
        elements=elements,
        exempt=exempt,
        uninformative=vague,
        worst=to_hex(worst),
        median=to_hex(median),
        p99=to_hex(p99),
        index=index if part is None else part.index(output, index),
        signed="" if signed is None else to_hex(signed),
        telling=telling,
    )


_ERRORS = {"pinned": "empty-row"}
_ASKED = {
    "nan": "NaN where {reference}",
    "inf": "{got} where {reference}",
    "finite": "{got:.6g} where {reference}",
    "bound": "{got:.9g} where {reference}: error {error:.3g}, bound {bound:.3g}",
    "pinned": "{got:.6g} where no key is seen and the value is fixed by contract",
}


def _reference(name: str, mode: str, expected: float, exact: float | None) -> str:
    """What was expected of an element, and what kind of value that is."""
    number = f"{expected:.9g}" if name == "bound" else f"{expected:.6g}"
    if mode == "strict":
        known = "" if exact is None else f" (the exact value is {exact:.9g})"
        return f"a correct kernel of this form returns {number}{known}"
    given = " given the kernel's own O and LSE" if mode == "conditional" else ""
    return f"the exact value{given} {number} overflows" if name == "finite" else f"the exact value{given} is {number}"


def _failure(
    name: str,
    output: str,
    mode: str,
    where: torch.Tensor,
    x: torch.Tensor,
    expected: torch.Tensor,
    bound: OutputBound,
    ratio: torch.Tensor,
    exact: torch.Tensor | None,
    part: Part | None,
) -> Verdict:
    """The verdict of one class of error, at its worst element (the first one where there is no worst)."""
    import torch

    key = torch.where(where, ratio, -torch.ones_like(ratio)) if name == "bound" else where.to(torch.int8)
    position = int(key.reshape(-1).argmax())
    index, of = unravel(position, x.shape), ""
    if part is not None:
        index, of = part.index(output, index), f", {part}"
    values = {
        "got": float(x.reshape(-1)[position]),
        "expected": float(expected.reshape(-1)[position]),
        "bound": float(bound.total.reshape(-1)[position]),
    }
    values["error"] = abs(values["got"] - values["expected"])
    reference = _reference(
        name, mode, values["expected"], None if exact is None else float(exact.reshape(-1)[position])
    )
    count = int(where.sum())
    return Verdict(
        check="accuracy" if name in ("bound", "pinned") else "nonfinite",
        status=Status.FAIL,
        output=output,
        error=_ERRORS.get(name, name),
        mode=mode,
        ratio=to_hex(float(ratio.reshape(-1)[position])) if name == "bound" else "",
        index=index,
        message=f"{output}{list(index)} is {_ASKED[name].format(**values, reference=reference)} ({count} of {x.numel()} elements, {mode}{of})",
        map=wrong_map(output, where.expand_as(x)) if part is None else None,
    )
