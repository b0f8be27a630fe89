"""The check `sanitizer`, of interpreted kernels: their loads and stores, lane by lane, and what depends on undefined lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.checks.passes.bitwise import first_difference
from flashverify.checks.passes.execution import execute
from flashverify.checks.spec import CheckSpec, ErrorClass, Need, Question, Slot
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import torch

    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.interpreter.memory import Place
    from flashverify.subjects.interface import Subject

__all__ = ["FILLS", "SPEC", "check_sanitizer", "explained"]

FILLS = ("nan", "high", "low")
"""Those of `flashverify.interpreter`, which must not be imported where kernels are compiled."""

_LISTED = 3
_NON_FINITE = ("nan", "inf", "saturation")
"""Classes of `nonfinite` that are about a value that is not a number or infinite."""


def check_sanitizer(
    subject: Subject,
    base: Execution,
    fills: tuple[str, ...],
    undefined: dict[str, torch.Tensor],
    reported: set[Place] | None = None,
) -> Iterator[Verdict]:
    """Failing verdicts of the error classes `out-of-bounds`, `uninitialised`, `double-write`, `race`, `input-store`, `undefined-lane`.

    The first five come from the base pass. Lanes that are masked off without `other=` are no failure by themselves: where the
    base pass loaded any, it is repeated with other values in them until an output changes, which depends on one then. Lanes at places that were
    reported before are left alone; a passing verdict, which becomes a warning, names them. `Contract(masked_loads="zero")` declares that
    all such lanes are 0.

    Args:
        subject: the kernel under test.
        base: the pass, made under a sanitizer.
        fills: values to try in undefined lanes, against the 0 of the base pass.
        undefined: per output the elements that the contract leaves open.
        reported: places that were reported before, to which those of failing verdicts are added; None where each is reported every time.
    """
    watch = base.watch
    assert watch is not None
    for report in watch.reports.values():
        yield Verdict(
            check="sanitizer",
            status=Status.FAIL,
            output=report.argument,
            error=report.kind,
            index=report.index,
            message=str(report),
        )
    known = set() if reported is None else reported
    lanes = [lane for lane in watch.lanes.values() if lane.place not in known]
    told = {lane.argument: lane for lane in watch.lanes.values() if lane.place in known}
    if subject.contract.masked_loads == "zero":
        return
    for argument, lane in told.items():
        message = f"{lane.place}: masked off without other=, which an output depends on; reported once"
        yield Verdict(check="sanitizer", status=Status.PASS, output=argument, error="undefined-lane", message=message)
    places = dict.fromkeys(lane.place for lane in lanes)
    for fill in fills if places else ():
        found = _difference(subject, base, fill, places if told else None, undefined)
        if found is None:
            continue
        guilty = []
        for where in places:
            alone = _difference(subject, base, fill, (where,), undefined)
            guilty += [] if alone is None else [(alone, lane) for lane in lanes if lane.place == where]
        for (output, index, text), lane in guilty[:_LISTED] or [(found, lanes[0])]:
            known.add(lane.place)
            yield Verdict(
                check="sanitizer",
                status=Status.FAIL,
                output=lane.argument,
                error="undefined-lane",
                index=index,
                message=f"{lane}; {output}{list(index)} depends on it: 0 against {fill} gives {text}",
            )
        return


def explained(subject: Subject, base: Execution, verdicts: list[Verdict]) -> list[Verdict]:
    """The verdicts; to failures of `nonfinite` of interpreted kernels is added where the first non-finite values were made.

    Args:
        subject: the kernel under test, run once more where there is something to add.
        base: the pass.
        verdicts: about it.
    """
    if base.watch is None or not any(v.check == "nonfinite" and v.error in _NON_FINITE for v in verdicts):
        return verdicts
    from flashverify.interpreter import trace

    with trace() as seen:
        execute(subject, base.problem)
    events = [f"{event.kind} at {event}" for event in seen.events.values()][:_LISTED]
    if not events:
        return verdicts
    text = f"; non-finite values begin with: {'; then '.join(events)}"
    return [
        msgspec.structs.replace(v, message=v.message + text) if v.check == "nonfinite" and v.error in _NON_FINITE else v
        for v in verdicts
    ]


def _difference(
    subject: Subject, base: Execution, fill: str, only: Collection[Place] | None, undefined: dict[str, torch.Tensor]
) -> tuple[str, tuple[int, ...], str] | None:
    """The first output that differs from `base` with `fill` in undefined lanes: its name, the element, both values."""
    outputs = execute(subject, base.problem, fill=fill, only=only).outputs
    for name, expected in base.outputs.items():
        found = first_difference(expected, outputs[name], undefined.get(name))
        if found is not None:
            return (name, *found)
    return None


def _run(base: BasePass, fills: tuple[str, ...]) -> list[Verdict] | None:
    if base.execution.watch is None:
        return None
    return list(check_sanitizer(base.subject, base.execution, fills, base.undefined, base.reported))


SPEC = CheckSpec(
    name="sanitizer",
    question="In the interpreter: is there no access outside a tensor's own elements, no undefined lane or unwritten memory in an "
    "output, no race, and no store into an input?",
    needs=(Need.INTERPRETER, Need.PASSES),
    questions=tuple(Question(name=fill, slot=Slot.FILL) for fill in FILLS),
    errors=(
        ErrorClass(
            "out-of-bounds", "{output} is accessed out of bounds", "an access lies outside the elements of a tensor"
        ),
        ErrorClass("uninitialised", "{output} is read before it is written", "memory was read that nobody had written"),
        ErrorClass("double-write", "{output} is written twice", "two lanes or programs stored to one element"),
        ErrorClass(
            "race",
            "{output} is read and written by different programs",
            "the result depends on which program runs first",
        ),
        ErrorClass("input-store", "input {output} is stored to", "a kernel stored into memory of an input"),
        ErrorClass(
            "undefined-lane",
            "a masked lane of {output} reaches an output",
            "an output changes with lanes that a mask left undefined",
        ),
    ),
    run=_run,
    remark=lambda verdict: f"{verdict.output}: {verdict.message}",
)
