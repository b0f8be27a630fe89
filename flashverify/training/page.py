"""A training in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.training.record import Judged, Record

__all__ = ["page"]


def page(record: Record) -> str:
    """The page that the command prints."""
    settings, steps = record.settings, record.steps
    dropout = f", dropout {settings.dropout:g}" if settings.dropout else ""
    size = f"{settings.layers} layers, {settings.heads} heads, D {settings.dim}, {settings.batch} x {settings.length} characters"
    ended = ", interrupted" if record.interrupted else ""
    lines = [
        f"training: {record.subject}, {settings.dtype}{dropout}, {size} [{record.evidence}]",
        f"{len(steps)} step{'' if len(steps) == 1 else 's'} in {record.seconds:.0f} s{ended}",
    ]
    if steps:
        first, last = steps[0], steps[-1]
        lines += [
            f"loss: {first.loss:.3f} at first, {last.loss:.3f} at last; trained in float64 {last.float64:.3f}, with plain attention {last.plain:.3f}",
            "",
            *_outputs(record),
            "",
            *_gradients(record),
            "",
            *_loss(record),
        ]
    lines += [
        "",
        *(
            f"FAIL {finding.kind}: {finding.message}{_place(finding.layer, finding.step)}"
            for finding in record.findings
        ),
    ]
    if not record.findings:
        lines.append("nothing is outside what a right subject may do" if steps else "no step was judged")
    return "\n".join(lines)


def _place(layer: int | None, step: int) -> str:
    return f" (first in step {step})" if layer is None else f" (first in layer {layer}, step {step})"


def _outputs(record: Record) -> list[str]:
    lines = [
        "given the same q, k, v and dO, the worst of all steps; the fraction is that of all steps together:",
        f"  {'output':8}{'layer':>5}  {'error/bound':>11}  {'norm of error':>13}  {'of bounds':>9}  too large by a fraction between",
    ]
    last: dict[tuple[str, int], Judged] = {}
    ratios: dict[tuple[str, int], list[Judged]] = {}
    for step in record.steps:
        for one in step.outputs:
            last[one.output, one.layer] = one
            ratios.setdefault((one.output, one.layer), []).append(one)
    for (output, layer), one in last.items():
        of = ratios[output, layer]
        ratio, error, bound = (max(getattr(x, name) for x in of) for name in ("ratio", "error", "bound"))
        lines.append(
            f"  {output:8}{layer:>5}  {ratio:>11.2g}  {error:>13.1e}  {bound:>9.1e}  {one.low:+.1e} and {one.high:+.1e}"
        )
    return lines


def _gradients(record: Record) -> list[str]:
    lines = [
        "gradients at the same weights, the largest difference along the float64 twin's over its norm, and the band there:",
        f"  {'weight':8}{'step':>6}  {'norm':>9}  {'difference':>10}  {'band':>8}",
    ]
    for name in [one.weight for one in record.steps[0].gradients]:
        found = [(step.number, one) for step in record.steps for one in step.gradients if one.weight == name]
        number, worst = max(found, key=lambda each: abs(each[1].off) / max(each[1].exact, 1e-300))
        size = max(worst.exact, 1e-300)
        lines.append(
            f"  {name:8}{number:>6}  {worst.norm:>9.3g}  {worst.off / size:>+10.1e}  {worst.band / size:>8.1e}"
        )
    return lines


def _loss(record: Record) -> list[str]:
    off = max(abs(step.loss - step.same_weights) for step in record.steps)
    lines = [f"loss at the same weights: {off:.1e} off the float64 twin's at most (per character, in nats)"]
    if record.loss_band:
        pairs = list(zip(record.steps, record.loss_band, strict=False))
        off, wide = max(abs(step.loss - step.float64) for step, _ in pairs), record.loss_band[-1]
        band = f"{wide:.1e}" if math.isfinite(wide) else "without a bound"
        lines.append(
            f"loss of the training in float64: {off:.1e} off it at most in the first {len(pairs)} steps, where the band is derived "
            f"({band} at their end)"
        )
    return lines
