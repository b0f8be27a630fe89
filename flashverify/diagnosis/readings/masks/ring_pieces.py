"""Sets of visible pairs by the devices that heads are dealt out to or a sequence is spread over: of the row, of the key, and which of two pieces a key lies in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.devices import CUTS, TWO, counted_devices, devices_of, first_half
from flashverify.diagnosis.readings.masks.ends import visible_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

    Cut = Callable[[int, int], Tensor]

__all__ = ["ring_pieces"]


def ring_pieces(scene: Scene, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]) -> Iterator[Extent]:
    """Sets by devices whose number a launch parameter may be."""
    for name in dict.fromkeys((*counted_devices(scene), TWO)):
        words = f"query heads that remain where each of the {name} has as many, the quotient rounded down"
        yield seen(words, partial(_remaining_heads, name=name))
    for name in _names(scene):
        count = devices_of(scene, name)
        for how, cut in CUTS:
            among = f"of pieces {how}, one for each of the {name}"
            yield seen(f"keys on the row's own device, {among}", partial(_ahead, name=name, cut=cut, ahead=0))
            yield seen(f"keys on other devices than the row's, {among}", partial(_others, name=name, cut=cut))
            for ahead in range(1, count):
                words = f"keys on the device {ahead} further than the row's, {among}"
                yield seen(words, partial(_ahead, name=name, cut=cut, ahead=ahead))
                if count > 2:
                    words = f"keys on every device but the one {ahead} further than the row's, {among}"
                    yield seen(words, partial(_others, name=name, cut=cut, ahead=ahead))
        for first, which in ((True, "first"), (False, "second")):
            words = f"keys in the {which} of two pieces of a device in zigzag, one for each of the {name}"
            yield seen(words, partial(_half, name=name, first=first, own=False, both=False))
            for both, where in ((False, ""), (True, ", of which the row sees the other one too")):
                words = f"keys in the {which} of the two pieces of the row's own device in zigzag, one for each of the {name}{where}"
                yield seen(words, partial(_half, name=name, first=first, own=True, both=both))


def _remaining_heads(scene: Scene, name: str) -> Tensor:
    count, heads = devices_of(scene, name), scene.case.heads_q
    if not 0 < count <= heads:
        return _none()
    return (torch.arange(heads) >= heads // count * count).view(1, -1, 1, 1)


def _none() -> Tensor:
    return torch.zeros(1, 1, 1, 1, dtype=torch.bool)


def _ahead(scene: Scene, name: str, cut: Cut, ahead: int) -> Tensor:
    count = devices_of(scene, name)
    if not count:
        return _none()
    rows, keys = cut(scene.case.seq_q, count), cut(scene.case.seq_k, count)
    return ((keys[None, :] - rows[:, None]) % count == ahead)[None, None]


def _others(scene: Scene, name: str, cut: Cut, ahead: int = 0) -> Tensor:
    return ~_ahead(scene, name, cut, ahead) if devices_of(scene, name) else _none()


def _names(scene: Scene) -> Iterator[str]:
    """What counts devices: launch parameters, or two where there are none and parts are merged that come in no order."""
    if scene.case.mask.packed is None:
        yield from counted_devices(scene)
        if not scene.case.launch and scene.form.n_splits > 1 and scene.form.key_order == "unknown":
            yield TWO


def _half(scene: Scene, name: str, first: bool, own: bool, both: bool) -> Tensor:
    count = devices_of(scene, name)
    if not count:
        return _none()
    half = (first_half(scene.case.seq_k, count) == first)[None, None, None]
    near = _ahead(scene, name, dict(CUTS)["in zigzag"], 0)
    if both:
        half = half & (visible_of(scene) & near & ~half).any(-1, keepdim=True)
    return half & near if own else half
