"""The matrix as Markdown: rule by inputs, by theme, by mutant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from comparison_rules.judging import RULES
from comparison_rules.work import OURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from comparison_rules.record import Record
    from flashverify.mutants.mutant import Mutant

__all__ = ["USUAL", "Matrix", "compact", "full"]

USUAL = {
    "allclose": "randn",
    "allclose+lse": "randn",
    "flash-2": "flash-attention",
    "flash-3": "flash-attention",
    "flex": "flex",
    "gpucheck": "gpucheck",
    "gpuemu": "gpuemu",
}
"""The inputs that a rule is usually given; of our rules, ours."""

TITLES = {
    "allclose": "`allclose(1e-2, 1e-2)`",
    "allclose+lse": "`allclose(1e-2, 1e-2)`, LSE too",
    "flash-2": "FlashAttention 2: 2x, 3x a baseline",
    "flash-3": "FlashAttention 3: 2x a baseline + rounding",
    "flex": "FlexAttention: 1.1x the mean error of eager",
    "gpucheck": "gpucheck: dtype table",
    "gpuemu": "gpuemu: absolute, by dtype",
    "bounds": "flashverify, bounds alone",
    "flashverify": "flashverify, all checks",
}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A record with the mutants that it is about.

    Attributes:
        record: of the run.
        mutants: with their themes, in the order of the tables.
        inputs: names, ours last.
        count: cases that a mutant is given.
    """

    record: Record
    mutants: Sequence[tuple[Mutant, str]]
    inputs: Sequence[str]
    count: int

    def first(self, mutant: str, rule: str, inputs: str) -> int | None:
        """The case, from 1, by which the rule finds the mutant; 0 where no case of these inputs concerns it; None: missed."""
        line = self.record.mutants[mutant].get(inputs, {"cases": 0})
        if not line["cases"]:
            return 0
        found: int | None = line["first"].get(rule)
        return found

    def kills(self, rule: str, inputs: str, theme: str = "") -> int:
        """Mutants that the rule finds, of one theme or of all."""
        return sum(bool(self.first(m.name, rule, inputs)) for m, of in self.mutants if theme in ("", of))

    def kills_anywhere(self, rule: str) -> int:
        """Mutants that the rule finds on some inputs."""
        return sum(any(self.first(m.name, rule, name) for name in self.inputs) for m, _ in self.mutants)

    def reached(self, inputs: str) -> int:
        """Mutants that some case of the inputs concerns."""
        return sum(self.first(m.name, "", inputs) != 0 for m, _ in self.mutants)

    def alarms(self, rule: str, inputs: str) -> tuple[int, int]:
        """Cases of the inputs on which the rule rejects the unmutated kernel, and all on which it has an opinion."""
        answers = [a[rule] for (_, of), cases in self.record.clean.items() if of == inputs for a in cases.values()]
        return sum(answer is True for answer in answers), sum(answer is not None for answer in answers)

    def crashed(self) -> list[str]:
        """Mutants that raised an exception or killed their process on some case."""
        return [m.name for m, _ in self.mutants if any(x["crashes"] for x in self.record.mutants[m.name].values())]

    def themes(self) -> dict[str, int]:
        """Mutants by theme."""
        found: dict[str, int] = {}
        for _, theme in self.mutants:
            found[theme] = found.get(theme, 0) + 1
        return found


def compact(matrix: Matrix) -> str:
    """Each rule on its usual inputs, on ours and on all."""
    total = len(matrix.mutants)
    head = ("rule", "usual inputs: found", "false alarms", "our inputs: found", "false alarms", "all inputs: found")
    rows = []
    for rule in RULES:
        usual = USUAL.get(rule)
        cells = [f"{matrix.kills(rule, usual)} of {total}", _alarms(matrix, rule, usual)] if usual else ["", ""]
        cells += [f"{matrix.kills(rule, OURS)} of {total}", _alarms(matrix, rule, OURS)]
        rows.append((TITLES[rule], *cells, f"{matrix.kills_anywhere(rule)} of {total}"))
    return _table(head, rows)


def full(matrix: Matrix) -> str:
    """Every table of the report."""
    total, inputs = len(matrix.mutants), matrix.inputs
    found = [(TITLES[rule], *(str(matrix.kills(rule, name)) for name in inputs)) for rule in RULES]
    found.append(("*mutants that the inputs reach*", *(str(matrix.reached(name)) for name in inputs)))
    alarms = [(TITLES[rule], *(_alarms(matrix, rule, name) for name in inputs)) for rule in RULES]
    parts = [
        "## Found\n",
        f"Mutants of {total} that a rule finds within {matrix.count} cases of the inputs.\n",
        _table(("rule", *inputs), found),
        "## False alarms\n",
        "Cases on which a rule rejects the unmutated kernel, of those on which it has an opinion.\n",
        _table(("rule", *inputs), alarms),
        "## By theme\n",
        "Each rule on its usual inputs / on ours.\n",
        _table(("rule", *(f"{t} ({n})" for t, n in matrix.themes().items())), list(_by_theme(matrix))),
        "## By mutant\n",
        "The number of the first case that shows it, on the rule's usual inputs / on ours; – missed, · no case of the inputs"
        " concerns it.\n",
        _table(("mutant", "theme", *RULES), list(_by_mutant(matrix))),
    ]
    crashed = matrix.crashed()
    if crashed:
        listed = ", ".join(f"`{name}`" for name in crashed)
        parts.append(f"Found by any rule where they raise an exception or end their process: {listed}.\n")
    return "\n".join(parts)


def _by_theme(matrix: Matrix) -> Iterable[tuple[str, ...]]:
    for rule in RULES:
        usual = USUAL.get(rule)
        cells = [
            (f"{matrix.kills(rule, usual, t)} / " if usual else "") + str(matrix.kills(rule, OURS, t))
            for t in matrix.themes()
        ]
        yield (TITLES[rule], *cells)


def _by_mutant(matrix: Matrix) -> Iterable[tuple[str, ...]]:
    def cell(mutant: str, rule: str, inputs: str) -> str:
        first = matrix.first(mutant, rule, inputs)
        return "–" if first is None else str(first) if first else "·"

    for mutant, theme in matrix.mutants:
        cells = []
        for rule in RULES:
            usual = USUAL.get(rule)
            cells.append((f"{cell(mutant.name, rule, usual)} / " if usual else "") + cell(mutant.name, rule, OURS))
        yield (f"`{mutant.name}`", theme, *cells)


def _alarms(matrix: Matrix, rule: str, inputs: str) -> str:
    false, judged = matrix.alarms(rule, inputs)
    return f"{false} of {judged:,}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
