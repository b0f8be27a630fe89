"""The tensors of one vector: what a kernel is given, and what is asked of each output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.masks.predicate import visible
from flashverify.case.memory.materialize import materialize
from flashverify.case.tensors import TENSORS
from flashverify.checks.answers import answers_of
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject

__all__ = ["PAIR_LIMIT", "contents_of"]

PAIR_LIMIT = 1 << 24
"""Pairs of a row and a key, over all heads, that a vector may have: the mask and the oracle hold one element for each."""


def contents_of(subject: Subject, case: Case) -> dict[str, torch.Tensor]:
    """Every tensor of a vector by its name, contiguous, on the CPU.

    - `q`, `k`, `v`, `do`, `dlse` and the tensors of masks and modifiers, named and shaped as the fields of `Problem`.
    - `visible`, uint8 `[B, 1 or Hq, Sq, Sk]`: 1 where the row sees the key.
    - `keep`, uint8 `[B, Hq, Sq, Sk]`: 1 where dropout keeps the weight; with dropout alone.
    - `scale` and, where the case has them, `softcap` and `dropout_p`: float64 `[1]`, natural units.
    - `o.expected`, `o.bound` and `o.rule`, and likewise `lse`, `delta`, `dq`, `dk`, `dv` and the other gradients: see `answers_of`.
    """
    import torch

    problem, arena = materialize(case, "cpu")
    found = {name: tensor for name in TENSORS if (tensor := getattr(problem, name)) is not None}
    found["visible"] = _visible(problem)
    inputs, _ = inputs_of(problem)
    if case.dropout:
        found["keep"] = inputs.dense().keep.expand(*case.shape_o[:3], case.seq_k)
    for name, value in (("scale", problem.scale), ("softcap", problem.softcap), ("dropout_p", case.dropout or None)):
        if value is not None:
            found[name] = torch.tensor([value], dtype=torch.float64)
    for name, answer in answers_of(subject, problem).items():
        found |= {f"{name}.expected": answer.expected, f"{name}.bound": answer.bound, f"{name}.rule": answer.rule}
    written = {
        name: (tensor.to(torch.uint8) if tensor.dtype is torch.bool else tensor).contiguous().clone()
        for name, tensor in found.items()
    }
    del arena  # the memory of the problem, alive until here
    return written


def _visible(problem: Problem) -> torch.Tensor:
    import torch

    case = problem.case
    see = visible(case, "cpu")
    if see is None:
        return torch.ones(case.batch, 1, case.seq_q, case.seq_k, dtype=torch.uint8)
    return see(slice(0, case.seq_q), slice(0, case.seq_k)).expand(case.batch, -1, case.seq_q, case.seq_k)
