"""Draws of dropout by a generator of another number of rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["PHILOX_ROUNDS"]

_ROUNDS = (7, 6, 8, 9, 5, 12)
"""Those of other generators than Philox4x32-10; seven are the fewest that its authors recommend."""
_WORD = 2**32 - 1
_QUAD = 4
"""Neighbouring keys that share one Philox."""


def _other_rounds(scene: Scene) -> Iterator[Alternative]:
    case, at, p = scene.case, scene.at, scene.problem
    if not (case.dropout and case.seq_q and case.seq_k):
        return
    head = torch.arange(case.heads_q)[None, :, None, None]
    stream = at.row_sequence[:, None, :, None] * case.heads_q + head
    shape = (*case.shape_q[:3], case.seq_k)
    counter = [
        x.expand(shape).clone()
        for x in (
            (at.key // _QUAD)[:, None, None, :],
            at.row[:, None, :, None],
            stream,
            torch.full((1, 1, 1, 1), p.dropout_offset, dtype=torch.int64),
        )
    ]
    place = (at.key % _QUAD)[:, None, None, :].expand(shape)
    for rounds in _ROUNDS:
        words = _philox(counter, p.dropout_seed, rounds)
        word = torch.stack(words, -1).gather(-1, place.unsqueeze(-1)).squeeze(-1)
        kept = word >= int(case.dropout * 2**32)
        yield Alternative(inputs=replace(scene.inputs, keep=kept), detail=f"{rounds} rounds")


def _philox(counter: list[Tensor], seed: int, rounds: int) -> list[Tensor]:
    """The words of Philox4x32 after so many rounds."""
    a, b, c, d = counter
    left, right = seed & _WORD, seed >> 32
    for _ in range(rounds):
        (high_a, low_a), (high_c, low_c) = _product(0xD2511F53, a), _product(0xCD9E8D57, c)
        a, b, c, d = high_c ^ b ^ left, low_c, high_a ^ d ^ right, low_a
        left, right = (left + 0x9E3779B9) & _WORD, (right + 0xBB67AE85) & _WORD
    return [a, b, c, d]


def _product(factor: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """The halves of a product of 64 bits, which int64 does not hold as a whole."""
    low, high = factor * (x & 0xFFFF), factor * (x >> 16)
    middle = high + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


PHILOX_ROUNDS = (
    Semantics(
        name="dropout-rounds",
        sentence="the generator of the dropout draws takes another number of rounds than ten",
        build=_other_rounds,
        one_way=True,
    ),
)
