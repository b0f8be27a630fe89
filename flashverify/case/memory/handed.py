"""Tensors that the helpers of a problem make for a subject: guarded where a pass guards, and watched as inputs are."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from flashverify.case.memory.damage import Damage
from flashverify.case.memory.transfers import any_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

__all__ = ["Handed", "copied", "copying", "hand", "handed_tensors"]


class Handed:
    """The tensors that were made for a subject during one pass. They are kept alive, so that an address names one of them.

    Attributes:
        storages: addresses of what a kernel must not write to; the problem's own and those made.
    """

    def __init__(self, storages: set[int]) -> None:
        self.storages = storages
        self._made: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Remembers what a tensor holds."""
        if tensor.numel():
            self.storages.add(tensor.untyped_storage().data_ptr())
            self._made.append((name, tensor.detach(), _bits(tensor).clone()))

    def damage(self) -> list[Damage]:
        """The tensors that hold other bits than they were made with, at most one entry each."""
        found: list[Damage] = []
        masks = [_bits(tensor) != before for _, tensor, before in self._made]
        for (name, tensor, _), changed, flag in zip(self._made, masks, any_of(masks), strict=True):
            if flag:
                index = tuple(int(i) for i in changed.nonzero()[0])
                value = tensor[index].item()
                message = f"{name}{list(index)} was overwritten with {value!r} ({int(changed.sum())} elements changed)"
                found.append(Damage(name, "input", index, message))
        return found


_current: ContextVar[Handed | None] = ContextVar("handed", default=None)
_copying: ContextVar[bool] = ContextVar("copying", default=False)


@contextmanager
def handed_tensors(storages: set[int]) -> Iterator[Handed]:
    """Collects what helpers make inside the block.

    Args:
        storages: addresses of the problem's own memory.
    """
    handed = Handed(storages)
    token = _current.set(handed)
    try:
        yield handed
    finally:
        _current.reset(token)


def hand(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, watched from here on where a pass is under way."""
    current = _current.get()
    if current is not None:
        current.add(name, tensor)
    return tensor


def copied(name: str, values: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in memory of its own, through which gradients flow back; guarded inside `guard_outputs`.

    Args:
        name: as damage calls it.
        values: of any strides.
    """
    import torch

    token = _copying.set(True)
    try:
        made = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    finally:
        _copying.reset(token)
    return hand(name, made.copy_(values))


def copying() -> bool:
    """Whether `copied` allocates: that memory stays contiguous."""
    return _copying.get()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor as integers: NaNs of the same bits are equal."""
    import torch

    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(words[tensor.element_size()])
