"""What a run had handed out, as its folder notes it."""

from __future__ import annotations

import msgspec

__all__ = ["Claims"]


class Claims(msgspec.Struct, frozen=True):
    """The batches that were handed out.

    Attributes:
        batches: how many; their numbers are those below.
        seconds: that the run took up to then.
        open: those of which something is left to judge; None in runs of versions that did not note it.
        waiting: cases that such batches drew and put off until their kernels are compiled, by the spec of their subject.
    """

    batches: int = 0
    seconds: float = 0.0
    open: tuple[int, ...] | None = None
    waiting: dict[str, tuple[str, ...]] = {}
