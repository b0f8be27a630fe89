"""Which channel of V each channel of O holds, where the weights are right: all keys get the same V, so that O holds it whatever the weights are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.case.memory.contiguity import made_contiguous
from flashverify.case.memory.materialize import materialize
from flashverify.case.shared_kv import shares
from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.index_forms import forms_within
from flashverify.diagnosis.readings.operand_maps import of_channels
from flashverify.diagnosis.readings.said import ON_FAILING, Said
from flashverify.diagnosis.trials import work
from flashverify.subjects.blame import subject_code
from flashverify.xray.placed import with_v

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

    Channels = Callable[[int], Tensor]
    """Of the number of channels, which one of V each of O holds, `[Dv]`; `ZERO` for one that is 0, `OPEN` for one that nobody writes."""

__all__ = ["OPEN", "ZERO", "channel_map", "channels_in_effect"]

ZERO, OPEN = -2, -1
_FEWEST = 3
"""Failing cases on which a sentence holds at least."""
_READ = 6
"""Failing cases that are read."""
_WHOLE = 0.1
"""How far from 0 and 1 a bit of the number of a channel may be."""
_FORMS = 4
"""Functions of the number of a channel that are tried."""
_TILES = (8, 16, 32, 64, 128)


def channels_in_effect(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """That O holds the channels of V in another order, and in which; empty where it does not, or the order is not the same in all rows.

    Args:
        trials: runs of the subject.
        scenes: failing runs whose O is wrong and whose LSE is right, the one that tells most first.
    """
    chosen = sorted(scenes, key=lambda scene: (-scene.case.dim_v, work(scene.case)))[:_READ]
    read = [(scene, found) for scene in chosen if (found := channel_map(trials, scene)) is not None]
    moved = [(scene, found) for scene, found in read if not _in_order(found)]
    if len(moved) < len(read) or len(moved) < _FEWEST or not tested_on([scene for scene, _ in moved]):
        return []
    right = {scene.case.dim_v for scene in trials.scenes.values() if not scene.failures and "o" in scene.right}
    unwritten = _unwritten(moved)
    fitting = [each for each in _orders(moved[0][1]) if all(_is(found, each[1](len(found))) for _, found in moved)]
    borne = [words for words, order in fitting if all(_in_order(order(count)) for count in right)]
    if borne:
        return [Said(f"{borne[0]}{unwritten}", len(moved), both=bool(right))]
    if fitting:
        return [Said(f"{fitting[0][0]}{unwritten}{ON_FAILING}", len(moved), part=True)]
    found = moved[0][1]
    some = [f"{int(x)} in channel {c}" for c, x in enumerate(found) if x not in (c, ZERO, OPEN)][:4]
    if not some:
        return []
    own = f"the channels of O are those of V in another order: of {len(found)} it holds channel {', '.join(some)}"
    return [Said(f"{own}{unwritten}", len(moved), part=True)]


def channel_map(trials: Trials, scene: Scene) -> Tensor | None:
    """Which channel of V each channel of O holds, int64 `[Dv]`, read once; None where it cannot be read or rows differ."""
    if "channel map" not in scene.memo:
        case = scene.case
        apart = case.quantised is None and not shares(case) and 0 not in (case.batch, case.seq_q, case.seq_k)
        scene.memo["channel map"] = _read(trials, scene) if apart and "o" in scene.failures else None
    found: Tensor | None = scene.memo["channel map"]
    return found


def _read(trials: Trials, scene: Scene) -> Tensor | None:
    """The bits of the number of each channel, one launch for each, beside a launch with ones."""
    case, subject = scene.case, trials.subject
    problem, _ = materialize(case, subject.device())
    number = torch.arange(case.dim_v, device=problem.q.device)
    given = [torch.ones_like(number), *(number >> bit & 1 for bit in range((case.dim_v - 1).bit_length()))]
    made = []
    for values in given:
        if not trials.within():
            return None
        asked = with_v(problem, values.to(problem.v.dtype))
        asked = made_contiguous(asked) if subject.supports.contiguous else asked
        try:
            with subject_code():
                o = subject.forward(asked).o
        except Exception:  # a defect may raise on other values; those say nothing
            return None
        if tuple(o.shape) != tuple(case.shape_o):
            return None
        made.append(o.detach().cpu().double())
    some = torch.isfinite(scene.truth.exact_lse)
    if (free := scene.free.get("o")) is not None:
        some = some & ~free.any(-1)
    if scene.inputs.keep is not None:
        some = some & scene.inputs.keep.expand(*case.shape_q[:3], case.seq_k).any(-1)
    if not bool(some.any()):
        return None
    ones, unwritten = made[0][some], scene.outputs["o"][some].isnan().all(0)
    zero = (ones == 0).all(0) & ~unwritten
    shares_of = [x[some] / ones for x in made[1:]]
    told = ~unwritten & ~zero
    if not bool(told.any()):  # no matter of channels: V without its mean is 0 where all keys are alike
        return None
    bits = [x > 1 - _WHOLE for x in shares_of]
    if not all(bool(((x.abs() <= _WHOLE) | ((x - 1).abs() <= _WHOLE))[:, told].all()) for x in shares_of):
        return None
    numbers = torch.zeros(ones.shape, dtype=torch.int64)
    for n, bit in enumerate(bits):
        numbers += bit.long() << n
    if not bool((numbers == numbers[:1])[:, told].all()):
        return None
    found = torch.where(zero, ZERO, numbers[0])
    return torch.where(unwritten, OPEN, found)


def _in_order(found: Tensor) -> bool:
    return bool(((found == torch.arange(len(found))) | (found == OPEN)).all())


def _is(found: Tensor, order: Tensor) -> bool:
    return bool(((found == order) | (found == OPEN)).all())


def _unwritten(moved: list[tuple[Scene, Tensor]]) -> str:
    """Which channels nobody writes, in words; empty where all are written, or the first one of these is another on each case."""
    open_ones = [found == OPEN for _, found in moved]
    if not any(bool(x.any()) for x in open_ones):
        return ""
    first = {int(x.long().argmax()) for x in open_ones if bool(x.any())}
    tail = all(bool(x[int(x.long().argmax()) :].all()) for x in open_ones if bool(x.any()))
    if len(first) == 1 and tail:
        return f"; channels from {first.pop()} on are never written"
    return "; others are never written"


def _orders(first: Tensor) -> Iterator[tuple[str, Channels]]:
    """Orders in words; `first` is the map of one case, which suggests some."""
    for t in _TILES:
        yield (
            f"each tile of {t} channels of O is stored over the first one",
            partial(_over_the_first, t=t),
        )
    for words, change in of_channels():
        yield f"the channels of O are {words}", partial(_numbers_by, change=change)
    count = len(first)
    hot = torch.zeros(count, count, dtype=torch.bool)
    hot[torch.arange(count)[first >= 0], first[first >= 0]] = True
    for form in forms_within(hot, first >= 0, _FORMS):
        yield f"channel c of O holds channel {form.words.format('c')} of V", lambda n, of=form.of: of(torch.arange(n))  # type: ignore[misc]


def _over_the_first(count: int, t: int) -> Tensor:
    """The last tile of `t` that has each channel lies in the first one, behind which nobody writes."""
    c = torch.arange(count)
    last = c + (count - 1 - c) // t * t
    return torch.where(c < t, last, OPEN) if count > t else c


def _numbers_by(count: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """What a change of operands by their channels makes of the numbers; a sign or factor is no number of a channel."""
    made = change(torch.arange(1.0, count + 1.0))
    whole = (made == made.round()) & (made >= 1) & (made <= count)
    return torch.where(made == 0, ZERO, torch.where(whole, made - 1, count)).long()
