"""What a launch moves and multiplies: a mixin that counts loads, stores and products, on demand."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.errors import UsageError
from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.memory import Tagged
from flashverify.interpreter.numerics import as_array
from flashverify.interpreter.session import active

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.interpreter.layer import Launch

__all__ = ["Counters", "Counts", "Traffic", "count"]


@dataclass(slots=True)
class Traffic:
    """Elements and bytes that all programs of a launch together loaded and stored, an element as often as it was."""

    loads: int = 0
    loaded_bytes: int = 0
    stores: int = 0
    stored_bytes: int = 0


@dataclass(slots=True)
class Counts:
    """One launch.

    Attributes:
        kernel: its name.
        grid: programs along each axis.
        traffic: by argument; the empty name has what belongs to none.
        multiply_adds: of products of tiles, padding included.
    """

    kernel: str
    grid: tuple[int, int, int]
    traffic: dict[str, Traffic] = field(default_factory=dict)
    multiply_adds: int = 0


class Counters(Tagged):
    """Counts into the list of `count`."""

    counted: list[Counts]
    _counts: Counts
    _counts_before: Counts

    def on_launch(self, launch: Launch) -> None:
        """Begin at 0."""
        super().on_launch(launch)
        self._counts = Counts(launch.name, launch.grid)
        self.counted.append(self._counts)

    def on_attempt(self) -> None:
        """Note what to go back to."""
        super().on_attempt()
        self._counts_before = copy.deepcopy(self._counts)

    def on_undo(self) -> None:
        """Forget the attempt."""
        super().on_undo()
        self._counts.traffic = copy.deepcopy(self._counts_before.traffic)
        self._counts.multiply_adds = self._counts_before.multiply_adds

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        """Count the lanes that are not masked."""
        traffic, lanes, nbytes = self._traffic(ptrs, as_array(mask))
        traffic.loads += lanes
        traffic.loaded_bytes += nbytes
        return super().create_masked_load(ptrs, mask, other, *rest, **options)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        """Count the lanes that are not masked."""
        traffic, lanes, nbytes = self._traffic(ptrs, as_array(mask))
        traffic.stores += lanes
        traffic.stored_bytes += nbytes
        return super().create_masked_store(ptrs, value, mask, *rest, **options)

    def create_dot(self, a: Any, b: Any, d: Any, *rest: Any, **options: Any) -> Any:
        """Count products."""
        tile = d.data.shape[1:] if self.lockstep else d.data.shape
        programs = len(self.programs) if self.lockstep else 1
        self._counts.multiply_adds += programs * int(np.prod(tile)) * a.data.shape[-1]
        return super().create_dot(a, b, d, *rest, **options)

    def _traffic(self, ptrs: Any, keep: Any) -> tuple[Traffic, int, int]:
        argument = self.argument(ptrs, keep)
        lanes = int(count_nonzero(keep))
        if self.lockstep and keep.shape[0] != len(self.programs):
            lanes *= len(self.programs)
        size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
        name = "" if argument is None else argument.name
        return self._counts.traffic.setdefault(name, Traffic()), lanes, lanes * size


@contextlib.contextmanager
def count() -> Iterator[list[Counts]]:
    """Count the launches of the block, in the open session: a list that grows by one entry a launch.

    Raises:
        UsageError: no session is open.
    """
    opened = active()
    if opened is None:
        raise UsageError("counting needs an open session")
    with opened.extended(Counters):
        found: list[Counts] = []
        opened.builder.counted = found
        yield found
