"""The check `determinism`: bitwise equal over repeats, alone as in a batch, with sequences and heads in another order.

Interpreted kernels also with their programs in another order: reversed, drawn by the case's seed, or one of them last; programs that
use atomic operations take turns. On a GPU the repeats run beside other work (`flashverify.checks.passes.timing`), each after a pass over
other values: what a program reads too early from memory that the subject keeps is then wrong, and not the equal value of the pass before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.bitwise import first_differences
from flashverify.checks.passes.by_itself import told_by_itself
from flashverify.checks.passes.execution import execute
from flashverify.checks.passes.other_problems import with_other_problem
from flashverify.checks.passes.timing import Disturbance
from flashverify.checks.passes.variants import variants_of
from flashverify.checks.spec import CheckSpec, ErrorClass, Need, Question, Slot
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.checks.passes.variants import Select
    from flashverify.interpreter.repeats import Launches
    from flashverify.subjects.interface import Subject

__all__ = ["SPEC", "check_determinism", "promised"]

_VARIANTS = ("repeat", "solo-sequence", "solo-head", "permuted", "program-order")
_SAME_PROBLEM = ("repeat", "program-order")
_DISTURBED, _MEASURED = 4, 2
"""Repeats on a GPU of a subject that promises equal bits, and of another one, of which a difference is a remark."""
_NEXT_SEED = 8
"""To the seed of the values in between; a subject may choose a path by the last bits of a seed."""
_SELDOM = 1 / 16
"""Share of the places at which another program goes on, where most programs are to run in one piece."""


def promised(subject: Subject, variant: str) -> bool:
    """Whether the subject promises bitwise equality under `variant`; what is not promised is reported as a warning."""
    contract = subject.contract
    return bool(contract.deterministic and (variant in _SAME_PROBLEM or contract.batch_invariant))


def check_determinism(
    subject: Subject, base: Execution, variants: tuple[str, ...], known: Launches | None = None
) -> list[Verdict] | None:
    """Runs each variant and compares it with the matching part of `base`, bit for bit.

    Differences that the subject does not promise to be absent come back as passing verdicts with a message; where a part of the problem is
    wrong by itself, the failures of `accuracy` of that part. None where the case has none of the variants.

    Args:
        subject: the kernel under test.
        base: the pass over the case.
        variants: of `_VARIANTS`.
        known: see `BasePass.known`.
    """
    undefined = _unasked(subject, base)
    found: list[Verdict] = []
    compared = 0
    for variant in variants:
        for problem, select in _supported(subject, variants_of(base, variant)):
            different: list[Verdict] = []
            passes: list[Execution] = []
            for execution in _passes(subject, problem, variant, known):
                passes = [execution]
                parts = {name: own for name, whole in base.outputs.items() if (own := select(whole, name)) is not None}
                compared += len(parts)
                ignored = {
                    name: select(undefined[name].expand(base.outputs[name].shape), name)
                    for name in parts
                    if name in undefined
                }
                found_in = first_differences(
                    [(own, execution.outputs[name], ignored.get(name)) for name, own in parts.items()]
                )
                different += [
                    _verdict(subject, variant, name, *difference)
                    for name, difference in zip(parts, found_in, strict=True)
                    if difference is not None
                ]
                if different:
                    break
            if variant not in _SAME_PROBLEM:
                different = told_by_itself(subject, base.problem.case, different, (problem.case,))
                different = with_other_problem(subject, different, base, passes)
            found += different
    return found if compared else None


def _passes(subject: Subject, problem: Problem, variant: str, known: Launches | None) -> Iterator[Execution]:
    """The passes of a variant: several where a repeat runs on a GPU, each beside other work, otherwise one."""
    known = known if variant in _SAME_PROBLEM else None
    if variant == "repeat" and _is_concurrent(problem):
        disturbance, other = Disturbance(problem.q.device, problem.case.values.seed), _other_values(subject, problem)
        for _ in range(_DISTURBED if promised(subject, variant) else _MEASURED):
            if other is not None:
                execute(subject, other)
            disturbance.stir()
            yield execute(subject, problem, pattern=1, memory=False)
        return
    with _order(problem.case) if variant == "program-order" else contextlib.nullcontext():
        yield execute(subject, problem, pattern=1, known=known, memory=False)


def _is_concurrent(problem: Problem) -> bool:
    """Whether programs run at the same time, so that a repeat may meet another order."""
    return problem.q.is_cuda


def _other_values(subject: Subject, problem: Problem) -> Problem | None:
    """The problem with values of another seed; None where the subject does not take it."""
    case = problem.case
    case = dataclasses.replace(case, values=dataclasses.replace(case.values, seed=case.values.seed + _NEXT_SEED))
    if subject.supports.refusal(case) is not None:
        return None
    return materialize(case, problem.q.device.type)[0]


def _unasked(subject: Subject, base: Execution) -> dict[str, torch.Tensor]:
    """Per output the elements that are not compared: those that the contract leaves open, and those that nobody writes, which `memory` reports."""
    undefined = undefined_elements(base.problem, subject.contract)
    for name, mask in base.unwritten.items():
        undefined[name] = undefined[name] | mask if name in undefined else mask
    return undefined


def _supported(subject: Subject, variants: Iterator[tuple[Problem, Select]]) -> Iterator[tuple[Problem, Select]]:
    """The variants that the subject accepts: a part may have fewer heads than it declares."""
    return (each for each in variants if subject.supports.refusal(each[0].case) is None)


def _verdict(subject: Subject, variant: str, name: str, index: tuple[int, ...], text: str) -> Verdict:
    return Verdict(
        check="determinism",
        status=Status.FAIL if promised(subject, variant) else Status.PASS,
        output=name,
        error={"repeat": "repeat", "program-order": "order"}.get(variant, "batch"),
        index=index,
        message=f"{name}{list(index)} is not bitwise the same ({variant}): {text}",
    )


@contextlib.contextmanager
def _order(case: Case) -> Iterator[None]:
    """Interpreted programs in reverse, by a draw of the seed, or with one of them last. Those that use atomic operations take turns, often or seldom: one may wait for another."""
    import numpy as np

    session = sys.modules["flashverify.interpreter.session"].active()
    seed, before = case.values.seed, session.order

    def order(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        if seed % 2:
            return np.arange(count)[::-1]
        drawn = np.random.default_rng(seed)
        if seed % 4 == 0:
            return drawn.permutation(count)
        late = int(drawn.integers(max(count, 1)))
        return np.concatenate([np.delete(np.arange(count), slice(late, late + 1)), np.arange(count)[late : late + 1]])

    session.order = order
    try:
        with session.interleaved(seed, 1.0 if seed // 4 % 2 == 0 else _SELDOM):
            yield
    finally:
        session.order = before


def _run(base: BasePass, variants: tuple[str, ...]) -> list[Verdict] | None:
    return check_determinism(base.subject, base.execution, variants, base.known)


SPEC = CheckSpec(
    name="determinism",
    question="Are outputs bitwise equal over repeats, alone as in a batch, and with sequences, heads and programs in another order?",
    needs=(Need.PASSES,),
    questions=tuple(
        Question(
            name=name,
            slot=Slot.SAME_BITS,
            of_right_passes=name not in _SAME_PROBLEM,
            loads_alike=name in _SAME_PROBLEM,
        )
        for name in _VARIANTS
    ),
    errors=(
        ErrorClass("repeat", "{output} differs from run to run", "the same problem gave other bits, against a promise"),
        ErrorClass(
            "batch", "{output} depends on its neighbours in the batch", "a part of a problem gave other bits alone"
        ),
        ErrorClass("order", "{output} depends on the order of programs", "another order of programs gave other bits"),
    ),
    run=_run,
)
