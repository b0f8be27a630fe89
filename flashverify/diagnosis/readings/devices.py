"""A sequence that is spread over devices, as for ring attention: on which of them each position lies, and where there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["CUTS", "TWO", "counted_devices", "devices_of", "first_half", "place_on"]

_COUNTS = (2, 3, 4, 8)
TWO = "two devices"
"""What stands for a launch parameter where a case has none."""


def _contiguous(size: int, count: int) -> Tensor:
    cuts = torch.tensor([size * n // count for n in range(1, count)], dtype=torch.int64)
    return torch.bucketize(torch.arange(size), cuts, right=True)


def _striped(size: int, count: int) -> Tensor:
    return torch.arange(size) % count


def _zigzag(size: int, count: int) -> Tensor:
    part = _contiguous(size, 2 * count)
    return torch.minimum(part, 2 * count - 1 - part)


CUTS: tuple[tuple[str, Callable[[int, int], Tensor]], ...] = (
    ("that are dealt out in turn", _striped),
    ("one after the other", _contiguous),
    ("in zigzag", _zigzag),
)
"""How the positions of a sequence are spread over pieces: the piece of each, which is its device."""


def counted_devices(scene: Scene) -> Iterator[str]:
    """Launch parameters that may be a number of devices."""
    yield from (name for name, value in scene.case.launch or () if value in _COUNTS and not isinstance(value, bool))


def devices_of(scene: Scene, name: str) -> int:
    """How many devices a launch parameter says; under `TWO` 2 where there are no parameters; 0 where that is not known."""
    launch = dict(scene.case.launch or ())
    if scene.case.mask.packed is not None or (name == TWO and launch):
        return 0
    found = launch.get(name, 2 if name == TWO else 0)
    return found if isinstance(found, int) else 0


def first_half(size: int, count: int) -> Tensor:
    """Bool: positions in the first one of the two pieces that a device has in zigzag."""
    return _contiguous(size, 2 * count) < count


def place_on(devices: Tensor, ahead: Tensor, count: int) -> Tensor:
    """Where a position lies on another device what lies at its place on its own; itself where that device has not as many positions.

    Args:
        devices: int64 `[S]`, of each position.
        ahead: int64, how many devices further, broadcasts to `[..., S]`.
        count: of devices.
    """
    own = devices[:, None] == devices
    local = (own.long().cumsum(1) - 1).diagonal()
    sizes = torch.bincount(devices, minlength=count)
    table = torch.full((count, int(sizes.max()) if len(devices) else 1), -1)
    table[devices, local] = torch.arange(len(devices))
    other = (devices + ahead) % count
    found = table[other, local + torch.zeros_like(other)]
    return torch.where(sizes[other] == sizes[devices], found, torch.arange(len(devices)))
