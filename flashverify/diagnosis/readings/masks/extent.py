"""A set of pairs in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["Extent"]


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """A set of pairs.

    Attributes:
        words: which keys these are, as `keys before the window`.
        where: bool, broadcasts to `[B, Hq, Sq, Sk]`.
        numbered: whether it is one of the numbers of a case, such as `key 5`, which may mean something else.
    """

    words: str
    where: Callable[[Scene], Tensor]
    numbered: bool = False
