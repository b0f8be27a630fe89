"""Memory that a subject changed and had no business to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Damage"]


@dataclass(frozen=True, slots=True)
class Damage:
    """The first changed element of one kind in one tensor.

    Attributes:
        tensor: its name; outputs are named by the order of their allocation: `alloc 0`, `alloc 1` ...
        kind: `input` (an element of an input) or `guard` (padding between rows, or a guard band).
        index: of the element: the tensor's index for `input`; for `guard` one integer, its distance in elements from the
            tensor's first element in memory (negative before it).
        message: what happened, in words.
    """

    tensor: str
    kind: Literal["input", "guard"]
    index: tuple[int, ...]
    message: str
