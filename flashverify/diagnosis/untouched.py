"""Elements of outputs that nobody wrote, also where an operation of torch behind the kernel copied or scaled them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.formats import FORMATS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["untouched"]

_WORDS = {2: "int16", 4: "int32"}


def untouched(scene: Scene, output: str) -> Tensor | None:
    """Bool, on the CPU: the elements of an output that hold what memory holds before anybody writes there; None where that cannot be told.

    It is a NaN whose payload a product with a number keeps, so that an LSE of other units shows it too.
    """
    mask = scene.execution.unwritten.get(output)
    tensor = scene.execution.outputs.get(output)
    if mask is not None or tensor is None:
        return None if mask is None else mask.cpu()
    patterns = {entry.library: entry.unwritten for entry in FORMATS.values()}
    pattern = patterns.get(str(tensor.dtype).removeprefix("torch."))
    return None if pattern is None or tensor.itemsize not in _WORDS else _holds(tensor.detach().cpu(), pattern[0])


def _holds(tensor: torch.Tensor, word: int) -> Tensor:
    import torch

    bits = 8 * tensor.itemsize
    signed = word - (1 << bits) if word >= 1 << (bits - 1) else word
    found: Tensor = tensor.contiguous().view(getattr(torch, _WORDS[tensor.itemsize])) == signed
    return found
