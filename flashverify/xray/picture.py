"""The masks in effect as a picture: PNG, the same for the same x-ray."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from flashverify.xray.difference import kinds

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from flashverify.xray.measure import Xray
    from flashverify.xray.view import View

__all__ = ["LEAK_PICTURE", "draw"]

LEAK_PICTURE = "docs/images/xray_leak.png"
"""The picture of the documentation, relative to the repository; `benchmarks/xray_picture.py` draws it."""

# Told apart by lightness as well as by hue: red dark, blue middle, amber light.
_COLOURS = {
    "masked": "#f3f4f6",
    "seen": "#9aa5b1",
    "unread": "#d8cbe9",
    "leaked": "#b3151d",
    "dropped": "#1769c4",
    "doubled": "#f4a91f",
    "not-integer": "#7a2fa0",
}
_CODES = {name: code for code, name in enumerate(_COLOURS)}
_WORDS = {
    "masked": "masked",
    "seen": "seen once",
    "unread": "cannot be told",
    "leaked": "leaked: masked, but seen",
    "dropped": "dropped: visible, but not seen",
    "doubled": "doubled: seen more than once",
    "not-integer": "no whole number",
}
_TITLES = {
    "o": "forward: keys that enter O",
    "dv": "backward: rows that enter dV",
    "dq": "backward: keys that enter dQ",
    "dk": "backward: rows that enter dK",
}
_CELLS = 1024
"""Most cells along an axis; more are drawn together, the worst of them seen."""
_INK, _MUTED, _GRID = "#1c2530", "#5c6773", "#c3cad2"


def draw(xray: Xray, path: Path, *, tile: tuple[int, int] | None = None) -> None:
    """Writes the picture of one head: of the first that differs, or of the first.

    Args:
        xray: what was measured.
        path: of the PNG.
        tile: rows and keys of the tiles whose edges are drawn; by default those of the case's launch parameters, if any.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    views = [view for output in ("o", "dv", "dq", "dk") if (view := xray.view(output)) is not None]
    place = _head(views)
    tile = tile or _launch_tile(xray)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9.0, "axes.titlesize": 10.0, "font.family": "DejaVu Sans"})
        forward = [("declared", views[0]), ("found", views[0]), ("wrong", views[0])]
        panels = forward + [("found", view) for view in views[1:]]
        lines = -(-len(panels) // 3)
        figure = Figure(figsize=(11.0, 1.55 + 3.95 * lines), dpi=150, facecolor="white")
        FigureCanvasAgg(figure)
        top, bottom = figure.get_figheight() - 0.92, 0.42
        used: set[str] = set()
        for n, (kind, view) in enumerate(panels):
            column, line = n % 3, n // 3
            height = (top - bottom) / lines
            axes = figure.add_axes(
                (
                    (0.62 + column * 3.5) / 11.0,
                    (top - (line + 1) * height + 0.48) / figure.get_figheight(),
                    3.1 / 11.0,
                    (height - 1.0) / figure.get_figheight(),
                )
            )
            used |= _panel(axes, xray, kind, view, place, tile, left=column == 0)
        _headline(figure, xray, place)
        _legend(figure, used)
        figure.savefig(path, metadata={"Software": None})


def _head(views: list[View]) -> tuple[int, int]:
    for view in views:
        wrong = view.wrong.flatten(2).any(2).nonzero()
        if len(wrong):
            return int(wrong[0, 0]), int(wrong[0, 1])
    return 0, 0


def _launch_tile(xray: Xray) -> tuple[int, int] | None:
    launch = dict(xray.case.launch)
    return (launch["block_m"], launch["block_n"]) if {"block_m", "block_n"} <= set(launch) else None


def _panel(
    axes: Axes, xray: Xray, kind: str, view: View, place: tuple[int, int], tile: tuple[int, int] | None, *, left: bool
) -> set[str]:
    from matplotlib.colors import BoundaryNorm, ListedColormap

    codes = _codes(kind, view, place)
    image = _pooled(codes)
    case = xray.case
    axes.imshow(
        image,
        cmap=ListedColormap(list(_COLOURS.values())),
        norm=BoundaryNorm(np.arange(len(_COLOURS) + 1) - 0.5, len(_COLOURS)),
        interpolation="nearest",
        aspect="auto",
        extent=(0, case.seq_k, case.seq_q, 0),
    )
    titles = {"declared": "declared mask", "wrong": "forward: wrong pairs alone"}
    axes.set_title(titles.get(kind, _TITLES[view.output]), color=_INK, pad=18, loc="left", fontweight="bold")
    axes.text(0, 1.018, _tally(kind, view, place), transform=axes.transAxes, color=_MUTED, fontsize=8.2, va="bottom")
    step_k, step_q = _step(case.seq_k, tile and tile[1]), _step(case.seq_q, tile and tile[0])
    axes.set_xticks(range(0, case.seq_k + 1, step_k))
    axes.set_yticks(range(0, case.seq_q + 1, step_q))
    axes.tick_params(length=2.5, color=_GRID, labelcolor=_MUTED, labelsize=8)
    axes.set_xlabel("key", color=_MUTED, labelpad=1)
    if left:
        axes.set_ylabel("query row", color=_MUTED, labelpad=2)
    else:
        axes.tick_params(labelleft=False)
    for side in axes.spines.values():
        side.set_color(_GRID)
    if tile is not None and max(case.seq_q // tile[0], case.seq_k // tile[1]) <= 32:
        for row in range(tile[0], case.seq_q, tile[0]):
            axes.axhline(row, color=_INK, linewidth=0.5, alpha=0.45)
        for key in range(tile[1], case.seq_k, tile[1]):
            axes.axvline(key, color=_INK, linewidth=0.5, alpha=0.45)
    return {name for name, code in _CODES.items() if bool((codes == code).any())}


def _codes(kind: str, view: View, place: tuple[int, int]) -> NDArray[np.int64]:
    seen = (view.declared if kind != "found" else view.effective)[place].cpu().numpy() > 0
    codes = np.where(seen, _CODES["seen"], _CODES["masked"])
    if kind == "declared":
        return codes
    if kind == "wrong":
        codes = np.full(seen.shape, _CODES["masked"])
    elif view.exact or view.unread[place].all():
        codes[view.unread[place].cpu().numpy()] = _CODES["unread"]
    for name, cells in kinds(view).items():
        codes[cells[place].cpu().numpy()] = _CODES[name]
    return codes


def _tally(kind: str, view: View, place: tuple[int, int]) -> str:
    if kind == "declared":
        return f"{int(view.declared[place].sum()):,} visible pairs"
    delta = view.delta[place].abs()
    parts = [
        f"{int(delta[cells[place]].sum()) if name != 'not-integer' else int(cells[place].sum()):,} {name}"
        for name, cells in kinds(view).items()
        if bool(cells[place].any())
    ]
    return ", ".join(parts) or "as declared"


def _pooled(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most `_CELLS` cells along each axis; the highest code, the worst, stands for all."""
    for axis in (0, 1):
        size = codes.shape[axis]
        if size > _CELLS:
            starts = np.unique(np.linspace(0, size, _CELLS, endpoint=False).astype(np.int64))
            codes = np.maximum.reduceat(codes, starts, axis=axis)
    return codes


def _step(size: int, tile: int | None) -> int:
    """Distance of the ticks: a multiple of the tile, or of a quarter of a power of two, at most eight of them."""
    step = tile or max(1, 2 ** (max(1, size - 1).bit_length() - 2))
    while size / step > 8:
        step *= 2
    return step


def _headline(figure: object, xray: Xray, place: tuple[int, int]) -> None:
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    case = xray.case
    several = case.batch * case.heads_q > 1
    where = f", batch {place[0]}, head {place[1]}" if several else ""
    height = figure.get_figheight()
    title = f"{xray.subject}: the mask in effect{where}"
    figure.text(0.62 / 11, 1 - 0.34 / height, title, fontsize=14, fontweight="bold", color=_INK)
    line = textwrap.shorten(f"{case}   [{xray.evidence}]", 165, placeholder=" ...")
    figure.text(0.62 / 11, 1 - 0.60 / height, line, fontsize=8.4, color=_MUTED, family="DejaVu Sans Mono")


def _legend(figure: object, used: set[str]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    assert isinstance(figure, Figure)
    names = [name for name in _COLOURS if name in used | {"masked", "seen"}]
    patches = [Patch(facecolor=_COLOURS[name], edgecolor=_GRID, label=_WORDS[name]) for name in names]
    figure.legend(
        handles=patches,
        loc="lower left",
        bbox_to_anchor=(0.45 / 11, 0.0),
        ncols=len(patches),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
        handlelength=1.2,
        handleheight=1.2,
        columnspacing=1.8,
    )
