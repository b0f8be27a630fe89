"""The memory sanitizer: a mixin that looks at every load, store and atomic operation. Bad lanes are masked off, the run goes on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.interpreter.formats import numpy_dtype
from flashverify.interpreter.hooks import handle
from flashverify.interpreter.memory import Argument, Lanes, Place, Tagged, place, program_of
from flashverify.interpreter.numerics import as_array
from flashverify.interpreter.reports import Kind, Lane, Report, Watch
from flashverify.interpreter.session import active
from flashverify.interpreter.shadow import Shadow, State, extreme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.interpreter.layer import Launch

__all__ = ["Sanitizer", "watch"]


class Sanitizer(Tagged):
    """Checks memory operations; see `Watch` for what it is told and what it finds.

    Attributes:
        watched: the current watch.
    """

    watched: Watch
    _shadows: dict[tuple[int, int], Shadow]
    _conflicts: list[tuple[Shadow, Report]]

    def on_open(self) -> None:
        """A watch for launches outside any other."""
        super().on_open()
        self.watched, self._shadows, self._conflicts = Watch(), {}, []

    def on_launch(self, launch: Launch) -> None:
        """Fresh shadows."""
        super().on_launch(launch)
        self.watched.launches += 1
        self._shadows, self._conflicts = {}, []

    def on_finish(self, launch: Launch) -> None:
        """Report what programs did to each other, unless atomic operations elsewhere may have put them in order."""
        shadows = tuple(self._shadows.values())
        for shadow in shadows:
            for access, at, bad, writer in shadow.races():
                argument, where, programs = access
                detail = "written by an atomic operation" if writer < 0 else f"written by program {self._ids(writer)}"
                report = self._made("race", "load", argument, at, bad, f"{detail} in the same launch", where, programs)
                self._conflicts.append((shadow, report))
        for shadow, report in self._conflicts:
            if not any(other.atomic for other in shadows if other is not shadow):
                self.watched.add(report)
        self._shadows, self._conflicts = {}, []
        super().on_finish(launch)

    # --- operations -------------------------------------------------------------------------------------------------

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        """Load from the tensor's own, written elements."""
        at, keep = ptrs.data, as_array(mask)
        argument = self.argument(ptrs, keep)
        if other is None and not keep.all():
            other = self._undefined(ptrs, keep, argument)
        keep, self.within = self._inside("load", argument, ptrs, keep)
        try:
            loaded = super().create_masked_load(ptrs, handle(keep, None), other, *rest, **options)
        finally:
            self.within = None
        if argument is not None:
            state = self._state(argument)
            if state.poison is not None:
                self._fresh("load", argument, at, keep, loaded.data)
            if not state.is_input:
                self._remember(argument, state, at, keep)
        return loaded

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        """Store to the tensor's own elements, which no other program writes."""
        keep, self.within = self._written("store", ptrs, as_array(mask))
        try:
            return super().create_masked_store(ptrs, value, handle(keep, None), *rest, **options)
        finally:
            self.within = None

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        """As a load and a store that other programs' atomic operations do not disturb."""
        keep = as_array(mask)
        argument = self.argument(ptr, keep)
        keep, _ = self._written("atomic", ptr, keep)
        if argument is not None and self._state(argument).poison is not None:
            before = super().create_masked_load(ptr, handle(np.ascontiguousarray(keep), None), None)
            self._fresh("atomic", argument, ptr.data, keep, before.data)
        return super().create_atomic_rmw(rmwOp, ptr, val, handle(keep, mask.dtype), *rest)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        """Cannot be masked: an address outside the tensor ends the launch.

        Raises:
            IndexError: it is outside.
        """
        keep = np.ones(ptr.data.shape, bool)
        if not self._written("atomic", ptr, keep)[0].all():
            raise IndexError("a compare-and-swap outside its tensor")
        return super().create_atomic_cas(ptr, cmp, val, *rest)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _inside(self, access: str, argument: Argument | None, ptrs: Any, keep: Any) -> tuple[Any, Lanes | None]:
        """The lanes whose element is the tensor's own, and where they lie in it if their pointers are tagged; others are reported."""
        at = ptrs.data
        if argument is None:
            if keep.any():
                self._report("out-of-bounds", access, None, at, keep, "no tensor of the launch lies there")
                return np.zeros_like(keep), None
            return keep, None
        places = argument.places(at)
        lanes = Lanes(argument, places) if hasattr(ptrs.dtype, "argument") else None
        strange = argument.strange(places)
        if strange is None:
            return keep, lanes
        strange &= keep
        if not strange.any():
            return keep, lanes
        if self.watched.wraps is not None:
            self.watched.wraps.look(self, access, argument, at, strange)
        element = argument.element(at.flat[strange.argmax()])
        if element < 0:
            detail = f"{-element} elements before the tensor"
        elif element >= argument.extent:
            detail = f"{element - argument.extent + 1} elements past the end of the tensor"
        else:
            detail = "in a gap between the elements of the tensor"
        self._report("out-of-bounds", access, argument, at, strange, detail)
        return keep & ~strange, lanes

    def _written(self, access: str, ptrs: Any, keep: Any) -> tuple[Any, Lanes | None]:
        at = ptrs.data
        argument = self.argument(ptrs, keep)
        keep, lanes = self._inside(access, argument, ptrs, keep)
        if argument is None:
            return keep, lanes
        state = self._state(argument)
        if state.is_input and keep.any():
            self._report("input-store", access, argument, at, keep, "the tensor is an input")
        for bad, writer in state.shadow.claim(at, keep, self._owners(keep), atomic=access == "atomic"):
            other = "an atomic operation" if writer < 0 else f"program {self._ids(writer)}"
            detail = f"{other} writes the element too"
            self._conflicts.append((state.shadow, self._made("double-write", access, argument, at, bad, detail)))
        return keep, lanes

    def _fresh(self, access: str, argument: Argument, at: Any, keep: Any, data: Any) -> None:
        poison = argument.state.poison
        stale = data.view(poison.dtype) == poison
        stale &= keep
        if stale.any():
            self._report("uninitialised", access, argument, at, stale, "nobody has written the element")

    def _remember(self, argument: Argument, state: State, at: Any, keep: Any) -> None:
        """Who loads what, for `on_finish`."""
        programs = self.programs
        alike = self.lockstep and at.shape[0] != len(programs)
        owners = np.int32(0) if alike else self._owners(keep)
        state.shadow.note((argument, place(self.launch), programs), at, keep, owners)

    def _undefined(self, ptrs: Any, keep: Any, argument: Argument | None) -> Any:
        """What to load in lanes that are masked off without a value."""
        watched, where = self.watched, place(self.launch)
        name = "" if argument is None else argument.name
        key = (where, name)
        if key not in watched.lanes:
            lane = [int(i) for i in np.unravel_index(keep.argmin(), keep.shape)]
            program = program_of(self.launch, int(self.programs[lane[0] if self.lockstep else 0]))
            shown = tuple(lane[1:] if self.lockstep else lane)
            watched.lanes[key] = Lane(kernel=self.launch.name, argument=name, place=where, program=program, lane=shown)
        if watched.fill is None or (watched.only is not None and where not in watched.only):
            return None
        element = ptrs.get_element_ty()
        return handle(np.full(keep.shape, extreme(numpy_dtype(element), watched.fill)), element)

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _state(self, argument: Argument) -> State:
        state: State | None = argument.state
        if state is None:
            state = argument.state = State(argument, self.watched, self._shadows)
        return state

    def _owners(self, keep: Any) -> Any:
        """One more than the program of each lane, broadcastable."""
        owners = (self.programs + 1).astype(np.int32)
        return owners.reshape(-1, *(1,) * (keep.ndim - 1)) if self.lockstep else owners[0]

    def _ids(self, owner: int) -> tuple[int, int, int]:
        return program_of(self.launch, owner - 1)

    def _report(self, kind: Kind, access: str, argument: Argument | None, at: Any, bad: Any, detail: str) -> None:
        self.watched.add(self._made(kind, access, argument, at, bad, detail))

    def _made(
        self,
        kind: Kind,
        access: str,
        argument: Argument | None,
        at: Any,
        bad: Any,
        detail: str,
        where: Place | None = None,
        programs: Any = None,
    ) -> Report:
        first = int(bad.argmax())
        programs = self.programs if programs is None else programs
        row = first * bad.shape[0] // bad.size if len(programs) > 1 and bad.shape[0] == len(programs) else 0
        address = int(at.flat[first])
        return Report(
            kind=kind,
            access=access,
            kernel=self.launch.name,
            argument="" if argument is None else argument.name,
            place=where or place(self.launch),
            program=program_of(self.launch, int(programs[row])),
            index=() if argument is None else argument.index(address),
            lanes=int(np.count_nonzero(bad)),
            detail=detail,
        )


@contextlib.contextmanager
def watch(**known: Any) -> Iterator[Watch | None]:
    """Watch the launches of the block; None where no session with a sanitizer is open.

    Args:
        known: fields of `Watch`.
    """
    opened = active()
    if opened is None or not isinstance(opened.builder, Sanitizer):
        yield None
        return
    builder: Any = opened.builder
    before, builder.watched = builder.watched, Watch(**known)
    try:
        yield builder.watched
    finally:
        builder.watched = before
