"""The masks in effect on one case, as sets of pairs by output."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.case.memory.materialize import materialize
from flashverify.xray.difference import differences
from flashverify.xray.measure import measure
from flashverify.xray.probe import refusal

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials
    from flashverify.xray.heads import HeadMap
    from flashverify.xray.view import Count

__all__ = ["KINDS", "Counted", "Mask", "counted"]

KINDS = ("surplus", "missing", "doubled")
_LAUNCHES = 32
_READING = 0.93
"""Share of the time after which no further case is counted: what was counted is to be put into words."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mask:
    """The mask that one output has in effect, all bool `[B, Hq, Sq, Sk]`.

    Attributes:
        surplus: hidden pairs that enter.
        missing: visible pairs that do not.
        doubled: visible pairs that enter several times.
        broken: pairs with a weight that is no whole number.
        read: pairs that were read.
    """

    surplus: Tensor
    missing: Tensor
    doubled: Tensor
    broken: Tensor
    read: Tensor

    @property
    def wrong(self) -> bool:
        """Whether it is not the declared one."""
        return any(bool(getattr(self, kind).any()) for kind in (*KINDS, "broken"))

    def of(self, kind: str) -> Tensor:
        """The set of one of `KINDS`."""
        found: Tensor = getattr(self, kind)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """What counting says of one case.

    Attributes:
        scene: the case.
        masks: by output, of those that were counted pair by pair.
        count: keys of each row by the LSE; None without one.
        entered: keys of each row that entered O, `[B, Hq, Sq]`; None where they were not counted pair by pair.
        maps: which head reads which.
        messages: of everything that differs, by output, as an X-ray words it.
    """

    scene: Scene
    masks: dict[str, Mask]
    count: Count | None
    entered: Tensor | None
    maps: tuple[HeadMap, ...]
    messages: dict[str, list[str]]


def counted(trials: Trials, scene: Scene) -> Counted | None:
    """The masks in effect on the case of `scene`, without its dropout; None where nothing can be counted."""
    if "counted" not in scene.memo:
        scene.memo["counted"] = _counted(trials, scene) if trials.within(_READING) else None
    found: Counted | None = scene.memo["counted"]
    return found


def _counted(trials: Trials, scene: Scene) -> Counted | None:
    case = change(scene.case, dropout=0.0) if scene.case.dropout else scene.case
    if case is None or refusal(case) is not None or trials.subject.supports.refusal(case) is not None:
        return None
    try:
        found = measure(trials.subject, materialize(case, trials.subject.device())[0], launches=_LAUNCHES)
    except Exception:  # a defect may raise on other values; those say nothing
        return None
    messages: dict[str, list[str]] = {}
    for each in differences(found):
        messages.setdefault(each.output, []).append(each.message)
    masks = {}
    for view in found.views:
        if view.exact and not view.signed and not view.zoomed and view.output not in masks:
            delta, declared = view.delta.cpu(), view.declared.cpu() > 0
            masks[view.output] = Mask(
                surplus=(delta > 0) & ~declared,
                missing=(delta < 0) & declared,
                doubled=(delta > 0) & declared,
                broken=view.broken.cpu(),
                read=~view.unread.cpu(),
            )
    o = found.view("o")
    count = found.count
    if count is not None:
        count = dataclasses.replace(
            count, declared=count.declared.cpu(), found=count.found.cpu(), wrong=count.wrong.cpu()
        )
    entered = o.effective.sum(-1).double().cpu() if o is not None and "o" in masks else None
    return Counted(scene=scene, masks=masks, count=count, entered=entered, maps=found.maps, messages=messages)
