"""The masks in effect on one case, as sets of pairs by output."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.case.memory.materialize import materialize
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.xray.difference import differences
from flashverify.xray.measure import measure
from flashverify.xray.probe import refusal

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials
    from flashverify.xray.heads import HeadMap
    from flashverify.xray.view import Count

__all__ = ["KINDS", "Counted", "Mask", "all_counted"]

KINDS = ("surplus", "missing", "doubled")
_LAUNCHES = 32
_CHANNELS = 64
"""Of a head that is widened for counting."""
_HALF = 0.5
"""Keys that a count may be off another one."""
_READING = 0.93
"""Share of the time after which no further case is counted: what was counted is to be put into words."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mask:
    """The mask that one output has in effect, `[B, Hq, Sq, Sk]`, bool but for the counts.

    Attributes:
        surplus: hidden pairs that enter.
        missing: visible pairs that do not.
        doubled: visible pairs that enter several times.
        broken: pairs with a weight that is no whole number.
        read: pairs that were read.
        counts: int64, how often each pair enters.
    """

    surplus: Tensor
    missing: Tensor
    doubled: Tensor
    broken: Tensor
    read: Tensor
    counts: Tensor

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

    def of_mask(self, name: str) -> bool:
        """Whether what differs of an output is its mask, or a head that is read, not its weights.

        A pair that has a weight which is no count of keys tells of weights, and so does a whole O that no key enters though it is not 0.
        """
        if name not in self.masks:
            return True
        mask = self.masks[name]
        seen = visible_of(self.scene) & mask.read & ~mask.missing
        lost = name == "o" and bool(mask.missing.any()) and not bool(seen.any())
        return not bool(mask.broken.any()) and not (lost and bool((self.scene.outputs["o"] != 0).any()))


def all_counted(trials: Trials, scenes: list[Scene]) -> list[Counted]:
    """What can be counted on `scenes`, with wider heads where these show a wrong mask as well: they take fewer launches."""
    if not scenes:
        return []
    first = scenes[0]
    if "wide" not in first.memo:
        first.memo["wide"] = _is_wide(trials, scenes)
    wide = first.memo["wide"]
    for scene in scenes:
        if "counted" not in scene.memo:
            scene.memo["counted"] = _counted(trials, scene, wide=wide) if trials.within(_READING) else None
    return [scene.memo["counted"] for scene in scenes if scene.memo["counted"] is not None]


def _is_wide(trials: Trials, scenes: list[Scene]) -> bool:
    """Whether to count with wider heads: where the first case shows a wrong mask with these, or with none; that case is counted."""
    first = scenes[0]
    wide = any(_widened(scene.case) != scene.case for scene in scenes)
    if wide:
        found = _counted(trials, first, wide=True) if trials.within(_READING) else None
        first.memo["counted"] = found
        if found is None or not found.messages:
            narrow = _counted(trials, first, wide=False) if trials.within(_READING) else None
            first.memo["counted"] = narrow
            wide = found is not None and not (narrow and narrow.messages)
    return wide


def _widened(case: Case) -> Case:
    """The case with heads of at least so many channels."""
    more = max(0, _CHANNELS - case.dim_v)
    return (change(case, dim_qk=case.dim_qk + more, dim_v=case.dim_v + more) or case) if more else case


def _counted(trials: Trials, scene: Scene, *, wide: bool) -> Counted | None:
    """The masks in effect on the case of `scene`, without its dropout; None where nothing can be counted."""
    case = change(scene.case, dropout=0.0) if scene.case.dropout else scene.case
    if case is not None and wide and trials.subject.supports.refusal(_widened(case)) is None:
        case = _widened(case)
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
                counts=view.effective.cpu().long(),
            )
    o = found.view("o")
    count = found.count
    if count is not None:
        count = dataclasses.replace(
            count, declared=count.declared.cpu(), found=count.found.cpu(), wrong=count.wrong.cpu()
        )
    entered = o.effective.sum(-1).double().cpu() if o is not None and "o" in masks else None
    if entered is not None and count is not None:  # weights of many keys in a row that is to see none look like 0
        told = (count.declared > 0) | ((count.found - entered).abs() < _HALF)
        masks["o"] = dataclasses.replace(masks["o"], read=masks["o"].read & told.unsqueeze(-1))
    return Counted(scene=scene, masks=masks, count=count, entered=entered, maps=found.maps, messages=messages)
