"""What compiling ahead asks of the toolkit: kinds of cases that share their kernels, launches that only compile, and what was spent."""

from __future__ import annotations

import atexit
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from flashverify.campaign.protocol import Spent
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hypothesis.strategies import SearchStrategy

    from flashverify.campaign.toolkit import Toolkit
    from flashverify.case.case import Case
    from flashverify.case.space.compile_keys import CompileKey
    from flashverify.launching.compilations import Compilations
    from flashverify.launching.rehearsal import Launches

__all__ = ["AheadToolkit", "CompilesAhead", "ahead_of", "compiling_ahead", "since"]


@runtime_checkable
class AheadToolkit(Protocol):
    """A toolkit of subjects whose kernels are compiled. `subject` is whatever its `load` returned."""

    def spent(self) -> Spent:
        """What this process has spent since its first call."""

    def kinds(self, subject: Any) -> tuple[int, int]:
        """How many kinds of cases a search should have, and how many there are; two cases of one kind ask for the same few kernels."""

    def traced(self, subject: Any) -> int:
        """How many kinds a subject has that torch traces, which each worker compiles for itself; 0 of any other subject."""

    def of_kinds(self, subject: Any, kinds: Sequence[int]) -> SearchStrategy[Case]:
        """Cases of these kinds; of all kinds where there is none of these."""

    def rehearsal(self, capability: tuple[int, int]) -> AbstractContextManager[Launches]:
        """Inside, launches compile for a GPU of a capability and do no more."""

    def rehearse(self, subject: Any, case: Case) -> str:
        """Make every launch of a case of a search; what the subject raised, in words, or empty."""

    def compiled_only(self) -> AbstractContextManager[object]:
        """Inside, a launch raises `NotCompiled` where its kernel would have to be compiled first."""


def ahead_of(toolkit: Toolkit) -> AheadToolkit:
    """The toolkit as one that compiles ahead.

    Raises:
        UsageError: it does not.
    """
    if not isinstance(toolkit, AheadToolkit):
        raise UsageError(f"toolkit={toolkit!r} is not accepted where kernels are compiled ahead: an AheadToolkit")
    return toolkit


@contextmanager
def compiling_ahead(toolkit: Toolkit, capability: str) -> Iterator[Callable[[], int]]:
    """Until the end of the block launches of this process only compile.

    Args:
        toolkit: of its subjects.
        capability: of the GPU, such as `9.0`; empty changes nothing.

    Yields:
        How many launches there were so far.
    """
    if not capability:
        yield lambda: 0
        return
    major, minor = map(int, capability.split("."))
    with ahead_of(toolkit).rehearsal((major, minor)) as launches:
        yield lambda: launches.count


def since(before: Spent, now: Spent) -> Spent:
    """What was spent between two questions."""
    return Spent(
        now.compiled - before.compiled,
        round(now.compiling - before.compiling, 6),
        round(now.oracle - before.oracle, 6),
        traced=now.traced - before.traced,
    )


class CompilesAhead:
    """The part of flashverify's toolkit that is about compiled kernels."""

    def spent(self) -> Spent:
        """See `AheadToolkit`."""
        from flashverify.launching.traces import traces
        from flashverify.truth.clock import oracle_seconds

        traces.listen()
        found = self._counts
        return Spent(
            found.compiled + traces.count, found.seconds + traces.seconds, oracle_seconds(), traced=traces.count
        )

    @cached_property
    def _listed(self) -> dict[str, tuple[CompileKey, ...]]:
        """Kinds by the name of their subject."""
        return {}

    @cached_property
    def _counts(self) -> Compilations:
        """Counted from the first question until the process ends."""
        from flashverify.launching.compilations import counting_compilations

        held = ExitStack()
        atexit.register(held.close)
        return held.enter_context(counting_compilations())

    def kinds(self, subject: Any) -> tuple[int, int]:
        """See `AheadToolkit`."""
        from flashverify.case.space.compile_keys import usual_kinds
        from flashverify.case.space.strategies import GPU

        if not subject.supports.compiles or subject.supports.traced or GPU.kinds is None:
            return 0, 0
        listed = len(self._kinds(subject))
        return min(listed, usual_kinds(subject.supports, GPU.kinds)), listed

    def traced(self, subject: Any) -> int:
        """See `AheadToolkit`."""
        return len(self._kinds(subject)) if subject.supports.compiles and subject.supports.traced else 0

    def of_kinds(self, subject: Any, kinds: Sequence[int]) -> SearchStrategy[Case]:
        """See `AheadToolkit`."""
        from flashverify.case.space.strategies import GPU, cases

        listed = self._kinds(subject)
        known = [listed[kind] for kind in kinds if kind < len(listed)]
        return cases(subject.supports, profile=GPU, kinds=known or listed)

    def _kinds(self, subject: Any) -> tuple[CompileKey, ...]:
        """Every kind of a subject, listed once a process."""
        from flashverify.case.space.strategies import GPU, all_kinds

        if subject.name not in self._listed:
            self._listed[subject.name] = all_kinds(subject.supports, GPU)
        return self._listed[subject.name]

    @contextmanager
    def rehearsal(self, capability: tuple[int, int]) -> Iterator[Launches]:
        """See `AheadToolkit`."""
        from flashverify.launching.rehearsal import rehearsed_launches

        with rehearsed_launches(capability) as launches:
            yield launches

    def rehearse(self, subject: Any, case: Case) -> str:
        """See `AheadToolkit`."""
        from flashverify.checks import Plan
        from flashverify.checks.rehearsal import rehearse_case

        return rehearse_case(subject, case, Plan.fuzz(case))

    def compiled_only(self) -> AbstractContextManager[object]:
        """See `AheadToolkit`."""
        from flashverify.launching.compilations import compiled_kernels_only

        return compiled_kernels_only()
