"""The name of a plan, as it crosses processes and stands in stored scripts: `run`, `fuzz`, `outside` or `only:CHECK`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flashverify.errors import UsageError

__all__ = ["PROCESS_CHECKS", "PlanName"]

PROCESS_CHECKS = ("crash", "hang")
"""Failures that no check reports: the whole case is run again to see them."""


@dataclass(frozen=True, slots=True)
class PlanName:
    """Which plan a worker is to make of a case; `str` gives the text.

    Attributes:
        kind: `run`, everything; `fuzz`, what the case draws; `outside`, accuracy of a case that the subject does not declare; `only`, one
            check in full.
        check: of `only`, otherwise empty.
    """

    kind: Literal["run", "fuzz", "outside", "only"]
    check: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.check}" if self.kind == "only" else self.kind

    @classmethod
    def parse(cls, text: str) -> PlanName:
        """The name that `text` spells; that the check exists is not asked here.

        Raises:
            UsageError: it is none of `run`, `fuzz`, `outside` and `only:CHECK`.
        """
        kind, _, check = text.partition(":")
        if kind == "only" and check:
            return cls("only", check)
        whole: tuple[Literal["run", "fuzz", "outside"], ...] = ("run", "fuzz", "outside")
        for name in whole:
            if text == name:
                return cls(name)
        raise UsageError(f"plan={text!r} is not accepted: run, fuzz, outside or only:CHECK")

    @classmethod
    def of_check(cls, check: str) -> PlanName:
        """The plan that asks what `check` asks: everything where that is empty or no check of its own, as a crash."""
        return cls("only", check) if check and check not in PROCESS_CHECKS else cls("run")
