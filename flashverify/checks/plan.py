"""Which checks a case is put to, and which of their questions."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flashverify.checks.dealing import deal
from flashverify.checks.passes.base_pass import beyond_oracle
from flashverify.checks.passes.derived_problems import work
from flashverify.checks.registry import CHECK_SPECS, CHECKS, check_spec
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.case.case import Case
    from flashverify.interpreter.memory import Place

__all__ = ["Plan"]

_SMALL = 1 << 14
_SHARE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The checks to make; most questions of a check cost a pass or two more than the base pass.

    Args:
        checks: names of checks.
        questions: by check the names of its questions; a check that is not named here puts all of them.
        spare: (check, question) pairs that are left out where the sanitizer needs the pass.
        calls: for the check `reuse`, which call must still equal the first one.
        configs: launches that the check `config` runs, at most.
        reported: for the check `sanitizer`, places of loads whose undefined lanes were reported: they are not asked for again, and those
            that are found are added. None asks for each in every case.
        thorough: multiply-adds of the forward up to which a case is asked everything, see `for_case`; None is any number.

    Raises:
        UsageError: a name is unknown, or a number is too small.
    """

    checks: tuple[str, ...] = CHECKS
    questions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spare: tuple[tuple[str, str], ...] = ()
    calls: int = 10
    configs: int = 16
    reported: set[Place] | None = None
    thorough: int | None = None

    def __post_init__(self) -> None:
        for field_name, names in (("checks", self.checks), ("questions", tuple(self.questions))):
            for name in names:
                if name not in CHECKS:
                    raise UsageError(f"{field_name}: {name!r} is not accepted: one of {', '.join(CHECKS)}")
        for check, names in self.questions.items():
            accepted = check_spec(check).question_names
            for name in names:
                if name not in accepted:
                    raise UsageError(
                        f"questions[{check!r}]: {name!r} is not accepted: "
                        + (f"one of {', '.join(accepted)}" if accepted else f"{check} is one question")
                    )
        for number_name, number, least in (("calls", self.calls, 2), ("configs", self.configs, 1)):
            if number < least:
                raise UsageError(f"{number_name}={number} is not accepted: at least {least}")

    @classmethod
    def run(cls) -> Plan:
        """Everything; of larger cases a third of the questions that are shared out: a matrix has many such cases."""
        return cls(thorough=_SMALL)

    @classmethod
    def fuzz(cls, case: Case) -> Plan:
        """At most four passes, drawn by the case's text (`flashverify.checks.dealing`); of a case beyond the oracle all that covers every row."""
        if beyond_oracle(case):
            return cls(checks=tuple(spec.name for spec in CHECK_SPECS if spec.beyond_oracle))
        dealt = deal(case, CHECK_SPECS)
        return cls(
            checks=tuple(spec.name for spec in CHECK_SPECS if not spec.questions or dealt.questions[spec.name]),
            questions=dealt.questions,
            spare=dealt.spare,
            calls=2,
        )

    @classmethod
    def only(cls, check: str, case: Case) -> Plan:
        """One check in full: while a failure of it is shrunk, the drawn questions must not change with the case."""
        return cls(checks=(check,) if check in CHECKS else CHECKS) if check else cls.fuzz(case)

    def asked(self, check: str) -> tuple[str, ...]:
        """The names of the questions that a check puts."""
        return self.questions.get(check, check_spec(check).question_names)

    def for_case(self, case: Case) -> Plan:
        """What a case is asked, by its text: of checks that are shared out a third of the questions, above `thorough` of more of them.

        Above it there are one more call and one launch, too. Without `thorough` the plan stays as it is.
        """
        if self.thorough is None:
            return self
        small, turn = work(case) <= self.thorough, zlib.crc32(str(case).encode()) % _SHARE
        sharing = sorted((s for s in CHECK_SPECS if s.always_shared or s.shared_out), key=lambda s: s.always_shared)
        shared = {  # begun in different places: their longest parts do not meet
            spec.name: self.asked(spec.name)[(turn + number) % _SHARE :: _SHARE]
            for number, spec in enumerate(sharing)
            if spec.always_shared or not small
        }
        if small:
            return replace(self, questions={**self.questions, **shared})
        return replace(self, questions={**self.questions, **shared}, calls=2, configs=1)
