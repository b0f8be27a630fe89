"""Which key or row a part of the logits is taken of, learned number by number from the deviation of one case."""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.readings.index_forms import forms_within
from flashverify.diagnosis.readings.piecewise_forms import pieces_within
from flashverify.diagnosis.readings.weights.models import deviation_of, tolerance_of
from flashverify.diagnosis.readings.weights.term import BIASES, Term, bias_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Value = Callable[[Effect], Tensor | None]
    Of = Callable[[Tensor], Tensor]

__all__ = ["learned_numbers"]

_FORMS = 3
"""Functions of each kind that are given for a part of the logits."""
_ROWS, _KEYS = 16, 320
"""Rows that are looked at, and keys up to which a case is."""
_ANCHORS = 8
"""Keys that are taken for right ones in turn."""
_TOLERANCES = 4


class _Read(NamedTuple):
    """Rows of one sequence, all of its keys.

    Attributes:
        part: what a part of the logits is by its declared numbers, `[rows, keys]`.
        off: logit in effect minus the declared one, up to a number of each row.
        near: how far that may be wrong.
        told: bool, which pairs were read.
    """

    part: Tensor
    off: Tensor
    near: Tensor
    told: Tensor


def learned_numbers(effect: Effect) -> Iterator[Term]:
    """Each part of the logits with the numbers of other keys or rows, by functions that the deviation of the case allows."""
    deviation, case = deviation_of(effect), effect.scene.case
    if case.mask.packed is not None or case.seq_k > _KEYS:
        return
    if not bool(deviation.wrong.any()) or bool(deviation.hidden.any()):
        return
    for of_key, of_row, value in _parts(effect):
        whole = value(effect)
        if whole is None:
            continue
        whole = whole.expand_as(effect.weights)
        for axis, words, letter, allowed in (
            (3, of_key, "j", _keys(effect, whole)),
            (2, of_row, "i", _rows(effect, whole)),
        ):
            if allowed is None:
                continue
            found, told = allowed
            for form in chain(forms_within(found, told, _FORMS), pieces_within(found, told, _FORMS)):
                said = form.words.replace("{}", letter)
                yield Term(
                    words=words.format(said), kind="exchange", of=partial(_moved, value=value, of=form.of, axis=axis)
                )


def _parts(effect: Effect) -> Iterator[tuple[str, str, Value]]:
    """What a logit is made of: in words with another key or row, and its values `[B, Hq, Sq, Sk]`."""
    for name, words in BIASES:
        if getattr(effect.scene.problem, name) is not None:
            takes = f"{words} is that of" if name == "bias" else f"{words} counts"
            yield (
                f"{takes} key {{}}" if name == "bias" else f"{takes} the key as key {{}}",
                f"{takes} row {{}}" if name == "bias" else f"{takes} the row as row {{}}",
                partial(bias_of, name=name),
            )
    yield "each key's V has the product of key {}", "Q is that of row {}", _product


def _product(effect: Effect) -> Tensor | None:
    """Scaled products with the keys as they lie in memory, capped."""
    inputs = effect.scene.inputs
    whole = dataclasses.replace(inputs, k=effect.scene.problem.k.double().nan_to_num(0.0, 0.0, 0.0))
    return modified(products(whole), inputs, ())


def _moved(effect: Effect, value: Value, of: Of, axis: int) -> Tensor | None:
    """A part of the logits with other keys or rows less the declared one; None where a number leads out of it."""
    if effect.scene.case.mask.packed is not None:
        return None
    whole = value(effect)
    if whole is None:
        return None
    whole = whole.expand_as(effect.weights)
    to = of(torch.arange(whole.shape[axis]))
    if not to.numel() or int(to.min()) < 0 or int(to.max()) >= whole.shape[axis]:
        return None
    return whole.index_select(axis, to) - whole


def _keys(effect: Effect, whole: Tensor) -> tuple[Tensor, Tensor] | None:
    """Which keys may stand for each, bool `[keys, keys]`, and of which enough is known; None where no key is as declared."""
    read = _sequence(effect, whole)
    if read is None:
        return None
    most, level = 0, read.off[:, :1]
    for key in sorted(set(torch.linspace(0, read.off.shape[1] - 1, _ANCHORS).round().long().tolist())):
        mine = read.off[:, key : key + 1]
        known = read.told & read.told[:, key : key + 1]
        right = (((read.off - mine).abs() <= _TOLERANCES * read.near) | ~known).all(0) & known.any(0)
        if int(right.sum()) > most:
            most, level = int(right.sum()), mine.where(read.told[:, key : key + 1], torch.nan)
    if most < 2:
        return None
    read = read._replace(told=read.told & level.isfinite())
    in_effect = read.part + read.off - level.nan_to_num(0.0)
    apart = (in_effect.unsqueeze(2) - read.part.unsqueeze(1)).abs()  # [rows, keys, keys]
    found = ((apart <= _TOLERANCES * read.near.unsqueeze(2)) | ~read.told.unsqueeze(2)).all(0)
    return found, read.told.any(0)


def _rows(effect: Effect, whole: Tensor) -> tuple[Tensor, Tensor] | None:
    """Which rows may stand for each, bool `[rows, rows]`, and of which enough is known."""
    deviation = deviation_of(effect)
    b = int(deviation.read.flatten(1).sum(1).argmax())
    told = deviation.read[b] & torch.isfinite(deviation.off[b])  # [heads, rows, keys]
    if told.shape[1] < 2 or told.shape[1] > _KEYS // 4:
        return None
    in_effect = whole[b] + deviation.off[b].nan_to_num(0.0)
    near = _TOLERANCES * tolerance_of(effect).expand_as(effect.weights)[b]
    found = torch.zeros(told.shape[1], told.shape[1], dtype=torch.bool)
    for row in range(told.shape[1]):
        mine = told[:, row : row + 1]
        apart = torch.where(mine, in_effect[:, row : row + 1] - whole[b], 0.0)  # [heads, rows, keys]
        apart = apart - apart.sum(-1, keepdim=True) / mine.sum(-1, keepdim=True).clamp(min=1)
        found[row] = ((apart.abs() <= near[:, row : row + 1]) | ~mine).all(-1).all(0)
    return found, (told.sum(-1) > 1).any(0)


def _sequence(effect: Effect, whole: Tensor) -> _Read | None:
    """The rows of the sequence with the most pairs that were read; None of fewer than two keys."""
    deviation = deviation_of(effect)
    read = deviation.read & torch.isfinite(deviation.off)
    b = int(read.flatten(1).sum(1).argmax())
    count = int(effect.scene.at.key_limit[b].max())
    rows = read[b].sum(-1).flatten().argsort(descending=True)[:_ROWS]
    part, off, near, told = (
        x.expand_as(effect.weights)[b].flatten(0, 1)[rows][:, :count]
        for x in (whole, deviation.off, tolerance_of(effect), read)
    )
    return _Read(part, off.nan_to_num(0.0), near, told) if count > 1 else None
