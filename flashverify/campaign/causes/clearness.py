"""Which of several failures says most clearly what is wrong: it is minimised first, and others are held against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.shrink.shrinker import measure
from flashverify.case.text import parse_case
from flashverify.outputs import BACKWARD, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["clearest_first", "clearness"]

_CHECKS = ("accuracy", "nonfinite", "exception", "crash", "memory", "sanitizer", "determinism", "counting", "padding")
_ERRORS = ("bound", "repeat")


def clearness(key: Key, case: str) -> tuple[object, ...]:
    """An order: comparisons with exact values first, O and LSE before gradients, fp32 before other types, small cases before large ones."""
    return (
        _place(key.check, _CHECKS),
        _place(key.error, _ERRORS),
        key.output in BACKWARD,
        key.dtype != "fp32",
        _place(key.output, OUTPUTS),
        measure(parse_case(case)),
        key,
    )


def clearest_first(records: Iterable[FindingRecord]) -> list[FindingRecord]:
    """Findings by how clear they are."""
    return sorted(records, key=lambda record: clearness(record.key, record.case))


def _place(name: str, names: tuple[str, ...]) -> int:
    return names.index(name) if name in names else len(names)
