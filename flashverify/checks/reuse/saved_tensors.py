"""What a forward keeps for its backward, found wherever it is kept."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

__all__ = ["Saved"]

_DEPTH = 6


class Saved:
    """The tensors reachable from an object with the bits that they hold now.

    Args:
        kept: what a forward returned: tensors in tuples, lists, dicts, dataclasses and attributes are found.
    """

    def __init__(self, kept: Any) -> None:
        self._found = [(name, tensor, tensor.detach().clone()) for name, tensor in _tensors(kept, "", _DEPTH, set())]

    def changed(self) -> str:
        """Name of the first tensor whose bits are others now; empty where there is none."""
        return next((name for name, tensor, before in self._found if not _equal(tensor.detach(), before)), "")


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    word = words.get(a.element_size()) if a.is_floating_point() else None
    return bool(
        torch.equal(a, b) if word is None else torch.equal(a.contiguous().view(word), b.contiguous().view(word))
    )


def _tensors(kept: Any, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    if id(kept) in seen or depth < 0 or kept is None:
        return
    seen.add(id(kept))
    if isinstance(kept, torch.Tensor):
        yield name or "tensor", kept
        return
    if isinstance(kept, dict):
        parts = [(str(key), value) for key, value in kept.items()]
    elif isinstance(kept, list | tuple):
        names = getattr(kept, "_fields", range(len(kept)))
        parts = [(str(key), value) for key, value in zip(names, kept, strict=True)]
    elif dataclasses.is_dataclass(kept):
        parts = [(field.name, getattr(kept, field.name)) for field in dataclasses.fields(kept)]
    else:
        parts = list(getattr(kept, "__dict__", {}).items()) if not callable(kept) else []
    for part, value in parts:
        yield from _tensors(value, f"{name}.{part}" if name else part, depth - 1, seen)
