"""A mixin that knows launches, under the sanitizer: what a known one stores is stored without running it, see `repeats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.interpreter.late import part_of
from flashverify.interpreter.memory import Tagged
from flashverify.interpreter.repeats import Notes, Repeats, key_of

if TYPE_CHECKING:
    from flashverify.interpreter.layer import Launch
    from flashverify.interpreter.memory import Argument
    from flashverify.interpreter.reports import Watch
    from flashverify.interpreter.shadow import State

__all__ = ["Repeating"]


class Repeating(Tagged):
    """Notes what launches load and store where their memory is watched, and repeats those of which nothing was reported.

    A launch runs all the same where undefined lanes are filled, and where accesses outside a tensor are told apart.

    Attributes:
        watched: what the sanitizer knows of the memory.
        notes: of the launch that runs; None where none are taken.
    """

    watched: Watch
    notes: Notes | None = None
    _repeats: Repeats
    _told = 0

    def on_open(self) -> None:
        """No launch is known."""
        super().on_open()
        self._repeats = Repeats()

    def forget(self) -> None:
        """No launch is known any more."""
        super().forget()
        self._repeats.forget()

    def _state(self, argument: Argument) -> State:
        raise NotImplementedError

    # --- launches ---------------------------------------------------------------------------------------------------

    def repeated(self, function: Any, launch: Launch) -> bool:
        """Whether the launch was known, and what it stores is stored; what it does is noted from here on if not."""
        watched = self.watched
        self.notes = None
        if watched.poison is None or watched.fill is not None or watched.wraps is not None:
            return False
        key = key_of(function, launch, watched.inputs)
        if key is None:
            return False
        known = self._repeats.find(key)
        if known is not None:
            poisons = {n: self._state(self.tensors[n]).poison for n in known.before}
            if known.holds(self.tensors, poisons):
                known.repeat(self.tensors)
                return True
        self.notes, self._told = Notes(key), watched.told
        return False

    def on_attempt(self) -> None:
        """Only programs in lockstep are noted."""
        super().on_attempt()
        if self.notes is not None:
            if self.lockstep:
                self.notes.begin()
            else:
                self.notes = None

    def on_undo(self) -> None:
        """What the attempt did is not noted."""
        super().on_undo()
        if self.notes is not None:
            self.notes.undo()

    def on_finish(self, launch: Launch) -> None:
        """Know the launch from here on."""
        notes, self.notes = self.notes, None
        if notes is not None and self._told == self.watched.told:
            known = notes.known(self.tensors)
            if known is not None:
                self._repeats.keep(notes.key, known)
        super().on_finish(launch)

    # --- operations -------------------------------------------------------------------------------------------------

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        """Note the load; one that has undefined lanes is not to be repeated."""
        if self.notes is not None:
            keep = part_of(mask)
            self.notes.load(self.within, keep)
            self.notes.opaque |= other is None and np.count_nonzero(keep) != keep.size
        return super().create_masked_load(ptrs, mask, other, *rest, **options)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        """Note the store."""
        if self.notes is not None:
            self.notes.store(self.within, value.data, part_of(mask))
        return super().create_masked_store(ptrs, value, mask, *rest, **options)
