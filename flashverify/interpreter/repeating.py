"""A mixin that knows launches, under the sanitizer: what a known one stores is stored without running it, see `repeats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.late import part_of
from flashverify.interpreter.memory import Tagged
from flashverify.interpreter.repeats import Notes, key_of

if TYPE_CHECKING:
    from flashverify.interpreter.layer import Launch
    from flashverify.interpreter.memory import Argument
    from flashverify.interpreter.repeats import Known
    from flashverify.interpreter.reports import Watch
    from flashverify.interpreter.shadow import State

__all__ = ["Repeating"]


class Repeating(Tagged):
    """Notes what launches load and store where `Watch.kept` is given, and repeats those of `Watch.known`.

    Attributes:
        watched: what the sanitizer knows of the memory.
        notes: of the launch that runs; None where none are taken.
    """

    watched: Watch
    notes: Notes | None = None
    _told = 0

    def _state(self, argument: Argument) -> State:
        raise NotImplementedError

    # --- launches ---------------------------------------------------------------------------------------------------

    def on_launch(self, launch: Launch) -> None:
        """Nothing is noted yet."""
        super().on_launch(launch)
        self.notes = None

    def repeated(self, function: Any, launch: Launch, meanings: int) -> bool:
        """Whether the launch is known, and what it stores is stored; one that is noted, and whose like was not met, is so from here on."""
        watched = self.watched
        if (watched.known is None and watched.kept is None) or watched.fill is not None or watched.wraps is not None:
            return False
        key = key_of(function, launch, watched.inputs)
        if key is None:
            return False
        key = (meanings, key)
        if watched.kept is not None and key not in watched.kept:
            self.notes, self._told = Notes(key), watched.told
        known = None if watched.known is None else watched.known.find(key)
        if known is None or not self._holds(known):
            return False
        self.notes = None
        known.repeat(self.tensors)
        return True

    def _holds(self, known: Known) -> bool:
        return known.holds(self.tensors, {n: self._state(self.tensors[n]).poison for n in known.loaded})

    def on_attempt(self) -> None:
        """Only programs in lockstep are noted: those that use atomic operations, or print, are not."""
        super().on_attempt()
        if self.notes is not None:
            self.notes.begin()
            self.notes.opaque |= not self.lockstep

    def on_undo(self) -> None:
        """What the attempt did is not noted."""
        super().on_undo()
        if self.notes is not None:
            self.notes.undo()

    def on_finish(self, launch: Launch) -> None:
        """Know the launch from here on, unless something of it was reported."""
        notes, self.notes = self.notes, None
        if notes is not None and self.watched.kept is not None:
            notes.opaque |= self._told != self.watched.told
            self.watched.kept.keep(notes.key, notes.known(self.tensors))
        super().on_finish(launch)

    def effect(self) -> None:
        """A launch that does something besides loads and stores is not kept."""
        super().effect()
        if self.notes is not None:
            self.notes.opaque = True

    # --- operations -------------------------------------------------------------------------------------------------

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        """Note the load; a launch with undefined lanes is not kept."""
        if self.notes is not None:
            keep = part_of(mask)
            self.notes.note(self.notes.loads, self.within, keep)
            self.notes.opaque |= other is None and count_nonzero(keep) != keep.size
        return super().create_masked_load(ptrs, mask, other, *rest, **options)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        """Note the store."""
        if self.notes is not None:
            self.notes.note(self.notes.stores, self.within, part_of(mask))
        return super().create_masked_store(ptrs, value, mask, *rest, **options)

    def create_ptr_to_int(self, *args: Any) -> Any:
        """The kernel computes with an address."""
        self.effect()
        return super().create_ptr_to_int(*args)

    def create_assert(self, *args: Any) -> Any:
        """The kernel may say something."""
        self.effect()
        return super().create_assert(*args)
