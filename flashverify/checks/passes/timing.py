"""Other timing on a GPU: work on other streams takes multiprocessors, caches and bandwidth from a pass, so that its programs meet in other ways."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flashverify.checks.passes.comparing import compares

if TYPE_CHECKING:
    import torch

__all__ = ["Disturbance"]

_STREAMS = 3
_ELEMENTS = 1 << 23
"""Of the fp32 buffers that are copied: larger together than the second-level cache of an H200."""
_SIDE = 1024
"""Rows of the fp16 matrices that are multiplied: enough programs for every multiprocessor."""
_SMALL = 1 << 10
_LARGE_SIDE = 4096
"""Of matrices whose product leaves no register of a multiprocessor to another program until a tile of it is done."""
_ROWS, _LONGEST = 1 << 11, 1 << 14
"""Of the table whose rows are summed up: a program a row, and as many of them as fill every multiprocessor with threads."""


class Disturbance:
    """Work on streams of its own, which does nothing but take time and room.

    Short programs slow down the memory; long ones, of lengths that differ from stream to stream, fill the multiprocessors, so that the
    programs of one launch begin far apart: each where one of the others ends.

    Args:
        device: a GPU.
        seed: of what is drawn.
    """

    def __init__(self, device: torch.device | str, seed: int) -> None:
        import torch

        self._random = random.Random(seed)
        self._streams = [torch.cuda.Stream(device) for _ in range(_STREAMS)]  # type: ignore[no-untyped-call]
        self._from, self._to = (torch.zeros(_ELEMENTS, device=device) for _ in range(2))
        self._matrix = torch.zeros(_SIDE, _SIDE, device=device, dtype=torch.float16)
        self._product = torch.zeros_like(self._matrix)
        self._small = torch.zeros(_SMALL, device=device)
        self._large = torch.zeros(_LARGE_SIDE, _LARGE_SIDE, device=device, dtype=torch.float16)
        self._large_product = torch.zeros_like(self._large)
        self._terms, self._sums = (torch.zeros(_ROWS * _LONGEST, device=device) for _ in range(2))
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(device))

    def stir(self) -> None:
        """Queue some drawn work, a millisecond or so, and return at once: what is launched next runs beside it. In a rehearsal there is none."""
        import torch

        if not compares():
            return
        for stream in self._streams:
            with torch.cuda.stream(stream):
                for _ in range(self._random.randrange(4)):
                    self._one()

    def _one(self) -> None:
        import torch

        kind = self._random.randrange(6)
        if kind >= 4:
            length = 1 << self._random.randrange(8, _LONGEST.bit_length())
            terms, sums = (x[: _ROWS * length].view(_ROWS, length) for x in (self._terms, self._sums))
            torch.cumsum(terms, 1, out=sums)
            return
        if kind == 3:
            torch.mm(self._large, self._large, out=self._large_product)
            return
        if kind == 0:
            self._to.copy_(self._from)
        elif kind == 1:
            torch.mm(self._matrix, self._matrix, out=self._product)
        else:
            for _ in range(self._random.randrange(1, 16)):
                self._small.add_(1.0)
