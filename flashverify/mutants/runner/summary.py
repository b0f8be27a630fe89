"""What the results of a run add up to: figures, one JSON object, a table, an exit code."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from flashverify.mutants.runner.records import MutantResult, MutantStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["as_json", "as_text", "exit_code"]

_BAD = (MutantStatus.SURVIVED, MutantStatus.FALSE_ALARM, MutantStatus.ERROR)
_JUDGED = (MutantStatus.FOUND, MutantStatus.QUIET, *_BAD)


def exit_code(results: Sequence[MutantResult]) -> int:
    """0 where every mutant was found and every control stayed quiet, 1 otherwise, 3 where nothing was judged."""
    if not any(result.status in _JUDGED for result in results):
        return 3
    return 1 if any(result.status in _BAD for result in results) else 0


def as_json(results: Sequence[MutantResult], *, left: int = 0) -> dict[str, Any]:
    """One JSON object.

    `score` is the share of the mutants that were judged and are neither equivalent nor invalid, that were found. Seconds and
    cases are those of judging until the detection, elements those of q and k of the smallest failing case.

    Args:
        results: of the run.
        left: mutants that were not judged because the run was stopped.
    """
    found = [result for result in results if result.status is MutantStatus.FOUND]
    named = Counter(result.named for result in found)
    return {
        "curated": _bank([result for result in results if result.bank == "curated"]),
        "generated": _bank([result for result in results if result.bank == "generated"]),
        "controls": _controls([result for result in results if result.bank == "control"]),
        "seconds": _spread([result.seconds for result in found], ("median", "p90", "worst")),
        "cases": _spread([float(result.cases) for result in found], ("median", "p90", "worst")),
        "elements": _spread([float(result.elements) for result in found], ("median", "worst")),
        "checks": dict(Counter(_check(result) for result in found).most_common()),
        "diagnosis": {
            "right": named["right"],
            "wrong": named["wrong"],
            "named": sum(bool(result.diagnosis) for result in found),
        },
        "left": left,
        "exit_code": exit_code(results),
    }


def _bank(results: Sequence[MutantResult]) -> dict[str, Any]:
    counts = Counter(result.status for result in results)
    found, survived = counts[MutantStatus.FOUND], counts[MutantStatus.SURVIVED]
    return {
        "total": len(results),
        "found": found,
        "score": found / (found + survived) if found + survived else None,
        "equivalent": counts[MutantStatus.EQUIVALENT],
        "invalid": counts[MutantStatus.INVALID],
        "not_run": counts[MutantStatus.NOT_RUN],
        "survivors": _listed(results, MutantStatus.SURVIVED),
        "errors": _listed(results, MutantStatus.ERROR),
    }


def _controls(results: Sequence[MutantResult]) -> dict[str, Any]:
    return {
        "total": len(results),
        "quiet": sum(result.status is MutantStatus.QUIET for result in results),
        "cases": sum(result.cases for result in results if result.status is MutantStatus.QUIET),
        "not_run": sum(result.status is MutantStatus.NOT_RUN for result in results),
        "false_alarms": _listed(results, MutantStatus.FALSE_ALARM),
        "errors": _listed(results, MutantStatus.ERROR),
    }


def _listed(results: Sequence[MutantResult], status: MutantStatus) -> list[dict[str, Any]]:
    return [
        {
            "name": result.name,
            "file": result.file,
            "line": result.line,
            "operator" if result.bank == "generated" else "modelled_on": result.modelled_on,
            "cases": result.cases,
            **({"check": _check(result), "case": result.minimal or result.case} if result.check else {}),
            **({"reason": result.reason} if result.reason else {}),
        }
        for result in results
        if result.status is status
    ]


def _check(result: MutantResult) -> str:
    return f"{result.check} {result.error}" if result.error and result.error != result.check else result.check


def _spread(values: Sequence[float], names: Sequence[str]) -> dict[str, float | None]:
    if not values:
        return dict.fromkeys(names)
    ordered = sorted(values)
    known = {
        "median": statistics.median(ordered),
        "p90": ordered[min(-(-9 * len(ordered) // 10), len(ordered)) - 1],
        "worst": ordered[-1],
    }
    return {name: round(known[name], 3) for name in names}


def as_text(results: Sequence[MutantResult], *, left: int = 0) -> str:
    """A table, then the sums; what needs a look comes last."""
    figures = as_json(results, left=left)
    rows: list[tuple[str, ...]] = [("mutant", "status", "by", "in", "cases", "seconds", "elements", "diagnosis")]
    rows += [_row(result) for result in results]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.append("")
    for bank in ("curated", "generated"):
        part = figures[bank]
        if part["total"]:
            score = "" if part["score"] is None else f" ({part['score']:.1%})"
            lines.append(
                f"{bank}: {part['found']} of {part['found'] + len(part['survivors'])} found{score}; {part['equivalent']} equivalent,"
                f" {part['invalid']} invalid, {part['not_run']} not run, {len(part['errors'])} errors"
            )
    controls = figures["controls"]
    if controls["total"]:
        lines.append(f"controls: {controls['quiet']} of {controls['total']} quiet over {controls['cases']} cases")
    if figures["checks"]:
        seconds, elements = figures["seconds"], figures["elements"]
        lines.append(
            f"to detection: median {seconds['median']:g} s, 9 in 10 within {seconds['p90']:g} s, worst {seconds['worst']:g} s;"
            f" smallest case: median {elements['median']:g}, worst {elements['worst']:g} elements of q and k"
        )
        lines.append("found by: " + ", ".join(f"{check} {count}" for check, count in figures["checks"].items()))
    lines += [f"{left} mutants were not judged: the run was stopped"] * bool(left)
    for result in results:
        if result.status in _BAD:
            place = f"{result.file}:{result.line}" if result.line else result.file
            why = result.reason or result.message or result.modelled_on
            lines.append(f"{result.status.value}: {result.name} ({place}) {_one_line(why)}")
    return "\n".join(lines)


def _row(result: MutantResult) -> tuple[str, ...]:
    judged = result.status in _JUDGED
    diagnosis = f"{result.diagnosis} ({result.named})" if result.named else result.diagnosis
    return (
        result.name,
        result.status.value,
        _check(result),
        f"{result.output} {result.mode}".strip(),
        str(result.cases) if judged else "",
        f"{result.seconds:.1f}" if judged else "",
        str(result.elements) if result.elements else "",
        diagnosis.strip(),
    )


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:300]
