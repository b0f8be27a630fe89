"""The check `memory`: inputs, gaps and guard bands unchanged, every declared output element written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.arena import Arena
    from flashverify.checks.execution import Execution

__all__ = ["check_memory"]


def check_memory(execution: Execution, arena: Arena, undefined: dict[str, torch.Tensor]) -> Iterator[Verdict]:
    """Failing verdicts of the error classes `input`, `guard` and `unwritten`.

    Args:
        execution: the pass.
        arena: the storage of its inputs.
        undefined: per output the elements that the contract leaves open; they need not be written.
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
    for name, mask in execution.unwritten.items():
        missing = mask & ~undefined[name] if name in undefined else mask
        if bool(missing.any()):
            index = tuple(int(i) for i in missing.nonzero()[0])
            count = int(missing.sum())
            yield Verdict(
                check="memory",
                status=Status.FAIL,
                output=name,
                error="unwritten",
                index=index,
                message=f"{name}{list(index)} was never written ({count} of {mask.numel()} elements)",
            )
