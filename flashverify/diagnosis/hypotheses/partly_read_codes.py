"""Wrong semantics of codes of which some channels are not read, or whose scale counts in some partial results alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.code_reading import operand_codes
from flashverify.diagnosis.hypotheses.merging import pieces
from flashverify.diagnosis.hypotheses.quantised import read_as
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.code_reading import Reading
    from flashverify.diagnosis.observation import Scene

    Made = Iterator[tuple[str, tuple[Tensor, Tensor]]]

__all__ = ["PARTLY_READ_CODES"]

_WIDTHS = (16, 32, 64, 128)
_MIDDLE = 8.0
"""What fills the place of a code of 4 bits that is not read."""


def _channels(scene: Scene) -> Iterator[Alternative]:
    """Of K, of V or of both, as they have such channels."""
    how = scene.case.quantised
    if how is None:
        return
    codes = {name: operand_codes(scene.problem, name) for name in ("k", "v")}
    for width, of_zero, names in product(_WIDTHS, (True, False), (("k", "v"), ("k",), ("v",))):
        given = {name: _cut(codes[name], width, of_zero=of_zero) for name in names}
        if all(torch.equal(value, codes[name].value()[0]) for name, value in given.items()):
            continue
        words = "as the code of 0" if of_zero else "as 0"
        detail = f"of {' and '.join(names)}, those behind the last multiple of {width} count {words}"
        yield Alternative(inputs=replace(scene.inputs, **given), detail=detail)  # type: ignore[arg-type]


def _cut(x: Reading, width: int, *, of_zero: bool) -> Tensor:
    count = x.numbers.shape[-1]
    missing = torch.arange(count) >= (count // width * width if width <= max(count, _WIDTHS[0]) else count)
    filled = torch.full_like(x.zero, _MIDDLE if x.name == "int4" else 0.0) if of_zero else x.zero
    return x.value(numbers=torch.where(missing, filled, x.numbers))[0]


def _in_some_parts(x: Reading, scene: Scene) -> Made:
    """One scale of a head, or of all, that multiplies some of the partial results alone."""
    if x.groups.shape[2] != 1:
        return
    for piece in pieces(scene):
        if piece.shape[1] != 1 or bool((piece != piece[:, :, :1]).any()):
            continue  # cut otherwise for each row or head
        part = piece[:, :, 0].unsqueeze(-1)  # [B or 1, 1, Sk, 1]
        last = scene.form.n_splits - 1
        for kept, words in (
            (part == 0, "in the first one alone"),
            (part != 0, "in all but the first one"),
            (part == last, "in the last one alone"),
            (part != last, "in all but the last one"),
        ):
            yield words, x.value(scale=torch.where(kept, x.scale, 1.0))


PARTLY_READ_CODES = (
    Semantics(
        name="codes-of-some-channels-missing",
        sentence="the codes of the last channels are not read",
        build=_channels,
        one_way=True,
    ),
    Semantics(
        name="codes-scale-in-some-parts",
        sentence="the scale of the codes multiplies some of the partial results of the keys, not all",
        build=read_as(_in_some_parts),
    ),
)
