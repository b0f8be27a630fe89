"""Few and short waits for a GPU: several questions in one answer, several tensors in one copy, and copies to it that nobody waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["any_of", "to_device", "to_host"]


def any_of(masks: Sequence[torch.Tensor]) -> list[bool]:
    """Of each mask whether an element is true, with one wait for each device where none is.

    Args:
        masks: bool, of any shapes and devices.
    """
    import numpy as np
    import torch

    if not any(mask.is_cuda for mask in masks):
        return [bool(np.count_nonzero(mask.numpy())) for mask in masks]  # torch takes twice the time
    answers = [False] * len(masks)
    for device in {mask.device for mask in masks}:
        places = [place for place, mask in enumerate(masks) if mask.device == device]
        if not _known_false([masks[place] for place in places]):
            found = torch.stack([masks[place].any() for place in places]).tolist()
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
    return answers


_TOGETHER = 1 << 24
"""Elements up to which masks are put together, which takes a byte of each."""


def _known_false(masks: Sequence[torch.Tensor]) -> bool:
    """Whether no element of masks of one device is true: asked of all together, in three operations; False of those that are too large."""
    import torch

    if sum(mask.numel() for mask in masks) > _TOGETHER:
        return False
    return not bool(torch.cat([mask.reshape(-1) for mask in masks]).any())


def _has_gpu() -> bool:
    """Whether a GPU is in use; one that is pretended has no memory."""
    import torch

    count = getattr(torch._C, "_cuda_getDeviceCount", None)  # none in a build for CPUs
    used: bool = torch.cuda.is_initialized() and count is not None and count() > 0  # type: ignore[no-untyped-call]
    return used


_LOCKED = 1 << 26
"""Bytes up to which a copy goes through locked memory, which stays with the process."""


def to_device(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """A tensor of host memory on a device; a GPU that is in use takes it from locked memory, in the order of its stream, while the host goes on.

    Args:
        tensor: in host memory.
        device: where it is to be; the tensor itself, where it is there.
    """
    import torch

    if torch.device(device).type != "cuda" or not _has_gpu() or tensor.nbytes > _LOCKED:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What `cpu()` gives of each, strides included; those of a GPU come in one copy, of which each is a part.

    Args:
        tensors: of any shapes and dtypes.
    """
    import torch

    there = [place for place, tensor in enumerate(tensors) if tensor.is_cuda and tensor.numel()]
    if len(there) < 2 or len({tensors[place].device for place in there}) > 1:
        return [tensor.cpu() for tensor in tensors]
    found = [tensor if place in there else tensor.cpu() for place, tensor in enumerate(tensors)]
    there.sort(key=lambda place: -tensors[place].element_size())  # each begins at a multiple of its size
    dense = {place: x if (x := tensors[place].detach()).is_contiguous() else x.clone() for place in there}
    every = torch.cat([x.as_strided((x.numel(),), (1,)).view(torch.uint8) for x in dense.values()]).cpu()
    for part, (place, x) in zip(torch.split(every, [x.nbytes for x in dense.values()]), dense.items(), strict=True):
        found[place] = part.view(x.dtype).as_strided(x.shape, x.stride(), part.storage_offset() // x.element_size())
    return found
