"""Masks and biases of a problem as one tensor with an element for each pair of a row and a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.handed import copied

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["bias_of_pairs", "mask_of_pairs"]


def mask_of_pairs(problem: Problem) -> torch.Tensor | None:
    """`[B, 1 or Hq, Sq, Sk]` bool, true where the row sees the key; None where every row sees every key."""
    from flashverify.case.masks.predicate import visible

    case = problem.case
    see = visible(case, problem.q.device)
    return None if see is None else copied("mask", see(slice(0, case.seq_q), slice(0, case.seq_k)))


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
