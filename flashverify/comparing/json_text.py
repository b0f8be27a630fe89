"""A comparison as JSON, for programs; docs/compare.md lists the fields."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.comparing.speed.speed_words import speed_json
from flashverify.report.json_report import ratio_json

if TYPE_CHECKING:
    from flashverify.comparing.change import Row
    from flashverify.comparing.comparison import Comparison
    from flashverify.comparing.elements import ElementRow, Elements, Histogram
    from flashverify.comparing.thresholds import Thresholds
    from flashverify.report.bias import Bias

__all__ = ["to_json"]

_QUANTILES = {"median": 0.5, "p99": 0.99, "p99.9": 0.999}


def to_json(comparison: Comparison) -> str:
    """JSON; (subject, case) pairs as two-element lists."""
    document: dict[str, Any] = {"format": 1, "exit_code": comparison.exit_code}
    for name in ("decision", "reasons", "notes", "common", "judged", "only_before", "only_after", "settings"):
        document[name] = getattr(comparison, name)
    document["rows"] = [_row_json(row, comparison.limits) for row in comparison.rows]
    document["movers"] = [
        asdict(m) | {"before": ratio_json(m.before), "after": ratio_json(m.after)} for m in comparison.movers
    ]
    document["newly_failing"] = [asdict(changed) for changed in comparison.newly_failing]
    document["newly_passing"] = [asdict(changed) for changed in comparison.newly_passing]
    document["specs"] = comparison.specs
    document["sentence"] = comparison.sentence
    document["thresholds"] = asdict(comparison.limits)
    document["functions"] = None if comparison.functions is None else msgspec.to_builtins(comparison.functions)
    document["elements"] = None if comparison.elements is None else _elements(comparison.elements)
    document["speeds"] = None if comparison.speeds is None else speed_json(comparison.speeds)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _row_json(row: Row, limits: Thresholds) -> dict[str, Any]:
    found: dict[str, Any] = row.key._asdict() | {
        "cases": row.cases,
        "grew": row.grew(limits),
        "drifted": row.drifted(limits),
    }
    found["bias"] = {"cases": row.bias.count, "mean": row.bias.mean, "radius": row.bias.radius}
    for name, (before, after) in (("worst", row.worst), ("p99", row.p99)):
        found[name] = {"before": ratio_json(before), "after": ratio_json(after)}
    return found


def _elements(elements: Elements) -> dict[str, Any]:
    """`measured`, `unchanged`, `raised` and `rows`."""
    return {
        "measured": elements.measured,
        "unchanged": elements.unchanged,
        "raised": elements.raised,
        "rows": [_element_row(row) for row in elements.rows],
    }


def _element_row(row: ElementRow) -> dict[str, Any]:
    return {
        "dtype": row.dtype,
        "output": row.output,
        "cases": row.cases,
        "changed_cases": row.changed_cases,
        "elements": row.elements,
        "changed": row.changed,
        "largest_ulp": None if math.isinf(row.ulp) else row.ulp,
        "largest_ulp_case": row.ulp_case,
        "ulps": {str(2**power): count for power, count in sorted(row.ulps.items())},
        "before": _side(row.before),
        "after": _side(row.after),
        "growth_octaves": _interval(row.growth),
        "bias": _interval(row.bias),
        "drift": _interval(row.drift),
        "bound_octaves": _interval(row.width),
        "where": [
            {
                "axis": axis,
                "value": value,
                "growth_octaves": _interval(place.growth),
                "worst": [ratio_json(place.before), ratio_json(place.after)],
            }
            for axis, value, place in row.moved_most
        ],
    }


def _side(side: Histogram) -> dict[str, Any]:
    found = {name: ratio_json(side.quantile(share)) for name, share in _QUANTILES.items()}
    rms = math.sqrt(side.squares / side.count) if side.count else math.nan
    return found | {
        "worst": ratio_json(side.worst),
        "worst_case": side.case,
        "rms": ratio_json(rms),
        "nonfinite": side.nonfinite,
    }


def _interval(bias: Bias) -> dict[str, Any]:
    return {"mean": bias.mean, "radius": bias.radius, "significant": bias.significant}
