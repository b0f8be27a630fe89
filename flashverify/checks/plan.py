"""Which checks a case is put to, and what that costs in passes of the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.case import POISONS
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["CHECKS", "FILLS", "VARIANTS", "Plan"]

CHECKS = ("accuracy", "nonfinite", "padding", "memory", "sanitizer", "determinism")
VARIANTS = ("repeat", "solo-sequence", "solo-head", "permuted", "program-order")
FILLS = ("nan", "high", "low")
"""Those of `flashverify.interpreter`, which must not be imported where kernels are compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The checks to make; every poison and every variant costs one pass more than the base pass.

    Args:
        checks: names from `CHECKS`.
        poisons: what the padding is refilled with, for the check `padding`.
        variants: what is run again, for the check `determinism`.
        fills: values of undefined lanes, for the check `sanitizer`; they cost a pass only where such a lane was loaded.

    Raises:
        UsageError: a name is unknown.
    """

    checks: tuple[str, ...] = CHECKS
    poisons: tuple[str, ...] = POISONS
    variants: tuple[str, ...] = VARIANTS
    fills: tuple[str, ...] = FILLS

    def __post_init__(self) -> None:
        for field, values, accepted in (
            ("checks", self.checks, CHECKS),
            ("poisons", self.poisons, POISONS),
            ("variants", self.variants, VARIANTS),
            ("fills", self.fills, FILLS),
        ):
            for value in values:
                if value not in accepted:
                    raise UsageError(f"{field}: {value!r} is not accepted: one of {', '.join(accepted)}")

    @classmethod
    def run(cls) -> Plan:
        """Everything: every poison, every variant."""
        return cls()

    @classmethod
    def fuzz(cls, case: Case) -> Plan:
        """At most four passes: base, one poison, one variant and, if need be, one fill, picked by the case's seed."""
        seed = case.values.seed
        poisons = tuple(p for p in POISONS if p != case.storage.padding)
        return cls(
            poisons=(poisons[seed % len(poisons)],),
            variants=(VARIANTS[seed % len(VARIANTS)],),
            fills=(FILLS[seed % len(FILLS)],),
        )

    @classmethod
    def only(cls, check: str, case: Case) -> Plan:
        """One check in full: while a failure of it is shrunk, the drawn poison or variant must not change with the seed."""
        return cls(checks=(check,) if check in CHECKS else CHECKS) if check else cls.fuzz(case)
