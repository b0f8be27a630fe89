"""Which mutants a run is about."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.mutants.mutant import Mutant

__all__ = ["BANKS", "bank_of", "equivalent", "select"]

BANKS = ("curated", "generated", "all")


def bank_of(mutant: Mutant, curated: frozenset[str]) -> str:
    """`control`, `curated` or `generated`."""
    return "control" if mutant.control else "curated" if mutant.name in curated else "generated"


def select(
    bank: str = "all", only: Sequence[str] = (), sample: int | None = None, seed: int = 0
) -> tuple[tuple[Mutant, str], ...]:
    """The mutants of a run, each with the bank that it is counted under; controls belong to the curated bank.

    Args:
        bank: one of `BANKS`.
        only: names; empty is all of the bank.
        sample: how many of them, drawn by `seed`; None is all.
        seed: of the sample.

    Raises:
        UsageError: a bank or a name is unknown, or two mutants share a name.
    """
    if bank not in BANKS:
        raise UsageError(f"bank={bank!r} is not accepted: one of {', '.join(BANKS)}")
    from flashverify.mutants.bank import CONTROLS, CURATED

    curated = frozenset(mutant.name for mutant in CURATED)
    found: list[Mutant] = []
    if bank != "generated":
        found += (*CURATED, *CONTROLS)
    if bank != "curated":
        from flashverify.mutants.operators.generate import generated

        found += generated()
    names = [mutant.name for mutant in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"mutants: these names stand for several: {', '.join(twice)}")
    unknown = [name for name in only if name not in set(names)]
    if unknown:
        raise UsageError(
            f"only={unknown[0]!r} is not accepted: no mutant of the bank {bank!r}; `--only` takes {_some(names)}"
        )
    chosen = [mutant for mutant in found if not only or mutant.name in set(only)]
    if sample is not None and sample < len(chosen):
        kept = set(random.Random(seed).sample(range(len(chosen)), sample))
        chosen = [mutant for n, mutant in enumerate(chosen) if n in kept]
    return tuple((mutant, bank_of(mutant, curated)) for mutant in chosen)


def equivalent() -> dict[str, str]:
    """Names of the mutants that change nothing that can be observed, with the reason."""
    from flashverify.mutants.operators.equivalents import EQUIVALENT
    from flashverify.mutants.operators.generate import generated

    every = generated(everything=True)
    return {mutant.name: EQUIVALENT[mutant.site] for mutant in every if mutant.site in EQUIVALENT}


def _some(names: Sequence[str], shown: int = 12) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")
