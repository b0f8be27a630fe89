"""Masks and biases of a problem as one tensor with an element for each pair of a row and a key."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from flashverify.case.memory.handed import copied

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["bias_of_pairs", "mask_of_pairs"]


def mask_of_pairs(problem: Problem) -> torch.Tensor | None:
    """`[B, 1 or Hq, Sq, Sk]` bool, true where the row sees the key; None where every row sees every key."""
    import torch

    from flashverify.case.masks.predicate import visible_parts

    case = problem.case
    if not case.mask.parts():
        return None
    parts = visible_parts(case, problem.q.device)
    if problem.bitmap is not None:  # of keys in another order, or of some of them, it is given and not drawn
        parts["bitmap"] = problem.bitmap
    return copied("mask", reduce(torch.logical_and, parts.values()))


def bias_of_pairs(problem: Problem) -> torch.Tensor | None:
    """`[B or 1, 1 or Hq, Sq, Sk]` fp32, natural units: bias, ALiBi and relative bias added up; None where there is none of them."""
    from flashverify.case.masks.positions import positions

    terms = [] if problem.bias is None else [problem.bias.float()]
    if problem.slopes is not None or problem.relative_bias is not None:
        place = positions(problem.case, problem.q.device)
        distance = place.key[:, None, :] - (place.row + place.shift)[:, :, None]
        if problem.slopes is not None:
            terms.append(-problem.slopes.view(1, -1, 1, 1) * distance.abs().unsqueeze(1))
        if problem.relative_bias is not None and problem.distance_buckets is not None:
            reach = len(problem.distance_buckets) // 2
            bucket = problem.distance_buckets.long()[distance.clamp(-reach, reach) + reach]
            terms.append(problem.relative_bias[:, bucket].transpose(0, 1))
    if not terms:
        return None
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return copied("bias", total)
