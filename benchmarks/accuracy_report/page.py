"""docs/accuracy.md, written of a record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from accuracy_report.picture import label, ranked

if TYPE_CHECKING:
    from accuracy_report.record import Kernel, Record, Row

PAGE = "accuracy.md"
IMAGE = "images/accuracy.svg"

_INTRODUCTION = f"""# How accurate the kernels are

<!-- Written by benchmarks/own_reports.py from a record; edit that. -->

Every element of every output of drawn cases, against the float64 oracle: as a share of the bound of that element, and in units in the last
place (ulp) of the output's own dtype at the exact value. {{label}}

![Distribution of errors over bounds and in ulp, for each kernel and output]({IMAGE})

*Usual values* are standard normal ones with the usual scale, at drawn shapes, masks and modifiers. *Hard values* are those that the search draws
there: extreme logits, cancellation, subnormal numbers, any scale. A gradient that cancels to nearly nothing is many ulp from its exact
value in every kernel; its share of the bound says if that is right. delta is fp32, made of an O that is rounded to the input dtype. The
left edge of a plot holds all smaller errors.
"""
_END = """
## How to make it again
```sh
{command}
```

It writes the record, this page and the picture. The record, {cases:,} cases: {machine}.
"""
_HEAD = (
    "| dtype | output | cases | elements | outside | usual, error / bound: median, 99.9 %, worst "
    "| hard, error / bound: median, 99.9 %, worst | usual, ulp: median, 99.9 %, worst | hard, ulp: median, 99.9 % |\n"
    "|:--|:--|--:|--:|--:|--:|--:|--:|--:|"
)


def page(record: Record) -> str:
    """The page."""
    parts = [_INTRODUCTION.replace("{label}", _label(record))]
    for kernel in record.kernels:
        parts.append(_kernel(kernel))
    tutorial = " --tutorial 06-fused-attention.py" if record.tutorial else ""
    command = f"python benchmarks/own_reports.py --device {record.device} --minutes {record.minutes:g} --seed {record.seed}{tutorial}"
    cases = sum(kernel.cases for kernel in record.kernels)
    parts.append(_END.format(command=command, cases=cases, machine=_machine(record)).strip() + "\n")
    return "\n".join(parts)


def _label(record: Record) -> str:
    if record.device == "cpu":
        return (
            "**This is a record of a CPU**: Triton kernels ran in the interpreter, which computes as a GPU does up to the order of sums "
            "([interpreter.md](interpreter.md)), and SDPA's GPU backends are not there."
        )
    return f"Measured on one {record.environment.get('gpu', 'GPU')}."


def _machine(record: Record) -> str:
    found = record.environment
    names = ("gpu", "gpu_driver", "platform", "python", "torch", "triton", "numpy")
    text = ", ".join(f"{name} {found[name]}" for name in names if found.get(name))
    return text + (f"; the tutorial's file has the SHA-256 `{record.tutorial}`" if record.tutorial else "")


def _kernel(kernel: Kernel) -> str:
    lines = [f"## {kernel.name}", f"{kernel.summary[:1].upper()}{kernel.summary[1:]}; {kernel.cases:,} cases."]
    if kernel.raised:
        lines[-1] += f" It raised on {kernel.raised:,} more: `{kernel.raised_first}`."
    if kernel.reason:
        lines[-1] += f" A process ended early: `{kernel.reason}`."
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in ranked(kernel.rows):
        groups.setdefault((row.dtype, row.output), {})[row.group] = row
    if groups:
        lines.append("\n".join([_HEAD, *(_line(place, rows) for place, rows in groups.items())]))
    outside = [row for row in ranked(kernel.rows) if row.outside]
    if outside:
        row = outside[0]
        lines.append(f"{label(row.output)} ({row.dtype}) is outside its bound in `{row.outside_case}`.")
    return "\n\n".join(lines) + "\n"


def _line(place: tuple[str, str], rows: dict[str, Row]) -> str:
    usual, hard = rows.get("usual"), rows.get("hard")
    both = [row for row in (usual, hard) if row is not None]
    cells = [
        place[0],
        label(place[1]),
        f"{sum(row.cases for row in both):,}",
        f"{sum(row.ratios.count for row in both):,}",
        f"{sum(row.outside for row in both):,}",
        _sizes(usual, "ratios", worst=True),
        _sizes(hard, "ratios", worst=True),
        _sizes(usual, "ulps", worst=True),
        _sizes(hard, "ulps", worst=False),
    ]
    return f"| {' | '.join(cells)} |"


def _sizes(row: Row | None, name: str, *, worst: bool) -> str:
    if row is None:
        return "–"
    sizes = getattr(row, name)
    values = [sizes.quantile(0.5), sizes.quantile(0.999)] + ([sizes.worst] if worst else [])
    return " / ".join(map(_number, values))


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if 100 <= value < 1e4:
        return f"{float(f'{value:.2g}'):,.0f}"
    return (
        f"{value:.2g}"
        if 1e-3 <= value < 100
        else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("+", "")
    )
