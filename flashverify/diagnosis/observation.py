"""A subject's outputs on a case beside the declared problem and its truth: what hypotheses are held against."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.backward_steps import changed
from flashverify.diagnosis.hypothesis import Alternative, Expectations
from flashverify.diagnosis.references import backward_asked, forward_asked
from flashverify.diagnosis.rough_gradients import has_far_gradients
from flashverify.diagnosis.screening import is_far_off
from flashverify.formats import DTYPES, FORMATS
from flashverify.outputs import BACKWARD, FORWARD, output
from flashverify.truth import Truth

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.masks.positions import Positions
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.execution import Execution
    from flashverify.diagnosis.expected import Expected
    from flashverify.diagnosis.hypothesis import Alternative, Expectations
    from flashverify.numerics import Form
    from flashverify.subjects.interface import Contract
    from flashverify.truth import Inputs

__all__ = ["LARGEST", "Scene"]

_OVERFLOW = {name: float(math.floor(math.log(FORMATS[name].max))) for name in DTYPES}
"""Natural logarithms of weights from which on they may not be finite in the dtype that multiplies them."""

LARGEST = 1 << 17
"""Pairs of rows and keys, over all heads, up to which a case is diagnosed by hypotheses."""


class _Asked(NamedTuple):
    inputs: Inputs
    truth: Truth


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """One run of a subject and the truth of its case, all on the CPU.

    Attributes:
        problem: the tensors that the subject was given.
        inputs: the declared problem, its pairs dense.
        truth: its values and bounds.
        form: of the subject.
        contract: of the subject.
        outputs: what it returned, float64, by name.
        free: per output the elements about which nothing is asked.
        at: where rows and keys lie.
        execution: the run itself.
        o, lse: what the conditional backward is given: the subject's own, natural units, with rows that are not finite replaced by
            the oracle's; None where it returned no LSE.
        right: what is expected of each output by the declared semantics.
        known: answers of `agrees`.
        memo: what was computed of it once, by whoever computed it.
    """

    problem: Problem
    inputs: Inputs
    truth: Truth
    form: Form
    contract: Contract
    outputs: dict[str, Tensor]
    free: dict[str, Tensor]
    at: Positions
    execution: Execution
    o: Tensor | None
    lse: Tensor | None
    right: Expectations
    known: dict[tuple[bytes, frozenset[str]], bool] = dataclasses.field(default_factory=dict)
    memo: dict[Any, Any] = dataclasses.field(default_factory=dict)

    @property
    def case(self) -> Case:
        """The case that the problem was made from."""
        return self.problem.case

    @property
    def group(self) -> int:
        """Query heads per kv head."""
        return self.case.heads_q // self.case.heads_kv

    @property
    def unit(self) -> float:
        """The subject's unit of an LSE, in natural ones."""
        return 1.0 if self.form.lse_base == "e" else math.log(2.0)

    @property
    def failures(self) -> dict[str, Tensor]:
        """What `failing` gives, found once."""
        if "failing" not in self.memo:
            self.memo["failing"] = self.failing()
        found: dict[str, Tensor] = self.memo["failing"]
        return found

    def failing(self) -> dict[str, Tensor]:
        """Per output that is not as declared, the elements."""
        found = {}
        for name, expected in self.right.items():
            wrong = ~expected.holds(self.outputs[name], self.free.get(name))
            if bool(wrong.any()):
                found[name] = wrong
        return found

    def expect(self, alternative: Alternative, names: frozenset[str]) -> Expectations:
        """What `alternative` expects of the outputs `names`."""
        found: Expectations = {}
        same = alternative.inputs is None
        truth = self.truth if alternative.inputs is None else self._truth_of(alternative.inputs)
        wanted = {name for name in names if name in self.outputs}
        if wanted & set(FORWARD):
            stored = same and (
                alternative.finish is None or "lse" in self.outputs
            )  # what changes O may start from the LSE
            values = self.declared(FORWARD) if stored else self._forward(truth)
            found |= values if alternative.finish is None else alternative.finish(values)
        if wanted & set(BACKWARD):
            o, lse = self.o, self.lse
            if alternative.given is not None and o is not None and lse is not None:
                o, lse = alternative.given(o, lse)
            values = self.declared(BACKWARD) if same and alternative.given is None else self._backward(truth, o, lse)
            if alternative.steps is not None:
                exact = self.truth.forward()["o"][0], self.truth.exact_lse
                given = exact if o is None or lse is None else (o, lse)
                values = changed(self, alternative.inputs or self.inputs, given, values, alternative.steps)
            if alternative.inputs is not None and lse is not None:
                values = self._overflowed(values, alternative.inputs, lse)
            if alternative.inputs is not None and alternative.inputs.dlse is not self.inputs.dlse:
                values = {name: self.cancelling(name, x) for name, x in values.items()}
            found |= values if alternative.finish is None else alternative.finish(values)
        return {name: found[name].overflowing(self._largest(name)) for name in wanted if name in found}

    def cancelling(self, name: str, x: Expected) -> Expected:
        """No closer than declared: what leaves the gradient through the LSE out may add it, and take it away again."""
        if name not in self.right or x.value.shape != self.right[name].value.shape:
            return x
        return dataclasses.replace(x, total=torch.maximum(x.total, self.right[name].total))

    def _largest(self, name: str) -> float:
        return FORMATS[output(name).dtype_of(self.case.dtype)].max

    def _truth_of(self, inputs: Inputs) -> Truth:
        """The truth of another problem; that of the last one is kept, since the outputs of each kernel are asked about in turn."""
        if "truth" not in self.memo or self.memo["truth"].inputs is not inputs:
            self.memo["truth"] = _Asked(inputs, Truth(inputs, self.case.dtype, self.form))
        asked: _Asked = self.memo["truth"]
        return asked.truth

    def _overflowed(self, values: Expectations, inputs: Inputs, lse: Tensor) -> Expectations:
        """Weights exp(S - LSE) are infinite where the LSE knows nothing of the pair, or the row has none; so may be what they make."""
        over = (logits(inputs) - lse.unsqueeze(-1)) > _OVERFLOW[self.case.dtype]
        if not bool(over.any()):
            return values
        group = inputs.q.shape[1] // inputs.k.shape[1]
        keys = over.any(-2).reshape(over.shape[0], -1, group, over.shape[3]).any(2).unsqueeze(-1)
        where = {"dq": over.any(-1).unsqueeze(-1), "dk": keys, "dv": keys}
        return {name: x.maybe_lost(where[name]) if name in where else x for name, x in values.items()}

    def expect_once(self, alternative: Alternative, names: frozenset[str]) -> Expectations:
        """What `expect` says, which is kept; of what agreed it is kept already."""
        key = ("expected", id(alternative), frozenset(names))
        if key not in self.memo:
            self._keep(alternative, names, self.expect(alternative, names))
        found: Expectations = self.memo[key][1]
        return found

    def _keep(self, alternative: Alternative, names: frozenset[str], found: Expectations) -> None:
        self.memo["expected", id(alternative), frozenset(names)] = (
            alternative,
            found,
        )  # an alternative that is kept keeps its id

    def agrees(self, alternative: Alternative, names: frozenset[str]) -> bool:
        """Whether the outputs `names` are what `alternative` expects. The answers for a mask alone are kept."""
        key = self._mask_key(alternative)
        if key is not None and (key, names) in self.known:
            return self.known[key, names]
        if self._is_refuted(alternative, names):
            answer = False
        else:
            expected = self.expect(alternative, names)
            answer = all(
                name in expected and bool(expected[name].holds(self.outputs[name], self.free.get(name)).all())
                for name in names
            )
            if answer:
                self._keep(alternative, names, expected)
        if key is not None:
            self.known[key, names] = answer
        return answer

    def _is_refuted(self, alternative: Alternative, names: frozenset[str]) -> bool:
        """Whether no bounds are needed to see that an output is not what `alternative` expects."""
        inputs = alternative.inputs
        if inputs is not None and names & set(FORWARD):
            return is_far_off(self, self._truth_of(inputs), names, alternative.finish)
        return has_far_gradients(self, alternative, names)

    def _mask_key(self, alternative: Alternative) -> bytes | None:
        """What tells alternatives apart that differ from the declared problem in their mask alone; None for others."""
        inputs = alternative.inputs
        if inputs is None or inputs.visible is None or (alternative.finish or alternative.given or alternative.steps):
            return None
        mine = self.inputs
        if any(
            getattr(inputs, f.name) is not getattr(mine, f.name)
            for f in dataclasses.fields(inputs)
            if f.name != "visible"
        ):
            return None
        shape = (*self.case.shape_q[:3], self.case.seq_k)
        return bytes(inputs.visible.expand(shape).numpy().tobytes())

    def declared(self, names: tuple[str, ...]) -> Expectations:
        """What is declared, given O and the LSE, without what the declared order of tiles makes sharper: a wrong kernel may break that too."""
        given = {name: self.right[name] for name in names if name in self.right}
        return {name: dataclasses.replace(x, strict=None, other=None) for name, x in given.items()}

    def _forward(self, truth: Truth) -> Expectations:
        return forward_asked(truth, self.problem, self.contract)

    def _backward(self, truth: Truth, o: Tensor | None, lse: Tensor | None) -> Expectations:
        return backward_asked(truth, self.problem, o, None if lse is None else lse / self.unit)
