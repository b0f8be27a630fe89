"""How many keys the LSE counts where O is as declared, in words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.said import Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.masks.counted import Counted

__all__ = ["lse_alone"]


def lse_alone(found: list[Counted]) -> Said | None:
    """How many keys the LSE counts where O is as declared."""
    having = [c for c in found if c.count is not None and "o" in c.masks and bool(c.count.wrong.any())]
    if not having or any(c.masks["o"].wrong for c in having):
        return None
    for words, predicted in _counts(having[0]):
        fits = [_fits(each, predicted) for each in having]
        if all(fits) and tested_on([each.scene for each in having]):
            return Said(f"the row sum, as the LSE tells it, {words}; O's weights are relative to it", len(fits))
    return None


def _fits(each: Counted, predicted: Callable[[Counted], Tensor]) -> bool:
    assert each.count is not None
    count = each.count
    asked = _seeing(each)
    near = (count.found - predicted(each)).abs() <= 0.25 + count.resolution.cpu()
    return bool((near | ~asked).all())


def _seeing(each: Counted) -> Tensor:
    """The rows that see a key; all of them where none of those is wrong."""
    assert each.count is not None
    some = each.count.declared > 0
    return some if bool((each.count.wrong & some).any()) else torch.ones_like(some)


def _counts(start: Counted) -> Iterator[tuple[str, Callable[[Counted], Tensor]]]:
    """What the LSE may count, in words."""
    assert start.count is not None
    if bool(_seeing(start).all()) and not bool((start.count.declared > 0).all()):
        yield (
            "counts every key in rows that see none",
            lambda each: _declared(each) + each.scene.case.seq_k * (_declared(each) == 0),
        )
        return
    extra = (start.count.found - start.count.declared)[start.count.declared > 0]
    if extra.numel() and float((extra - extra[0]).abs().max()) < 0.25:
        c = round(float(extra[0]))
        words = f"counts {abs(c)} {'key' if abs(c) == 1 else 'keys'} {'more' if c > 0 else 'fewer'} than O"
        yield words, lambda each: _declared(each) + c
    yield "counts every key, hidden or not", lambda each: _declared(each) * 0 + each.scene.case.seq_k
    for t in TILES:
        yield (
            f"counts keys up to a multiple of {t}",
            partial(lambda each, t: -(-_declared(each) // t) * t, t=t),
        )
    ratio = (start.count.found / start.count.declared.clamp(min=1))[start.count.declared > 0]
    if ratio.numel() and float((ratio - ratio[0]).abs().max()) < 0.01 * float(ratio[0].abs()):
        r = float(ratio[0])
        yield f"counts each key {r:.4g} times", lambda each: _declared(each) * r


def _declared(each: Counted) -> Tensor:
    assert each.count is not None
    return each.count.declared
