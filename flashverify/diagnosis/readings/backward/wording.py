"""Formulas that were read as sentences; outputs that say the same share one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.backward.formulas import OPERANDS

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.formulas import Formula

__all__ = ["sentences"]

_NAMES = {"dq": "dQ", "dk": "dK", "dv": "dV", "dbias": "dbias"}
_WHAT = {"dq": "K", "dk": "Q", "dv": "dO"}


def sentences(found: dict[str, tuple[Formula, str]], scene: Scene) -> tuple[str, ...]:
    """What each formula says, with its reservation, without a full stop."""
    said: dict[str, list[str]] = {}
    for name, (formula, reservation) in found.items():
        said.setdefault(_clause(formula, scene, reservation), []).append(_NAMES[name])
    return tuple(clause.replace("{}", " and ".join(names)) for clause, names in said.items())


def _clause(formula: Formula, scene: Scene, condition: str) -> str:
    """The sentence with `{}` for the outputs."""
    where = "" if formula.place is None else f" {formula.place.words}"
    operand = OPERANDS.get(formula.output)
    weights = formula.output == "dv"
    if all(each.words == "0" for each in formula.numbers):
        return (
            f"{'The weights' if weights else 'dS'} in effect in {{}} {'are' if weights else 'is'} 0{where}{condition}"
        )
    clauses = formula.differences()
    if operand is not None and operand in formula.changed:
        clauses.append(f"the product takes {_WHAT[formula.output]} of {formula.changed[operand].words}")
    what = "The weights" if weights else "dS"
    text = formula.text(scene.inputs.dlse is not None)
    return f"{what} in effect in {{}} {'are' if weights else 'is'} {text}{where}: {'; '.join(clauses)}{condition}"
