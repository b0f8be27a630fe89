"""The check `memory`: inputs, gaps and guard bands unchanged, every declared output element written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.transfers import any_of
from flashverify.checks.spec import CheckSpec, ErrorClass
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.memory.arena import Arena
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution

__all__ = ["SPEC", "check_memory"]


def check_memory(
    execution: Execution, arena: Arena, undefined: dict[str, torch.Tensor], *, untouched: bool = False
) -> Iterator[Verdict]:
    """Failing verdicts of the error classes `input`, `guard`, `unwritten` and `touched`.

    Args:
        execution: the pass.
        arena: the storage of its inputs.
        undefined: per output the elements that the contract leaves open; they need not be written.
        untouched: whether they must not be written either.
    """
    for damage in (*arena.damage(), *execution.damage):
        yield Verdict(
            check="memory",
            status=Status.FAIL,
            output=damage.tensor,
            error=damage.kind,
            index=tuple(damage.index),
            message=damage.message,
        )
    wrong: list[tuple[str, str, torch.Tensor, str]] = []
    for name, mask in execution.unwritten.items():
        beyond = undefined.get(name)
        wrong.append((name, "unwritten", mask if beyond is None else mask & ~beyond, "was never written"))
        if untouched and beyond is not None:
            wrong.append((name, "touched", ~mask & beyond, "lies behind the last sequence and was written"))
    for each, flag in zip(wrong, any_of([mask for _, _, mask, _ in wrong]), strict=True):
        if flag:
            yield _first(*each)


def _first(name: str, error: str, wrong: torch.Tensor, what: str) -> Verdict:
    index = tuple(int(i) for i in wrong.nonzero()[0])
    message = f"{name}{list(index)} {what} ({int(wrong.sum())} of {wrong.numel()} elements)"
    return Verdict(check="memory", status=Status.FAIL, output=name, error=error, index=index, message=message)


def _run(base: BasePass, _: tuple[str, ...]) -> list[Verdict]:
    untouched = base.case.mask.packed is not None and base.subject.contract.padding == "written"
    return list(check_memory(base.execution, base.arena, base.undefined, untouched=untouched))


SPEC = CheckSpec(
    name="memory",
    question="Are inputs, gaps and guard bands unchanged, and is every declared element of every output written?",
    errors=(
        ErrorClass("input", "input {output} is modified", "an input does not hold the bits that it was given"),
        ErrorClass("guard", "memory around {output} is overwritten", "a store went beyond the ends of a tensor"),
        ErrorClass(
            "unwritten", "{output} is not written everywhere", "a declared element of an output was never written"
        ),
        ErrorClass(
            "touched", "{output} is written behind the last sequence", "an element behind packed sequences was written"
        ),
    ),
    run=_run,
    beyond_oracle=True,
)
