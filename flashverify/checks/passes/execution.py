"""One pass of a subject over a problem, with its outputs guarded."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.case.memory.contiguity import made_contiguous
from flashverify.case.memory.guard import Damage, guard_outputs
from flashverify.case.memory.handed import handed_tensors
from flashverify.checks.passes.first_calls import noted
from flashverify.outputs import BACKWARD, FORWARD, OUTPUTS, output
from flashverify.subjects.blame import subject_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import torch

    from flashverify.case.memory.guard import Guard
    from flashverify.case.problem import Problem
    from flashverify.interpreter.memory import Place
    from flashverify.interpreter.repeats import Launches
    from flashverify.interpreter.reports import Watch
    from flashverify.interpreter.wraps import Wraps
    from flashverify.subjects.interface import Contract, Subject

__all__ = ["Execution", "execute", "sparing"]


@dataclass(frozen=True, slots=True)
class Execution:
    """What a pass left behind.

    Attributes:
        problem: its inputs.
        outputs: by name, in the order of `OUTPUTS`; absent ones are left out.
        unwritten: per guarded output, the elements that nobody wrote; empty where the memory was not looked at, as `damage`.
        damage: guard bands of outputs that were overwritten, and changes of tensors that helpers made for the subject.
        missing: outputs that the case calls for and the contract promises, but that the subject did not return.
        watch: what the sanitizer saw; None where nothing was interpreted under it.
    """

    problem: Problem
    outputs: dict[str, torch.Tensor]
    unwritten: dict[str, torch.Tensor]
    damage: tuple[Damage, ...]
    watch: Watch | None = None
    missing: tuple[str, ...] = ()


def execute(
    subject: Subject,
    problem: Problem,
    *,
    pattern: int = 0,
    fill: str | None = None,
    only: Collection[Place] | None = None,
    guarding: Callable[..., contextlib.AbstractContextManager[Guard]] = guard_outputs,
    wraps: Wraps | None = None,
    kept: Launches | None = None,
    known: Launches | None = None,
    memory: bool = True,
) -> Execution:
    """Runs the forward and, where the case has one and O has the right shape, the backward.

    Args:
        subject: the kernel under test.
        problem: its inputs.
        pattern: which of the two bit patterns fills the memory that the subject allocates.
        fill: value of undefined lanes of interpreted kernels, see `flashverify.interpreter.FILLS`; None is 0.
        only: the loads whose undefined lanes are filled; None is all.
        guarding: what guards the memory that the subject allocates.
        wraps: where interpreted accesses outside a tensor are told apart; None where nobody asks.
        kept: takes in the interpreted launches of this pass; None where no other pass asks for them.
        known: those of an earlier pass, which need not run where they would load the same; None where every launch must run.
        memory: whether the memory that the subject allocated is looked at afterwards.

    Raises:
        Exception: whatever the subject raises.
    """
    import torch

    noted(subject, problem.case)
    given = made_contiguous(problem) if subject.supports.contiguous else problem
    inputs = _storages(given)
    with (
        guarding(pattern=pattern) as guard,
        handed_tensors(inputs) as handed,
        _watching(
            inputs=inputs, poison=guard.poison, fill=fill, only=only, wraps=wraps, kept=kept, known=known
        ) as watch,
    ):
        wanted = {"lse"} if subject.contract.lse_base is not None else set()
        with subject_code():
            forward = subject.forward(given)
            found: dict[str, torch.Tensor | None] = {name: getattr(forward, name) for name in FORWARD}
            if problem.case.grad.backward and forward.o.shape == problem.case.shape_o:
                gradients = subject.backward(given, forward)
                wanted |= _called_for(problem, subject.contract)
                found |= {name: getattr(gradients, name) for name in BACKWARD}
    if problem.q.is_cuda:
        with subject_code():
            torch.cuda.synchronize(problem.q.device)
    outputs = {name: tensor.detach() for name in OUTPUTS if (tensor := found.get(name)) is not None}
    found_unwritten = ((name, guard.unwritten(tensor)) for name, tensor in outputs.items() if memory)
    unwritten = {name: mask for name, mask in found_unwritten if mask is not None}
    damage = (*handed.damage(), *guard.damage()) if memory else ()
    seen = watch if watch is not None and watch.launches else None
    missing = tuple(name for name in OUTPUTS if name in wanted and name not in outputs)
    return Execution(problem, outputs, unwritten, damage, seen, missing)


def _called_for(problem: Problem, contract: Contract) -> frozenset[str]:
    """The promised gradients of what the problem has."""
    return frozenset(name for name in contract.gradients if output(name).given(problem))


@contextlib.contextmanager
def sparing(problem: Problem, known: Launches | None) -> Iterator[None]:
    """For calls of a subject outside `execute`: an interpreted launch of the block is not run where it would load what one of `known` loaded."""
    if known is None:
        yield
        return
    inputs = _storages(problem)
    with (
        guard_outputs(pattern=1) as guard,  # memory lies as in the pass whose launches are known
        handed_tensors(inputs),
        _watching(inputs=inputs, poison=guard.poison, known=known),
    ):
        yield


def _storages(problem: Problem) -> set[int]:
    return {x.untyped_storage().data_ptr() for x in problem.tensors() if x.numel()}


def _watching(**asked: Any) -> contextlib.AbstractContextManager[Watch | None]:
    """The sanitizer told of the memory that is input, now and later, and of what else is asked, where an open session has one."""
    loaded = sys.modules.get("flashverify.interpreter.sanitizer")
    if loaded is None:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[Watch | None] = loaded.watch(**asked)
    return found
