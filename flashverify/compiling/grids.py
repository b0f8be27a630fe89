"""Which axis of a launch grid grows with a size of the problem, and from where on a GPU refuses the launch.

A GPU takes 65,535 programs along the second and the third axis of a grid. Nothing is run at such sizes: small cases, each with one size
larger than the plainest one, tell how an axis grows.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.compiling.declared import is_declared
from flashverify.compiling.records import Hazard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case import Case
    from flashverify.subjects import Subject

    Extents = dict[tuple[str, str], tuple[int, int, int]]

__all__ = ["LIMIT", "grid_hazards"]

LIMIT = 65_535
"""Programs along the axes y and z of a grid, at most."""
_REACHED = 2**20
"""Sizes up to which a limit counts: a batch, heads or positions of that many."""
_GROWN: tuple[tuple[str, dict[str, Any], Callable[[Case], int]], ...] = (
    ("batch", {"batch": 2}, lambda case: case.batch),
    ("query heads", {"heads_q": 4, "heads_kv": 4}, lambda case: case.heads_q),
    ("query rows", {"seq_q": 512}, lambda case: case.seq_q),
    ("keys", {"seq_k": 512}, lambda case: case.seq_k),
)


def grid_hazards(subject: Subject, plainest: Case, run: Callable[[Subject, Case], None]) -> tuple[Hazard, ...]:
    """Axes y and z whose limit a size reaches that the subject declares to take; each kernel, axis and size once.

    Args:
        subject: of interpreted kernels, in an interpreting process.
        plainest: a small case that it takes.
        run: runs it on a case, forward and backward.
    """
    base, found = _extents(subject, plainest, run), list[Hazard]()
    for name, changes, size_of in _GROWN:
        larger = dataclasses.replace(plainest, **changes)
        if subject.supports.refusal(larger) is not None:
            continue
        try:
            extents = _extents(subject, larger, run)
        except Exception:  # whether it is right there is the question of `run` and `fuzz`
            continue
        for (kernel, where), extent in extents.items():
            for axis, letter in ((1, "y"), (2, "z")):
                before = base.get((kernel, where), extent)[axis]
                if extent[axis] <= before:
                    continue
                step = (size_of(larger) - size_of(plainest)) / (extent[axis] - before)
                refused = size_of(plainest) + int((LIMIT + 1 - before) * step)
                if refused <= _REACHED and not _is_refused(subject, plainest, changes, refused):
                    what = f"axis {letter} of the grid of {kernel} grows with the {name}: with {refused:,} a GPU refuses the launch, for it has more than {LIMIT:,} programs there"
                    found.append(Hazard(kind="grid-limit", where=where, what=what))
    return tuple(hazard for hazard in dict.fromkeys(found) if not is_declared(hazard.kind, hazard.where))


def _is_refused(subject: Subject, plainest: Case, changes: dict[str, int], size: int) -> bool:
    """Whether the subject declares that it does not take so many; nothing is run."""
    larger: dict[str, Any] = dict.fromkeys(changes, size)
    return subject.supports.refusal(dataclasses.replace(plainest, **larger)) is not None


def _extents(subject: Subject, case: Case, run: Callable[[Subject, Case], None]) -> Extents:
    """The largest grid of each kernel that a case launches, by its name and place."""
    found: Extents = {}
    with _noted(found):
        run(subject, case)
    return found


@contextlib.contextmanager
def _noted(found: Extents) -> Iterator[None]:
    from triton.runtime.interpreter import InterpretedFunction

    original = InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        def seen(arguments: dict[str, Any]) -> tuple[int, ...]:
            made = grid(arguments) if callable(grid) else grid
            code, extent = self.fn.__code__, (*(int(n) for n in made), 1, 1)
            key = (self.fn.__qualname__, f"{code.co_filename}:{code.co_firstlineno}")
            known = found.get(key, (1, 1, 1))
            found[key] = (max(known[0], extent[0]), max(known[1], extent[1]), max(known[2], extent[2]))
            return tuple(made)

        return original(self, *args, grid=seen, warmup=warmup, **kwargs)

    InterpretedFunction.run = run
    try:
        yield
    finally:
        InterpretedFunction.run = original
