"""What the sanitizer says, and what it is told about the memory of a pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from flashverify.interpreter.memory import place, program_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import torch

    from flashverify.interpreter.layer import Launch
    from flashverify.interpreter.memory import Argument, Place
    from flashverify.interpreter.repeats import Launches
    from flashverify.interpreter.wraps import Wraps

__all__ = ["FILLS", "Kind", "Lane", "Report", "Watch", "report"]

Kind = Literal["out-of-bounds", "uninitialised", "double-write", "race", "input-store"]

FILLS = ("nan", "high", "low")
"""Values of lanes that are masked off without `other=`, to be compared with 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One misuse of memory, the first of its kind at a line and an argument.

    Attributes:
        kind: what it is.
        access: `load`, `store` or `atomic`.
        kernel: name of the kernel.
        argument: name of the kernel's parameter that the pointer came from; empty where that is unknown.
        place: line of the source.
        program: program ids of the first lane concerned.
        index: logical index of its element; one integer, the distance from the tensor's first element in elements, where the
            element is not the tensor's; empty where no tensor is known.
        lanes: how many lanes of the operation are concerned.
        detail: what is wrong, in words.
    """

    kind: Kind
    access: str
    kernel: str
    argument: str
    place: Place
    program: tuple[int, int, int]
    index: tuple[int, ...]
    lanes: int
    detail: str

    def __str__(self) -> str:
        where = f"{self.place}: {self.kernel}: {self.access} of {self.argument or 'memory'}{list(self.index)}"
        return f"{where} in program {self.program}: {self.detail} ({self.lanes} lanes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A load whose masked lanes have no `other=`: they are undefined, which is no defect until something depends on them.

    Attributes:
        kernel: name of the kernel.
        argument: name of its parameter.
        place: line of the source.
        program: program ids of the first such lane.
        lane: its place in the tile.
    """

    kernel: str
    argument: str
    place: Place
    program: tuple[int, int, int]
    lane: tuple[int, ...]

    def __str__(self) -> str:
        where = f"{self.place}: {self.kernel}: load of {self.argument or 'memory'}"
        return f"{where} in program {self.program}, lane {list(self.lane)}: masked off without other="


@dataclass(slots=True, kw_only=True)
class Watch:
    """One watched stretch of launches: what is known of the memory, and what was found.

    Attributes:
        inputs: addresses of the storages that the kernels must not write to.
        poison: the bit pattern of a tensor's memory that nobody has written, or None.
        fill: one of `FILLS`: the value of undefined lanes in place of 0, or None.
        only: the places where they are filled, or None for all.
        launches: seen so far.
        reports: by (kind, place, argument).
        lanes: undefined lanes, by (place, argument).
        dropped: misuses at places that have a report already.
        wraps: where accesses outside a tensor are told apart; None where nobody asks.
        kept: takes in the launches of this pass; None where no other pass asks for them.
        known: launches of an earlier pass, which need not run where they would load the same; None where every launch must run.
    """

    inputs: Collection[int] = frozenset()
    poison: Callable[[torch.Tensor], int | None] | None = None
    fill: str | None = None
    only: Collection[Place] | None = None
    launches: int = 0
    reports: dict[tuple[str, Place, str], Report] = field(default_factory=dict)
    lanes: dict[tuple[Place, str], Lane] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    wraps: Wraps | None = None
    kept: Launches | None = None
    known: Launches | None = None

    @property
    def told(self) -> int:
        """Misuses, those at places that have a report already among them."""
        return len(self.reports) + self.dropped.total()

    def add(self, report: Report) -> None:
        """Keep the first report of its kind, line (and line that called it) and argument."""
        key = (report.kind, report.place, report.argument)
        if key in self.reports:
            self.dropped[report.kind] += 1
        else:
            self.reports[key] = report


def report(
    launch: Launch,
    programs: Any,
    kind: Kind,
    access: str,
    argument: Argument | None,
    at: Any,
    bad: Any,
    detail: str,
    where: Place | None = None,
) -> Report:
    """A report of the lanes `bad` of an operation.

    Args:
        launch: that runs.
        programs: the flat numbers of those that the operation is of.
        kind: what it is.
        access: `load`, `store` or `atomic`.
        argument: the tensor, if it is known.
        at: addresses of the lanes.
        bad: the lanes concerned, at least one.
        detail: what is wrong, in words.
        where: the line; None is the one where the kernel is now.
    """
    first = int(bad.argmax())
    row = first * bad.shape[0] // bad.size if len(programs) > 1 and bad.shape[0] == len(programs) else 0
    return Report(
        kind=kind,
        access=access,
        kernel=launch.name,
        argument="" if argument is None else argument.name,
        place=where or place(launch),
        program=program_of(launch, int(programs[row])),
        index=() if argument is None else argument.index(int(at.flat[first])),
        lanes=int(bad.sum()),
        detail=detail,
    )
