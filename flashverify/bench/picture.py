"""A run of measurements as one picture: a panel for each pass, dtype, mask and head dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashverify.bench.limits import LIMITS, limit_times
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from flashverify.bench.records import Measurement, Workload

__all__ = ["FORMATS", "check_picture", "draw"]

FORMATS = (".svg", ".png")
_COLUMNS = 4
_COLOURS = ("#1769c4", "#c2571a", "#2b8a57", "#8a4fb5", "#a8487a", "#7a6a00")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), "-.", (0, (7, 2, 1, 2)), ":")
_MARKERS = "os^DvP"
_INK, _MUTED, _GRID = "#1c2530", "#5c6773", "#c3cad2"


def check_picture(path: Path) -> None:
    """Refuses a file that a picture cannot be written to.

    Raises:
        UsageError: its suffix is none of `FORMATS`, or its folder does not exist.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"--picture={str(path)!r} is not accepted: a file whose name ends with {' or '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--picture={str(path)!r} is not accepted: there is no folder {str(path.absolute().parent)!r}")


def draw(found: Sequence[Measurement], path: Path, *, machine: str) -> None:
    """Writes the picture: TFLOP/s by length, or GB/s of K and V where a copy is the limit, below the roofline that was measured.

    Args:
        found: at least one measurement.
        path: of the file, SVG or PNG.
        machine: what it was measured on, for the title.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels: dict[str, list[Measurement]] = {}
    for item in found:
        panels.setdefault(_panel(item.workload), []).append(item)
    subjects = [name for name in dict.fromkeys(item.subject for item in found) if name not in LIMITS]
    columns = min(_COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "flashverify", "svg.fonttype": "none", "font.size": 8})
        figure = Figure(figsize=(max(4.8, 3.1 * columns), 2.5 * lines + 0.9), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False)
        plots: list[Axes] = list(axes.flat)
        for plot, (title, items) in zip(plots, panels.items(), strict=False):
            _draw_panel(plot, title, items, subjects)
        for plot in plots[len(panels) :]:
            plot.set_axis_off()
        figure.suptitle(machine, fontsize=8, color=_MUTED)
        handles = {
            label: handle for plot in plots for handle, label in zip(*plot.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=min(4, len(handles)), frameon=False)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, metadata=metadata, dpi=160)


def _panel(workload: Workload) -> str:
    heads = "" if workload.heads_q == workload.heads_kv else f", {workload.heads_q}:{workload.heads_kv} heads"
    queries = "" if workload.seq_q == workload.seq_k else f", {workload.seq_q} queries"
    mask = ", causal" if workload.causal else ""
    return f"{workload.direction}, {workload.dtype}, D = {workload.dim}{mask}{heads}{queries}"


def _draw_panel(plot: Axes, title: str, items: Sequence[Measurement], subjects: Sequence[str]) -> None:
    lengths = sorted({item.workload.seq_k for item in items})
    limits = {length: _limits(items, length) for length in lengths}
    copied = all(bytes_ > products for products, bytes_ in limits.values())
    place = {length: x for x, length in enumerate(lengths)}

    def speed(workload: Workload, milliseconds: float) -> float:
        return (workload.bytes / 1e6 if copied else workload.operations / 1e9) / milliseconds

    for number, name in enumerate(subjects):
        own = [item for item in items if item.subject == name and item.milliseconds]
        style: dict[str, Any] = {"color": _COLOURS[number % 6], "marker": _MARKERS[number % 6], "markersize": 4}
        xs = [place[item.workload.seq_k] for item in own]
        ys = [speed(item.workload, item.median) for item in own]
        if own:
            plot.plot(xs, ys, label=name, linestyle=_DASHES[number % 6], linewidth=1.4, **style)
    works = {item.workload.seq_k: item.workload for item in items}
    roof = [speed(works[length], max(limits[length])) for length in lengths]
    for x, y in zip(range(len(lengths)), roof, strict=True):
        plot.plot(
            [x - 0.35, x + 0.35], [y, y], color=_INK, linewidth=1.2, label="roofline, measured" if x == 0 else None
        )
    plot.set_title(title, fontsize=8, color=_INK, loc="left")
    plot.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
    plot.set_xlim(-0.5, len(lengths) - 0.5)
    plot.set_ylim(0)
    plot.set_xlabel("keys", color=_MUTED)
    plot.set_ylabel("GB/s of K and V" if copied else "TFLOP/s", color=_MUTED)
    plot.grid(axis="y", color=_GRID, linewidth=0.6)
    plot.tick_params(length=0, labelcolor=_MUTED)
    for side in plot.spines.values():
        side.set_visible(False)


def _limits(items: Sequence[Measurement], length: int) -> tuple[float, float]:
    own = [item for item in items if item.workload.seq_k == length]
    return limit_times(own[0].workload, {item.subject: item for item in own})
