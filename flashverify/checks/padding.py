"""The check `padding`: outputs are bitwise the same whatever lies outside the declared lengths and between the strides."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.case.case import POISONS
from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.bitwise import first_difference
from flashverify.checks.passes.execution import execute
from flashverify.checks.passes.other_problems import with_other_problem
from flashverify.checks.spec import CheckSpec, ErrorClass, Need, Question, Slot
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.interpreter.repeats import Launches
    from flashverify.subjects.interface import Subject

__all__ = ["REPEATS", "SPEC", "check_padding", "has_padding"]

REPEATS = 8


def has_padding(case: Case) -> bool:
    """Whether anything but the guard bands holds the padding's value."""
    packed = case.mask.packed
    lengths = ((case.mask.key_lengths, case.seq_k), (case.mask.query_lengths, case.seq_q))
    behind = packed is not None and (packed.cu_q[-1] < case.seq_q or packed.cu_k[-1] < case.seq_k)
    paged = case.storage.page_size is not None
    return (
        behind
        or paged
        or case.storage.gap > 0
        or any(min(declared, default=full) < full for declared, full in lengths if declared is not None)
    )


def check_padding(
    subject: Subject,
    base: Execution,
    poisons: tuple[str, ...],
    undefined: dict[str, torch.Tensor],
    known: Launches | None = None,
) -> Iterator[Verdict]:
    """Runs the same values under each poison and compares every output with `base`, bit for bit.

    Where the subject does not promise to be deterministic, a difference counts only if it is systematic: some element's values
    over `REPEATS` fresh passes under one padding lie wholly apart from those under the other.

    Args:
        subject: the kernel under test.
        base: the pass under the case's own padding.
        poisons: what to refill the padding with.
        undefined: per output the elements that the contract leaves open.
        known: see `BasePass.known`.
    """
    case = base.problem.case
    for poison in poisons:
        if poison == case.storage.padding:
            continue
        execution = _filled(subject, case, poison, known)
        outputs, verdicts = execution.outputs, []
        for name, expected in base.outputs.items():
            found = first_difference(expected, outputs[name], undefined.get(name))
            if found is None:
                continue
            if not subject.contract.deterministic:
                systematic = _apart(subject, case, poison, name, undefined.get(name))
                if systematic is None:
                    continue
                found = systematic
            index, text = found
            message = (
                f"{name}{list(index)} depends on the padding: {case.storage.padding} against {poison} gives {text}"
            )
            verdicts.append(
                Verdict(check="padding", status=Status.FAIL, output=name, error="padding", index=index, message=message)
            )
        other = dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding=poison))
        yield from with_other_problem(subject, verdicts, base, (execution,), other)


def _filled(subject: Subject, case: Case, padding: str, known: Launches | None = None) -> Execution:
    problem, _ = materialize(case, subject.device(), padding=padding)
    return execute(subject, problem, known=known, memory=False)


def _apart(
    subject: Subject, case: Case, poison: str, name: str, ignore: torch.Tensor | None
) -> tuple[tuple[int, ...], str] | None:
    """The first element of `name` whose values under the two paddings do not overlap; NaN overlaps with NaN only."""
    import torch

    own, other = (
        torch.stack([_filled(subject, case, padding).outputs[name] for _ in range(REPEATS)]).double()
        for padding in (case.storage.padding, poison)
    )
    nan = torch.isnan(own).all(0) != torch.isnan(other).all(0)
    apart = nan | (own.amin(0) > other.amax(0)) | (other.amin(0) > own.amax(0))
    apart = apart if ignore is None else apart & ~ignore
    if not bool(apart.any()):
        return None
    index = tuple(int(i) for i in apart.nonzero()[0])
    values = f"{float(own[0][index]):.9g} against {float(other[0][index]):.9g}"
    return index, f"{values}, {int(apart.sum())} of {apart.numel()} elements never agree over {REPEATS} repeats"


def _question(poison: str) -> Question:
    return Question(
        name=poison, slot=Slot.PADDING, stands=lambda case: poison != case.storage.padding, loads_alike=True
    )


def _applies(_subject: Subject, case: Case) -> bool:
    return has_padding(case)


def _run(base: BasePass, poisons: tuple[str, ...]) -> list[Verdict]:
    return list(check_padding(base.subject, base.execution, poisons, base.undefined, base.known))


SPEC = CheckSpec(
    name="padding",
    question="Are outputs bitwise the same whatever lies outside the declared lengths and between the strides: 0, dirt, the largest "
    "finite value, infinities, NaN, another one in each head?",
    needs=(Need.PASSES,),
    questions=tuple(map(_question, POISONS)),
    errors=(
        ErrorClass(
            "padding", "{output} depends on what lies in the padding", "an output changes with memory that is no input"
        ),
    ),
    run=_run,
    applies=_applies,
)
