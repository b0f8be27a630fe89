"""A training as a picture: PNG, the same for the same record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from matplotlib.axes import Axes

    from flashverify.training.record import Judged, Record

__all__ = ["draw"]

_OUTPUTS = {"o": ("O", "#2f6fab"), "dq": ("dQ", "#d08a1d"), "dk": ("dK", "#b3261e"), "dv": ("dV", "#4a8f5c")}
_SUBJECT, _PLAIN, _SAME, _LIMIT = "#2f6fab", "#d08a1d", "#4a8f5c", "#b3261e"
_INK, _MUTED, _GRID = "#1c2530", "#5c6773", "#dde2e7"
_DASHES: tuple[object, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)))


def draw(record: Record, path: Path) -> None:
    """Writes four panels: losses, their distances, norms of errors with their bounds, and the common fractions.

    Args:
        record: of a training with a step at least.
        path: of the PNG.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: tuple[tuple[str, Callable[[Axes, Record], None]], ...] = (
        ("Loss per character, nats", _losses),
        ("Distance of the loss from float64, nats", _distances),
        ("Norm of the error of dQ, dK, dV over their own", _norms),
        ("Common fraction that all steps so far allow", _fractions),
    )
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9.0, "font.family": "DejaVu Sans"})
        figure = Figure(figsize=(11.0, 7.6), dpi=100, facecolor="white")
        FigureCanvasAgg(figure)
        for n, (title, panel) in enumerate(panels):
            axes = figure.add_axes(((0.075, 0.575)[n % 2], (0.535, 0.075)[n // 2], 0.40, 0.345))
            panel(axes, record)
            axes.set_title(title, loc="left", fontweight="bold", fontsize=10, color=_INK)
            axes.set_xlabel("step", color=_MUTED, labelpad=1)
            axes.grid(color=_GRID, linewidth=0.5)
            axes.set_axisbelow(True)
            axes.tick_params(colors=_MUTED, labelsize=8, length=2.5)
            axes.legend(fontsize=7.5, frameon=False, ncols=2 if n else 1, loc="upper right")
            for side in axes.spines.values():
                side.set_color(_GRID)
        settings = record.settings
        verdict = f"{len(record.findings)} findings" if record.findings else "nothing outside"
        figure.text(
            0.05,
            0.955,
            f"{record.subject}: a training of {len(record.steps)} steps, {verdict}",
            fontsize=13,
            fontweight="bold",
        )
        line = f"{settings.dtype}, dropout {settings.dropout:g}, {record.case}   [{record.evidence}]"
        figure.text(0.05, 0.928, line[:165], fontsize=8.2, color=_MUTED)
        figure.savefig(path, metadata={"Software": None})


def _losses(axes: Axes, record: Record) -> None:
    xs = [step.number for step in record.steps]
    axes.plot(
        xs, [step.plain for step in record.steps], color=_PLAIN, linewidth=3.6, alpha=0.35, label="plain attention"
    )
    axes.plot(xs, [step.loss for step in record.steps], color=_SUBJECT, linewidth=1.8, label="the subject")
    dash = (0, (3, 3))
    axes.plot(xs, [step.float64 for step in record.steps], color=_INK, linewidth=0.9, linestyle=dash, label="float64")


def _distances(axes: Axes, record: Record) -> None:
    xs, steps = [step.number for step in record.steps], record.steps
    axes.plot(
        xs,
        _known(abs(s.loss - s.float64) for s in steps),
        color=_SUBJECT,
        linewidth=1.5,
        label="the subject's training",
    )
    axes.plot(
        xs,
        _known(abs(s.plain - s.float64) for s in steps),
        color=_PLAIN,
        linewidth=1.0,
        label="that with plain attention",
    )
    same = _known(abs(s.loss - s.same_weights) for s in steps)
    axes.plot(xs, same, color=_SAME, linewidth=0.9, label="the subject, at the same weights")
    axes.plot(
        xs,
        _known(s.same_band for s in steps),
        color=_LIMIT,
        linewidth=0.9,
        linestyle=(0, (1, 1.5)),
        label="band at the same weights",
    )
    band = _known(record.loss_band)
    axes.plot(xs[: len(band)], band, color=_LIMIT, linewidth=1.8, label=f"band of a training, {len(band)} steps")
    _logarithmic(axes)


def _norms(axes: Axes, record: Record) -> None:
    for (output, layer), found in _by_output(record).items():
        if output == "o":
            continue
        xs = [number for number, _ in found]
        (name, colour), dash = _OUTPUTS[output], _DASHES[layer % len(_DASHES)]
        axes.plot(
            xs,
            _known(one.error for _, one in found),
            color=colour,
            linewidth=1.2,
            linestyle=dash,
            label=f"{name}, layer {layer}",
        )
        axes.plot(xs, _known(one.bound for _, one in found), color=colour, linewidth=0.7, linestyle=dash, alpha=0.45)
    axes.plot([], [], color=_MUTED, linewidth=0.7, alpha=0.6, label="norms of the bounds: pale")
    _logarithmic(axes)


def _fractions(axes: Axes, record: Record) -> None:
    ends = []
    for (output, layer), found in _by_output(record).items():
        xs = [number for number, _ in found]
        (name, colour), dash = _OUTPUTS[output], _DASHES[layer % len(_DASHES)]
        low, high = _known(one.low for _, one in found), _known(one.high for _, one in found)
        axes.plot(xs, low, color=colour, linewidth=1.1, linestyle=dash, label=f"{name}, layer {layer}")
        axes.plot(xs, high, color=colour, linewidth=1.1, linestyle=dash)
        ends += [abs(x) for x in (*low[len(low) // 2 :], *high[len(high) // 2 :]) if math.isfinite(x)]
    axes.axhline(0, color=_INK, linewidth=0.9)
    widest = 2.5 * max(ends, default=0.0)
    if widest > 0:
        axes.set_ylim(-widest, widest)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


def _logarithmic(axes: Axes) -> None:
    """A logarithmic axis with room for the legend above the curves."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.35)


def _by_output(record: Record) -> dict[tuple[str, int], list[tuple[int, Judged]]]:
    found: dict[tuple[str, int], list[tuple[int, Judged]]] = {}
    for step in record.steps:
        for one in step.outputs:
            found.setdefault((one.output, one.layer), []).append((step.number, one))
    return found


def _known(values: Iterable[float]) -> list[float]:
    """What can be drawn; a gap elsewhere, and where a distance is 0."""
    return [x if math.isfinite(x) and x != 0 else math.nan for x in values]
