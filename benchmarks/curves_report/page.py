"""docs/curves.md, written of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curves_report.pictures import AXES, IMAGES, ORDER, QUANTITIES, heading, x_text

if TYPE_CHECKING:
    from curves_report.record import Point, Record

__all__ = ["PAGE", "page"]

PAGE = "curves.md"
_TITLES = {
    "length": "Over the length",
    "block": "Over the size of a tile",
    "share": "Over the live share of block-sparse attention",
}
_WHAT = {
    "length": "`standard` keeps S and P in memory; the other series do not.",
    "block": "In the bundled forward a tile of queries reads all keys, so its reads are inverse to the queries of a tile.",
    "share": "A random share of the blocks is live. Of a dead block nothing is read; Q, O and the statistics of every row flatten the curve at small shares.",
}
_INTRODUCTION = """# The paper's curves

<!-- Written by benchmarks/curves.py from a record; edit that. -->

The experiments of FlashAttention, made again by one command: time and memory over the length, time and accesses over the size of a tile,
time over the live share of blocks. {where}

An access is an element loaded or stored by the kernels, counted one by one in the interpreter ([claims.md](claims.md)); caches are not
modelled. Both axes of the pictures are logarithmic.
"""
_CPU = "**This is a record of a CPU: it has counted accesses only, no time and no memory**, since the interpreter's time says nothing of a GPU."
_GPU = (
    "Times are medians of interleaved rounds after the caches were overwritten; memory is the peak of what torch allocates beyond q, k, v "
    "and dO, that of the backward for forward and backward together. `standard` is timed as products and a softmax of torch, and counted "
    "as Algorithms 0 and 3. Measured on one {gpu}."
)


def page(record: Record) -> str:
    """The page."""
    where = _CPU if record.device == "cpu" else _GPU.format(gpu=record.environment.get("gpu", "GPU"))
    parts = [_INTRODUCTION.format(where=where)]
    for curve, axis in AXES.items():
        tables = [
            text
            for quantity in QUANTITIES
            for direction in ("forward", "backward")
            if (text := _table(record, curve, quantity, direction))
        ]
        if tables:
            words = [_WHAT[curve]] + ([f"Timed: {problem}."] if (problem := record.problems.get(curve)) else [])
            words.append(f"Counted: {record.problems['counted']}.")
            picture = f"![{_TITLES[curve]}: the curves of the tables below, on axes of {axis}]({IMAGES[curve]})"
            parts.append("\n\n".join([f"## {_TITLES[curve]}", " ".join(words), picture, *tables]) + "\n")
    names = ("gpu", "gpu_driver", "platform", "python", "torch", "triton")
    machine = ", ".join(f"{name} {record.environment[name]}" for name in names if record.environment.get(name))
    parts.append(
        f"## How to make it again\n```sh\npython benchmarks/curves.py --device {record.device}\n```\n\n"
        f"It writes the record, this page and the pictures. The record took {record.seconds:.0f} s: {machine}.\n"
    )
    return "\n".join(parts)


def _table(record: Record, curve: str, quantity: str, direction: str) -> str:
    """A line a place, a column a series; beside `standard` how many times more it takes than the bundled kernels."""
    found = record.of(curve, quantity, direction)
    series = [name for name in ORDER if name in found]
    if not series:
        return ""
    compared = "standard" in series and "bundled" in series
    head = [AXES[curve], *series] + (["standard / bundled"] if compared else [])
    lines = [
        f"{heading(quantity, direction)}.{_most(found, curve)}",
        "",
        f"| {' | '.join(head)} |",
        "|" + "--:|" * len(head),
    ]
    for x in sorted({x for places in found.values() for x in places}):
        cells = [x_text(curve, x), *(_cell(found[name].get(x), quantity) for name in series)]
        if compared:
            cells.append(_ratio(found["standard"].get(x), found["bundled"].get(x)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _most(found: dict[str, dict[float, Point]], curve: str) -> str:
    """Where standard attention takes the most times as much as the bundled kernels, as a sentence."""
    ratios = {
        x: above.median / below.median
        for x, above in found.get("standard", {}).items()
        if (below := found.get("bundled", {}).get(x)) is not None and above.median and below.median
    }
    if not ratios:
        return ""
    x = max(ratios, key=lambda place: ratios[place])
    return f" `standard` takes up to {ratios[x]:.1f} times as much as `bundled`, at {x_text(curve, x)} {AXES[curve]}."


def _cell(point: Point | None, quantity: str) -> str:
    if point is None or point.median is None:
        return (point.reason if point is not None else "").replace("|", "/") or "–"
    if quantity == "ms":
        return f"{point.median:.3g}" if point.median < 100 else f"{point.median:,.0f}"
    if quantity == "bytes":
        mebibytes = point.median / 2**20
        return f"{mebibytes:.3g}" if mebibytes < 100 else f"{mebibytes:,.0f}"
    return f"{point.median:,.0f}"


def _ratio(above: Point | None, below: Point | None) -> str:
    if above is None or below is None or not above.median or not below.median:
        return "–"
    return f"{above.median / below.median:.2f}"
