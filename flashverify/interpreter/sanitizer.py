"""The memory sanitizer: a mixin that looks at every load, store and atomic operation. Bad lanes are masked off, the run goes on."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.formats import numpy_dtype
from flashverify.interpreter.hooks import handle
from flashverify.interpreter.lanes import Lanes, lanes_inside, outside, rows_inside, where_outside
from flashverify.interpreter.late import Outer, part_of
from flashverify.interpreter.memory import Argument, place, program_of
from flashverify.interpreter.numerics import as_array
from flashverify.interpreter.ordering import Order
from flashverify.interpreter.repeating import Repeating
from flashverify.interpreter.reports import Kind, Lane, Watch, report
from flashverify.interpreter.session import active
from flashverify.interpreter.shadow import Shadow, State, extreme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.interpreter.layer import Launch

__all__ = ["Sanitizer", "watch"]


class Sanitizer(Repeating):
    """Checks memory operations; see `Watch` for what it is told and what it finds.

    Attributes:
        watched: the current watch.
    """

    watched: Watch
    _shadows: dict[tuple[int, int], Shadow]
    _order: Order
    _segments: tuple[Any, Any] = (None, None)  # of programs in lockstep

    def on_open(self) -> None:
        """A watch for launches outside any other."""
        super().on_open()
        self.watched, self._shadows, self._order = Watch(), {}, Order(0)

    def on_launch(self, launch: Launch) -> None:
        """Fresh shadows."""
        super().on_launch(launch)
        self.watched.launches += 1
        self._shadows, self._order = {}, Order(math.prod(launch.grid))

    def on_finish(self, launch: Launch) -> None:
        """Report loads of what other programs stored, unless atomic operations put the two in order."""
        for shadow in self._shadows.values():
            for access, at, bad, writer in shadow.races():
                argument, where, programs = access
                detail = f"written by {self._writer(writer)} in the same launch"
                self.watched.add(report(launch, programs, "race", "load", argument, at, bad, detail, where))
            shadow.forget()
        self._shadows = {}
        super().on_finish(launch)

    # --- operations -------------------------------------------------------------------------------------------------

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        """Load from the tensor's own, written elements."""
        if ptrs.__class__ is Outer and other is not None:
            given: Argument | None = getattr(ptrs.dtype, "argument", None)
            if given is not None:
                self.within = lanes_inside(given, ptrs, part_of(mask))
            if given is not None and self.within is not None:
                try:
                    loaded = super().create_masked_load(ptrs, mask, other, *rest, **options)
                finally:
                    self.within = None
                self._taken(given, ptrs, mask, loaded.data)
                return loaded
        keep = as_array(mask)
        argument = self.argument(ptrs, keep)
        if other is None and count_nonzero(keep) != keep.size:
            other = self._undefined(ptrs, keep, argument)
        keep, self.within = self._inside("load", argument, ptrs, keep)
        try:
            loaded = super().create_masked_load(ptrs, handle(keep, None), other, *rest, **options)
        finally:
            self.within = None
        if argument is not None:
            self._taken(argument, ptrs, handle(keep, None), loaded.data)
        return loaded

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        """Store to the tensor's own elements, which no other program writes."""
        self.within = self._rows_written(ptrs, part_of(mask)) if ptrs.__class__ is Outer else None
        if self.within is None:
            keep, self.within = self._written("store", ptrs, as_array(mask))
            mask = handle(keep, None)
        try:
            return super().create_masked_store(ptrs, value, mask, *rest, **options)
        finally:
            self.within = None

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        """As a load and a store that other programs' atomic operations do not disturb."""
        keep = as_array(mask)
        argument = self.argument(ptr, keep)
        keep = self._synchronised(ptr, keep, *rest)
        if argument is not None and self._state(argument).poison is not None:
            before = super().create_masked_load(ptr, handle(np.ascontiguousarray(keep), None), None)
            self._fresh("atomic", argument, ptr, keep, before.data)
        return super().create_atomic_rmw(rmwOp, ptr, val, handle(keep, mask.dtype), *rest)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        """Cannot be masked: an address outside the tensor ends the launch.

        Raises:
            IndexError: it is outside.
        """
        keep = np.ones(ptr.data.shape, bool)
        if not self._synchronised(ptr, keep, *rest).all():
            raise IndexError("a compare-and-swap outside its tensor")
        return super().create_atomic_cas(ptr, cmp, val, *rest)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _inside(self, access: str, argument: Argument | None, ptrs: Any, keep: Any) -> tuple[Any, Lanes | None]:
        """The lanes whose element is the tensor's own, and where they lie in it if their pointers are tagged; others are reported."""
        at = ptrs.data
        if argument is None:
            if count_nonzero(keep):
                self._report("out-of-bounds", access, None, at, keep, "no tensor of the launch lies there")
                return np.zeros_like(keep), None
            return keep, None
        places = argument.places(at)
        lanes = Lanes(argument, places) if hasattr(ptrs.dtype, "argument") else None
        strange = argument.strange(places)
        if strange is None:
            return keep, lanes
        strange &= keep
        if not count_nonzero(strange):
            return keep, lanes
        if self.watched.wraps is not None:
            self.watched.wraps.look(self, access, argument, at, strange)
        detail = where_outside(argument, at.flat[strange.argmax()])
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
        for bad, writer in state.shadow(argument).claim(at, keep, self._owners(keep), atomic=access == "atomic"):
            self._report("double-write", access, argument, at, bad, f"{self._writer(writer)} writes the element too")
        return keep, lanes

    def _rows_written(self, ptrs: Outer, keep: Any) -> Lanes | None:
        """Where rows that are stored whole lie; None where lanes have to be told one by one, an access that is reported among them."""
        argument: Argument | None = getattr(ptrs.dtype, "argument", None)
        if argument is None or self._state(argument).is_input:
            return None
        lanes = rows_inside(argument, ptrs, keep)
        if lanes is None or not self._state(argument).shadow(argument).claim_rows(
            lanes, keep, self._owners(lanes.places)
        ):
            return None
        return lanes

    def _synchronised(self, ptrs: Any, keep: Any, sem: Any, scope: Any) -> Any:
        """The lanes of an atomic operation that are inside their tensor, with the order that it makes among programs."""
        argument = self.argument(ptrs, keep)
        if argument is None or scope.name == "CTA" or sem.name == "RELAXED":
            return self._written("atomic", ptrs, keep)[0]
        shadow, program = self._state(argument).shadow(argument), int(self.programs[0])
        places = shadow.places(ptrs.data, keep & ~outside(argument, ptrs.data))
        if sem.name != "RELEASE":
            self._order.acquire(program, shadow, places)
        inside, _ = self._written("atomic", ptrs, keep)
        if sem.name != "ACQUIRE":
            self._order.release(program, shadow, places)
        return inside

    def _taken(self, argument: Argument, ptrs: Any, mask: Any, data: Any) -> None:
        """Look at what was loaded from a tensor: whether somebody wrote it, now and, once the launch is over, which program."""
        state = self._state(argument)
        if state.poison is not None:
            self._fresh("load", argument, ptrs, mask, data)
        if not state.is_input:
            programs = self.programs
            alike = self.lockstep and data.shape[0] != len(programs)
            owners = np.int32(0) if alike else self._owners(data)
            state.shadow(argument).note((argument, place(self.launch), programs), ptrs, mask, owners, data.size)

    def _fresh(self, access: str, argument: Argument, ptrs: Any, mask: Any, data: Any) -> None:
        poison = argument.state.poison
        stale = data.view(poison.dtype) == poison
        if not count_nonzero(stale):
            return
        stale &= as_array(mask)
        if count_nonzero(stale):
            self._report("uninitialised", access, argument, ptrs.data, stale, "nobody has written the element")

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
            state = argument.state = State(argument, self.watched, self._shadows, self._order)
        return state

    def _owners(self, keep: Any) -> Any:
        """The segment of each lane, broadcastable."""
        if not self.lockstep:
            return np.int32(self._order.segment(int(self.programs[0])))
        programs, segments = self._segments
        if programs is not self.programs:
            segments = (self.programs + 1).astype(np.int32)
            self._segments = self.programs, segments
        return segments.reshape(-1, *(1,) * (keep.ndim - 1))

    def _writer(self, segment: int) -> str:
        program = int(self._order.programs(np.array(segment)))
        return "an atomic operation" if segment < 0 else f"program {program_of(self.launch, program)}"

    def _report(self, kind: Kind, access: str, argument: Argument | None, at: Any, bad: Any, detail: str) -> None:
        self.watched.add(report(self.launch, self.programs, kind, access, argument, at, bad, detail))


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
