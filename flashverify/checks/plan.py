"""Which checks a case is put to, and what that costs in passes of the kernels."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.case.case import POISONS
from flashverify.checks.derived_problems import work
from flashverify.errors import UsageError
from flashverify.judge.verdict import CHECKS

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["CHECKS", "EXACT", "FILLS", "ORACLE_FREE", "RELATIONS", "REUSE", "VARIANTS", "Plan"]

VARIANTS = ("repeat", "solo-sequence", "solo-head", "permuted", "program-order")
FILLS = ("nan", "high", "low")
"""Those of `flashverify.interpreter`, which must not be imported where kernels are compiled."""
REUSE = ("calls", "values", "lengths", "larger", "backward", "stream", "graph")
EXACT = ("double-v", "double-do", "appended-keys", "chain-tree")
ORACLE_FREE = ("hull", "lse-range", "ds-sum")
RELATIONS = (*EXACT, "alone", "key-permutation", "split-merge", "lse-shift", "linear-do", *ORACLE_FREE)

_SINGLE = ("double-v", "double-do")
"""Exact relations that cost one pass; the others run the base under a pinned launch too, unless the case has one."""
_DRAWN = ("key-permutation", "lse-shift", "ds-sum", "hull", "lse-range", "split-merge", "linear-do", "alone")
_DRAWN_REUSE = ("calls", "backward", "values", "lengths", "larger")
_TWO_PASSES = ("split-merge", "linear-do", "alone", "backward", "values", "lengths", "larger")
_SPARE_IN = 4
_GOLDEN = 0x9E3779B97F4A7C15

_SMALL = 1 << 14
_SHARE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The checks to make; every poison, variant, launch and question costs a pass or two more than the base pass.

    Args:
        checks: names from `CHECKS`.
        poisons: what the padding is refilled with, for the check `padding`.
        variants: what is run again, for the check `determinism`.
        fills: values of undefined lanes, for the check `sanitizer`; they cost a pass only where such a lane was loaded.
        reuse: questions of the check `reuse`.
        relations: those of the check `relations`.
        spare: checks, reuse questions and relations that are left out where the sanitizer needs the pass.
        calls: which call must still equal the first one.
        configs: launches that the check `config` runs, at most.
        thorough: multiply-adds of the forward up to which a case is asked all of it, see `for_case`; None is any number.

    Raises:
        UsageError: a name is unknown.
    """

    checks: tuple[str, ...] = CHECKS
    poisons: tuple[str, ...] = POISONS
    variants: tuple[str, ...] = VARIANTS
    fills: tuple[str, ...] = FILLS
    reuse: tuple[str, ...] = REUSE
    relations: tuple[str, ...] = RELATIONS
    spare: tuple[str, ...] = ()
    calls: int = 10
    configs: int = 16
    thorough: int | None = None

    def __post_init__(self) -> None:
        for field, values, accepted in (
            ("checks", self.checks, CHECKS),
            ("poisons", self.poisons, POISONS),
            ("variants", self.variants, VARIANTS),
            ("fills", self.fills, FILLS),
            ("reuse", self.reuse, REUSE),
            ("relations", self.relations, RELATIONS),
            ("spare", self.spare, (*CHECKS, *REUSE, *RELATIONS)),
        ):
            for value in values:
                if value not in accepted:
                    raise UsageError(f"{field}: {value!r} is not accepted: one of {', '.join(accepted)}")
        for field, number, least in (("calls", self.calls, 2), ("configs", self.configs, 1)):
            if number < least:
                raise UsageError(f"{field}={number} is not accepted: at least {least}")

    @classmethod
    def run(cls) -> Plan:
        """Everything; of larger cases every poison and variant, and a third of the questions each: a matrix has many of them."""
        return cls(thorough=_SMALL)

    @classmethod
    def fuzz(cls, case: Case) -> Plan:
        """At most four passes, picked by the case's seed: base, one poison, one variant or exact relation, and one spare.

        The spare pass belongs to the sanitizer where an undefined lane was loaded; otherwise it is used for one case in
        `_SPARE_IN`. A question of two passes takes the place of the variant too, counting, with three, that of the poison as well.
        """
        seed = case.values.seed
        poisons = tuple(p for p in POISONS if p != case.storage.padding)
        variants, relations, reuse, spare = _variant(case, seed)
        mixed = seed * _GOLDEN % 2**64  # neighbouring seeds draw questions of their own
        if not spare and (mixed >> 32) % _SPARE_IN == 0:
            choices = (*_DRAWN, *_DRAWN_REUSE, "counting")
            question = choices[(mixed >> 48) % len(choices)]
            spare = (question,)
            relations += (question,) if question in RELATIONS else ()
            reuse += (question,) if question in REUSE else ()
            if question in (*_TWO_PASSES, "counting"):
                variants, relations = (), tuple(name for name in relations if name == question)
        chosen = () if "counting" in spare else (poisons[seed % len(poisons)],)
        asked = {"reuse": reuse, "relations": relations, "determinism": variants, "config": (), "padding": chosen}
        asked["counting"] = tuple(name for name in spare if name == "counting")
        return cls(
            checks=tuple(check for check in CHECKS if asked.get(check, True)),
            poisons=chosen,
            variants=variants,
            fills=(FILLS[seed % len(FILLS)],),
            reuse=reuse,
            relations=relations,
            spare=spare,
            calls=2,
        )

    @classmethod
    def only(cls, check: str, case: Case) -> Plan:
        """One check in full: while a failure of it is shrunk, the drawn poison or variant must not change with the seed."""
        return cls(checks=(check,) if check in CHECKS else CHECKS) if check else cls.fuzz(case)

    def for_case(self, case: Case) -> Plan:
        """The plan itself for small cases; above `thorough` a third of the questions, the second call and one launch, by the case's text."""
        if self.thorough is None or work(case) <= self.thorough:
            return self
        turn = zlib.crc32(str(case).encode()) % _SHARE
        return replace(self, reuse=self.reuse[turn::_SHARE], relations=self.relations[turn::_SHARE], calls=2, configs=1)


def _variant(case: Case, seed: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Variants, relations, reuse questions and spare ones of the pass for determinism and exact relations."""
    choices = [*VARIANTS, *(name for name in EXACT if _stands(name, case))]
    drawn = choices[seed % len(choices)]
    if drawn in VARIANTS:
        return (drawn,), (), (), ()
    single = drawn in _SINGLE or bool(case.launch)
    return (), (drawn,), (), () if single else (drawn,)


def _stands(relation: str, case: Case) -> bool:
    """Whether an exact relation may apply to the case, as far as the case alone tells."""
    if relation == "double-do":
        return case.grad.backward
    return relation != "chain-tree" or (case.mask.causal is not None and case.mask.parts() <= {"causal", "packed"})
