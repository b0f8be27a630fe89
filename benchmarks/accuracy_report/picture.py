"""The picture: for each kernel and output how the errors of all elements are distributed, over their bounds and in ulp.

Small multiples in one column, so that a phone shows them as large as a screen does. Usual values are a filled shape and hard values a line,
which differ without their colours.
"""

from __future__ import annotations

import html
import math

from accuracy_report.record import RATIO_OCTAVES, ULP_OCTAVES, Kernel, Record, Row, Sizes

WIDTH = 640
_LABELS, _PLOT, _GAP = 66, 246, 52
_RIDGE, _HEAD, _AXIS = 34, 40, 30
_TOP = 132
_RATIO, _ULP = (-16, 1), (-8, 12)
"""Octaves shown; what is outside is drawn at the edge."""
_ORDER = ("o", "lse", "delta", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias")
_NAMES = {"o": "O", "lse": "LSE", "dq": "dQ", "dk": "dK", "dv": "dV"}
_SHOWN = ("o", "lse", "dq", "dk", "dv")
_STYLE = """
  svg { --page: #fff; --ink: #1b1f24; --muted: #5d6570; --grid: #dfe2e6; --usual: #8fb9d6; --hard: #8a3a00; --limit: #b3202c; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #1a1d21; --ink: #e7e9ec; --muted: #aab2bc; --grid: #343a41; --usual: #35709c; --hard: #ffb27a; --limit: #ff8d90; }
  }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; font-size: 19px; fill: var(--ink); }
  .big { font-size: 23px; font-weight: 600; } .muted { fill: var(--muted); } .small { font-size: 17px; }
  .usual { fill: var(--usual); } .hard { fill: none; stroke: var(--hard); stroke-width: 2.2; stroke-linejoin: round; }
  .grid { stroke: var(--grid); stroke-width: 1; } .limit { stroke: var(--limit); stroke-width: 2; } .worst { fill: var(--hard); }
""".strip()


def shown_dtype(kernel: Kernel) -> str:
    """The dtype of the picture: fp16 where the kernel has it."""
    dtypes = sorted({row.dtype for row in kernel.rows})
    return "fp16" if "fp16" in dtypes else dtypes[0] if dtypes else ""


def ranked(rows: list[Row]) -> list[Row]:
    """Rows by dtype and output, in their usual order."""
    return sorted(rows, key=lambda row: (row.dtype, _ORDER.index(row.output), row.group))


def label(output: str) -> str:
    """An output as people write it."""
    return _NAMES.get(output, output)


def picture(record: Record) -> str:
    """The SVG; the same for the same record."""
    parts: list[str] = []
    y = float(_TOP)
    for kernel in record.kernels:
        dtype = shown_dtype(kernel)
        found = {(row.output, row.group): row for row in kernel.rows if row.dtype == dtype}
        outputs = [output for output in _SHOWN if any(place[0] == output for place in found)]
        if not outputs:
            continue
        cases = sum(row.cases for place, row in found.items() if place[0] == outputs[0])
        parts.append(f'<text x="8" y="{y + 24:.0f}" class="big">{html.escape(kernel.name)}</text>')
        parts.append(
            f'<text x="{WIDTH - 8}" y="{y + 24:.0f}" class="muted small" text-anchor="end">'
            f"{html.escape(dtype)}, {cases:,} cases</text>"
        )
        y += _HEAD
        parts += _grid(y, len(outputs))
        for output in outputs:
            y += _RIDGE
            parts.append(f'<text x="{_LABELS - 12}" y="{y - 5:.0f}" text-anchor="end">{label(output)}</text>')
            pair = [found.get((output, group)) for group in ("usual", "hard")]
            parts += _ridge(_LABELS, y, [row and row.ratios for row in pair], RATIO_OCTAVES, _RATIO)
            parts += _ridge(_LABELS + _PLOT + _GAP, y, [row and row.ulps for row in pair], ULP_OCTAVES, _ULP)
        y += _AXIS
        parts += _ticks(y)
        y += 14
    title = "Errors of attention kernels over their bounds, and in units in the last place"
    head = [
        f'<text x="8" y="30" class="big">Error of every element{_where(record)}</text>',
        '<rect x="8" y="48" width="30" height="16" class="usual"/><text x="46" y="63">usual values</text>',
        '<path d="M190 64 L204 50 L220 64" class="hard"/><text x="230" y="63">hard values</text>',
        '<path d="M374 52 l-7 12 h14 z" class="worst"/><text x="390" y="63">the worst element of all</text>',
        f'<text x="{_LABELS}" y="104" class="muted">error / bound</text>',
        f'<text x="{_LABELS + _PLOT + _GAP}" y="104" class="muted">error in ulp of the output</text>',
    ]
    body = "\n".join([*head, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8:.0f}" role="img" aria-labelledby="title">\n'
        f'<title id="title">{title}</title>\n<style>\n  {_STYLE}\n</style>\n'
        f'<rect width="{WIDTH}" height="{y + 8:.0f}" fill="var(--page)"/>\n{body}\n</svg>\n'
    )


def _where(record: Record) -> str:
    gpu = record.environment.get("gpu")
    return f", on one {html.escape(gpu)}" if gpu else ", on a CPU" if record.device == "cpu" else ""


def _x(left: float, value: float, ends: tuple[int, int]) -> float:
    """Where a power of two stands in a plot."""
    low, high = ends
    return left + _PLOT * (min(max(value, low), high) - low) / (high - low)


def _grid(top: float, rows: int) -> list[str]:
    bottom = top + rows * _RIDGE + 4
    found = []
    for left, ends, marks in _axes():
        for power, _ in marks:
            kind = "limit" if ends == _RATIO and power == 0 else "grid"
            x = _x(left, power, ends)
            found.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.0f}" y2="{bottom:.0f}" class="{kind}"/>')
    return found


def _axes() -> list[tuple[float, tuple[int, int], list[tuple[int, str]]]]:
    ratio = [(-16, "2⁻¹⁶"), (-12, "2⁻¹²"), (-8, "2⁻⁸"), (-4, "2⁻⁴"), (0, "bound")]
    ulp = [(-8, "2⁻⁸"), (-4, "2⁻⁴"), (0, "1"), (4, "16"), (8, "256"), (12, "4096")]
    return [(_LABELS, _RATIO, ratio), (_LABELS + _PLOT + _GAP, _ULP, ulp)]


def _ticks(y: float) -> list[str]:
    found = []
    for left, ends, marks in _axes():
        for power, words in marks:
            x = _x(left, power, ends)
            found.append(f'<text x="{x:.1f}" y="{y - 8:.0f}" class="muted small" text-anchor="middle">{words}</text>')
    return found


def _ridge(
    left: float, base: float, pair: list[Sizes | None], octaves: tuple[int, int], ends: tuple[int, int]
) -> list[str]:
    """The shapes of one output, each as high as its row at its highest place, and the worst element."""
    found = [f'<line x1="{left}" x2="{left + _PLOT}" y1="{base:.1f}" y2="{base:.1f}" class="grid"/>']
    for sizes, kind in zip(pair, ("usual", "hard"), strict=True):
        if sizes is None or not sizes.count:
            continue
        shares = _within(sizes, octaves, ends)
        top = (
            max(shares[1:-1], default=0.0) or 1.0
        )  # the edges hold all that is beyond them, and are cut at the height of the rest
        step = _PLOT / len(shares)
        points = [
            (left + (n + 0.5) * step, base - (_RIDGE - 7) * min(share / top, 1.0)) for n, share in enumerate(shares)
        ]
        line = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if kind == "usual":
            found.append(
                f'<path d="M{points[0][0]:.1f} {base:.1f} L{line} L{points[-1][0]:.1f} {base:.1f} Z" class="usual"/>'
            )
        else:
            found.append(f'<path d="M{line}" class="hard"/>')
    worst = max((sizes.worst for sizes in pair if sizes is not None), default=0.0)
    if worst > 0:
        x = _x(left, math.log2(worst), ends)
        found.append(f'<path d="M{x:.1f} {base - 12:.1f} l-6 12 h12 z" class="worst"/>')
    return found


def _within(sizes: Sizes, octaves: tuple[int, int], ends: tuple[int, int]) -> list[float]:
    """Shares in bins of half an octave between two powers of two; what is outside counts at the edge."""
    shares, low = sizes.shares(2), (ends[0] - octaves[0]) * 2
    high = (ends[1] - octaves[0]) * 2
    kept = shares[low:high]
    kept[0] += sum(shares[:low])
    kept[-1] += sum(shares[high:])
    return kept
