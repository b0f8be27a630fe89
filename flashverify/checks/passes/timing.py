"""Other timing on a GPU: work on other streams takes multiprocessors, caches and bandwidth from a pass, so that its programs meet in other ways."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["Disturbance"]

_STREAMS = 3
_ELEMENTS = 1 << 23
"""Of the fp32 buffers that are copied: larger together than the second-level cache of an H200."""
_SIDE = 1024
"""Rows of the fp16 matrices that are multiplied: enough programs for every multiprocessor."""
_SMALL = 1 << 10


class Disturbance:
    """Work on streams of its own, which does nothing but take time and room.

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
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(device))

    def stir(self) -> None:
        """Queue some drawn work, a millisecond or so, and return at once: what is launched next runs beside it."""
        import torch

        for stream in self._streams:
            with torch.cuda.stream(stream):
                for _ in range(self._random.randrange(4)):
                    self._one()

    def _one(self) -> None:
        import torch

        kind = self._random.randrange(3)
        if kind == 0:
            self._to.copy_(self._from)
        elif kind == 1:
            torch.mm(self._matrix, self._matrix, out=self._product)
        else:
            for _ in range(self._random.randrange(1, 16)):
                self._small.add_(1.0)
