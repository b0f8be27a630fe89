"""The checks `accuracy` and `nonfinite` of a large case: rows and keys that stand for all of them (docs/long.md).

O, LSE, delta and dQ of a row depend on no other row: they are judged as in a small case, end to end and given the subject's own O and LSE.
DK and dV of a key sum over every row, so they are judged given the subject's own O and LSE of all rows, each key by itself: `n` keys cost
`n` times all rows. Where that is no question to the subject, the oracle judges every row up to `WHOLE_LIMIT`; beyond it dK and dV are
named as left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.checks.accuracy import (
    Accuracy,
    check_accuracy,
    doubtful,
    judged_form,
    tainted,
    united,
)
from flashverify.checks.both_modes import CONDITIONAL, END_TO_END, STRICT, finite_stored
from flashverify.checks.left_open import pinned_elements, undefined_elements
from flashverify.checks.passes.derived_problems import work
from flashverify.checks.sampled.census import nan_failures
from flashverify.checks.sampled.overflow import stays_in_range
from flashverify.checks.sampled.positions import judged_keys, judged_rows
from flashverify.judge.compare import Comparison, Part, compare_output
from flashverify.judge.verdict import Sampled
from flashverify.outputs import output, rows_reach
from flashverify.truth import Truth, inputs_of, of_keys, of_rows

if TYPE_CHECKING:
    import torch

    from flashverify.checks.passes.execution import Execution
    from flashverify.numerics import OutputBound
    from flashverify.subjects.interface import Subject
    from flashverify.truth import Clean, Inputs

    Pairs = dict[str, tuple[torch.Tensor, OutputBound]]

__all__ = ["WHOLE_LIMIT", "check_sampled"]

_LEFT_OUT = (
    "dK and dV of a large case were not judged: they are right given the returned O and LSE in no reading of the form, or that is not "
    "asked; Contract(reads_outputs=True) asks it"
)

WHOLE_LIMIT = 1 << 38
"""Multiply-adds of the forward up to which every row is judged where keys cannot be judged by themselves."""


def check_sampled(subject: Subject, execution: Execution) -> Accuracy:
    """Compares every output at some rows or keys with the oracle; `Accuracy.sampled` says at how many of how many."""
    inputs, tidy = inputs_of(execution.problem)
    return _Sample(subject, execution, inputs, tidy).judged()


@dataclass(frozen=True)
class _Sample:
    """One large case."""

    subject: Subject
    execution: Execution
    inputs: Inputs
    tidy: Clean

    def judged(self) -> Accuracy:
        """Rows first, then keys where there are gradients."""
        inputs, case = self.inputs, self.execution.problem.case
        rows = judged_rows(case, inputs, self.execution.outputs)
        in_range = stays_in_range(
            self.execution.problem,
            inputs,
            self.execution.outputs["o"],
            judged_form(self.subject, self.execution.problem),
        )
        comparisons, warnings = self._rows(rows)
        keys = inputs.k.new_zeros(0).long()
        if inputs.do is not None:
            keys = judged_keys(case, inputs)
            found = self._keys(keys) if in_range else None
            if found is None and work(case) <= WHOLE_LIMIT:
                return check_accuracy(self.subject, self.execution)
            if found is None:
                keys = keys[:0]
                warnings.append(_LEFT_OUT)
            comparisons += found or []
        known = {comparison.stats.output for comparison in comparisons}
        sampled = Sampled(
            rows=rows.numel(),
            of_rows=case.seq_q,
            keys=keys.numel(),
            of_keys=case.seq_k,
            left_out=tuple(name for name in self.execution.outputs if name not in known),
        )
        broken = nan_failures(self.subject, self.execution) if in_range and not self.tidy.taint else []
        said = {verdict.output for each in comparisons for verdict in each.verdicts if verdict.error == "nan"}
        found_nan = tuple(verdict for verdict in broken if verdict.output not in said)
        return Accuracy(tuple(comparisons), tuple(warnings), found_nan, sampled=sampled)

    def _rows(self, rows: torch.Tensor) -> tuple[list[Comparison], list[str]]:
        problem, outputs, contract = self.execution.problem, self.execution.outputs, self.subject.contract
        truth = Truth(of_rows(self.inputs, rows), problem.case.dtype, judged_form(self.subject, problem))
        judge = _Judge(self, truth, rows, "row")
        found = [judge(name, END_TO_END, pair) for name, pair in truth.forward().items() if name in outputs]
        found += [judge("o", STRICT, pair) for pair in truth.strict().values() if "o" in outputs]
        if self.inputs.do is None:
            return found, []
        first: tuple[list[Comparison], list[Comparison]] | None = None
        for reading in truth.readings:
            parts = self._row_gradients(reading, judge, rows)
            first = first or parts
            if not any(comparison.verdicts for part in parts for comparison in part):
                break
        else:
            assert first is not None
            parts = first
        doubt = doubtful([*found, *parts[0]], parts[1]) if contract.reads_outputs is None else ""
        return [*found, *parts[0], *([] if doubt else parts[1])], [doubt] if doubt else []

    def _row_gradients(
        self, truth: Truth, judge: _Judge, rows: torch.Tensor
    ) -> tuple[list[Comparison], list[Comparison]]:
        """Delta and dQ of the rows: end to end, and given O and the LSE where that is asked."""
        outputs = self.execution.outputs
        whole = [judge(name, END_TO_END, pair) for name, pair in truth.backward().items() if name in judge.names]
        if "lse" not in outputs or self.subject.contract.reads_outputs is False:
            return whole, []
        o, lse, bad = finite_stored(outputs["o"].index_select(2, rows), outputs["lse"].index_select(2, rows), truth)
        lost = {} if bad is None else rows_reach(bad, self.execution.problem)
        given = truth.given(o, lse)[0]
        return whole, [judge(name, CONDITIONAL, pair, lost) for name, pair in given.items() if name in judge.names]

    def _keys(self, keys: torch.Tensor) -> list[Comparison] | None:
        """DK and dV of the keys given O and the LSE; None where that cannot be judged of keys by themselves."""
        problem, outputs, contract = self.execution.problem, self.execution.outputs, self.subject.contract
        form = judged_form(self.subject, problem)
        if contract.reads_outputs is False or "lse" not in outputs or form.k_smoothed:
            return None
        truth = Truth(of_keys(self.inputs, keys), problem.case.dtype, form)
        judge = _Judge(self, truth, keys, "key")
        first: list[Comparison] | None = None
        for reading in truth.readings:
            if reading.form.delta_from == "p" or reading.form.p_from == "forward":
                continue  # delta, or P, of a row depends on all of its keys
            found = self._key_gradients(reading, judge)
            if not any(comparison.verdicts for comparison in found):
                return found
            first = first or found
        return first if contract.reads_outputs else None

    def _key_gradients(self, truth: Truth, judge: _Judge) -> list[Comparison]:
        outputs = self.execution.outputs
        o, lse, bad = finite_stored(outputs["o"], outputs["lse"], truth)
        nan = ~outputs["o"].isfinite().all(-1) | outputs["lse"].isnan()
        lost = rows_reach(nan if bad is None else nan | bad, self.execution.problem)
        ordinary, strict = truth.given(o, lse)
        modes = ((CONDITIONAL, ordinary), (STRICT, strict))
        return [
            judge(name, mode, pair, lost)
            for mode, pairs in modes
            for name, pair in pairs.items()
            if name in judge.names
        ]


class _Judge:
    """Compares outputs at some positions of one axis, `row` or `key`."""

    def __init__(self, sample: _Sample, truth: Truth, positions: torch.Tensor, axis: str) -> None:
        problem, contract = sample.execution.problem, sample.subject.contract
        self._outputs, self._truth, self._positions = sample.execution.outputs, truth, positions
        self._part = Part(axis, tuple(positions.tolist()), problem.case.seq_q if axis == "row" else problem.case.seq_k)
        self._taint = tainted(sample.tidy, truth.form)
        self._undefined = undefined_elements(problem, contract)
        self._pinned = pinned_elements(truth, problem, contract)
        self.names = [name for name in self._outputs if output(name).along == axis]

    def __call__(
        self, name: str, mode: str, pair: tuple[torch.Tensor, OutputBound], lost: dict[str, torch.Tensor] | None = None
    ) -> Comparison:
        value, bound = pair
        mask, fixed = self._pinned.get(name, (None, 0.0))
        mask = self._cut(name, mask)
        if mask is not None and name in ("delta", "dq"):  # of a row without keys whose dP overflows nothing is asked
            mask = mask & ~bound.exempt
        truth = self._truth
        return compare_output(
            name,
            self._outputs[name].index_select(self._axis(name), self._positions),
            value,
            bound,
            mode=mode,
            taint=self._cut(name, united(self._taint.get(name), (lost or {}).get(name))),
            pinned=mask,
            pinned_value=fixed,
            undefined=self._cut(name, self._undefined.get(name)),
            exact=(lambda: truth.exact(name)) if mode == STRICT and self._part.axis == "row" else None,
            part=self._part,
        )

    def _axis(self, name: str) -> int:
        axis = output(name).axis(self._part.axis)
        assert axis is not None
        return axis

    def _cut(self, name: str, mask: torch.Tensor | None) -> torch.Tensor | None:
        """A mask that broadcasts to the whole output, at the positions."""
        if mask is None or mask.shape[self._axis(name)] != self._part.size:
            return mask
        return mask.index_select(self._axis(name), self._positions)
